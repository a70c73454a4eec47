/* The table of all functions.  Only their addresses are taken: the parameters stand where each
 * function is written, in a file of its own, so that this one may declare them without. */
#include "driver.h"

#define TWIN_ONE(name) name
#define TWIN_PTSZ(name) name##_ptsz
#define TWIN_PTDS(name) name##_ptds
#define DECLARE_ONE(name) void name(void);
#define DECLARE_PTSZ(name) void name(void), name##_ptsz(void);
#define DECLARE_PTDS(name) void name(void), name##_ptds(void);

#define CALL(name, base, version, needs, cost, twin) DECLARE_##twin(name)
#include "calls.def"
#undef CALL

static const struct cu_call_info calls[] = {
#define CALL(name, base, version, needs, cost, twin)                                               \
    {#name,                                                                                        \
     #base,                                                                                        \
     version,                                                                                      \
     needs,                                                                                        \
     cost,                                                                                         \
     (void *)(uintptr_t)name,                                                                      \
     (void *)(uintptr_t)TWIN_##twin(name)},
#include "calls.def"
#undef CALL
};

_Static_assert(CU_CALLS <= EMU_CALLS, "the model counts that many calls");

const struct cu_call_info *cu_call_info(int call) {
    return call >= 0 && call < CU_CALLS ? &calls[call] : NULL;
}
