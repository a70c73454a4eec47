/* The part of Level Zero's binary interface that the emulated driver speaks.
 *
 * Names, numbers and layouts are the interface's own (Level Zero specification 1.10); a test
 * compares them with an installed ze_api.h.  Every descriptor and every properties structure
 * begins with `stype`, which says what it is, and `pNext`, a chain of further ones.
 */
#ifndef UMFPY_LEVEL_ZERO_ABI_H
#define UMFPY_LEVEL_ZERO_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef uint8_t ze_bool_t;
typedef uint32_t ze_api_version_t;    /* major << 16 | minor */
typedef uint32_t ze_structure_type_t; /* enum lz_structure */

typedef struct _ze_driver_handle_t *ze_driver_handle_t;
typedef struct _ze_device_handle_t *ze_device_handle_t;
typedef struct _ze_context_handle_t *ze_context_handle_t;
typedef struct _ze_command_queue_handle_t *ze_command_queue_handle_t;
typedef struct _ze_command_list_handle_t *ze_command_list_handle_t;
typedef struct _ze_fence_handle_t *ze_fence_handle_t;
typedef struct _ze_event_pool_handle_t *ze_event_pool_handle_t;
typedef struct _ze_event_handle_t *ze_event_handle_t;
typedef struct emu_physical *ze_physical_mem_handle_t;

#define ZE_MAKE_VERSION(major, minor) ((uint32_t)(major) << 16 | (uint32_t)(minor))

typedef enum {
    ZE_RESULT_SUCCESS = 0,
    ZE_RESULT_NOT_READY = 1,
    ZE_RESULT_ERROR_DEVICE_LOST = 0x70000001,
    ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY = 0x70000002,
    ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY = 0x70000003,
    ZE_RESULT_ERROR_UNINITIALIZED = 0x78000001,
    ZE_RESULT_ERROR_UNSUPPORTED_VERSION = 0x78000002,
    ZE_RESULT_ERROR_UNSUPPORTED_FEATURE = 0x78000003,
    ZE_RESULT_ERROR_INVALID_ARGUMENT = 0x78000004,
    ZE_RESULT_ERROR_INVALID_NULL_HANDLE = 0x78000005,
    ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE = 0x78000006,
    ZE_RESULT_ERROR_INVALID_NULL_POINTER = 0x78000007,
    ZE_RESULT_ERROR_INVALID_SIZE = 0x78000008,
    ZE_RESULT_ERROR_UNSUPPORTED_SIZE = 0x78000009,
    ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT = 0x7800000a,
    ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT = 0x7800000b,
    ZE_RESULT_ERROR_INVALID_ENUMERATION = 0x7800000c,
    ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION = 0x7800000d,
    ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE = 0x78000019,
    ZE_RESULT_ERROR_UNKNOWN = 0x7ffffffe,
} ze_result_t;

enum lz_structure {
    ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES = 0x1,
    ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES = 0x2,
    ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES = 0x3,
    ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES = 0x4,
    ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES = 0x6,
    ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES = 0x7,
    ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES = 0x8,
    ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES = 0x9,
    ZE_STRUCTURE_TYPE_DEVICE_P2P_PROPERTIES = 0xb,
    ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES = 0xc,
    ZE_STRUCTURE_TYPE_CONTEXT_DESC = 0xd,
    ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC = 0xe,
    ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC = 0xf,
    ZE_STRUCTURE_TYPE_EVENT_POOL_DESC = 0x10,
    ZE_STRUCTURE_TYPE_EVENT_DESC = 0x11,
    ZE_STRUCTURE_TYPE_FENCE_DESC = 0x12,
    ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC = 0x15,
    ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC = 0x16,
    ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES = 0x17,
    ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC = 0x18,
    ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD = 0x19,
    ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD = 0x1a,
    ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC = 0x20,
    ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES = 0x10008,
    ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES = 0x10009,
    ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC = 0x1000a,
    ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC = 0x20001,
    ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 = 0x20006,
    ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC = 0x20021,
};

/* What every such structure begins with. */
typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
} ze_base_desc_t;

/* Drivers. */

enum { ZE_INIT_FLAG_GPU_ONLY = 1, ZE_INIT_FLAG_VPU_ONLY = 2 };
enum { ZE_INIT_DRIVER_TYPE_FLAG_GPU = 1, ZE_INIT_DRIVER_TYPE_FLAG_NPU = 2 };
enum { ZE_IPC_PROPERTY_FLAG_MEMORY = 1, ZE_IPC_PROPERTY_FLAG_EVENT_POOL = 2 };

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t flags;
} ze_init_driver_type_desc_t;

typedef struct {
    uint8_t id[16];
} ze_uuid_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    ze_uuid_t uuid;
    uint32_t driverVersion;
} ze_driver_properties_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    uint32_t flags;
} ze_driver_ipc_properties_t;

typedef struct {
    char name[256];
    uint32_t version;
} ze_driver_extension_properties_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    uint32_t freePolicies;
} ze_driver_memory_free_ext_properties_t;

/* Devices. */

