/* Launching graphs: in the order of the stream, each node after those that come before it. */
#include "graph_exec.h"

uint64_t cu_illegal_accesses;

/* Uploads and launches of one executable graph come one after another: cuGraphLaunch. */
static uint64_t begin(CUgraphExec exec, CUstream stream) {
    emu_queue_wait_for(&stream->queue, emu_clock_now());
    emu_queue_wait_for(&stream->queue, exec->end);
    return stream->queue.end;
}

static void end(CUgraphExec exec, CUstream stream, uint64_t moment) {
    emu_queue_wait_for(&stream->queue, moment);
    exec->end = moment;
}

CUresult cu_exec_upload(CUgraphExec exec, CUstream stream) {
    end(exec, stream, begin(exec, stream) + 2000 + 10 * exec->order.count);
    exec->uploaded = true;
    return CUDA_SUCCESS;
}

static CUresult find(CUgraphExec exec, CUstream handle, CUstream *stream) {
    CUresult result = cu_use_stream(handle, stream);
    return result || cu_exec_find(exec) ? result : CUDA_ERROR_INVALID_VALUE;
}

CU_CALL_PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, stream)) {
    CUresult result = find(exec, stream, &stream);
    if (!result)
        result = cu_check_outside(stream);
    return result ? result : cu_exec_upload(exec, stream);
}

/* All nodes are looked at before the first one runs, so that a launch does everything or nothing.
 */
static bool may_run(CUgraphExec exec) {
    uint64_t wrong = 0;
    for (size_t i = 0; i < exec->order.count; i++)
        wrong += !cu_node_may_run(exec->order.list[i]);
    cu_illegal_accesses += wrong;
    return !wrong;
}

static CUresult run_node(CUgraphNode node, uint64_t start) {
    node->lane.end = start;
    for (size_t i = 0; i < node->before.count; i++)
        emu_queue_wait_for(&node->lane, node->before.list[i]->lane.end);
    if (node->task.type == CU_GRAPH_NODE_TYPE_EMPTY)
        return CUDA_SUCCESS;
    return cu_result(emu_queue_submit(&node->lane, &node->task.work));
}

static CUresult run(CUgraphExec exec, CUstream stream) {
    CUresult result = CUDA_SUCCESS;
    uint64_t start = begin(exec, stream), last = start;
    for (size_t i = 0; i < exec->order.count && !result; i++) {
        CUgraphNode node = exec->order.list[i];
        result = run_node(node, start);
        last = node->lane.end > last ? node->lane.end : last;
    }
    end(exec, stream, last);
    return result;
}

/* Hardware answers success here, and the fault later, from whichever call comes next, and for good;
 * this driver answers it at once and goes on: a choice, so that one process can see it many times.
 * Costs: a choice, of the order of what is reported for straight-line graphs. */
CU_CALL_PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, stream)) {
    CUresult result = find(exec, stream, &stream);
    if (!result && stream->capturing.in) /* a node that holds a graph */
        result = cu_not_captured(stream, CALL_cuGraphLaunch);
    if (result)
        return result;
    emu_clock_spend(2500 + exec->order.count);
    if (!may_run(exec))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (!exec->uploaded)
        cu_exec_upload(exec, stream);
    return run(exec, stream);
}
