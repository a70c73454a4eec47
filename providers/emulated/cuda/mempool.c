/* Stream-ordered allocation: CUDA's words for model/pool.h. */
#include "driver.h"

static struct emu_pool *defaults[EMU_DEVICES];
static struct emu_pool *currents[EMU_DEVICES]; /* NULL: the default */

CUmemoryPool cu_pool_handle(struct emu_pool *pool) {
    return pool->destroyed ? NULL : (CUmemoryPool)pool;
}

static struct emu_pool *find(CUmemoryPool handle) {
    struct emu_pool *pool = emu_find_handle(EMU_POOL, handle);
    return pool ? pool : emu_find_handle(EMU_DEFAULT_POOL, handle);
}

void cu_pools_close(void) {
    for (unsigned device = 0; device < EMU_DEVICES; device++) {
        if (defaults[device])
            emu_pool_destroy(defaults[device]);
        defaults[device] = currents[device] = NULL;
    }
}

static CUresult default_pool(CUdevice device, struct emu_pool **pool) {
    enum emu_status status = EMU_OK;
    if (!cu_is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!defaults[device])
        status = emu_pool_create(EMU_DEFAULT_POOL, (unsigned)device, 0, 0, &defaults[device]);
    *pool = defaults[device];
    return cu_result(status);
}

static CUresult current_pool(CUdevice device, struct emu_pool **pool) {
    if (!cu_is_device(device) || !currents[device])
        return default_pool(device, pool);
    *pool = currents[device];
    return CUDA_SUCCESS;
}

static CUresult set_current(CUdevice device, CUmemoryPool handle) {
    struct emu_pool *pool = find(handle);
    if (!cu_is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool || pool->imported || pool->device != (unsigned)device)
        return CUDA_ERROR_INVALID_VALUE;
    currents[device] = pool;
    return CUDA_SUCCESS;
}

/* By reference, as `result` is made by the call that finds the pool. */
static CUresult answer(CUmemoryPool *handle, CUresult result, struct emu_pool *const *pool) {
    if (!result)
        *handle = cu_pool_handle(*pool);
    return result;
}

CU_CALL(cuDeviceGetDefaultMemPool, (CUmemoryPool * handle, CUdevice device), (handle, device)) {
    struct emu_pool *pool = NULL;
    return handle ? answer(handle, default_pool(device, &pool), &pool) : CUDA_ERROR_INVALID_VALUE;
}

CU_CALL(cuDeviceGetMemPool, (CUmemoryPool * handle, CUdevice device), (handle, device)) {
    struct emu_pool *pool = NULL;
    return handle ? answer(handle, current_pool(device, &pool), &pool) : CUDA_ERROR_INVALID_VALUE;
}

CU_CALL(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool handle), (device, handle)) {
    return set_current(device, handle);
}

