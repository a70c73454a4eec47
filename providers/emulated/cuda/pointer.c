/* What an address is: CUDA Driver API, "Unified Addressing". */
#include "driver.h"

#include <string.h>

/* One attribute's value; `size` 0: this address does not have it. */
struct answer {
    union {
        void *pointer;
        CUdeviceptr address;
        unsigned long long number;
        unsigned word;
        int ordinal;
    };
    size_t size;
};

static struct answer word(unsigned value) {
    return (struct answer){.word = value, .size = sizeof value};
}

static struct answer number(unsigned long long value) {
    return (struct answer){.number = value, .size = sizeof value};
}

static bool is_host(const struct emu_memory *memory) {
    return memory->object.kind == EMU_HOST_MEMORY || memory->object.kind == EMU_REGISTERED;
}

static unsigned shareable(const struct emu_memory *memory) {
    if (memory->physical)
        return memory->physical->shareable;
    return memory->pool ? memory->pool->shareable : 0;
}

static unsigned access_flags(const struct emu_memory *memory) {
    return memory->physical ? memory->access[memory->device] : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static struct answer ask(const struct emu_memory *memory, CUdeviceptr address, int attribute) {
    bool host = is_host(memory), managed = memory->object.kind == EMU_MANAGED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return number((uintptr_t)memory->object.owner);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return word(host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return number(address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return host || managed ? number(address) : (struct answer){.size = 0};
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return word(0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return number(memory->id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return word(managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return word(memory->device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return word(memory->object.kind == EMU_DEVICE_MEMORY);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return number(memory->object.node.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return number(memory->object.node.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return word(1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return number(shareable(memory));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return word(0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return word(access_flags(memory));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return number((uintptr_t)(memory->pool ? cu_pool_handle(memory->pool) : NULL));
    default:
        return (struct answer){.size = 0};
    }
}

CU_CALL(cuPointerGetAttribute, (void *data, int attribute, CUdeviceptr address),
        (data, attribute, address)) {
    struct emu_memory *memory = emu_memory_find(address);
    if (!data || !memory)
        return CUDA_ERROR_INVALID_VALUE;
    struct answer answer = ask(memory, address, attribute);
    if (!answer.size)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(data, &answer, answer.size);
    return CUDA_SUCCESS;
}

/* What each attribute says of an address that the driver does not know. */
static struct answer unknown(int attribute) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return word((unsigned)-2);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return word(0);
    default:
        return number(0);
    }
}

/* Unlike the call for one attribute, this one succeeds for every address. */
CU_CALL(cuPointerGetAttributes, (unsigned count, int *attributes, void **data, CUdeviceptr address),
        (count, attributes, data, address)) {
    struct emu_memory *memory = emu_memory_find(address);
    if (!attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        struct answer answer = {.size = 0};
        if (attributes[i] < 1 || attributes[i] > 21 || !data[i])
            return CUDA_ERROR_INVALID_VALUE;
        if (memory)
            answer = ask(memory, address, attributes[i]);
        if (!answer.size)
            answer = unknown(attributes[i]);
        memcpy(data[i], &answer, answer.size);
    }
    return CUDA_SUCCESS;
}

CU_CALL(cuPointerSetAttribute, (const void *value, int attribute, CUdeviceptr address),
        (value, attribute, address)) {
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !emu_memory_find(address))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS; /* every operation is synchronous here already */
}
