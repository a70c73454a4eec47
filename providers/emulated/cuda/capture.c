/* Captures: begun, written, ended, asked for. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

struct cu_capture *cu_captures;

static CUresult begin(CUstream stream, CUstreamCaptureMode mode) {
    struct cu_capture *capture = calloc(1, sizeof *capture);
    CUgraph graph = capture ? cu_graph_new(false) : NULL;
    if (!graph) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    graph->capturing = true;
    *capture = (struct cu_capture){.next = cu_captures,
                                   .id = cu_next_id(),
                                   .thread = cu_this_thread(),
                                   .mode = mode,
                                   .graph = graph,
                                   .origin = stream};
    cu_captures = capture;
    cu_capture_join(capture, stream);
    return CUDA_SUCCESS;
}

/* The legacy stream cannot be captured, nor one that is being captured.  CUDA does not document the
 * error for the latter; ILLEGAL_STATE is what AMD's public tests of the same interface expect. */
CU_CALL_PTSZ(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode)) {
    CUresult result = cu_find_stream(stream, &stream);
    if (result)
        return result;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (cu_is_legacy(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return stream->capturing.in ? CUDA_ERROR_ILLEGAL_STATE : begin(stream, mode);
}

CUresult cu_submit(CUstream stream, const struct emu_work *work) {
    struct cu_capturing *capturing = &stream->capturing;
    if (!capturing->in)
        return cu_result(emu_queue_submit(&stream->queue, work));
    CUresult result = cu_result(emu_work_check(work));
    if (result)
        return result;
    struct cu_task task = {work->kind == EMU_WORK_COPY ? CU_GRAPH_NODE_TYPE_MEMCPY
                                                       : CU_GRAPH_NODE_TYPE_MEMSET,
                           stream->queue.device, *work};
    struct cu_nodes last = {0};
    CUgraphNode node = cu_graph_add(capturing->in->graph, &task, &capturing->last);
    if (!node || !cu_nodes_add(&last, node)) {
        capturing->in->invalid = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->captured = true;
    cu_nodes_clear(&capturing->last);
    capturing->last = last;
    return CUDA_SUCCESS;
}

static void take_out(CUstream stream) {
    CUstream *link = &stream->capturing.in->streams;
    while (*link != stream)
        link = &(*link)->capturing.next;
    *link = stream->capturing.next;
    cu_nodes_clear(&stream->capturing.last);
    free(stream->capturing.edges);
    stream->capturing = (struct cu_capturing){0};
}

/* Every stream goes on as if nothing had been captured; the graph is the caller's. */
static CUgraph close_capture(struct cu_capture *capture) {
    CUgraph graph = capture->graph;
    while (capture->streams)
        take_out(capture->streams);
    struct cu_capture **link = &cu_captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    free(capture);
    graph->capturing = false;
    return graph;
}

/* Without its origin a capture cannot be ended; what another stream put in it stays. */
void cu_capture_leave(CUstream stream) {
    struct cu_capture *capture = stream->capturing.in;
    if (capture && capture->origin == stream)
        cu_graph_free(close_capture(capture));
    else if (capture)
        take_out(stream);
}

/* Being called for another stream or by another thread does no harm: a choice. */
static CUresult check_end(CUstream stream) {
    const struct cu_capture *capture = stream->capturing.in;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != cu_this_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    return CUDA_SUCCESS;
}

/* A capture that failed ends too, and there is no graph. */
CU_CALL_PTSZ(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph)) {
    CUresult result = cu_find_stream(stream, &stream);
    if (result || !graph)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    result = check_end(stream);
    if (result)
        return result;
    if (stream->capturing.in->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!cu_capture_all_joined(stream->capturing.in))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = close_capture(stream->capturing.in);
    if (result) {
        cu_graph_free(*graph);
        *graph = NULL;
    }
    return result;
}

/* Asking for the legacy stream while it is blocked is an error that invalidates nothing:
 * cuStreamIsCapturing. */
static CUresult ask(CUstream handle, CUstream *stream, int *status) {
    CUresult result = cu_find_stream(handle, stream);
    if (result || !status)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (cu_is_legacy(*stream) && cu_legacy_is_blocked((*stream)->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    const struct cu_capture *capture = (*stream)->capturing.in;
    *status = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CU_CALL_PTSZ(cuStreamIsCapturing, (CUstream stream, int *status), (stream, status)) {
    return ask(stream, &stream, status);
}

/* Plain edges, all zeros, one for each of the nodes that come last. */
static CUresult give_edges(struct cu_capturing *capturing, const CUgraphEdgeData **edges) {
    size_t count = capturing->last.count ? capturing->last.count : 1;
    CUgraphEdgeData *zeros = calloc(count, sizeof *zeros);
    if (!zeros)
        return CUDA_ERROR_OUT_OF_MEMORY;
    free(capturing->edges);
    *edges = capturing->edges = zeros;
    return CUDA_SUCCESS;
}

static CUresult tell(CUstream handle, int *status, cuuint64_t *id, CUgraph *graph,
                     const CUgraphNode **last, const CUgraphEdgeData **edges, size_t *count) {
    CUstream stream;
    CUresult result = edges && !last ? CUDA_ERROR_INVALID_VALUE : ask(handle, &stream, status);
    if (result || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return result;
    struct cu_capturing *capturing = &stream->capturing;
    if (id)
        *id = capturing->in->id;
    if (graph)
        *graph = capturing->in->graph;
    if (last)
        *last = capturing->last.list;
    if (count)
        *count = capturing->last.count;
    return edges ? give_edges(capturing, edges) : CUDA_SUCCESS;
}

CU_CALL_PTSZ(cuStreamGetCaptureInfo_v2,
             (CUstream stream, int *status, cuuint64_t *id, CUgraph *graph,
              const CUgraphNode **last, size_t *count),
             (stream, status, id, graph, last, count)) {
    return tell(stream, status, id, graph, last, NULL, count);
}

CU_CALL_PTSZ(cuStreamGetCaptureInfo_v3,
             (CUstream stream, int *status, cuuint64_t *id, CUgraph *graph,
              const CUgraphNode **last, const CUgraphEdgeData **edges, size_t *count),
             (stream, status, id, graph, last, edges, count)) {
    return tell(stream, status, id, graph, last, edges, count);
}
