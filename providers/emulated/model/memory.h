/* Ranges of memory that a program was given: on a device, on the host, or of its own.
 *
 * Each knows where the driver finds its bytes.  Reading and writing by address goes through
 * transfer.h.
 */
#ifndef UMFPY_MODEL_MEMORY_H
#define UMFPY_MODEL_MEMORY_H

#include "device.h"
#include "object.h"

struct emu_export;
struct emu_pool;
struct emu_physical;

struct emu_memory {
    struct emu_object object; /* a range */
    unsigned device;
    unsigned flags;                /* the driver's own, kept for it */
    uint64_t id;                   /* never used again: tells reused addresses apart */
    unsigned char *bytes;          /* the driver's view of the first byte */
    bool written;                  /* its pages cost something */
    struct emu_tile *tile;         /* of the device's file, or of a pool's */
    uint64_t charged;              /* bytes of the device's capacity */
    struct emu_export *export;     /* once it was exported */
    struct emu_pool *pool;         /* pooled memory */
    struct emu_physical *physical; /* a mapping: what is mapped, ... */
    uint64_t offset;               /* ... from which byte on, ... */
    uint8_t access[EMU_DEVICES];   /* ... and for whom: EMU_READ, EMU_WRITE */
    struct emu_file file;          /* memory of another process: its pages; else fd -1 */
    unsigned opens;                /* and how often it is open */
    uint64_t key;                  /* the nonce of the export that it came from */
};

enum { EMU_READ = 1, EMU_WRITE = 2 };

/* Allocate `size` bytes on a device, aligned to 512 B, or 2 MiB from 1 MiB on. */
enum emu_status emu_device_memory(unsigned device, uint64_t size, void *owner,
                                  struct emu_memory **memory);

/* Allocate memory that host and device both reach at one address. */
enum emu_status emu_host_memory(enum emu_kind kind, unsigned device, uint64_t size, void *owner,
                                struct emu_memory **memory);

/* Make the program's own host memory known. */
enum emu_status emu_register(uint64_t base, uint64_t size, void *owner, struct emu_memory **memory);

/* Give any of these back. */
void emu_memory_free(struct emu_memory *memory);

/* The memory that holds `address`, or NULL; with emu_memory_at, one that starts there. */
struct emu_memory *emu_memory_find(uint64_t address);
struct emu_memory *emu_memory_at(enum emu_kind kind, uint64_t base);

/* A new record with its own id, not yet entered anywhere; NULL: the host has no room. */
struct emu_memory *emu_memory_new(unsigned device);

#endif