/* Only pools on devices are built. */
static CUresult check_place(const CUmemLocation *location, CUmemAllocationType type) {
    if (!location || location->type == CU_MEM_LOCATION_TYPE_INVALID ||
        type == CU_MEM_ALLOCATION_TYPE_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    return cu_is_device(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CU_CALL(cuMemGetDefaultMemPool,
        (CUmemoryPool * handle, CUmemLocation *location, CUmemAllocationType type),
        (handle, location, type)) {
    struct emu_pool *pool = NULL;
    CUresult result = handle ? check_place(location, type) : CUDA_ERROR_INVALID_VALUE;
    return result ? result : answer(handle, default_pool(location->id, &pool), &pool);
}

CU_CALL(cuMemGetMemPool, (CUmemoryPool * handle, CUmemLocation *location, CUmemAllocationType type),
        (handle, location, type)) {
    struct emu_pool *pool = NULL;
    CUresult result = handle ? check_place(location, type) : CUDA_ERROR_INVALID_VALUE;
    return result ? result : answer(handle, current_pool(location->id, &pool), &pool);
}

CU_CALL(cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool handle),
        (location, type, handle)) {
    CUresult result = check_place(location, type);
    return result ? result : set_current(location->id, handle);
}

CU_CALL(cuMemPoolCreate, (CUmemoryPool * handle, const CUmemPoolProps *wanted), (handle, wanted)) {
    struct emu_pool *pool = NULL;
    if (!handle || !wanted)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_place(&wanted->location, wanted->allocType);
    if (result)
        return result;
    if (wanted->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    enum emu_status status = emu_pool_create(EMU_POOL, (unsigned)wanted->location.id,
                                             wanted->handleTypes, wanted->maxSize, &pool);
    return answer(handle, cu_result(status), &pool);
}

/* A device whose current pool is destroyed goes back to its default one. */
CU_CALL(cuMemPoolDestroy, (CUmemoryPool handle), (handle)) {
    struct emu_pool *pool = emu_find_handle(EMU_POOL, handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (currents[pool->device] == pool)
        currents[pool->device] = NULL;
    emu_pool_destroy(pool);
    return CUDA_SUCCESS;
}

CU_CALL(cuMemPoolTrimTo, (CUmemoryPool handle, size_t keep), (handle, keep)) {
    if (!find(handle))
        return CUDA_ERROR_INVALID_VALUE;
    emu_pool_trim(find(handle), keep);
    return CUDA_SUCCESS;
}

CU_CALL(cuMemPoolSetAttribute,
        (CUmemoryPool handle, CUmemPool_attribute attribute, const void *value),
        (handle, attribute, value)) {
    struct emu_pool *pool = find(handle);
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - 1] = *(const int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(const cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: /* high marks can only be reset */
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            pool->used_high = pool->used;
        else
            pool->reserved_high = pool->reserved;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CU_CALL(cuMemPoolGetAttribute, (CUmemoryPool handle, CUmemPool_attribute attribute, void *value),
        (handle, attribute, value)) {
    struct emu_pool *pool = find(handle);
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = (int)pool->reuse[attribute - 1];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* A pool's own device always has access: it cannot be taken away. */
CU_CALL(cuMemPoolSetAccess, (CUmemoryPool handle, const CUmemAccessDesc *accesses, size_t count),
        (handle, accesses, count)) {
    struct emu_pool *pool = find(handle);
    if (!pool || !accesses)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (accesses[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_INVALID_VALUE;
        if (!cu_is_device(accesses[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        if (accesses[i].location.id == (int)pool->device && !accesses[i].flags)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++)
        pool->access[accesses[i].location.id] = (uint8_t)accesses[i].flags;
    return CUDA_SUCCESS;
}

CU_CALL(cuMemPoolGetAccess,
        (CUmemAccess_flags * flags, CUmemoryPool handle, CUmemLocation *location),
        (flags, handle, location)) {
    struct emu_pool *pool = find(handle);
    if (!pool || !flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cu_is_device(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = pool->access[location->id];
    return CUDA_SUCCESS;
}

/* Allocation and free happen in the order of the stream, and so, here, at once. */

static CUresult allocate(CUdeviceptr *address, size_t size, struct emu_pool *pool,
                         CUstream stream) {
    struct emu_memory *memory;
    if (!address || !size)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t before = pool->reserved;
    CUresult result = cu_result(emu_pool_take(pool, size, &memory));
    if (result)
        return result;
    if (pool->reserved > before)
        emu_clock_spend(emu_cost_allocation(pool->reserved - before));
    emu_queue_wait_for(&stream->queue, emu_clock_now());
    *address = memory->object.node.base;
    return CUDA_SUCCESS;
}

CU_CALL_PTSZ(cuMemAllocAsync, (CUdeviceptr * address, size_t size, CUstream stream),
             (address, size, stream)) {
    struct emu_pool *pool;
    CUresult result = cu_use_stream(stream, &stream);
    if (!result && stream->capturing.in)
        result = cu_not_captured(stream, CALL_cuMemAllocAsync);
    if (!result)
        result = current_pool(stream->context->device, &pool);
    return result ? result : allocate(address, size, pool, stream);
}

CU_CALL_PTSZ(cuMemAllocFromPoolAsync,
             (CUdeviceptr * address, size_t size, CUmemoryPool handle, CUstream stream),
             (address, size, handle, stream)) {
    CUresult result = cu_use_stream(stream, &stream);
    if (!result && stream->capturing.in)
        result = cu_not_captured(stream, CALL_cuMemAllocFromPoolAsync);
    if (result || !find(handle))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    return allocate(address, size, find(handle), stream);
}

CU_CALL_PTSZ(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), (address, stream)) {
    CUresult result = cu_use_stream(stream, &stream);
    if (!result && stream->capturing.in)
        result = cu_not_captured(stream, CALL_cuMemFreeAsync);
    if (result)
        return result;
    struct emu_memory *pooled = emu_memory_at(EMU_POOLED, address);
    struct emu_memory *opened = emu_memory_at(EMU_POOL_OPEN, address);
    if (pooled)
        emu_pool_give(pooled);
    else if (opened)
        emu_pointer_close(opened);
    return pooled || opened ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Across processes. */

CU_CALL(cuMemPoolExportToShareableHandle,
        (void *shareable, CUmemoryPool handle, CUmemAllocationHandleType type,
         unsigned long long flags),
        (shareable, handle, type, flags)) {
    struct emu_pool *pool = find(handle);
    if (!shareable || !pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return cu_result(emu_pool_export(pool, shareable));
}

CU_CALL(cuMemPoolImportFromShareableHandle,
        (CUmemoryPool * handle, void *shareable, CUmemAllocationHandleType type,
         unsigned long long flags),
        (handle, shareable, type, flags)) {
    struct emu_pool *pool = NULL;
    if (!handle || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return answer(handle, cu_result(emu_pool_import((int)(intptr_t)shareable, &pool)), &pool);
}

CU_CALL(cuMemPoolExportPointer, (CUmemPoolPtrExportData * data, CUdeviceptr address),
        (data, address)) {
    struct emu_memory *memory = emu_memory_at(EMU_POOLED, address);
    if (!data || !memory)
        return CUDA_ERROR_INVALID_VALUE;
    return cu_result(emu_pointer_export(memory, data->reserved));
}

CU_CALL(cuMemPoolImportPointer,
        (CUdeviceptr * address, CUmemoryPool handle, const CUmemPoolPtrExportData *data),
        (address, handle, data)) {
    struct emu_pool *pool = find(handle);
    struct emu_memory *memory;
    if (!address || !pool || !data)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cu_result(emu_pointer_import(pool, data->reserved, &memory));
    if (!result)
        *address = memory->object.node.base;
    return result;
}
