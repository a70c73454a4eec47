/* Events: marks in streams, timed on the virtual clock. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define EVENT_FLAGS 0x7u

void cu_event_free(CUevent event) {
    if (event->export)
        emu_export_withdraw(event->export);
    cu_nodes_clear(&event->came_last);
    emu_remove(&event->object);
    free(event);
}

static CUresult create(CUevent *event, unsigned flags) {
    CUevent made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = cu_current();
    made->flags = flags;
    emu_add_handle(&made->object, EMU_EVENT, 0, cu_current());
    *event = made;
    return CUDA_SUCCESS;
}

/* An event for other processes cannot time: CUDA Driver API, cuIpcGetEventHandle. */
CU_CALL(cuEventCreate, (CUevent * event, unsigned flags), (event, flags)) {
    bool shared_and_timing = (flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING);
    if (!event || (flags & ~EVENT_FLAGS) || shared_and_timing)
        return CUDA_ERROR_INVALID_VALUE;
    return create(event, flags);
}

static CUevent find(CUevent event) { return emu_find_handle(EMU_EVENT, event); }

CU_CALL(cuEventDestroy_v2, (CUevent event), (event)) {
    if (!find(event))
        return CUDA_ERROR_INVALID_HANDLE;
    cu_event_free(event);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream) {
    CUresult result = cu_use_stream(stream, &stream);
    if (result || !find(event) || event->context != stream->context)
        return result ? result : CUDA_ERROR_INVALID_HANDLE;
    if (stream->capturing.in)
        return cu_capture_record(event, stream);
    event->capture = 0;
    emu_queue_wait_for(&stream->queue, emu_clock_now());
    event->moment = stream->queue.end;
    event->recorded = true;
    return CUDA_SUCCESS;
}

CU_CALL_PTSZ(cuEventRecord, (CUevent event, CUstream stream), (event, stream)) {
    return record(event, stream);
}

CU_CALL_PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),
             (event, stream, flags)) {
    CUstream found;
    CUresult result = flags > 1 ? CUDA_ERROR_INVALID_VALUE : cu_find_stream(stream, &found);
    if (!result && flags) /* a node that records: for captures only */
        result = found->capturing.in ? cu_not_captured(found, CALL_cuEventRecordWithFlags)
                                     : CUDA_ERROR_INVALID_VALUE;
    return result ? result : record(event, stream);
}

CU_CALL(cuEventQuery, (CUevent event), (event)) {
    return find(event) ? cu_check_event(event) : CUDA_ERROR_INVALID_HANDLE;
}

CU_CALL(cuEventSynchronize, (CUevent event), (event)) {
    if (!find(event))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = cu_check_event(event);
    if (result)
        return result;
    emu_clock_reach(event->moment);
    cu_waited();
    return CUDA_SUCCESS;
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end) {
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (find(start) && find(end) && (start->capture || end->capture))
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!find(start) || !find(end) || !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = (float)((double)(int64_t)(end->moment - start->moment) / 1e6);
    return CUDA_SUCCESS;
}

CU_CALL(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end),
        (milliseconds, start, end)) {
    return elapsed(milliseconds, start, end);
}

CU_CALL(cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent end),
        (milliseconds, start, end)) {
    return elapsed(milliseconds, start, end);
}

/* Across processes.  What another process recorded is always done already, so that the handle
 * only has to prove that the event exists. */

CU_CALL(cuIpcGetEventHandle, (CUipcEventHandle * handle, CUevent event), (handle, event)) {
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (!find(event) || !(event->flags & CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_HANDLE;
    struct emu_file *file;
    enum emu_status status = emu_device_file((unsigned)event->context->device, &file);
    if (!status && !event->export)
        status = emu_export_enter(file, EMU_SLOT_EVENT, 0, 0, &event->export);
    return cu_result(status ? status : emu_handle_write(event->export, handle->reserved));
}

CU_CALL(cuIpcOpenEventHandle, (CUevent * event, CUipcEventHandle handle), (event, handle)) {
    if (!event)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cu_result(emu_check_event(handle.reserved));
    return result ? result : create(event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
}
