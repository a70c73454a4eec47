/* Beginning and end of every call, and the look-up of functions by name. */
#include "driver.h"

#include <string.h>

static CUresult check_needs(enum cu_needs needs) {
    CUresult result = CUDA_SUCCESS;
    if (needs >= INIT && !cu_is_initialised())
        result = CUDA_ERROR_NOT_INITIALIZED;
    if (needs >= CONTEXT && !result)
        result = cu_require_context();
    if (needs >= WAITING && !result)
        result = cu_check_legacy(cu_current());
    if (needs >= UNSAFE && !result)
        result = cu_check_unsafe();
    return result;
}

CUresult cu_enter(enum cu_call call) {
    const struct cu_call_info *info = cu_call_info(call);
    if (emu_is_orphan())
        return CUDA_ERROR_NOT_INITIALIZED;
    emu_lock();
    emu_clock_spend(info->cost);
    CUresult result = (CUresult)emu_call_count(call, info->needs == NOTHING && call != CALL_cuInit);
    if (!result)
        result = check_needs(info->needs);
    if (result)
        emu_unlock();
    return result;
}

CUresult cu_leave(CUresult result) {
    CUuserObject dead = cu_user_objects_dead();
    emu_unlock();
    cu_user_objects_bury(dead);
    return result;
}

CUresult cu_result(enum emu_status status) {
    switch (status) {
    case EMU_OK:
        return CUDA_SUCCESS;
    case EMU_NO_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case EMU_OWN_PROCESS:
        return CUDA_ERROR_INVALID_CONTEXT;
    case EMU_SYSTEM:
        return CUDA_ERROR_OPERATING_SYSTEM;
    case EMU_INVALID:
    case EMU_STALE:
    case EMU_REFUSED:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* The newest variant of `symbol` that `version` allows.  The name as exported finds it too, at any
 * version where it is not the common name, since it means that one variant. */
static const struct cu_call_info *find(const char *symbol, int version, bool *too_old) {
    const struct cu_call_info *best = NULL;
    *too_old = false;
    for (int call = 0; call < CU_CALLS; call++) {
        const struct cu_call_info *info = cu_call_info(call);
        if (strcmp(info->base, symbol)) {
            if (!strcmp(info->name, symbol))
                return info;
            continue;
        }
        if (info->version > version)
            *too_old = true;
        else if (!best || info->version > best->version)
            best = info;
    }
    return best;
}

static CUresult get_address(const char *symbol, void **function, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult *found) {
    bool too_old;
    if (!symbol || !function || version > CU_DRIVER_VERSION)
        return CUDA_ERROR_INVALID_VALUE;
    const struct cu_call_info *info = find(symbol, version, &too_old);
    *found = info      ? CU_GET_PROC_ADDRESS_SUCCESS
             : too_old ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *function = NULL;
    if (info)
        *function =
            flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? info->twin : info->function;
    return CUDA_SUCCESS;
}

CU_CALL(cuGetProcAddress, (const char *symbol, void **function, int version, cuuint64_t flags),
        (symbol, function, version, flags)) {
    CUdriverProcAddressQueryResult found;
    CUresult result = get_address(symbol, function, version, flags, &found);
    return !result && found ? CUDA_ERROR_NOT_FOUND : result;
}

/* A missing symbol is a success with NULL: CUDA Driver API, "Driver Entry Point Access". */
CU_CALL(cuGetProcAddress_v2,
        (const char *symbol, void **function, int version, cuuint64_t flags,
         CUdriverProcAddressQueryResult *status),
        (symbol, function, version, flags, status)) {
    CUdriverProcAddressQueryResult found;
    CUresult result = get_address(symbol, function, version, flags, &found);
    if (!result && status)
        *status = found;
    return result;
}
