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

CU_CALL_PTSZ(cuStreamQuery, (CUstream stream), (stream)) { return cu_find_stream(stream, &stream); }

CU_CALL_PTSZ(cuStreamSynchronize, (CUstream stream), (stream)) {
    CUresult result = cu_find_stream(stream, &stream);
    if (!result) {
        emu_queue_finish(&stream->queue);
        cu_waited();
    }
    return result;
}

CU_CALL_PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),
             (stream, event, flags)) {
    CUresult result = cu_find_stream(stream, &stream);
    if (result || !emu_find_handle(EMU_EVENT, event))
        return result ? result : CUDA_ERROR_INVALID_HANDLE;
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
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
CU_STREAM_GETTER(cuStreamIsCapturing, int, 0)

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

/* Capture is not built: no stream ever captures, and that is the whole answer. */
CU_CALL_PTSZ(cuStreamGetCaptureInfo_v2,
             (CUstream stream, int *status, cuuint64_t *id, CUgraph *graph,
              const void **dependencies, size_t *count),
             (stream, status, id, graph, dependencies, count)) {
    (void)id, (void)graph, (void)dependencies, (void)count;
    CUresult result = cu_find_stream(stream, &stream);
    if (result || !status)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *status = 0;
    return CUDA_SUCCESS;
}

CU_CALL_PTSZ(cuStreamGetCaptureInfo_v3,
             (CUstream stream, int *status, cuuint64_t *id, CUgraph *graph,
              const void **dependencies, const void **edges, size_t *count),
             (stream, status, id, graph, dependencies, edges, count)) {
    (void)id, (void)graph, (void)dependencies, (void)edges, (void)count;
    CUresult result = cu_find_stream(stream, &stream);
    if (result || !status)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *status = 0;
    return CUDA_SUCCESS;
}

CU_CALL(cuThreadExchangeStreamCaptureMode, (int *mode), (mode)) {
    static _Thread_local int current;
    if (!mode || *mode < 0 || *mode > 2)
        return CUDA_ERROR_INVALID_VALUE;
    int previous = current;
    current = *mode;
    *mode = previous;
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
    CUresult result = cu_find_stream(stream, &stream);
    if (result || !function)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
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
    CUresult result = cu_find_stream(stream, &found);
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
    CUresult result = cu_find_stream(stream, &stream);
    if (result || !emu_memory_at(EMU_MANAGED, address))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
