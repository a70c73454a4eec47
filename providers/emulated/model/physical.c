#define _GNU_SOURCE
#include "physical.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct emu_physical *shared; /* those with a file of their own */

static struct emu_physical *new_physical(unsigned device, uint64_t size) {
    struct emu_physical *made = calloc(1, sizeof *made);
    if (made) {
        made->device = device;
        made->size = size;
        made->file.fd = -1;
    }
    return made;
}

enum emu_status emu_physical_create(unsigned ordinal, uint64_t size, uint32_t shareable,
                                    uint32_t flags, struct emu_physical **physical) {
    struct emu_device *device = emu_device(ordinal);
    if (emu_charge(device, size))
        return EMU_NO_MEMORY;
    struct emu_physical *made = new_physical(ordinal, size);
    enum emu_status status = made ? emu_device_take(device, size, &made->tile) : EMU_NO_MEMORY;
    if (status) {
        free(made);
        emu_discharge(device, size);
        return status;
    }
    made->charged = true;
    made->shareable = shareable;
    made->flags = flags;
    made->bytes = emu_shadow(&device->file, made->tile->start);
    emu_physical_retain(made);
    *physical = made;
    return EMU_OK;
}

static void forget_shared(struct emu_physical *physical) {
    for (struct emu_physical **link = &shared; *link; link = &(*link)->next_shared) {
        if (*link == physical) {
            *link = physical->next_shared;
            return;
        }
    }
}

static void destroy_unused(struct emu_physical *physical) {
    if (physical->handles || physical->mappings)
        return;
    struct emu_device *device = emu_device(physical->device);
    if (physical->tile)
        emu_device_give(device, physical->tile, physical->written);
    if (physical->file.fd >= 0)
        forget_shared(physical);
    emu_file_close(&physical->file);
    if (physical->charged)
        emu_discharge(device, physical->size);
    free(physical);
}

void emu_physical_retain(struct emu_physical *physical) {
    if (physical->handles++ == 0)
        emu_add_handle(&physical->object, EMU_PHYSICAL, physical->size, NULL);
}

void emu_physical_release(struct emu_physical *physical) {
    if (--physical->handles == 0)
        emu_remove(&physical->object);
    destroy_unused(physical);
}

void emu_physical_mapped(struct emu_physical *physical) { physical->mappings++; }

void emu_physical_unmapped(struct emu_physical *physical) {
    physical->mappings--;
    destroy_unused(physical);
}

/* Move what was written so far to a file of its own.  Programs see addresses only, and those
 * are translated anew at each access, so that nobody can notice. */
static enum emu_status move_to_own_file(struct emu_physical *physical) {
    enum emu_status status = emu_file_create(&physical->file, EMU_FILE_PHYSICAL, physical->size,
                                             physical->device, physical->shareable, false);
    if (status)
        return status;
    if (physical->written)
        memcpy(physical->file.shadow, physical->bytes, physical->size);
    emu_device_give(emu_device(physical->device), physical->tile, physical->written);
    physical->tile = NULL;
    physical->bytes = physical->file.shadow;
    physical->next_shared = shared;
    shared = physical;
    return EMU_OK;
}

enum emu_status emu_physical_export(struct emu_physical *physical, int *fd) {
    if (physical->file.fd < 0) {
        enum emu_status status = move_to_own_file(physical);
        if (status)
            return status;
    }
    *fd = fcntl(physical->file.fd, F_DUPFD_CLOEXEC, 0);
    return *fd < 0 ? EMU_SYSTEM : EMU_OK;
}

static struct emu_physical *find_shared(const uint8_t id[16]) {
    for (struct emu_physical *physical = shared; physical; physical = physical->next_shared)
        if (!memcmp(physical->file.head->id, id, 16))
            return physical;
    return NULL;
}

enum emu_status emu_physical_import(int fd, struct emu_physical **physical) {
    struct emu_file_head head;
    if (!emu_file_read_head(fd, EMU_FILE_PHYSICAL, &head))
        return EMU_STALE;
    struct emu_physical *known = find_shared(head.id);
    if (known) {
        emu_physical_retain(known);
        *physical = known;
        return EMU_OK;
    }
    unsigned device = head.device < emu_machine.devices ? head.device : 0;
    struct emu_physical *made = new_physical(device, head.span);
    enum emu_status status =
        made ? emu_file_adopt(&made->file, EMU_FILE_PHYSICAL, fd) : EMU_NO_MEMORY;
    if (status) {
        free(made);
        return status;
    }
    made->bytes = made->file.shadow;
    made->size = made->file.span;
    made->shareable = head.shareable;
    made->next_shared = shared;
    shared = made;
    emu_physical_retain(made);
    *physical = made;
    return EMU_OK;
}
