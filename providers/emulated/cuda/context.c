/* Contexts, and which one is current on each thread. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define DEEPEST 128

static struct CUctx_st primaries[EMU_DEVICES];

/* Entries keep the id too: a context's address may be used again. */
static _Thread_local struct {
    int depth;
    struct {
        CUcontext context;
        uint64_t id;
    } entries[DEEPEST];
} stack;

CUcontext cu_find_context(CUcontext context) {
    CUcontext found = emu_find_handle(EMU_CONTEXT, context);
    return found ? found : emu_find_handle(EMU_PRIMARY, context);
}

static CUcontext top(void) { return stack.depth ? stack.entries[stack.depth - 1].context : NULL; }

CUcontext cu_current(void) {
    CUcontext context = cu_find_context(top());
    return context && context->id == stack.entries[stack.depth - 1].id ? context : NULL;
}

CUresult cu_require_context(void) {
    if (cu_current())
        return CUDA_SUCCESS;
    return top() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult push(CUcontext context) {
    if (stack.depth == DEEPEST)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack.entries[stack.depth].context = context;
    stack.entries[stack.depth++].id = context->id;
    return CUDA_SUCCESS;
}

static void context_init(CUcontext context, CUdevice device, unsigned flags) {
    static const size_t limits[CU_LIMITS] = {1024, 1048576, 8388608, 2, 2048, 64};
    context->device = device;
    context->flags = flags;
    memcpy(context->limits, limits, sizeof limits);
    cu_stream_init(&context->legacy, context, 0, 0);
    cu_stream_init(&context->per_thread, context, 0, 0);
}

/* Destroying a context takes with it everything that was made in it. */
static void context_close(CUcontext context) {
    emu_device_finish((unsigned)context->device);
    cu_free_owned(context);
    emu_remove(&context->object);
}

void cu_contexts_close(void) {
    for (CUcontext context; (context = (CUcontext)emu_first(EMU_CONTEXT));) {
        context_close(context);
        free(context);
    }
}

/* Primary contexts: one for each device, counted.  Its handle stays the same for good, so that
 * a thread that still has it as current sees it again when it is retained again. */

static CUresult check_device(CUdevice device) {
    return cu_is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CU_CALL(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device)) {
    if (!context || check_device(device))
        return context ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    CUcontext primary = &primaries[device];
    if (primary->references++ == 0) {
        if (!primary->id)
            primary->id = cu_next_id();
        primary->primary = true;
        context_init(primary, device, primary->flags);
        emu_add_handle(&primary->object, EMU_PRIMARY, 0, NULL);
    }
    *context = primary;
    return CUDA_SUCCESS;
}

CU_CALL(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device)) {
    if (check_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext primary = &primaries[device];
    if (!primary->references)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary->references == 0)
        context_close(primary);
    return CUDA_SUCCESS;
}

