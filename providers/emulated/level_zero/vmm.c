/* Addresses apart from memory: Level Zero's words for model/virtual.h and model/physical.h.
 *
 * Pages are 64 KiB below 2 MiB; access is set with the mapping and holds for every device; physical
 * memory is at one address at a time.
 */
#include "driver.h"

static uint64_t end_of(const struct emu_memory *mapping) {
    return mapping->object.node.base + mapping->object.node.size;
}

static struct emu_object *reservation_of(ze_context_handle_t context, uint64_t address,
                                         uint64_t size) {
    struct emu_object *found = emu_find_reservation(address);
    if (!found || found->owner != context)
        return NULL;
    return size <= found->node.size - (address - found->node.base) ? found : NULL;
}

static ze_result_t check_range(ze_context_handle_t context, const void *address, size_t size) {
    LZ_CHECK(lz_check_context(context));
    LZ_POINTER(address);
    LZ_REQUIRE(size && emu_is_multiple(size, lz_page_size(0)), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    LZ_REQUIRE(emu_is_multiple((uintptr_t)address, lz_page_size(0)),
               ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeVirtualMemQueryPageSize,
        (ze_context_handle_t context, ze_device_handle_t device, size_t size, size_t *page),
        (context, device, size, page)) {
    LZ_CHECK(lz_check_place(context, device));
    LZ_POINTER(page);
    LZ_REQUIRE(size, ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    *page = lz_page_size(size);
    return ZE_RESULT_SUCCESS;
}

/* The wanted start is tried first; a reservation starts at a multiple of 2 MiB whatever its size.
 */
LZ_CALL(zeVirtualMemReserve,
        (ze_context_handle_t context, const void *start, size_t size, void **address),
        (context, start, size, address)) {
    uint64_t reserved;
    LZ_CHECK(lz_check_context(context));
    LZ_POINTER(address);
    LZ_REQUIRE(size && emu_is_multiple(size, lz_page_size(size)), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    LZ_CHECK(lz_result(emu_reserve(size, 0, (uintptr_t)start, &reserved),
                       ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY));
    emu_find_reservation(reserved)->owner = context;
    *address = (void *)(uintptr_t)reserved;
    return ZE_RESULT_SUCCESS;
}

/* Undo the mappings that tile the range, and their residency; how many were there? */
static unsigned unmap(uint64_t address, uint64_t size) {
    unsigned count;
    for (uint64_t at = address; at < address + size; at = end_of(emu_mapping_find(at)))
        lz_residency_forget(emu_mapping_find(at));
    emu_unmap(address, size, &count);
    return count;
}

/* What is still mapped there is unmapped: Level Zero specification, zeVirtualMemFree. */
LZ_CALL(zeVirtualMemFree, (ze_context_handle_t context, const void *address, size_t size),
        (context, address, size)) {
    uint64_t start = (uintptr_t)address;
    LZ_CHECK(check_range(context, address, size));
    struct emu_object *reservation = reservation_of(context, start, size);
    LZ_REQUIRE(reservation && reservation->node.base == start && reservation->node.size == size,
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    for (struct emu_object *next = emu_next_range(start); next && next->node.base - start < size;
         next = emu_next_range(start))
        unmap(next->node.base, next->node.size);
    return lz_result(emu_unreserve(start, size), ZE_RESULT_ERROR_UNKNOWN);
}

LZ_CALL(zePhysicalMemCreate,
        (ze_context_handle_t context, ze_device_handle_t device, ze_physical_mem_desc_t *wanted,
         ze_physical_mem_handle_t *handle),
        (context, device, wanted, handle)) {
    LZ_CHECK(lz_check_place(context, device));
    LZ_CHECK(lz_check_structure(wanted, ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC));
    LZ_POINTER(handle);
    LZ_REQUIRE(wanted->flags <= ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST,
               ZE_RESULT_ERROR_INVALID_ENUMERATION);
    if (wanted->flags & ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST)
        return lz_not_built("physical memory on the host");
    LZ_REQUIRE(wanted->size && emu_is_multiple(wanted->size, lz_page_size(wanted->size)),
               ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    emu_clock_spend(emu_cost_chunk_create(wanted->size));
    LZ_CHECK(lz_result(emu_physical_create(device->ordinal, wanted->size, 0, 0, handle),
                       ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY));
    (*handle)->object.owner = context;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_physical(ze_context_handle_t context, ze_physical_mem_handle_t handle) {
    LZ_CHECK(lz_check_context(context));
    LZ_REQUIRE(handle, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    LZ_REQUIRE(emu_find_handle(EMU_PHYSICAL, handle) && handle->object.owner == context,
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zePhysicalMemDestroy, (ze_context_handle_t context, ze_physical_mem_handle_t handle),
        (context, handle)) {
    LZ_CHECK(check_physical(context, handle));
    LZ_REQUIRE(!handle->mappings, ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    emu_physical_release(handle);
    return ZE_RESULT_SUCCESS;
}

static uint8_t rights_of(ze_memory_access_attribute_t access) {
    switch (access) {
    case ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE:
        return EMU_READ | EMU_WRITE;
    case ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY:
        return EMU_READ;
    default:
        return 0;
    }
}

static ze_memory_access_attribute_t attribute_of(uint8_t rights) {
    if (rights & EMU_WRITE)
        return ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
    return rights ? ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY : ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
}

static ze_result_t check_access(ze_memory_access_attribute_t access) {
    LZ_REQUIRE((unsigned)access <= ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY,
               ZE_RESULT_ERROR_INVALID_ENUMERATION);
    return ZE_RESULT_SUCCESS;
}

static void allow(uint64_t address, uint64_t size, ze_memory_access_attribute_t access) {
    for (unsigned device = 0; device < emu_machine.devices; device++)
        emu_set_access(address, size, device, rights_of(access));
    emu_clock_spend(emu_cost_chunk_access(size));
}

/* The range and the offset are in pages of the physical memory's own size. */
static ze_result_t check_mapping(ze_context_handle_t context, const void *address, size_t size,
                                 const struct emu_physical *physical, size_t offset) {
    uint64_t page = lz_page_size(physical->size);
    LZ_REQUIRE(emu_is_multiple((uintptr_t)address, page) && emu_is_multiple(offset, page),
               ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    LZ_REQUIRE(emu_is_multiple(size, page), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    LZ_REQUIRE(reservation_of(context, (uintptr_t)address, size) && !physical->mappings,
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeVirtualMemMap,
        (ze_context_handle_t context, const void *address, size_t size,
         ze_physical_mem_handle_t physical, size_t offset, ze_memory_access_attribute_t access),
        (context, address, size, physical, offset, access)) {
    LZ_CHECK(check_range(context, address, size));
    LZ_CHECK(check_physical(context, physical));
    LZ_CHECK(check_access(access));
    LZ_CHECK(check_mapping(context, address, size, physical, offset));
    LZ_CHECK(lz_result(emu_map((uintptr_t)address, size, offset, physical, context),
                       ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY));
    allow((uintptr_t)address, size, access);
    return ZE_RESULT_SUCCESS;
}

/* Whole mappings that tile the range exactly. */
static ze_result_t check_mapped(ze_context_handle_t context, const void *address, size_t size) {
    LZ_CHECK(check_range(context, address, size));
    LZ_REQUIRE(reservation_of(context, (uintptr_t)address, size) &&
                   emu_is_mapped((uintptr_t)address, size),
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeVirtualMemUnmap, (ze_context_handle_t context, const void *address, size_t size),
        (context, address, size)) {
    LZ_CHECK(check_mapped(context, address, size));
    emu_clock_spend(34000ull * unmap((uintptr_t)address, size));
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeVirtualMemSetAccessAttribute,
        (ze_context_handle_t context, const void *address, size_t size,
         ze_memory_access_attribute_t access),
        (context, address, size, access)) {
    LZ_CHECK(check_mapped(context, address, size));
    LZ_CHECK(check_access(access));
    allow((uintptr_t)address, size, access);
    return ZE_RESULT_SUCCESS;
}

/* Where the access at `address` may end: with the mapping, or before the next one. */
static uint64_t run_from(uint64_t address, uint64_t end) {
    struct emu_memory *mapping = emu_mapping_find(address);
    struct emu_object *next = emu_next_range(address);
    uint64_t run = mapping                         ? end_of(mapping)
                   : next && next->node.base < end ? next->node.base
                                                   : end;
    return run < end ? run : end;
}

static ze_memory_access_attribute_t access_at(uint64_t address) {
    struct emu_memory *mapping = emu_mapping_find(address);
    return attribute_of(mapping ? mapping->access[0] : 0);
}

/* How far the first page's access goes, at most to the end of what was asked. */
LZ_CALL(zeVirtualMemGetAccessAttribute,
        (ze_context_handle_t context, const void *address, size_t size,
         ze_memory_access_attribute_t *access, size_t *same),
        (context, address, size, access, same)) {
    LZ_CHECK(check_range(context, address, size));
    LZ_POINTER(access);
    LZ_POINTER(same);
    uint64_t start = (uintptr_t)address, end = start + size;
    LZ_REQUIRE(reservation_of(context, start, size), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    *access = access_at(start);
    uint64_t at = run_from(start, end);
    while (at < end && access_at(at) == *access)
        at = run_from(at, end);
    *same = at - start;
    return ZE_RESULT_SUCCESS;
}
