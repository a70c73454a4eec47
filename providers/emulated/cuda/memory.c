/* Memory: on the device, on the host for both, managed, registered; and what is known of it. */
#include "driver.h"

static unsigned current_device(void) { return (unsigned)cu_current()->device; }

CU_CALL(cuMemGetInfo_v2, (size_t *free_bytes, size_t *total), (free_bytes, total)) {
    const struct emu_device *device = emu_device(current_device());
    if (!free_bytes || !total)
        return CUDA_ERROR_INVALID_VALUE;
    *free_bytes = device->capacity - device->used;
    *total = device->capacity;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *address, size_t size) {
    struct emu_memory *memory;
    if (!address || !size)
        return CUDA_ERROR_INVALID_VALUE;
    emu_clock_spend(emu_cost_allocation(size));
    CUresult result = cu_result(emu_device_memory(current_device(), size, cu_current(), &memory));
    if (!result)
        *address = memory->object.node.base;
    return result;
}

CU_CALL(cuMemAlloc_v2, (CUdeviceptr * address, size_t size), (address, size)) {
    return allocate(address, size);
}

/* Rows start at multiples of 512 bytes, which suits every element size. */
CU_CALL(cuMemAllocPitch_v2,
        (CUdeviceptr * address, size_t *pitch, size_t width, size_t height, unsigned element),
        (address, pitch, width, height, element)) {
    uint64_t row;
    if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (!emu_round_up(width, EMU_UNIT, &row) || height > SIZE_MAX / row)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = allocate(address, row * height);
    if (!result)
        *pitch = row;
    return result;
}

/* Frees wait for the device: nobody may still be using the memory. */
static void free_and_wait(struct emu_memory *memory) {
    emu_clock_spend(emu_cost_free(memory->object.node.size));
    emu_device_finish(memory->device);
    emu_memory_free(memory);
    cu_waited();
}

