/* Functions that programs call without looking them up first, and that are not built.
 *
 * They say so once, by name, and answer CUDA_ERROR_NOT_SUPPORTED.  cuGetProcAddress does not know
 * them: whoever asks there is told that they do not exist.
 */
#include "driver.h"

#include <stdatomic.h>
#include <stdio.h>

static CUresult refuse(const char *name, atomic_flag *said) {
    if (!atomic_flag_test_and_set(said))
        fprintf(stderr, "umfpy emulated CUDA: %s is not built\n", name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define NOT_BUILT(name)                                                                            \
    EMU_PUBLIC CUresult name(void);                                                                \
    CUresult name(void) {                                                                          \
        static atomic_flag said = ATOMIC_FLAG_INIT;                                                \
        return refuse(#name, &said);                                                               \
    }

NOT_BUILT(cuLaunchKernel)
NOT_BUILT(cuLaunchKernelEx)
NOT_BUILT(cuLaunchCooperativeKernel)
NOT_BUILT(cuModuleLoad)
NOT_BUILT(cuModuleLoadData)
NOT_BUILT(cuModuleLoadDataEx)
NOT_BUILT(cuModuleLoadFatBinary)
NOT_BUILT(cuLibraryLoadData)
NOT_BUILT(cuLinkCreate_v2)
NOT_BUILT(cuGraphAddKernelNode_v2)
NOT_BUILT(cuGraphAddHostNode)
NOT_BUILT(cuGraphAddChildGraphNode)
NOT_BUILT(cuGraphAddMemAllocNode)
NOT_BUILT(cuGraphAddMemFreeNode)
NOT_BUILT(cuGraphExecUpdate_v2)
NOT_BUILT(cuArrayCreate_v2)
