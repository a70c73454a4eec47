/* Streams.  Work is done when it is submitted (model/queue.h), so that a stream is never busy;
 * the order of things shows on the virtual clock. */
#include "driver.h"

#include <stdlib.h>

uint64_t cu_next_id(void) {
    static uint64_t last;
    return ++last;
}

void cu_waited(void) { emu_pools_waited(); }

void cu_stream_init(CUstream stream, CUcontext context, unsigned flags, int priority) {
    stream->queue = (struct emu_queue){.device = (unsigned)context->device};
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = cu_next_id();
}

void cu_stream_free(CUstream stream) {
    cu_capture_leave(stream);
    emu_remove(&stream->object);
    free(stream);
}

CUresult cu_find_stream(CUstream handle, CUstream *stream) {
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        CUresult result = cu_require_context();
        if (result)
            return result;
        CUcontext context = cu_current();
        *stream = handle == CU_STREAM_PER_THREAD ? &context->per_thread : &context->legacy;
        return CUDA_SUCCESS;
    }
    *stream = emu_find_handle(EMU_STREAM, handle);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult create(CUstream *stream, unsigned flags, int priority) {
    if (!stream || (flags & ~CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    CUstream made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    cu_stream_init(made, cu_current(), flags, priority);
    emu_add_handle(&made->object, EMU_STREAM, 0, cu_current());
    *stream = made;
    return CUDA_SUCCESS;
}

CU_CALL(cuStreamCreate, (CUstream * stream, unsigned flags), (stream, flags)) {
    return create(stream, flags, 0);
}

CU_CALL(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority),
        (stream, flags, priority)) {
    return create(stream, flags, priority);
}

CU_CALL(cuStreamDestroy_v2, (CUstream stream), (stream)) {
    CUstream found = emu_find_handle(EMU_STREAM, stream);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    cu_stream_free(found);
    return CUDA_SUCCESS;
}

CUresult cu_use_stream(CUstream handle, CUstream *stream) {
    CUresult result = cu_find_stream(handle, stream);
    return result ? result : cu_check_use(*stream);
}

/* To ask what a stream has done, or to wait for it. */
static CUresult look_at_stream(CUstream handle, CUstream *stream) {
    CUresult result = cu_use_stream(handle, stream);
    if (!result)
        result = cu_check_outside(*stream);
    return result ? result : cu_check_unsafe();
}

CU_CALL_PTSZ(cuStreamQuery, (CUstream stream), (stream)) { return look_at_stream(stream, &stream); }

CU_CALL_PTSZ(cuStreamSynchronize, (CUstream stream), (stream)) {
    CUresult result = look_at_stream(stream, &stream);
    if (!result) {
        emu_queue_finish(&stream->queue);
        cu_waited();
    }
    return result;
}

CU_CALL_PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),
             (stream, event, flags)) {
    CUresult result = cu_use_stream(stream, &stream);
    if (result || !emu_find_handle(EMU_EVENT, event))
        return result ? result : CUDA_ERROR_INVALID_HANDLE;
    if (flags > 1 || (flags && !stream->capturing.in))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags) /* a node that waits */
        return cu_not_captured(stream, CALL_cuStreamWaitEvent);
    if (stream->capturing.in || event->capture)
        return cu_capture_wait(stream, event);
    emu_queue_wait_for(&stream->queue, event->moment);
    return CUDA_SUCCESS;
}

/* A getter: find the stream, check the place for the answer, answer. */
#define CU_STREAM_GETTER(name, type, expression)                                                   \
    CU_CALL_PTSZ(name, (CUstream stream, type * value), (stream, value)) {                         \
        CUresult found = cu_find_stream(stream, &stream);                                          \
        if (found || !value)                                                                       \
            return found ? found : CUDA_ERROR_INVALID_VALUE;                                       \
        *value = (expression);                                                                     \
        return CUDA_SUCCESS;                                                                       \
    }

CU_STREAM_GETTER(cuStreamGetCtx, CUcontext, stream->context)
CU_STREAM_GETTER(cuStreamGetDevice, CUdevice, stream->context->device)
CU_STREAM_GETTER(cuStreamGetFlags, unsigned, stream->flags)
CU_STREAM_GETTER(cuStreamGetPriority, int, stream->priority)
CU_STREAM_GETTER(cuStreamGetId, unsigned long long, stream->id)

CU_CALL_PTSZ(cuStreamGetCtx_v2, (CUstream stream, CUcontext *context, CUgreenCtx *green),
             (stream, context, green)) {
    CUresult result = cu_find_stream(stream, &stream);
    if (result || !context)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *context = stream->context;
    if (green)
        *green = NULL;
    return CUDA_SUCCESS;
}

static CUresult submit_call(CUstream stream, void (*function)(void *), void *data) {
    struct emu_work work = {.kind = EMU_WORK_CALL, .cost = 1000};
    work.call.function = function;
    work.call.data = data;
    return cu_result(emu_queue_submit(&stream->queue, &work));
}

CU_CALL_PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data),
             (stream, function, data)) {
    CUresult result = cu_use_stream(stream, &stream);
    if (result || !function)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (stream->capturing.in)
        return cu_not_captured(stream, CALL_cuLaunchHostFunc);
    return submit_call(stream, function, data);
}

struct callback {
    CUstreamCallback function;
    CUstream stream;
    void *data;
};

static void run_callback(void *data) {
    struct callback callback = *(struct callback *)data;
    free(data);
    callback.function(callback.stream, CUDA_SUCCESS, callback.data);
}

CU_CALL_PTSZ(cuStreamAddCallback,
             (CUstream stream, CUstreamCallback function, void *data, unsigned flags),
             (stream, function, data, flags)) {
    CUstream found;
    CUresult result = cu_use_stream(stream, &found);
    if (!result)
        result = cu_check_outside(found);
    if (result || !function || flags)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct callback *callback = malloc(sizeof *callback);
    if (!callback)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){function, stream, data};
    return submit_call(found, run_callback, callback);
}

CU_CALL_PTSZ(cuStreamAttachMemAsync,
             (CUstream stream, CUdeviceptr address, size_t length, unsigned flags),
             (stream, address, length, flags)) {
    (void)length, (void)flags;
    CUresult result = cu_use_stream(stream, &stream);
    if (!result)
        result = cu_check_outside(stream);
    if (result || !emu_memory_at(EMU_MANAGED, address))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
