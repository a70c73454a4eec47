/* An executable graph: a copy of its own, in an order that can be run. */
#ifndef UMFPY_CUDA_GRAPH_EXEC_H
#define UMFPY_CUDA_GRAPH_EXEC_H

#include "driver.h"

struct CUgraphExec_st {
    struct emu_object object;
    CUgraph graph;         /* hidden */
    struct cu_nodes order; /* each node after those that come before it */
    uint64_t flags;
    uint64_t end;  /* of its last launch, on the clock */
    bool uploaded; /* to the device: the first launch has to, otherwise */
};

CUgraphExec cu_exec_find(CUgraphExec handle);
CUresult cu_exec_upload(CUgraphExec exec, CUstream stream);

#endif
