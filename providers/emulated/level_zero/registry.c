#include "registry.h"

static struct emu_index handles;
static struct lz_object *first[LZ_KINDS];

void lz_add(struct lz_object *object, enum lz_kind kind, void *owner, int device) {
    object->kind = kind;
    object->owner = owner;
    object->device = device;
    object->node.base = (uintptr_t)object;
    object->node.size = 1;
    emu_index_insert(&handles, &object->node); /* cannot overlap: live objects differ */
    object->previous = NULL;
    object->next = first[kind];
    if (first[kind])
        first[kind]->previous = object;
    first[kind] = object;
}

void lz_remove(struct lz_object *object) {
    emu_index_remove(&handles, &object->node);
    if (object->previous)
        object->previous->next = object->next;
    else
        first[object->kind] = object->next;
    if (object->next)
        object->next->previous = object->previous;
}

void *lz_find(enum lz_kind kind, const void *handle) {
    struct lz_object *object = (struct lz_object *)emu_index_find(&handles, (uintptr_t)handle);
    return object && object->kind == kind ? object : NULL;
}

struct lz_object *lz_first(enum lz_kind kind) { return first[kind]; }

bool lz_is_owner(enum lz_kind kind, const void *owner) {
    for (struct lz_object *object = first[kind]; object; object = object->next)
        if (object->owner == owner)
            return true;
    return false;
}

const char *lz_kind_name(int kind) {
    static const char *const names[LZ_KINDS] = {
        [LZ_CONTEXT] = "contexts", [LZ_QUEUE] = "queues",           [LZ_LIST] = "lists",
        [LZ_FENCE] = "fences",     [LZ_EVENT_POOL] = "event_pools", [LZ_EVENT] = "events",
    };
    return kind >= 0 && kind < LZ_KINDS ? names[kind] : NULL;
}
