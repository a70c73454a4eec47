/* Graphs and their nodes: made, copied, asked for, destroyed. */
#include "driver.h"

#include <stdlib.h>

CUgraph cu_graph_new(bool hidden) {
    CUgraph graph = calloc(1, sizeof *graph);
    if (graph) {
        graph->hidden = hidden;
        if (!hidden)
            emu_add_handle(&graph->object, EMU_GRAPH, 0, NULL);
    }
    return graph;
}

static void free_node(CUgraphNode node) {
    if (!node->graph->hidden)
        emu_remove(&node->object);
    cu_nodes_clear(&node->before);
    free(node);
}

void cu_graph_free(CUgraph graph) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        free_node(graph->nodes.list[i]);
    cu_nodes_clear(&graph->nodes);
    cu_held_release(graph);
    if (!graph->hidden)
        emu_remove(&graph->object);
    free(graph);
}

CUgraph cu_graph_find(CUgraph handle) { return emu_find_handle(EMU_GRAPH, handle); }

CUgraphNode cu_graph_add(CUgraph graph, const struct cu_task *task, const struct cu_nodes *before) {
    CUgraphNode node = calloc(1, sizeof *node);
    if (!node || !cu_nodes_add_all(&node->before, before) || !cu_nodes_add(&graph->nodes, node)) {
        if (node)
            cu_nodes_clear(&node->before);
        free(node);
        return NULL;
    }
    node->graph = graph;
    node->index = graph->nodes.count - 1;
    node->task = *task;
    node->touched = cu_touched_by(task);
    node->lane.device = task->device;
    if (!graph->hidden)
        emu_add_handle(&node->object, EMU_GRAPH_NODE, 0, graph);
    return node;
}

/* The copy's nodes stand at the same places, and so do the nodes that come before each. */
static bool copy_order(CUgraph copy, CUgraph graph) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct cu_nodes *before = &graph->nodes.list[i]->before;
        for (size_t j = 0; j < before->count; j++)
            if (!cu_nodes_add(&copy->nodes.list[i]->before,
                              copy->nodes.list[before->list[j]->index]))
                return false;
    }
    return true;
}

CUgraph cu_graph_copy(CUgraph graph, bool hidden) {
    static const struct cu_nodes none;
    CUgraph copy = cu_graph_new(hidden);
    bool good = copy != NULL;
    for (size_t i = 0; i < graph->nodes.count && good; i++) {
        CUgraphNode node = cu_graph_add(copy, &graph->nodes.list[i]->task, &none);
        good = node != NULL;
        if (good) /* the memory is the one of when the node was made */
            node->touched = graph->nodes.list[i]->touched;
    }
    if (good && copy_order(copy, graph) && cu_held_copy(copy, graph))
        return copy;
    if (copy)
        cu_graph_free(copy);
    return NULL;
}

static CUresult answer(CUgraph *handle, CUgraph graph) {
    *handle = graph;
    return graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CU_CALL(cuGraphCreate, (CUgraph * graph, unsigned flags), (graph, flags)) {
    return graph && !flags ? answer(graph, cu_graph_new(false)) : CUDA_ERROR_INVALID_VALUE;
}

CU_CALL(cuGraphClone, (CUgraph * clone, CUgraph graph), (clone, graph)) {
    if (!clone || !cu_graph_find(graph))
        return CUDA_ERROR_INVALID_VALUE;
    return answer(clone, cu_graph_copy(graph, false));
}

/* A graph that a capture works on cannot be destroyed: cuStreamGetCaptureInfo. */
CU_CALL(cuGraphDestroy, (CUgraph graph), (graph)) {
    if (!cu_graph_find(graph) || graph->capturing)
        return CUDA_ERROR_INVALID_VALUE;
    cu_graph_free(graph);
    return CUDA_SUCCESS;
}

/* Without a list, how many there are; a list that is too long is filled up with NULL. */
static CUresult list_nodes(const struct cu_nodes *nodes, CUgraphNode *list, size_t *count) {
    size_t room = *count;
    *count = list && room < nodes->count ? room : nodes->count;
    for (size_t i = 0; list && i < room; i++)
        list[i] = i < nodes->count ? nodes->list[i] : NULL;
    return CUDA_SUCCESS;
}

CU_CALL(cuGraphGetNodes, (CUgraph graph, CUgraphNode *list, size_t *count), (graph, list, count)) {
    if (!cu_graph_find(graph) || !count)
        return CUDA_ERROR_INVALID_VALUE;
    return list_nodes(&graph->nodes, list, count);
}

static CUgraphNode find_node(CUgraphNode node) { return emu_find_handle(EMU_GRAPH_NODE, node); }

CU_CALL(cuGraphNodeGetType, (CUgraphNode node, int *type), (node, type)) {
    if (!find_node(node) || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->task.type;
    return CUDA_SUCCESS;
}

CU_CALL(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *list, size_t *count),
        (node, list, count)) {
    if (!find_node(node) || !count)
        return CUDA_ERROR_INVALID_VALUE;
    return list_nodes(&node->before, list, count);
}

/* Every edge is of the plain kind, all zeros. */
CU_CALL(cuGraphNodeGetDependencies_v2,
        (CUgraphNode node, CUgraphNode *list, CUgraphEdgeData *edges, size_t *count),
        (node, list, edges, count)) {
    if (!find_node(node) || !count || (edges && !list))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; edges && i < *count; i++)
        edges[i] = (CUgraphEdgeData){0};
    return list_nodes(&node->before, list, count);
}
