/* Memory without an address: made, mapped at reserved addresses, shared by descriptor.
 *
 * It lives while anything holds it: a handle here, a mapping here, a descriptor or an import
 * anywhere.  It starts as a piece of the device's file, which costs no descriptor; the first
 * export moves it to a file of its own.
 */
#ifndef UMFPY_MODEL_PHYSICAL_H
#define UMFPY_MODEL_PHYSICAL_H

#include "device.h"
#include "object.h"

struct emu_physical {
    struct emu_object object; /* a handle, while `handles` is not 0 */
    unsigned device;
    uint64_t size;
    uint32_t shareable; /* handle types it may be exported as */
    uint32_t flags;     /* the driver's own */
    unsigned handles, mappings;
    unsigned char *bytes;
    bool written;
    bool charged;          /* imports are their exporter's to pay */
    struct emu_tile *tile; /* a piece of the device's file, or ... */
    struct emu_file file;  /* ... a file of its own (fd >= 0) */
    struct emu_physical *next_shared;
};

/* Make `size` bytes (a multiple of EMU_MAP_UNIT), with one handle. */
enum emu_status emu_physical_create(unsigned device, uint64_t size, uint32_t shareable,
                                    uint32_t flags, struct emu_physical **physical);

/* One more handle to live memory; each needs a release. */
void emu_physical_retain(struct emu_physical *physical);
void emu_physical_release(struct emu_physical *physical);

/* A mapping comes or goes. */
void emu_physical_mapped(struct emu_physical *physical);
void emu_physical_unmapped(struct emu_physical *physical);

/* A descriptor for other processes, the caller's to close. */
enum emu_status emu_physical_export(struct emu_physical *physical, int *fd);

/* The memory behind such a descriptor: the same object where it is from this process. */
enum emu_status emu_physical_import(int fd, struct emu_physical **physical);

#endif
