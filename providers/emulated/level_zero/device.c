/* Devices: what there is, and what they say of themselves.  The values are those of a data centre
 * GPU with two groups of queues; what depends on the settings is the memory. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static struct _ze_device_handle_t devices[EMU_DEVICES];

ze_device_handle_t lz_device(unsigned ordinal) {
    devices[ordinal].ordinal = ordinal;
    return &devices[ordinal];
}

ze_result_t lz_check_device(ze_device_handle_t device) {
    LZ_REQUIRE(device, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    for (unsigned i = 0; i < emu_machine.devices; i++)
        if (device == &devices[i])
            return ZE_RESULT_SUCCESS;
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

#define FOUR_GIB (4ull << 30)

/* Without relaxed limits, one allocation is at most half the memory, and at most 4 GiB, as far as a
 * 32-bit offset reaches. */
uint64_t lz_largest_allocation(void) {
    return lz_settings.memory / 2 < FOUR_GIB ? lz_settings.memory / 2 : FOUR_GIB;
}

LZ_CALL(zeDeviceGet, (ze_driver_handle_t driver, uint32_t *count, ze_device_handle_t *found),
        (driver, count, found)) {
    LZ_CHECK(lz_check_driver(driver));
    LZ_POINTER(count);
    uint32_t writes = lz_count(count, found, emu_machine.devices);
    for (uint32_t i = 0; i < writes; i++)
        found[i] = lz_device(i);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeDeviceGetSubDevices,
        (ze_device_handle_t device, uint32_t *count, ze_device_handle_t *found),
        (device, count, found)) {
    LZ_CHECK(lz_check_device(device));
    LZ_POINTER(count);
    lz_count(count, found, 0);
    return ZE_RESULT_SUCCESS;
}

/* A device that is no part of another has no root but itself, which is said with NULL. */
LZ_CALL(zeDeviceGetRootDevice, (ze_device_handle_t device, ze_device_handle_t *root),
        (device, root)) {
    LZ_CHECK(lz_check_device(device));
    LZ_POINTER(root);
    *root = NULL;
    return ZE_RESULT_SUCCESS;
}

/* The identity is the same in every process, so that handles from another one find the device. */
static const ze_device_properties_t described = {
    .type = ZE_DEVICE_TYPE_GPU,
    .vendorId = 0x8086,
    .deviceId = 0x0bd5,
    .flags = ZE_DEVICE_PROPERTY_FLAG_ECC | ZE_DEVICE_PROPERTY_FLAG_ONDEMANDPAGING,
    .coreClockRate = 1600,
    .maxHardwareContexts = 65536,
    .numThreadsPerEU = 8,
    .physicalEUSimdWidth = 16,
    .numEUsPerSubslice = 8,
    .numSubslicesPerSlice = 64,
    .numSlices = 1,
    .timestampValidBits = 64,
    .kernelTimestampValidBits = 64,
    .uuid = {"umfpy-lz-device"},
    .name = "umfpy emulated GPU",
};