CU_CALL(cuMemFree_v2, (CUdeviceptr address), (address)) {
    struct emu_memory *memory = emu_memory_find(address);
    if (!memory || memory->object.node.base != address)
        return CUDA_ERROR_INVALID_VALUE;
    switch (memory->object.kind) {
    case EMU_DEVICE_MEMORY:
    case EMU_MANAGED:
        free_and_wait(memory);
        return CUDA_SUCCESS;
    case EMU_POOLED:
        emu_device_finish(memory->device);
        emu_pool_give(memory);
        cu_waited();
        return CUDA_SUCCESS;
    case EMU_POOL_OPEN:
        emu_pointer_close(memory);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CU_CALL(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *size, CUdeviceptr address),
        (base, size, address)) {
    struct emu_memory *memory = emu_memory_find(address);
    if (!memory || memory->object.kind == EMU_REGISTERED)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = memory->object.node.base;
    if (size)
        *size = memory->object.node.size;
    return CUDA_SUCCESS;
}

/* Host memory. */

#define HOST_FLAGS 0x7u
#define REGISTER_FLAGS 0xfu

static CUresult allocate_host(void **address, size_t size, unsigned flags) {
    struct emu_memory *memory;
    if (!address || !size || (flags & ~HOST_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    emu_clock_spend(emu_cost_allocation(size));
    CUresult result =
        cu_result(emu_host_memory(EMU_HOST_MEMORY, current_device(), size, cu_current(), &memory));
    if (!result) {
        memory->flags = flags;
        *address = memory->bytes;
    }
    return result;
}

CU_CALL(cuMemAllocHost_v2, (void **address, size_t size), (address, size)) {
    return allocate_host(address, size, 0);
}

CU_CALL(cuMemHostAlloc, (void **address, size_t size, unsigned flags), (address, size, flags)) {
    return allocate_host(address, size, flags);
}

CU_CALL(cuMemFreeHost, (void *address), (address)) {
    struct emu_memory *memory = emu_memory_at(EMU_HOST_MEMORY, (uintptr_t)address);
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    emu_device_finish(memory->device);
    emu_memory_free(memory);
    return CUDA_SUCCESS;
}

CU_CALL(cuMemHostRegister_v2, (void *address, size_t size, unsigned flags),
        (address, size, flags)) {
    struct emu_memory *memory;
    uint64_t base = (uintptr_t)address;
    if (!address || !size || (flags & ~REGISTER_FLAGS) || size > UINT64_MAX - base ||
        emu_is_device_address(base))
        return CUDA_ERROR_INVALID_VALUE;
    enum emu_status status = emu_register(base, size, cu_current(), &memory);
    if (status)
        return status == EMU_INVALID ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                     : cu_result(status);
    memory->device = current_device();
    memory->flags = flags;
    return CUDA_SUCCESS;
}

CU_CALL(cuMemHostUnregister, (void *address), (address)) {
    struct emu_memory *memory = emu_memory_at(EMU_REGISTERED, (uintptr_t)address);
    if (!memory)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    emu_memory_free(memory);
    return CUDA_SUCCESS;
}

static struct emu_memory *find_host(const void *address) {
    struct emu_memory *memory = emu_memory_find((uintptr_t)address);
    bool host =
        memory && (memory->object.kind == EMU_HOST_MEMORY || memory->object.kind == EMU_REGISTERED);
    return host ? memory : NULL;
}

/* With unified addressing the device knows host memory by the same address. */
CU_CALL(cuMemHostGetDevicePointer_v2, (CUdeviceptr * device, void *address, unsigned flags),
        (device, address, flags)) {
    if (!device || flags || !find_host(address))
        return CUDA_ERROR_INVALID_VALUE;
    *device = (uintptr_t)address;
    return CUDA_SUCCESS;
}

/* Allocations are mapped and portable whether asked for or not, as on any unified system. */
CU_CALL(cuMemHostGetFlags, (unsigned *flags, void *address), (flags, address)) {
    struct emu_memory *memory = find_host(address);
    if (!flags || !memory)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = memory->flags | 0x3u;
    return CUDA_SUCCESS;
}

/* Managed memory: reached from both sides at once, never charged to a device, as it can exceed
 * any. */

CU_CALL(cuMemAllocManaged, (CUdeviceptr * address, size_t size, unsigned flags),
        (address, size, flags)) {
    struct emu_memory *memory;
    if (!address || !size || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    emu_clock_spend(emu_cost_allocation(size));
    CUresult result =
        cu_result(emu_host_memory(EMU_MANAGED, current_device(), size, cu_current(), &memory));
    if (!result)
        *address = memory->object.node.base;
    return result;
}

static bool is_managed(CUdeviceptr address, size_t size) {
    struct emu_memory *memory = emu_memory_find(address);
    return memory && memory->object.kind == EMU_MANAGED && size &&
           size <= memory->object.node.size - (address - memory->object.node.base);
}

static CUresult advise(CUdeviceptr address, size_t size, CUmem_advise advice) {
    bool known =
        advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    return known && is_managed(address, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CU_CALL(cuMemAdvise, (CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device),
        (address, size, advice, device)) {
    (void)device;
    return advise(address, size, advice);
}

CU_CALL(cuMemAdvise_v2,
        (CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location),
        (address, size, advice, location)) {
    (void)location;
    return advise(address, size, advice);
}

static CUresult prefetch(CUdeviceptr address, size_t size, CUdevice device, CUstream stream) {
    CUresult result = cu_use_stream(stream, &stream);
    if (!result)
        result = cu_check_outside(stream);
    if (result)
        return result;
    if (!is_managed(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    if (device >= 0 && !cu_is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    emu_queue_wait_for(&stream->queue, emu_clock_now() + emu_cost_bus(size));
    return CUDA_SUCCESS;
}

CU_CALL_PTSZ(cuMemPrefetchAsync,
             (CUdeviceptr address, size_t size, CUdevice device, CUstream stream),
             (address, size, device, stream)) {
    return prefetch(address, size, device, stream);
}

CU_CALL_PTSZ(cuMemPrefetchAsync_v2,
             (CUdeviceptr address, size_t size, CUmemLocation location, unsigned flags,
              CUstream stream),
             (address, size, location, flags, stream)) {
    if (flags || location.type == CU_MEM_LOCATION_TYPE_INVALID ||
        location.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    CUdevice device = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1;
    return prefetch(address, size, device, stream);
}

/* Advice is checked, not kept: every range attribute answers "none" (0; for locations, -2). */
static CUresult range_attribute(void *data, size_t size, int attribute) {
    if (!data || size < 4 || size % 4 || attribute < 1 || attribute > 8)
        return CUDA_ERROR_INVALID_VALUE;
    bool location = attribute == 2 || attribute == 3 || attribute == 4;
    for (size_t i = 0; i < size / 4; i++)
        ((int *)data)[i] = location ? -2 : 0;
    return CUDA_SUCCESS;
}

CU_CALL(cuMemRangeGetAttribute,
        (void *data, size_t data_size, int attribute, CUdeviceptr address, size_t size),
        (data, data_size, attribute, address, size)) {
    if (!is_managed(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    return range_attribute(data, data_size, attribute);
}

CU_CALL(cuMemRangeGetAttributes,
        (void **data, size_t *data_sizes, int *attributes, size_t count, CUdeviceptr address,
         size_t size),
        (data, data_sizes, attributes, count, address, size)) {
    if (!data || !data_sizes || !attributes || !is_managed(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && !result; i++)
        result = range_attribute(data[i], data_sizes[i], attributes[i]);
    return result;
}

/* A context goes, and with it all that was made in it. */
void cu_free_owned(CUcontext context) {
    static const enum emu_kind memory[] = {EMU_DEVICE_MEMORY, EMU_HOST_MEMORY, EMU_REGISTERED,
                                           EMU_MANAGED, EMU_OPEN};
    struct emu_object *next;
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        for (struct emu_object *object = emu_first(memory[i]); object; object = next) {
            next = object->next;
            if (object->owner == context)
                emu_memory_free((struct emu_memory *)object);
        }
    cu_capture_leave(&context->per_thread);
    for (struct emu_object *object = emu_first(EMU_STREAM); object; object = next) {
        next = object->next;
        if (object->owner == context)
            cu_stream_free((CUstream)object);
    }
    for (struct emu_object *object = emu_first(EMU_EVENT); object; object = next) {
        next = object->next;
        if (object->owner == context)
            cu_event_free((CUevent)object);
    }
}
