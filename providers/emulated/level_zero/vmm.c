/* Addresses apart from memory: reserve, back with physical memory, allow access, undo.
 *
 * Level Zero differs from the model's own mappings (model/virtual.h): pages are 64 KiB below 2 MiB,
 * a mapping may begin inside the physical memory, access is set with the mapping and holds for
 * every device, and physical memory is at one address at a time.  So a mapping here is a range that
 * knows its bytes, and keeps its access itself; reservations and physical memory are the model's.
 */
#include "driver.h"

#include <stdlib.h>

struct mapping {
    struct emu_memory
        memory; /* a range of kind EMU_MAPPING; `flags`: what may be done, EMU_READ.. */
    struct emu_physical *physical;
};

/* Of every range of that kind: no other file makes one. */
static struct mapping *mapping_at(uint64_t address) {
    return (struct mapping *)emu_memory_at(EMU_MAPPING, address);
}

static struct mapping *mapping_of(uint64_t address) {
    struct emu_memory *memory = emu_memory_find(address);
    return memory && memory->object.kind == EMU_MAPPING ? (struct mapping *)memory : NULL;
}

static uint64_t end_of(const struct mapping *mapping) {
    return mapping->memory.object.node.base + mapping->memory.object.node.size;
}

uint64_t lz_piece(uint64_t address, uint64_t size) {
    struct mapping *mapping = mapping_of(address);
    uint64_t left = mapping ? end_of(mapping) - address : size;
    return left < size ? left : size;
}

/* A piece that begins in a mapping may go on in the next; the model checks all others. */
bool lz_is_accessible(uint64_t address, uint64_t size, uint8_t access) {
    if (size > UINT64_MAX - address)
        return false;
    while (size) {
        struct mapping *mapping = mapping_of(address);
        uint64_t piece = lz_piece(address, size);
        if (mapping ? (mapping->memory.flags & access) != access
                    : !emu_is_usable((struct emu_side){.address = address}, piece, access))
            return false;
        if (mapping && (access & EMU_WRITE))
            mapping->physical->written = true;
        address += piece;
        size -= piece;
    }
    return true;
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

static void unmap(struct mapping *mapping) {
    struct emu_physical *physical = mapping->physical;
    lz_residency_forget(&mapping->memory);
    emu_remove(&mapping->memory.object);
    free(mapping);
    emu_physical_unmapped(physical);
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
        unmap((struct mapping *)next);
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

static unsigned rights_of(ze_memory_access_attribute_t access) {
    switch (access) {
    case ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE:
        return EMU_READ | EMU_WRITE;
    case ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY:
        return EMU_READ;
    default:
        return 0;
    }
}

static ze_memory_access_attribute_t attribute_of(unsigned rights) {
    if (rights & EMU_WRITE)
        return ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
    return rights ? ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY : ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
}

static ze_result_t check_access(ze_memory_access_attribute_t access) {
    LZ_REQUIRE((unsigned)access <= ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY,
               ZE_RESULT_ERROR_INVALID_ENUMERATION);
    return ZE_RESULT_SUCCESS;
}

static bool touches_mapping(uint64_t address, uint64_t size) {
    struct emu_object *next = emu_next_range(address);
    return mapping_of(address) || (next && next->node.base - address < size);
}

/* Mappings have identities apart from the allocations'. */
static uint64_t next_id(void) {
    static uint64_t last = 1ull << 63;
    return ++last;
}

/* The range and the offset are in pages of the physical memory's own size. */
static ze_result_t check_mapping(ze_context_handle_t context, const void *address, size_t size,
                                 const struct emu_physical *physical, size_t offset) {
    uint64_t page = lz_page_size(physical->size);
    LZ_REQUIRE(emu_is_multiple((uintptr_t)address, page) && emu_is_multiple(offset, page),
               ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    LZ_REQUIRE(emu_is_multiple(size, page), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    LZ_REQUIRE(offset <= physical->size && size <= physical->size - offset,
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    LZ_REQUIRE(reservation_of(context, (uintptr_t)address, size) &&
                   !touches_mapping((uintptr_t)address, size) && !physical->mappings,
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
    struct mapping *made = calloc(1, sizeof *made);
    LZ_REQUIRE(made, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    made->memory.device = physical->device;
    made->memory.id = next_id();
    made->memory.flags = rights_of(access);
    made->memory.bytes = physical->bytes + offset;
    made->memory.file.fd = -1;
    made->physical = physical;
    emu_physical_mapped(physical);
    emu_add_range(&made->memory.object, EMU_MAPPING, (uintptr_t)address, size, context);
    emu_clock_spend(emu_cost_chunk_access(size));
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
    for (uint64_t at = (uintptr_t)address, end = at + size; at < end;) {
        struct mapping *mapping = mapping_at(at);
        at = end_of(mapping);
        unmap(mapping);
        emu_clock_spend(34000);
    }
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeVirtualMemSetAccessAttribute,
        (ze_context_handle_t context, const void *address, size_t size,
         ze_memory_access_attribute_t access),
        (context, address, size, access)) {
    LZ_CHECK(check_mapped(context, address, size));
    LZ_CHECK(check_access(access));
    emu_clock_spend(emu_cost_chunk_access(size));
    for (uint64_t at = (uintptr_t)address, end = at + size; at < end;) {
        struct mapping *mapping = mapping_at(at);
        mapping->memory.flags = rights_of(access);
        at = end_of(mapping);
    }
    return ZE_RESULT_SUCCESS;
}

/* Where the access at `address` may end: with the mapping, or before the next one. */
static uint64_t run_from(uint64_t address, uint64_t end) {
    struct mapping *mapping = mapping_of(address);
    struct emu_object *next = emu_next_range(address);
    uint64_t run = mapping                         ? end_of(mapping)
                   : next && next->node.base < end ? next->node.base
                                                   : end;
    return run < end ? run : end;
}

static ze_memory_access_attribute_t access_at(uint64_t address) {
    struct mapping *mapping = mapping_of(address);
    return attribute_of(mapping ? mapping->memory.flags : 0);
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
