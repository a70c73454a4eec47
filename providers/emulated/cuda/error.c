/* Names and words for results. */
#include "driver.h"

static const struct {
    int code;
    const char *name, *words;
} errors[] = {
#define ERROR(name, number, words) {number, #name, words},
#include "errors.def"
#undef ERROR
};

static int find(CUresult code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == (int)code)
            return (int)i;
    return -1;
}

CU_CALL(cuGetErrorName, (CUresult code, const char **name), (code, name)) {
    int i = find(code);
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = i < 0 ? NULL : errors[i].name;
    return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CU_CALL(cuGetErrorString, (CUresult code, const char **words), (code, words)) {
    int i = find(code);
    if (!words)
        return CUDA_ERROR_INVALID_VALUE;
    *words = i < 0 ? NULL : errors[i].words;
    return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
