/* What the files of the emulated Level Zero driver share: its objects, and how a function is
 * written.
 *
 * A function is written with LZ_CALL: the macro makes the exported function, which takes the
 * model's lock, counts the call, lets an ordered fault answer, refuses before zeInit, and gives the
 * lock back; the body that follows sees none of that.  A body checks its arguments with LZ_CHECK,
 * which leaves it with the first answer that is not a success.
 *
 * Any handle is checked against what is alive, where a real driver would crash: NULL is
 * INVALID_NULL_HANDLE, anything else that is not a live object of its kind INVALID_ARGUMENT.
 */
#ifndef UMFPY_LEVEL_ZERO_DRIVER_H
#define UMFPY_LEVEL_ZERO_DRIVER_H

#include "../model/clock.h"
#include "../model/export.h"
#include "../model/fault.h"
#include "../model/lock.h"
#include "../model/queue.h"
#include "../model/settings.h"
#include "../model/virtual.h"
#include "abi.h"
#include "registry.h"

#define LZ_API_VERSION ZE_MAKE_VERSION(1, 10)

enum lz_call {
#define TABLE(name, getter)
#define BUILT(table, name, minor, cost) CALL_##name,
#define MISSING(table, name, minor) CALL_##name,
#define EMPTY(name)
#include "tables.def"
#undef TABLE
#undef BUILT
#undef MISSING
#undef EMPTY
    LZ_CALLS
};

struct lz_call_info {
    const char *name;
    uint64_t cost; /* nanoseconds */
};

const struct lz_call_info *lz_call_info(int call);

/* Begin a call; anything but success is its answer, and the lock is not held. */
ze_result_t lz_enter(enum lz_call call);
ze_result_t lz_leave(ze_result_t result);

/* Answer for a function, or a part of one, that is not built; says so once for each name. */
ze_result_t lz_not_built(const char *what);

#define LZ_CALL(name, parameters, arguments)                                                       \
    static ze_result_t name##_body parameters;                                                     \
    EMU_PUBLIC ze_result_t name parameters;                                                        \
    EMU_PUBLIC ze_result_t name parameters {                                                       \
        ze_result_t result = lz_enter(CALL_##name);                                                \
        return result ? result : lz_leave(name##_body arguments);                                  \
    }                                                                                              \
    static ze_result_t name##_body parameters

#define LZ_CHECK(expression)                                                                       \
    do {                                                                                           \
        ze_result_t lz_checked = (expression);                                                     \
        if (lz_checked)                                                                            \
            return lz_checked;                                                                     \
    } while (0)

#define LZ_REQUIRE(condition, otherwise) LZ_CHECK((condition) ? ZE_RESULT_SUCCESS : (otherwise))
#define LZ_POINTER(pointer) LZ_REQUIRE(pointer, ZE_RESULT_ERROR_INVALID_NULL_POINTER)

/* Level Zero's word for what the model answered, where no memory means `no_memory`. */
ze_result_t lz_result(enum emu_status status, ze_result_t no_memory);

/* driver.c: the settings in force; whether zeInit was called. */
extern struct emu_settings lz_settings;
bool lz_is_initialised(void);
ze_result_t lz_check_driver(ze_driver_handle_t driver);

/* Does a descriptor or properties structure say that it is what it should be? */
ze_result_t lz_check_structure(const void *structure, enum lz_structure type);

/* The structure of this type in the chain behind another, or NULL. */
void *lz_chained(const void *structure, enum lz_structure type);

/* Two-step queries: *count is how many there are, or room for; answers how many to write. */
uint32_t lz_count(uint32_t *count, const void *room, uint32_t there_are);

/* device.c: devices have handles from the start; some kinds of work have groups of queues. */
struct _ze_device_handle_t {
    unsigned ordinal;
};

enum { LZ_GROUPS = 2 }; /* 0: compute and copy; 1: copy only */

ze_device_handle_t lz_device(unsigned ordinal);
ze_result_t lz_check_device(ze_device_handle_t device);
uint64_t lz_largest_allocation(void);
const ze_command_queue_group_properties_t *lz_group(uint32_t ordinal);

/* context.c */
struct _ze_context_handle_t {
    struct lz_object object;
    uint32_t devices; /* bit set of the devices it is for */
};

ze_result_t lz_check_context(ze_context_handle_t context);

/* The context is live, and so is the device, which is one of its own. */
ze_result_t lz_check_place(ze_context_handle_t context, ze_device_handle_t device);

/* memory.c: the allocation of `context` that holds or starts at an address, or NULL. */
struct emu_memory *lz_memory_of(ze_context_handle_t context, const void *address);
struct emu_memory *lz_memory_at(ze_context_handle_t context, const void *base);
uint64_t lz_page_size(uint64_t size);

/* residency.c */
void lz_residency_forget(const struct emu_memory *memory);
uint64_t lz_residency_of(uint64_t address, unsigned device);

/* ipc.c: an allocation goes, and its descriptor for other processes with it. */
void lz_export_forget(struct emu_memory *memory);

#endif
