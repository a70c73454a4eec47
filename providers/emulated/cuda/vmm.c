/* Virtual memory management: CUDA's words for model/virtual.h and model/physical.h. */
#include "driver.h"

static struct emu_physical *find(CUmemGenericAllocationHandle handle) {
    return emu_find_handle(EMU_PHYSICAL, (void *)(uintptr_t)handle);
}

static CUmemGenericAllocationHandle handle_of(const struct emu_physical *physical) {
    return (uintptr_t)physical;
}

/* Only memory on a device is built, shareable as a file descriptor or not at all. */
static CUresult check_properties(const CUmemAllocationProp *wanted) {
    if (!wanted || wanted->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (wanted->location.type == CU_MEM_LOCATION_TYPE_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    if (wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!cu_is_device(wanted->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    if (wanted->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CU_CALL(cuMemGetAllocationGranularity,
        (size_t *granularity, const CUmemAllocationProp *wanted,
         CUmemAllocationGranularity_flags option),
        (granularity, wanted, option)) {
    CUresult result = check_properties(wanted);
    if (result || !granularity || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *granularity = EMU_GRANULE;
    return CUDA_SUCCESS;
}

CU_CALL(cuMemCreate,
        (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *wanted,
         unsigned long long flags),
        (handle, size, wanted, flags)) {
    struct emu_physical *physical;
    CUresult result = check_properties(wanted);
    if (result || !handle || !size || flags || !emu_is_multiple(size, EMU_GRANULE))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    emu_clock_spend(emu_cost_chunk_create(size));
    result = cu_result(emu_physical_create((unsigned)wanted->location.id, size,
                                           wanted->requestedHandleTypes,
                                           wanted->allocFlags.gpuDirectRDMACapable, &physical));
    if (!result)
        *handle = handle_of(physical);
    return result;
}

CU_CALL(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle)) {
    if (!find(handle))
        return CUDA_ERROR_INVALID_VALUE;
    emu_physical_release(find(handle));
    return CUDA_SUCCESS;
}

CU_CALL(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *address),
        (handle, address)) {
    struct emu_memory *mapping = emu_mapping_find((uintptr_t)address);
    if (!handle || !mapping)
        return CUDA_ERROR_INVALID_VALUE;
    emu_physical_retain(mapping->physical);
    *handle = handle_of(mapping->physical);
    return CUDA_SUCCESS;
}

CU_CALL(cuMemGetAllocationPropertiesFromHandle,
        (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle),
        (properties, handle)) {
    const struct emu_physical *physical = find(handle);
    if (!properties || !physical)
        return CUDA_ERROR_INVALID_VALUE;
    *properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = physical->shareable,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)physical->device},
        .allocFlags = {.gpuDirectRDMACapable = (unsigned char)physical->flags},
    };
    return CUDA_SUCCESS;
}

CU_CALL(cuMemAddressReserve,
        (CUdeviceptr * address, size_t size, size_t alignment, CUdeviceptr hint,
         unsigned long long flags),
        (address, size, alignment, hint, flags)) {
    uint64_t reserved;
    if (!address || flags || !emu_is_multiple(hint, EMU_HOST_PAGE))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cu_result(emu_reserve(size, alignment, hint, &reserved));
    if (!result)
        *address = reserved;
    return result;
}

CU_CALL(cuMemAddressFree, (CUdeviceptr address, size_t size), (address, size)) {
    return cu_result(emu_unreserve(address, size));
}

/* The offset parameter exists but must be 0: CUDA Driver API, cuMemMap. */
CU_CALL(cuMemMap,
        (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags),
        (address, size, offset, handle, flags)) {
    if (offset || flags || !find(handle) || !emu_is_multiple(address | size, EMU_GRANULE))
        return CUDA_ERROR_INVALID_VALUE;
    return cu_result(emu_map(address, size, 0, find(handle), NULL));
}

CU_CALL(cuMemUnmap, (CUdeviceptr address, size_t size), (address, size)) {
    unsigned count;
    CUresult result = cu_result(emu_unmap(address, size, &count));
    emu_clock_spend(34000ull * (count ? count : 1));
    return result;
}

static CUresult check_access(const CUmemAccessDesc *access) {
    if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    return cu_is_device(access->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult check_accesses(const CUmemAccessDesc *accesses, size_t count) {
    CUresult result = accesses && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !result; i++)
        result = check_access(&accesses[i]);
    return result;
}

/* One call over a contiguous range costs what one chunk of that size would. */
CU_CALL(cuMemSetAccess,
        (CUdeviceptr address, size_t size, const CUmemAccessDesc *accesses, size_t count),
        (address, size, accesses, count)) {
    CUresult result = check_accesses(accesses, count);
    emu_clock_spend(emu_cost_chunk_access(size));
    for (size_t i = 0; i < count && !result; i++)
        result = cu_result(emu_set_access(address, size, (unsigned)accesses[i].location.id,
                                          (uint8_t)accesses[i].flags));
    return result;
}

CU_CALL(cuMemGetAccess,
        (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address),
        (flags, location, address)) {
    struct emu_memory *mapping = emu_mapping_find(address);
    if (!flags || !location || !mapping || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cu_is_device(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = mapping->access[location->id];
    return CUDA_SUCCESS;
}

CU_CALL(cuMemExportToShareableHandle,
        (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
         unsigned long long flags),
        (shareable, handle, type, flags)) {
    struct emu_physical *physical = find(handle);
    if (!shareable || !physical || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(physical->shareable & type))
        return CUDA_ERROR_INVALID_VALUE;
    return cu_result(emu_physical_export(physical, shareable));
}

/* The descriptor comes by value, in the pointer. */
CU_CALL(cuMemImportFromShareableHandle,
        (CUmemGenericAllocationHandle * handle, void *shareable, CUmemAllocationHandleType type),
        (handle, shareable, type)) {
    struct emu_physical *physical;
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cu_result(emu_physical_import((int)(intptr_t)shareable, &physical));
    if (!result)
        *handle = handle_of(physical);
    return result;
}
