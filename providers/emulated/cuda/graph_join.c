/* Events in captures: a stream that waits for what another one captured joins its capture, and must
 * be waited for in turn before the end. */
#include "driver.h"

void cu_capture_join(struct cu_capture *capture, CUstream stream) {
    stream->capturing.in = capture;
    stream->capturing.next = capture->streams;
    capture->streams = stream;
}

static struct cu_capture *find(uint64_t id) {
    struct cu_capture *capture = cu_captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

static CUresult refuse(struct cu_capture *one, struct cu_capture *other, CUresult result) {
    if (one)
        one->invalid = true;
    if (other)
        other->invalid = true;
    return result;
}

CUresult cu_capture_record(CUevent event, CUstream stream) {
    struct cu_nodes last = {0};
    if (!cu_nodes_add_all(&last, &stream->capturing.last))
        return refuse(stream->capturing.in, NULL, CUDA_ERROR_OUT_OF_MEMORY);
    cu_nodes_clear(&event->came_last);
    event->came_last = last;
    event->capture = stream->capturing.in->id;
    return CUDA_SUCCESS;
}

/* What was not captured cannot be waited for inside (ISOLATION), nor another capture (MERGE); after
 * the end, an event of it stands for nothing that will ever happen (CAPTURED_EVENT). */
CUresult cu_capture_wait(CUstream stream, CUevent event) {
    struct cu_capture *here = stream->capturing.in, *there = find(event->capture);
    if (!event->capture)
        return refuse(here, NULL, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (!there)
        return refuse(here, NULL, CUDA_ERROR_CAPTURED_EVENT);
    if (there->invalid)
        return refuse(here, NULL, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (here && here != there)
        return refuse(here, there, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    if (cu_is_legacy(stream)) /* it cannot be captured */
        return refuse(there, NULL, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (!cu_nodes_add_all(&stream->capturing.last, &event->came_last))
        return refuse(there, NULL, CUDA_ERROR_OUT_OF_MEMORY);
    if (!here)
        cu_capture_join(there, stream);
    return CUDA_SUCCESS;
}

/* Mark what comes before the marked nodes; true where that was news. */
static bool mark_before(const struct cu_nodes *nodes) {
    bool news = false;
    for (size_t i = nodes->count; i-- > 0;) {
        const struct cu_nodes *before = &nodes->list[i]->before;
        for (size_t j = 0; j < before->count && nodes->list[i]->mark; j++) {
            news = news || !before->list[j]->mark;
            before->list[j]->mark = true;
        }
    }
    return news;
}

/* Does everything captured come before the end of the origin?  Nodes that were added by hand need
 * not: cuStreamGetCaptureInfo. */
bool cu_capture_all_joined(const struct cu_capture *capture) {
    const struct cu_nodes *nodes = &capture->graph->nodes, *last = &capture->origin->capturing.last;
    bool joined = true;
    for (size_t i = 0; i < nodes->count; i++)
        nodes->list[i]->mark = false;
    for (size_t i = 0; i < last->count; i++)
        last->list[i]->mark = true;
    while (mark_before(nodes))
        ;
    for (size_t i = 0; i < nodes->count; i++)
        joined = joined && (nodes->list[i]->mark || !nodes->list[i]->captured);
    return joined;
}
