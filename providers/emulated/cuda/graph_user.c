/* User objects: what a program wants to live as long as its graphs.  CUDA Driver API,
 * cuUserObjectCreate and cuGraphRetainUserObject. */
#include "driver.h"

#include <limits.h>
#include <stdlib.h>

struct CUuserObject_st {
    struct emu_object object;
    CUhostFn destroy;
    void *data;
    uint64_t references;
    CUuserObject next_dead;
};

struct cu_held {
    struct cu_held *next;
    CUuserObject object;
    uint64_t references;
};

static CUuserObject dead;

static CUuserObject find(CUuserObject object) { return emu_find_handle(EMU_USER_OBJECT, object); }

static void release(CUuserObject object, uint64_t references) {
    object->references -= references;
    if (object->references)
        return;
    emu_remove(&object->object);
    object->next_dead = dead;
    dead = object;
}

CUuserObject cu_user_objects_dead(void) {
    CUuserObject taken = dead;
    dead = NULL;
    return taken;
}

void cu_user_objects_bury(CUuserObject next) {
    while (next) {
        CUuserObject object = next;
        next = object->next_dead;
        object->destroy(object->data);
        free(object);
    }
}

/* Where a graph holds the object, or where that is to be noted. */
static struct cu_held **find_held(CUgraph graph, CUuserObject object) {
    struct cu_held **link = &graph->held;
    while (*link && (*link)->object != object)
        link = &(*link)->next;
    return link;
}

static bool hold(CUgraph graph, CUuserObject object, uint64_t references) {
    struct cu_held **held = find_held(graph, object);
    if (!*held)
        *held = calloc(1, sizeof **held);
    if (!*held)
        return false;
    (*held)->object = object;
    (*held)->references += references;
    return true;
}

bool cu_held_copy(CUgraph copy, const struct CUgraph_st *graph) {
    for (const struct cu_held *held = graph->held; held; held = held->next) {
        if (!hold(copy, held->object, held->references))
            return false;
        held->object->references += held->references;
    }
    return true;
}

void cu_held_release(CUgraph graph) {
    for (struct cu_held *held; (held = graph->held);) {
        graph->held = held->next;
        release(held->object, held->references);
        free(held);
    }
}

static bool is_count(unsigned count) { return count && count <= INT_MAX; }

CU_CALL(cuUserObjectCreate,
        (CUuserObject * object, void *data, CUhostFn destroy, unsigned count, unsigned flags),
        (object, data, destroy, count, flags)) {
    if (!object || !destroy || !is_count(count) || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    CUuserObject made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->destroy = destroy;
    made->data = data;
    made->references = count;
    emu_add_handle(&made->object, EMU_USER_OBJECT, 0, NULL);
    *object = made;
    return CUDA_SUCCESS;
}

CU_CALL(cuUserObjectRetain, (CUuserObject object, unsigned count), (object, count)) {
    if (!find(object) || !is_count(count))
        return CUDA_ERROR_INVALID_VALUE;
    object->references += count;
    return CUDA_SUCCESS;
}

CU_CALL(cuUserObjectRelease, (CUuserObject object, unsigned count), (object, count)) {
    if (!find(object) || !is_count(count) || count > object->references)
        return CUDA_ERROR_INVALID_VALUE;
    release(object, count);
    return CUDA_SUCCESS;
}

/* Moved references were the caller's. */
CU_CALL(cuGraphRetainUserObject,
        (CUgraph graph, CUuserObject object, unsigned count, unsigned flags),
        (graph, object, count, flags)) {
    if (!cu_graph_find(graph) || !find(object) || !is_count(count) ||
        (flags & ~CU_GRAPH_USER_OBJECT_MOVE) || (flags && count > object->references))
        return CUDA_ERROR_INVALID_VALUE;
    if (!hold(graph, object, count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!flags)
        object->references += count;
    return CUDA_SUCCESS;
}

CU_CALL(cuGraphReleaseUserObject, (CUgraph graph, CUuserObject object, unsigned count),
        (graph, object, count)) {
    if (!cu_graph_find(graph) || !find(object) || !is_count(count))
        return CUDA_ERROR_INVALID_VALUE;
    struct cu_held **link = find_held(graph, object), *held = *link;
    if (!held || count > held->references)
        return CUDA_ERROR_INVALID_VALUE;
    held->references -= count;
    if (!held->references) {
        *link = held->next;
        free(held);
    }
    release(object, count);
    return CUDA_SUCCESS;
}
