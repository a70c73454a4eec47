/* Executable graphs: made from graphs, and destroyed. */
#include "graph_exec.h"

#include <stdlib.h>

CUgraphExec cu_exec_find(CUgraphExec handle) { return emu_find_handle(EMU_GRAPH_EXEC, handle); }

static void free_exec(CUgraphExec exec) {
    if (exec->graph)
        cu_graph_free(exec->graph);
    cu_nodes_clear(&exec->order);
    free(exec);
}

static bool all_marked(const struct cu_nodes *nodes) {
    for (size_t i = 0; i < nodes->count; i++)
        if (!nodes->list[i]->mark)
            return false;
    return true;
}

/* Take, again and again, the nodes whose predecessors were all taken.  Nodes are mostly added after
 * those that they follow, and then the first round takes them all. */
static CUresult put_in_order(CUgraphExec exec) {
    const struct cu_nodes *nodes = &exec->graph->nodes;
    for (size_t taken = 0, before; taken < nodes->count;) {
        before = taken;
        for (size_t i = 0; i < nodes->count; i++) {
            CUgraphNode node = nodes->list[i];
            if (node->mark || !all_marked(&node->before))
                continue;
            if (!cu_nodes_add(&exec->order, node))
                return CUDA_ERROR_OUT_OF_MEMORY;
            node->mark = true;
            taken++;
        }
        if (taken == before)
            return CUDA_ERROR_INVALID_VALUE; /* they follow one another in a circle */
    }
    return CUDA_SUCCESS;
}

static CUresult make(CUgraphExec *made, CUgraph graph, uint64_t flags) {
    CUgraphExec exec = calloc(1, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->graph = cu_graph_copy(graph, true);
    CUresult result = exec->graph ? put_in_order(exec) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        free_exec(exec);
        return result;
    }
    exec->flags = flags;
    emu_add_handle(&exec->object, EMU_GRAPH_EXEC, 0, NULL);
    *made = exec;
    return CUDA_SUCCESS;
}

#define KNOWN_FLAGS                                                                                \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |        \
     CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

/* Launches from the device are not built.  A graph that is still being captured cannot be
 * instantiated: a choice.  So are the costs, of the order of what is reported for straight-line
 * graphs. */
static CUresult instantiate(CUgraphExec *exec, CUgraph graph, uint64_t flags) {
    if (!exec || !cu_graph_find(graph) || graph->capturing || (flags & ~(uint64_t)KNOWN_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return CUDA_ERROR_NOT_SUPPORTED;
    emu_clock_spend(5000 + 1500 * graph->nodes.count);
    return make(exec, graph, flags);
}

/* Uploading needs the stream that only the variant with parameters has: CUgraphInstantiate_flags.
 */
CU_CALL(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
        (exec, graph, flags)) {
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        return CUDA_ERROR_INVALID_VALUE;
    return instantiate(exec, graph, flags);
}

static CUresult instantiate_with(CUgraphExec *exec, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *wanted, CUstream stream) {
    CUstream upload;
    bool uploads = wanted->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    CUresult result = uploads ? cu_use_stream(stream, &upload) : CUDA_SUCCESS;
    if (!result && uploads)
        result = cu_check_outside(upload);
    if (!result)
        result = instantiate(exec, graph, wanted->flags);
    if (!result && uploads)
        result = cu_exec_upload(*exec, upload);
    return result;
}

/* Where the structure is at fault, the result says so, and not which node: none is alone in it. */
static CUresult with_params(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted,
                            CUstream stream) {
    if (!wanted)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate_with(exec, graph, wanted, stream);
    bool structure = result == CUDA_ERROR_INVALID_VALUE && exec && cu_graph_find(graph) &&
                     !graph->capturing && !(wanted->flags & ~(uint64_t)KNOWN_FLAGS);
    wanted->hErrNode_out = NULL;
    wanted->result_out = structure ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                         : result  ? CUDA_GRAPH_INSTANTIATE_ERROR
                                   : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

EMU_PUBLIC CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                      CUDA_GRAPH_INSTANTIATE_PARAMS *wanted);

CU_CALL(cuGraphInstantiateWithParams,
        (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *wanted),
        (exec, graph, wanted)) {
    return with_params(exec, graph, wanted, wanted ? wanted->hUploadStream : NULL);
}

/* Its stream is in the parameters: CU_CALL_PTSZ does not see it. */
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *wanted) {
    CUresult result = cu_enter(CALL_cuGraphInstantiateWithParams);
    CUstream stream = wanted ? wanted->hUploadStream : NULL;
    return result
               ? result
               : cu_leave(with_params(exec, graph, wanted, stream ? stream : CU_STREAM_PER_THREAD));
}

CU_CALL(cuGraphExecGetFlags, (CUgraphExec exec, cuuint64_t *flags), (exec, flags)) {
    if (!cu_exec_find(exec) || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CU_CALL(cuGraphExecDestroy, (CUgraphExec exec), (exec)) {
    if (!cu_exec_find(exec))
        return CUDA_ERROR_INVALID_VALUE;
    emu_remove(&exec->object);
    free_exec(exec);
    return CUDA_SUCCESS;
}
