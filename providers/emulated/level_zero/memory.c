/* Memory: on a device, on the host, shared by both; and what is known of an address.
 *
 * Device memory is charged in pages: 64 KiB, or 2 MiB for allocations from there on, as Intel's
 * driver lays it out.  Host and shared memory is the host's, and charged to no device.
 */
#include "driver.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SMALL_PAGE (64ull << 10)
#define LARGE_PAGE (2ull << 20)

uint64_t lz_page_size(uint64_t size) { return size < LARGE_PAGE ? SMALL_PAGE : LARGE_PAGE; }

static bool is_allocation(const struct emu_memory *memory) {
    switch (memory->object.kind) {
    case EMU_DEVICE_MEMORY:
    case EMU_HOST_MEMORY:
    case EMU_MANAGED:
    case EMU_OPEN:
        return true;
    default:
        return false;
    }
}

struct emu_memory *lz_memory_of(ze_context_handle_t context, const void *address) {
    struct emu_memory *memory = emu_memory_find((uintptr_t)address);
    bool found = memory && is_allocation(memory) && memory->object.owner == context;
    return found ? memory : NULL;
}

struct emu_memory *lz_memory_at(ze_context_handle_t context, const void *base) {
    struct emu_memory *memory = lz_memory_of(context, base);
    return memory && memory->object.node.base == (uintptr_t)base ? memory : NULL;
}

