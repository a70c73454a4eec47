#include "object.h"

static struct emu_index ranges, reservations, handles;
static struct emu_object *first[EMU_KINDS];
static size_t count[EMU_KINDS];

const char *emu_kind_name(enum emu_kind kind) {
    static const char *const names[EMU_KINDS] = {
        [EMU_DEVICE_MEMORY] = "allocations",
        [EMU_HOST_MEMORY] = "host",
        [EMU_REGISTERED] = "registered",
        [EMU_MANAGED] = "managed",
        [EMU_POOLED] = "pooled",
        [EMU_RESERVATION] = "reservations",
        [EMU_PHYSICAL] = "handles",
        [EMU_MAPPING] = "mappings",
        [EMU_POOL] = "pools",
        [EMU_DEFAULT_POOL] = "default_pools",
        [EMU_EXPORT] = "exports",
        [EMU_OPEN] = "opens",
        [EMU_POOL_OPEN] = "pool_opens",
        [EMU_CONTEXT] = "contexts",
        [EMU_PRIMARY] = "primary_contexts",
        [EMU_STREAM] = "streams",
        [EMU_EVENT] = "events",
        [EMU_GRAPH] = "graphs",
        [EMU_GRAPH_NODE] = "graph_nodes",
        [EMU_GRAPH_EXEC] = "executable_graphs",
        [EMU_USER_OBJECT] = "user_objects",
    };
    return (unsigned)kind < EMU_KINDS ? names[kind] : NULL;
}

void emu_add_counted(struct emu_object *object, enum emu_kind kind, uint64_t base, uint64_t bytes) {
    object->kind = kind;
    object->node.base = base;
    object->bytes = bytes;
    object->previous = NULL;
    object->next = first[kind];
    if (first[kind])
        first[kind]->previous = object;
    first[kind] = object;
    count[kind]++;
}

bool emu_add_range(struct emu_object *object, enum emu_kind kind, uint64_t base, uint64_t size,
                   void *owner) {
    object->index = kind == EMU_RESERVATION ? &reservations : &ranges;
    object->owner = owner;
    object->node.base = base;
    object->node.size = size;
    if (!emu_index_insert(object->index, &object->node))
        return false;
    emu_add_counted(object, kind, base, size);
    return true;
}

void emu_add_handle(struct emu_object *object, enum emu_kind kind, uint64_t bytes, void *owner) {
    object->index = &handles;
    object->owner = owner;
    object->node.base = (uintptr_t)object;
    object->node.size = 1;
    emu_index_insert(&handles, &object->node); /* cannot overlap: live objects differ */
    emu_add_counted(object, kind, object->node.base, bytes);
}

void emu_remove(struct emu_object *object) {
    if (object->index)
        emu_index_remove(object->index, &object->node);
    if (object->previous)
        object->previous->next = object->next;
    else
        first[object->kind] = object->next;
    if (object->next)
        object->next->previous = object->previous;
    count[object->kind]--;
}

struct emu_object *emu_find_range(uint64_t address) {
    return (struct emu_object *)emu_index_find(&ranges, address);
}

struct emu_object *emu_next_range(uint64_t address) {
    return (struct emu_object *)emu_index_next(&ranges, address);
}

struct emu_object *emu_find_reservation(uint64_t address) {
    return (struct emu_object *)emu_index_find(&reservations, address);
}

void *emu_find_handle(enum emu_kind kind, const void *value) {
    struct emu_object *object =
        (struct emu_object *)emu_index_find(&handles, (uint64_t)(uintptr_t)value);
    return object && object->kind == kind ? object : NULL;
}

struct emu_object *emu_first(enum emu_kind kind) { return first[kind]; }

size_t emu_count(enum emu_kind kind) { return count[kind]; }
