/* Everything that a program must give back, in one registry.
 *
 * An object is embedded first in its own struct.  It is found by address (a range), by value (a
 * handle), or only by being counted; and it stands in the list of its kind, from which the leak
 * report is made.
 */
#ifndef UMFPY_MODEL_OBJECT_H
#define UMFPY_MODEL_OBJECT_H

#include "index.h"

enum emu_kind {
    EMU_DEVICE_MEMORY, /* "allocations" */
    EMU_HOST_MEMORY,   /* "host": allocated by the driver, for host and device */
    EMU_REGISTERED,    /* "registered": the program's own host memory */
    EMU_MANAGED,       /* "managed": host and device share it */
    EMU_POOLED,        /* "pooled": allocated in stream order from a pool */
    EMU_RESERVATION,   /* "reservations": addresses without memory */
    EMU_PHYSICAL,      /* "handles": memory without addresses */
    EMU_MAPPING,       /* "mappings": physical memory at reserved addresses */
    EMU_POOL,          /* "pools" that the program made */
    EMU_DEFAULT_POOL,  /* a device's own pool; never a leak */
    EMU_EXPORT,        /* "exports": a slot in the export table */
    EMU_OPEN,          /* "opens": another process's memory, opened here */
    EMU_POOL_OPEN,     /* "pool_opens": one pointer of another process's pool */
    EMU_CONTEXT,       /* "contexts" that the program made */
    EMU_PRIMARY,       /* "primary_contexts" that are retained; not reported as a leak */
    EMU_STREAM,        /* "streams" */
    EMU_EVENT,         /* "events" */
    EMU_GRAPH,         /* "graphs": work to be launched, described */
    EMU_GRAPH_NODE,    /* "graph_nodes": go with their graph; no leak of their own */
    EMU_GRAPH_EXEC,    /* "executable_graphs": ready to be launched */
    EMU_USER_OBJECT,   /* "user_objects": the program's own, that graphs keep alive */
    EMU_KINDS
};

struct emu_object {
    struct emu_node node;
    enum emu_kind kind;
    uint64_t bytes;                     /* what the report says of its size */
    void *owner;                        /* the context that goes down with it, or NULL */
    struct emu_index *index;            /* where it is found, or NULL */
    struct emu_object *previous, *next; /* in the list of its kind, newest first */
};

/* Names as in the report, for a kind. */
const char *emu_kind_name(enum emu_kind kind);

/* Enter a range of addresses; false where it overlaps another. */
bool emu_add_range(struct emu_object *object, enum emu_kind kind, uint64_t base, uint64_t size,
                   void *owner);

/* Enter a handle, whose value is the object's own address. */
void emu_add_handle(struct emu_object *object, enum emu_kind kind, uint64_t bytes, void *owner);

/* Enter something that is only counted, under `base` for the report. */
void emu_add_counted(struct emu_object *object, enum emu_kind kind, uint64_t base, uint64_t bytes);

void emu_remove(struct emu_object *object);

/* The range that holds `address`, reservations aside, or NULL. */
struct emu_object *emu_find_range(uint64_t address);
struct emu_object *emu_next_range(uint64_t address);
struct emu_object *emu_find_reservation(uint64_t address);

/* The live handle of this kind and value, or NULL: any value may be asked for. */
void *emu_find_handle(enum emu_kind kind, const void *value);

struct emu_object *emu_first(enum emu_kind kind);
size_t emu_count(enum emu_kind kind);

#endif