static ze_result_t check_sizes(size_t size, size_t alignment) {
    LZ_REQUIRE(size, ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    LZ_REQUIRE(!(alignment & (alignment - 1)), ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    return ZE_RESULT_SUCCESS;
}

/* Above the device's limit only with the descriptor that lifts it. */
static ze_result_t check_limit(const void *descriptor, size_t size) {
    const ze_relaxed_allocation_limits_exp_desc_t *relaxed =
        lz_chained(descriptor, ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC);
    bool lifted = relaxed && relaxed->flags & ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE;
    LZ_REQUIRE(lifted || size <= lz_largest_allocation(), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_device_descriptor(const ze_device_mem_alloc_desc_t *wanted) {
    LZ_CHECK(lz_check_structure(wanted, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC));
    LZ_REQUIRE(wanted->flags <= 0x7, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    if (lz_chained(wanted, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC) ||
        lz_chained(wanted, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD))
        return lz_not_built("external memory (import or export at allocation)");
    LZ_REQUIRE(!wanted->ordinal, ZE_RESULT_ERROR_INVALID_ARGUMENT); /* there is one memory */
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_host_descriptor(const ze_host_mem_alloc_desc_t *wanted) {
    LZ_CHECK(lz_check_structure(wanted, ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC));
    LZ_REQUIRE(wanted->flags <= 0xf, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    return ZE_RESULT_SUCCESS;
}

/* Charge and place whole pages; on failure nothing is left. */
static ze_result_t take_pages(unsigned ordinal, uint64_t size, uint64_t alignment,
                              struct emu_memory *memory) {
    struct emu_device *device = emu_device(ordinal);
    uint64_t page = lz_page_size(size);
    struct emu_file *file;
    if (!emu_round_up(size, page, &memory->charged) || emu_charge(device, memory->charged))
        return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    enum emu_status status = emu_device_file(ordinal, &file);
    if (!status)
        memory->tile =
            emu_space_take(&device->space, memory->charged, alignment > page ? alignment : page);
    if (memory->tile)
        return ZE_RESULT_SUCCESS;
    emu_discharge(device, memory->charged);
    return lz_result(status ? status : EMU_NO_MEMORY, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
}

LZ_CALL(zeMemAllocDevice,
        (ze_context_handle_t context, const ze_device_mem_alloc_desc_t *wanted, size_t size,
         size_t alignment, ze_device_handle_t device, void **address),
        (context, wanted, size, alignment, device, address)) {
    LZ_CHECK(lz_check_place(context, device));
    LZ_CHECK(check_device_descriptor(wanted));
    LZ_POINTER(address);
    LZ_CHECK(check_sizes(size, alignment));
    LZ_CHECK(check_limit(wanted, size));
    emu_clock_spend(emu_cost_allocation(size));
    struct emu_memory *made = emu_memory_new(device->ordinal);
    LZ_REQUIRE(made, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    ze_result_t result = take_pages(device->ordinal, size, alignment, made);
    if (result) {
        free(made);
        return result;
    }
    made->bytes = emu_shadow(&emu_device(device->ordinal)->file, made->tile->start);
    emu_add_range(&made->object, EMU_DEVICE_MEMORY, made->tile->start, size, context);
    *address = (void *)(uintptr_t)made->tile->start;
    return ZE_RESULT_SUCCESS;
}

/* Pages of the host's at any alignment; 0 where there is no room. */
static uint64_t map_pages(uint64_t size, uint64_t alignment) {
    uint64_t length;
    if (!emu_round_up(size, EMU_HOST_PAGE, &length))
        return 0;
    uint64_t start = emu_window_open(length, alignment, 0);
    if (start && mprotect((void *)(uintptr_t)start, length, PROT_READ | PROT_WRITE)) {
        emu_window_close(start, length);
        return 0;
    }
    return start;
}

static ze_result_t allocate_here(ze_context_handle_t context, enum emu_kind kind, unsigned device,
                                 size_t size, uint64_t alignment, void **address) {
    emu_clock_spend(emu_cost_allocation(size));
    struct emu_memory *made = emu_memory_new(device);
    uint64_t start = made ? map_pages(size, alignment) : 0;
    if (!start) {
        free(made);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made->bytes = (unsigned char *)(uintptr_t)start;
    emu_add_range(&made->object, kind, start, size, context);
    *address = made->bytes;
    return ZE_RESULT_SUCCESS;
}

static uint64_t at_least(uint64_t alignment, uint64_t least) {
    return alignment > least ? alignment : least;
}

LZ_CALL(zeMemAllocHost,
        (ze_context_handle_t context, const ze_host_mem_alloc_desc_t *wanted, size_t size,
         size_t alignment, void **address),
        (context, wanted, size, alignment, address)) {
    LZ_CHECK(lz_check_context(context));
    LZ_CHECK(check_host_descriptor(wanted));
    LZ_POINTER(address);
    LZ_CHECK(check_sizes(size, alignment));
    return allocate_here(context, EMU_HOST_MEMORY, 0, size, at_least(alignment, EMU_HOST_PAGE),
                         address);
}

/* Without a device the memory is shared by all of the context's. */
LZ_CALL(zeMemAllocShared,
        (ze_context_handle_t context, const ze_device_mem_alloc_desc_t *on_device,
         const ze_host_mem_alloc_desc_t *on_host, size_t size, size_t alignment,
         ze_device_handle_t device, void **address),
        (context, on_device, on_host, size, alignment, device, address)) {
    LZ_CHECK(device ? lz_check_place(context, device) : lz_check_context(context));
    LZ_CHECK(check_device_descriptor(on_device));
    LZ_CHECK(check_host_descriptor(on_host));
    LZ_POINTER(address);
    LZ_CHECK(check_sizes(size, alignment));
    LZ_CHECK(check_limit(on_device, size));
    LZ_CHECK(allocate_here(context, EMU_MANAGED, device ? device->ordinal : 0, size,
                           at_least(alignment, SMALL_PAGE), address));
    emu_memory_find((uintptr_t)*address)->flags = device != NULL;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t find_to_free(ze_context_handle_t context, const void *address,
                                struct emu_memory **memory) {
    LZ_CHECK(lz_check_context(context));
    LZ_POINTER(address);
    *memory = lz_memory_at(context, address);
    LZ_REQUIRE(*memory && (*memory)->object.kind != EMU_OPEN, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t free_now(struct emu_memory *memory) {
    emu_clock_spend(emu_cost_free(memory->object.node.size));
    lz_residency_forget(memory);
    lz_export_forget(memory);
    emu_memory_free(memory);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeMemFree, (ze_context_handle_t context, void *address), (context, address)) {
    struct emu_memory *memory;
    LZ_CHECK(find_to_free(context, address, &memory));
    return free_now(memory);
}

/* Blocking: wait for the device first.  Deferred: the driver may wait until later; as work is done
 * when it is submitted here, that is now. */
LZ_CALL(zeMemFreeExt,
        (ze_context_handle_t context, const ze_memory_free_ext_desc_t *how, void *address),
        (context, how, address)) {
    struct emu_memory *memory;
    LZ_CHECK(lz_check_structure(how, ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC));
    LZ_REQUIRE(how->freePolicy <= (ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE |
                                   ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE),
               ZE_RESULT_ERROR_INVALID_ENUMERATION);
    LZ_CHECK(find_to_free(context, address, &memory));
    if (how->freePolicy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE)
        emu_device_finish(memory->device);
    return free_now(memory);
}

/* What an address is. */

static void describe(const struct emu_memory *memory,
                     ze_memory_allocation_properties_t *properties) {
    switch (memory->object.kind) {
    case EMU_HOST_MEMORY:
        properties->type = ZE_MEMORY_TYPE_HOST;
        properties->pageSize = EMU_HOST_PAGE;
        break;
    case EMU_MANAGED:
        properties->type = ZE_MEMORY_TYPE_SHARED;
        properties->pageSize = SMALL_PAGE;
        break;
    default:
        properties->type = ZE_MEMORY_TYPE_DEVICE;
        properties->pageSize = lz_page_size(memory->object.node.size);
    }
    properties->id = memory->id;
}

static bool has_device(const struct emu_memory *memory) {
    return memory->object.kind == EMU_MANAGED ? memory->flags != 0
                                              : memory->object.kind != EMU_HOST_MEMORY;
}

/* An address that the driver does not know is of no type, which is a success. */
LZ_CALL(zeMemGetAllocProperties,
        (ze_context_handle_t context, const void *address,
         ze_memory_allocation_properties_t *properties, ze_device_handle_t *device),
        (context, address, properties, device)) {
    LZ_CHECK(lz_check_context(context));
    LZ_POINTER(address);
    LZ_CHECK(lz_check_structure(properties, ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES));
    if (lz_chained(properties, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD))
        return lz_not_built("external memory (export of an allocation)");
    struct emu_memory *memory = emu_memory_find((uintptr_t)address);
    bool known = memory && memory->object.owner == context;
    properties->type = ZE_MEMORY_TYPE_UNKNOWN;
    properties->id = properties->pageSize = 0;
    if (device)
        *device = NULL;
    if (known)
        describe(memory, properties);
    if (known && device && has_device(memory))
        *device = lz_device(memory->device);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeMemGetAddressRange,
        (ze_context_handle_t context, const void *address, void **base, size_t *size),
        (context, address, base, size)) {
    LZ_CHECK(lz_check_context(context));
    LZ_POINTER(address);
    struct emu_memory *memory = emu_memory_find((uintptr_t)address);
    LZ_REQUIRE(memory && memory->object.owner == context, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (base)
        *base = (void *)(uintptr_t)memory->object.node.base;
    if (size)
        *size = memory->object.node.size;
    return ZE_RESULT_SUCCESS;
}