CU_CALL(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device)) {
    if (check_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext primary = &primaries[device];
    if (primary->references)
        context_close(primary);
    primary->references = 0;
    return CUDA_SUCCESS;
}

CU_CALL(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned flags), (device, flags)) {
    if (check_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    primaries[device].flags = flags;
    return CUDA_SUCCESS;
}

CU_CALL(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active),
        (device, flags, active)) {
    if (check_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = primaries[device].flags;
    *active = primaries[device].references != 0;
    return CUDA_SUCCESS;
}

/* Other contexts. */

static CUresult create(CUcontext *context, unsigned flags, CUdevice device) {
    if (!context || (flags & ~CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    if (check_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->id = cu_next_id();
    CUresult result = push(made);
    if (result) {
        free(made);
        return result;
    }
    context_init(made, device, flags);
    emu_add_handle(&made->object, EMU_CONTEXT, 0, NULL);
    *context = made;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device),
        (context, flags, device)) {
    return create(context, flags, device);
}

/* Execution affinity and graphics interoperation (v3, v4) are not built: they must be absent. */
CU_CALL(cuCtxCreate_v3,
        (CUcontext * context, void *affinity, int count, unsigned flags, CUdevice device),
        (context, affinity, count, flags, device)) {
    if (affinity || count)
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(context, flags, device);
}

struct create_parameters {
    void *affinity;
    int count;
    void *graphics;
};

CU_CALL(cuCtxCreate_v4,
        (CUcontext * context, struct create_parameters *parameters, unsigned flags,
         CUdevice device),
        (context, parameters, flags, device)) {
    if (parameters && (parameters->count || parameters->graphics))
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(context, flags, device);
}

CU_CALL(cuCtxDestroy_v2, (CUcontext context), (context)) {
    if (!emu_find_handle(EMU_CONTEXT, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (top() == context && cu_current() == context)
        stack.depth--;
    context_close(context);
    free(context);
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxPushCurrent_v2, (CUcontext context), (context)) {
    return cu_find_context(context) ? push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CU_CALL(cuCtxPopCurrent_v2, (CUcontext * context), (context)) {
    if (!stack.depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context)
        *context = top();
    stack.depth--;
    return CUDA_SUCCESS;
}

/* Replaces the top of the stack; with NULL, removes it. */
CU_CALL(cuCtxSetCurrent, (CUcontext context), (context)) {
    if (context && !cu_find_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stack.depth)
        stack.depth--;
    return context ? push(context) : CUDA_SUCCESS;
}

CU_CALL(cuCtxGetCurrent, (CUcontext * context), (context)) {
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = top();
    return CUDA_SUCCESS;
}

/* The context meant by a call that takes one, NULL standing for the current one. */
static CUresult select_context(CUcontext *context) {
    CUresult result = *context ? CUDA_SUCCESS : cu_require_context();
    if (!result)
        *context = *context ? cu_find_context(*context) : cu_current();
    return result || *context ? result : CUDA_ERROR_INVALID_CONTEXT;
}

CU_CALL(cuCtxGetDevice, (CUdevice * device), (device)) {
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = cu_current()->device;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxGetDevice_v2, (CUdevice * device, CUcontext context), (device, context)) {
    CUresult result = select_context(&context);
    if (result || !device)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxGetFlags, (unsigned *flags), (flags)) {
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = cu_current()->flags;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxSetFlags, (unsigned flags), (flags)) {
    if (flags & ~CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    cu_current()->flags = flags;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxGetId, (CUcontext context, unsigned long long *id), (context, id)) {
    CUresult result = select_context(&context);
    if (result || !id)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *id = context->id;
    return CUDA_SUCCESS;
}

static CUresult synchronise(CUcontext context) {
    CUresult result = cu_check_context(context);
    if (!result)
        result = cu_check_unsafe();
    if (result)
        return result;
    emu_device_finish((unsigned)context->device);
    cu_waited();
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxSynchronize, (void), ()) { return synchronise(cu_current()); }

CU_CALL(cuCtxSynchronize_v2, (CUcontext context), (context)) {
    CUresult result = select_context(&context);
    return result ? result : synchronise(context);
}

CU_CALL(cuCtxSetLimit, (unsigned limit, size_t value), (limit, value)) {
    if (limit >= CU_LIMITS)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    cu_current()->limits[limit] = value;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxGetLimit, (size_t *value, unsigned limit), (value, limit)) {
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit >= CU_LIMITS)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = cu_current()->limits[limit];
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxGetCacheConfig, (int *configuration), (configuration)) {
    if (!configuration)
        return CUDA_ERROR_INVALID_VALUE;
    *configuration = cu_current()->cache;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxSetCacheConfig, (int configuration), (configuration)) {
    cu_current()->cache = configuration;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxGetSharedMemConfig, (int *configuration), (configuration)) {
    if (!configuration)
        return CUDA_ERROR_INVALID_VALUE;
    *configuration = cu_current()->shared_config;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxSetSharedMemConfig, (int configuration), (configuration)) {
    cu_current()->shared_config = configuration;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxGetApiVersion, (CUcontext context, unsigned *version), (context, version)) {
    CUresult result = select_context(&context);
    if (result || !version)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest)) {
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxResetPersistingL2Cache, (void), ()) { return CUDA_SUCCESS; }

CU_CALL(cuCtxGetExecAffinity, (void *affinity, int type), (affinity, type)) {
    (void)affinity, (void)type;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Peer access is remembered, so that enabling twice and disabling never are errors as they are on
 * hardware; copies between devices work without it, as they do there. */

CU_CALL(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags)) {
    CUcontext context = cu_current();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cu_find_context(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == context->device)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (context->peers & 1u << peer->device)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context->peers |= 1u << peer->device;
    return CUDA_SUCCESS;
}

CU_CALL(cuCtxDisablePeerAccess, (CUcontext peer), (peer)) {
    CUcontext context = cu_current();
    if (!cu_find_context(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!(context->peers & 1u << peer->device))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers &= ~(1u << peer->device);
    return CUDA_SUCCESS;
}