/* Version 1.2 of the structure gives the resolution of timestamps in cycles per second. */
LZ_CALL(zeDeviceGetProperties, (ze_device_handle_t device, ze_device_properties_t *properties),
        (device, properties)) {
    LZ_CHECK(lz_check_device(device));
    LZ_POINTER(properties);
    ze_structure_type_t type = properties->stype;
    void *chain = properties->pNext;
    LZ_REQUIRE(type == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES ||
                   type == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2,
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    *properties = described;
    properties->stype = type;
    properties->pNext = chain;
    properties->maxMemAllocSize = lz_largest_allocation();
    properties->timerResolution = type == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES ? 1 : 1000000000ull;
    properties->uuid.id[15] = (uint8_t)device->ordinal;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeDeviceGetComputeProperties,
        (ze_device_handle_t device, ze_device_compute_properties_t *properties),
        (device, properties)) {
    LZ_CHECK(lz_check_device(device));
    LZ_CHECK(lz_check_structure(properties, ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES));
    *properties = (ze_device_compute_properties_t){
        .stype = properties->stype,
        .pNext = properties->pNext,
        .maxTotalGroupSize = 1024,
        .maxGroupSizeX = 1024,
        .maxGroupSizeY = 1024,
        .maxGroupSizeZ = 1024,
        .maxGroupCountX = UINT32_MAX,
        .maxGroupCountY = UINT32_MAX,
        .maxGroupCountZ = UINT32_MAX,
        .maxSharedLocalMemory = 128 << 10,
        .numSubGroupSizes = 2,
        .subGroupSizes = {16, 32},
    };
    return ZE_RESULT_SUCCESS;
}

/* The engine that only copies writes patterns of a few bytes; the other one any that fit. */
static const ze_command_queue_group_properties_t groups[LZ_GROUPS] = {
    {.flags =
         ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY,
     .maxMemoryFillPatternSize = 128,
     .numQueues = 4},
    {.flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY,
     .maxMemoryFillPatternSize = 4,
     .numQueues = 1},
};

const ze_command_queue_group_properties_t *lz_group(uint32_t ordinal) {
    return ordinal < LZ_GROUPS ? &groups[ordinal] : NULL;
}

LZ_CALL(zeDeviceGetCommandQueueGroupProperties,
        (ze_device_handle_t device, uint32_t *count,
         ze_command_queue_group_properties_t *properties),
        (device, count, properties)) {
    LZ_CHECK(lz_check_device(device));
    LZ_POINTER(count);
    uint32_t writes = lz_count(count, properties, LZ_GROUPS);
    for (uint32_t i = 0; i < writes; i++) {
        LZ_CHECK(
            lz_check_structure(&properties[i], ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES));
        properties[i].flags = groups[i].flags;
        properties[i].maxMemoryFillPatternSize = groups[i].maxMemoryFillPatternSize;
        properties[i].numQueues = groups[i].numQueues;
    }
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeDeviceGetMemoryProperties,
        (ze_device_handle_t device, uint32_t *count, ze_device_memory_properties_t *properties),
        (device, count, properties)) {
    LZ_CHECK(lz_check_device(device));
    LZ_POINTER(count);
    if (!lz_count(count, properties, 1))
        return ZE_RESULT_SUCCESS;
    LZ_CHECK(lz_check_structure(properties, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES));
    properties->flags = 0;
    properties->maxClockRate = 3200;
    properties->maxBusWidth = 8192;
    properties->totalSize = emu_device(device->ordinal)->capacity;
    snprintf(properties->name, sizeof properties->name, "HBM");
    return ZE_RESULT_SUCCESS;
}

/* All but memory that the driver does not know, which no device here reaches. */
LZ_CALL(zeDeviceGetMemoryAccessProperties,
        (ze_device_handle_t device, ze_device_memory_access_properties_t *properties),
        (device, properties)) {
    LZ_CHECK(lz_check_device(device));
    LZ_CHECK(lz_check_structure(properties, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES));
    uint32_t all = ZE_MEMORY_ACCESS_CAP_FLAG_RW | ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC;
    properties->hostAllocCapabilities = all;
    properties->deviceAllocCapabilities = all;
    properties->sharedSingleDeviceAllocCapabilities = all;
    properties->sharedCrossDeviceAllocCapabilities = all;
    properties->sharedSystemAllocCapabilities = 0;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeDeviceGetCacheProperties,
        (ze_device_handle_t device, uint32_t *count, ze_device_cache_properties_t *properties),
        (device, count, properties)) {
    LZ_CHECK(lz_check_device(device));
    LZ_POINTER(count);
    if (!lz_count(count, properties, 1))
        return ZE_RESULT_SUCCESS;
    LZ_CHECK(lz_check_structure(properties, ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES));
    properties->flags = 0;
    properties->cacheSize = 192 << 20;
    return ZE_RESULT_SUCCESS;
}

/* Descriptors are exchanged by IPC handles only. */
LZ_CALL(zeDeviceGetExternalMemoryProperties,
        (ze_device_handle_t device, ze_device_external_memory_properties_t *properties),
        (device, properties)) {
    LZ_CHECK(lz_check_device(device));
    LZ_CHECK(lz_check_structure(properties, ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES));
    properties->memoryAllocationImportTypes = properties->memoryAllocationExportTypes = 0;
    properties->imageImportTypes = properties->imageExportTypes = 0;
    return ZE_RESULT_SUCCESS;
}

/* Every device reaches every other's memory, and its own. */

LZ_CALL(zeDeviceGetP2PProperties,
        (ze_device_handle_t device, ze_device_handle_t peer,
         ze_device_p2p_properties_t *properties),
        (device, peer, properties)) {
    LZ_CHECK(lz_check_device(device));
    LZ_CHECK(lz_check_device(peer));
    LZ_CHECK(lz_check_structure(properties, ZE_STRUCTURE_TYPE_DEVICE_P2P_PROPERTIES));
    properties->flags = ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeDeviceCanAccessPeer, (ze_device_handle_t device, ze_device_handle_t peer, ze_bool_t *can),
        (device, peer, can)) {
    LZ_CHECK(lz_check_device(device));
    LZ_CHECK(lz_check_device(peer));
    LZ_POINTER(can);
    *can = 1;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeDeviceGetStatus, (ze_device_handle_t device), (device)) {
    return lz_check_device(device);
}

LZ_CALL(zeDeviceGetGlobalTimestamps,
        (ze_device_handle_t device, uint64_t *host, uint64_t *on_device),
        (device, host, on_device)) {
    struct timespec now;
    LZ_CHECK(lz_check_device(device));
    LZ_POINTER(host);
    LZ_POINTER(on_device);
    clock_gettime(CLOCK_MONOTONIC, &now);
    *host = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
    *on_device = emu_clock_now();
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeDevicePciGetPropertiesExt,
        (ze_device_handle_t device, ze_pci_ext_properties_t *properties), (device, properties)) {
    LZ_CHECK(lz_check_device(device));
    LZ_CHECK(lz_check_structure(properties, ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES));
    properties->address = (ze_pci_address_ext_t){.bus = device->ordinal + 1};
    properties->maxSpeed = (ze_pci_speed_ext_t){5, 16, 64000000000};
    return ZE_RESULT_SUCCESS;
}
