/* Nodes and edges that programs add by hand. */
#include "driver.h"

#include <string.h>

/* What comes before a new node: nodes of the same graph, each once. */
static CUresult check_before(CUgraph graph, const CUgraphNode *list, size_t count,
                             struct cu_nodes *before) {
    if (!cu_graph_find(graph) || (count && !list))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUgraphNode node = emu_find_handle(EMU_GRAPH_NODE, list[i]);
        if (!node || node->graph != graph || cu_nodes_have(before, node))
            return CUDA_ERROR_INVALID_VALUE;
        if (!cu_nodes_add(before, node))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *list, size_t count,
                    const struct cu_task *task) {
    struct cu_nodes before = {0};
    CUresult result = node ? check_before(graph, list, count, &before) : CUDA_ERROR_INVALID_VALUE;
    if (!result && task->type != CU_GRAPH_NODE_TYPE_EMPTY)
        result = cu_result(emu_work_check(&task->work));
    if (!result) {
        *node = cu_graph_add(graph, task, &before);
        result = *node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    cu_nodes_clear(&before);
    return result;
}

CU_CALL(cuGraphAddEmptyNode,
        (CUgraphNode * node, CUgraph graph, const CUgraphNode *list, size_t count),
        (node, graph, list, count)) {
    struct cu_task task = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add(node, graph, list, count, &task);
}

/* Only one slice is built: a depth of 1, without arrays. */
static bool is_flat(const CUDA_MEMCPY3D *copy) {
    return copy->Depth == 1 && !copy->srcZ && !copy->dstZ && !copy->srcLOD && !copy->dstLOD;
}

static CUDA_MEMCPY2D flat(const CUDA_MEMCPY3D *copy) {
    return (CUDA_MEMCPY2D){.srcXInBytes = copy->srcXInBytes,
                           .srcY = copy->srcY,
                           .srcMemoryType = copy->srcMemoryType,
                           .srcHost = copy->srcHost,
                           .srcDevice = copy->srcDevice,
                           .srcPitch = copy->srcPitch,
                           .dstXInBytes = copy->dstXInBytes,
                           .dstY = copy->dstY,
                           .dstMemoryType = copy->dstMemoryType,
                           .dstHost = copy->dstHost,
                           .dstDevice = copy->dstDevice,
                           .dstPitch = copy->dstPitch,
                           .WidthInBytes = copy->WidthInBytes,
                           .Height = copy->Height};
}

CU_CALL(cuGraphAddMemcpyNode,
        (CUgraphNode * node, CUgraph graph, const CUgraphNode *list, size_t count,
         const CUDA_MEMCPY3D *copy, CUcontext context),
        (node, graph, list, count, copy, context)) {
    struct cu_task task = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cu_find_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!is_flat(copy))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_MEMCPY2D rows = flat(copy);
    task.device = (unsigned)context->device;
    CUresult result = cu_copy_work(&rows, context, &task.work);
    return result ? result : add(node, graph, list, count, &task);
}

CU_CALL(cuGraphAddMemsetNode,
        (CUgraphNode * node, CUgraph graph, const CUgraphNode *list, size_t count,
         const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context),
        (node, graph, list, count, set, context)) {
    struct cu_task task = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    if (!set || (set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4))
        return CUDA_ERROR_INVALID_VALUE;
    if (!cu_find_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    struct cu_fill fill = {set->dst,   set->elementSize, set->value,
                           set->width, set->height,      set->pitch};
    task.device = (unsigned)context->device;
    CUresult result = cu_fill_work(fill, context, &task.work);
    return result ? result : add(node, graph, list, count, &task);
}

/* Edges.  One that is there already is an error; a circle is found when the graph is
 * instantiated. */

static bool can_add_edge(CUgraph graph, CUgraphNode from, CUgraphNode to) {
    return emu_find_handle(EMU_GRAPH_NODE, from) && emu_find_handle(EMU_GRAPH_NODE, to) &&
           from->graph == graph && to->graph == graph && from != to &&
           !cu_nodes_have(&to->before, from);
}

static CUresult add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                          size_t count) {
    if (!cu_graph_find(graph) || (count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!can_add_edge(graph, from[i], to[i]))
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!cu_nodes_have(&to[i]->before, from[i]) && !cu_nodes_add(&to[i]->before, from[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CU_CALL(cuGraphAddDependencies,
        (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count),
        (graph, from, to, count)) {
    return add_edges(graph, from, to, count);
}

/* Other than plain edges are for kernels. */
CU_CALL(cuGraphAddDependencies_v2,
        (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
         const CUgraphEdgeData *edges, size_t count),
        (graph, from, to, edges, count)) {
    static const CUgraphEdgeData plain;
    for (size_t i = 0; edges && i < count; i++)
        if (memcmp(&edges[i], &plain, sizeof plain))
            return CUDA_ERROR_INVALID_VALUE;
    return add_edges(graph, from, to, count);
}
