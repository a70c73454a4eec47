/* Graphs: work and its order, described once and launched many times.
 *
 *   graph        nodes, added by hand or by a capture (graph_capture.h)
 *   node         one piece of work, or none, and the nodes that come before it
 *   executable   a copy of a graph, put in order, that later changes do not reach
 *
 * CUDA Driver API, "Graph Management".  There are nodes for copies, sets and nothing; the other
 * kinds are not built.
 */
#ifndef UMFPY_CUDA_GRAPH_H
#define UMFPY_CUDA_GRAPH_H

#include "../model/queue.h"
#include "abi.h"

/* Nodes of one graph, each once. */
struct cu_nodes {
    CUgraphNode *list;
    size_t count, room;
};

/* What a node does. */
struct cu_task {
    CUgraphNodeType type;
    unsigned device;      /* where it runs */
    struct emu_work work; /* nothing for CU_GRAPH_NODE_TYPE_EMPTY */
};

/* The memory that a node was made for, by number (memory.h); 0: not to be told apart. */
struct cu_touched {
    uint64_t to, from;
};

struct CUgraphNode_st {
    struct emu_object object;
    CUgraph graph;
    size_t index; /* in its graph */
    struct cu_task task;
    struct cu_touched touched;
    struct cu_nodes before;
    struct emu_queue lane; /* when it runs, on the clock */
    bool captured;         /* not added by hand */
    bool mark;             /* for walks */
};

struct cu_held; /* graph_user.c */

struct CUgraph_st {
    struct emu_object object;
    struct cu_nodes nodes;
    struct cu_held *held; /* user objects */
    bool capturing;       /* not the program's to destroy yet */
    bool hidden;          /* an executable's own */
};

/* graph_list.c.  Adding answers false, with nothing changed, where the host has no room. */
bool cu_nodes_have(const struct cu_nodes *nodes, CUgraphNode node);
bool cu_nodes_add(struct cu_nodes *nodes, CUgraphNode node);
bool cu_nodes_add_all(struct cu_nodes *nodes, const struct cu_nodes *more);
void cu_nodes_clear(struct cu_nodes *nodes);

/* graph.c; NULL: the host has no room.  Programs do not see what is hidden. */
CUgraph cu_graph_new(bool hidden);
CUgraph cu_graph_copy(CUgraph graph, bool hidden);
void cu_graph_free(CUgraph graph);
CUgraph cu_graph_find(CUgraph handle);
CUgraphNode cu_graph_add(CUgraph graph, const struct cu_task *task, const struct cu_nodes *before);

/* graph_user.c.  A graph's copies hold what it holds.  Objects that nobody holds any more are
 * buried, by calling the program's own function, when the call ends and the lock is not held. */
bool cu_held_copy(CUgraph copy, const struct CUgraph_st *graph);
void cu_held_release(CUgraph graph);
CUuserObject cu_user_objects_dead(void);
void cu_user_objects_bury(CUuserObject dead);

/* graph_touch.c: whether the addresses still stand for the memory that the node was made for. */
struct cu_touched cu_touched_by(const struct cu_task *task);
bool cu_node_may_run(const struct CUgraphNode_st *node);

/* graph_launch.c: nodes that were not allowed to run. */
extern uint64_t cu_illegal_accesses;

#endif