enum { ZE_DEVICE_TYPE_GPU = 1 };
enum { ZE_DEVICE_PROPERTY_FLAG_ECC = 4, ZE_DEVICE_PROPERTY_FLAG_ONDEMANDPAGING = 8 };
enum { ZE_MEMORY_ACCESS_CAP_FLAG_RW = 1, ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC = 2 };
enum { ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS = 1 };
enum {
    ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE = 1,
    ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY = 2
};

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    int type;
    uint32_t vendorId;
    uint32_t deviceId;
    uint32_t flags;
    uint32_t subdeviceId;
    uint32_t coreClockRate;
    uint64_t maxMemAllocSize;
    uint32_t maxHardwareContexts;
    uint32_t maxCommandQueuePriority;
    uint32_t numThreadsPerEU;
    uint32_t physicalEUSimdWidth;
    uint32_t numEUsPerSubslice;
    uint32_t numSubslicesPerSlice;
    uint32_t numSlices;
    uint64_t timerResolution;
    uint32_t timestampValidBits;
    uint32_t kernelTimestampValidBits;
    ze_uuid_t uuid;
    char name[256];
} ze_device_properties_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    uint32_t maxTotalGroupSize;
    uint32_t maxGroupSizeX, maxGroupSizeY, maxGroupSizeZ;
    uint32_t maxGroupCountX, maxGroupCountY, maxGroupCountZ;
    uint32_t maxSharedLocalMemory;
    uint32_t numSubGroupSizes;
    uint32_t subGroupSizes[8];
} ze_device_compute_properties_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    uint32_t flags;
    size_t maxMemoryFillPatternSize;
    uint32_t numQueues;
} ze_command_queue_group_properties_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    uint32_t flags;
    uint32_t maxClockRate;
    uint32_t maxBusWidth;
    uint64_t totalSize;
    char name[256];
} ze_device_memory_properties_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    uint32_t hostAllocCapabilities;
    uint32_t deviceAllocCapabilities;
    uint32_t sharedSingleDeviceAllocCapabilities;
    uint32_t sharedCrossDeviceAllocCapabilities;
    uint32_t sharedSystemAllocCapabilities;
} ze_device_memory_access_properties_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    uint32_t flags;
    size_t cacheSize;
} ze_device_cache_properties_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    uint32_t memoryAllocationImportTypes;
    uint32_t memoryAllocationExportTypes;
    uint32_t imageImportTypes;
    uint32_t imageExportTypes;
} ze_device_external_memory_properties_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    uint32_t flags;
} ze_device_p2p_properties_t;

typedef struct {
    uint32_t domain, bus, device, function;
} ze_pci_address_ext_t;

typedef struct {
    int32_t genVersion, width;
    int64_t maxBandwidth;
} ze_pci_speed_ext_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    ze_pci_address_ext_t address;
    ze_pci_speed_ext_t maxSpeed;
} ze_pci_ext_properties_t;

/* Contexts and memory. */

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t flags;
} ze_context_desc_t;

enum { ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE = 1 };

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t flags;
} ze_relaxed_allocation_limits_exp_desc_t;

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t flags;
    uint32_t ordinal;
} ze_device_mem_alloc_desc_t;

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t flags;
} ze_host_mem_alloc_desc_t;

enum {
    ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE = 1,
    ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE = 2,
};

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t freePolicy;
} ze_memory_free_ext_desc_t;

typedef enum {
    ZE_MEMORY_TYPE_UNKNOWN = 0,
    ZE_MEMORY_TYPE_HOST = 1,
    ZE_MEMORY_TYPE_DEVICE = 2,
    ZE_MEMORY_TYPE_SHARED = 3,
} ze_memory_type_t;

typedef struct {
    ze_structure_type_t stype;
    void *pNext;
    ze_memory_type_t type;
    uint64_t id;
    uint64_t pageSize;
} ze_memory_allocation_properties_t;

typedef struct {
    char data[64];
} ze_ipc_mem_handle_t;

/* Virtual memory. */

typedef enum {
    ZE_MEMORY_ACCESS_ATTRIBUTE_NONE = 0,
    ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE = 1,
    ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY = 2,
} ze_memory_access_attribute_t;

enum { ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE = 1, ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST = 2 };

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t flags;
    size_t size;
} ze_physical_mem_desc_t;

/* Queues, lists, events, fences. */

typedef enum {
    ZE_COMMAND_QUEUE_MODE_DEFAULT = 0,
    ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS = 1,
    ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS = 2,
} ze_command_queue_mode_t;

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t ordinal;
    uint32_t index;
    uint32_t flags;
    ze_command_queue_mode_t mode;
    int priority;
} ze_command_queue_desc_t;

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t commandQueueGroupOrdinal;
    uint32_t flags;
} ze_command_list_desc_t;

enum {
    ZE_EVENT_POOL_FLAG_HOST_VISIBLE = 1,
    ZE_EVENT_POOL_FLAG_IPC = 2,
    ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP = 4,
};

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t flags;
    uint32_t count;
} ze_event_pool_desc_t;

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t index;
    uint32_t signal;
    uint32_t wait;
} ze_event_desc_t;

enum { ZE_FENCE_FLAG_SIGNALED = 1 };

typedef struct {
    ze_structure_type_t stype;
    const void *pNext;
    uint32_t flags;
} ze_fence_desc_t;

typedef struct {
    uint64_t kernelStart, kernelEnd;
} ze_kernel_timestamp_data_t;

typedef struct {
    ze_kernel_timestamp_data_t global, context;
} ze_kernel_timestamp_result_t;

#endif
