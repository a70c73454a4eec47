/* Lists of nodes. */
#include "graph.h"

#include <stdlib.h>

bool cu_nodes_have(const struct cu_nodes *nodes, CUgraphNode node) {
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->list[i] == node)
            return true;
    return false;
}

static bool make_room(struct cu_nodes *nodes, size_t more) {
    size_t room = nodes->room ? nodes->room : 4;
    while (room < nodes->count + more)
        room *= 2;
    if (room == nodes->room)
        return true;
    CUgraphNode *list = realloc(nodes->list, room * sizeof *list);
    if (!list)
        return false;
    nodes->list = list;
    nodes->room = room;
    return true;
}

bool cu_nodes_add(struct cu_nodes *nodes, CUgraphNode node) {
    if (!make_room(nodes, 1))
        return false;
    nodes->list[nodes->count++] = node;
    return true;
}

bool cu_nodes_add_all(struct cu_nodes *nodes, const struct cu_nodes *more) {
    if (!make_room(nodes, more->count))
        return false;
    for (size_t i = 0; i < more->count; i++)
        if (!cu_nodes_have(nodes, more->list[i]))
            nodes->list[nodes->count++] = more->list[i];
    return true;
}

void cu_nodes_clear(struct cu_nodes *nodes) {
    free(nodes->list);
    *nodes = (struct cu_nodes){0};
}
