/* Level Zero's own objects, found by handle: contexts, queues, lists, fences, event pools, events.
 *
 * (Memory is in the model's registry, model/object.h.)  An object is embedded first in its own
 * struct.  Any value may be looked up: a handle of another kind, or of an object that is gone, is
 * not found.  All of it wants emu_lock held.
 */
#ifndef UMFPY_LEVEL_ZERO_REGISTRY_H
#define UMFPY_LEVEL_ZERO_REGISTRY_H

#include "../model/index.h"

enum lz_kind {
    LZ_CONTEXT,    /* "contexts" */
    LZ_QUEUE,      /* "queues" */
    LZ_LIST,       /* "lists": regular and immediate command lists */
    LZ_FENCE,      /* "fences" */
    LZ_EVENT_POOL, /* "event_pools" */
    LZ_EVENT,      /* "events" */
    LZ_KINDS
};

struct lz_object {
    struct emu_node node;
    enum lz_kind kind;
    void *owner; /* the object it was made from and must not outlive, or NULL */
    int device;  /* ordinal, or -1 */
    struct lz_object *previous, *next; /* in the list of its kind, newest first */
};

void lz_add(struct lz_object *object, enum lz_kind kind, void *owner, int device);
void lz_remove(struct lz_object *object);

/* The live object of this kind and handle, or NULL. */
void *lz_find(enum lz_kind kind, const void *handle);

struct lz_object *lz_first(enum lz_kind kind);

/* Is any object of this kind owned by `owner`? */
bool lz_is_owner(enum lz_kind kind, const void *owner);

/* Name as in the report, or NULL past the last kind. */
const char *lz_kind_name(int kind);

#endif
