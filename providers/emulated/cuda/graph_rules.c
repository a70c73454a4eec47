/* What open captures forbid.  Whatever is refused for a capture's sake invalidates it: CUDA C++
 * Programming Guide, "Invalidation" of stream captures. */
#include "driver.h"

#include <stdio.h>

static _Thread_local CUstreamCaptureMode thread_mode;

uint64_t cu_this_thread(void) {
    static uint64_t last;
    static _Thread_local uint64_t mine;
    if (!mine)
        mine = ++last;
    return mine;
}

CU_CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode)) {
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode previous = thread_mode;
    thread_mode = *mode;
    *mode = previous;
    return CUDA_SUCCESS;
}

/* cuThreadExchangeStreamCaptureMode: a thread's own captures bind it unless they are relaxed; those
 * of other threads, where both sides are global; nothing binds a relaxed thread. */
static bool binds_this_thread(const struct cu_capture *capture) {
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->thread == cu_this_thread())
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/* "Potentially unsafe": what happens now, unseen by a capture that goes on.  CUDA names cudaMalloc;
 * that asking for an event is one is known from PyTorch, whose watchdog thread broke captures so
 * (its pull request 104555).  Taken for the same kind here: freeing, host memory, copies and sets
 * that wait, and waiting for a stream or asking for it. */
CUresult cu_check_unsafe(void) {
    CUresult result = CUDA_SUCCESS;
    for (struct cu_capture *capture = cu_captures; capture; capture = capture->next)
        if (binds_this_thread(capture)) {
            capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

bool cu_is_legacy(CUstream stream) { return stream == &stream->context->legacy; }

/* Does the capture have a stream of this context, and one that the legacy stream waits for? */
static bool is_in(const struct cu_capture *capture, CUcontext context, bool blocking) {
    for (CUstream stream = capture->streams; stream; stream = stream->capturing.next)
        if (stream->context == context && !(blocking && (stream->flags & CU_STREAM_NON_BLOCKING)))
            return true;
    return false;
}

bool cu_legacy_is_blocked(CUcontext context) {
    for (struct cu_capture *capture = cu_captures; capture; capture = capture->next)
        if (is_in(capture, context, true))
            return true;
    return false;
}

static CUresult refuse_in(CUcontext context, bool blocking, CUresult refusal) {
    CUresult result = CUDA_SUCCESS;
    for (struct cu_capture *capture = cu_captures; capture; capture = capture->next)
        if (is_in(capture, context, blocking)) {
            capture->invalid = true;
            result = refusal;
        }
    return result;
}

/* In every mode: the legacy stream would depend on what is captured. */
CUresult cu_check_legacy(CUcontext context) {
    return refuse_in(context, true, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

/* In every mode: a context stands for its streams, also for those that capture. */
CUresult cu_check_context(CUcontext context) {
    return refuse_in(context, false, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult cu_check_use(CUstream stream) {
    if (cu_is_legacy(stream))
        return cu_check_legacy(stream->context);
    bool invalid = stream->capturing.in && stream->capturing.in->invalid;
    return invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult cu_check_outside(CUstream stream) {
    if (!stream->capturing.in)
        return CUDA_SUCCESS;
    stream->capturing.in->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cu_check_event(CUevent event) {
    if (!event->capture)
        return cu_check_unsafe();
    for (struct cu_capture *capture = cu_captures; capture; capture = capture->next)
        if (capture->id == event->capture)
            capture->invalid = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult cu_not_captured(CUstream stream, int call) {
    static bool said[CU_CALLS];
    if (!said[call])
        fprintf(stderr, "umfpy emulated CUDA: %s in a capture is not built\n",
                cu_call_info(call)->name);
    said[call] = true;
    stream->capturing.in->invalid = true;
    return CUDA_ERROR_NOT_SUPPORTED;
}
