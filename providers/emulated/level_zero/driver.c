/* The driver: settings, initialisation, what it says of itself. */
#include "driver.h"
#include "control.h"

#include <string.h>

struct emu_settings lz_settings = EMU_DEFAULT_SETTINGS;

static bool initialised, settings_broken;

static struct _ze_driver_handle_t {
    char unused;
} driver;

bool lz_is_initialised(void) { return initialised; }

__attribute__((constructor)) static void load(void) { settings_broken = !emu_driver_load(); }

ze_result_t lz_check_driver(ze_driver_handle_t handle) {
    LZ_REQUIRE(handle, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    LZ_REQUIRE(handle == &driver, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

ze_result_t lz_check_structure(const void *structure, enum lz_structure type) {
    LZ_POINTER(structure);
    LZ_REQUIRE(((const ze_base_desc_t *)structure)->stype == (ze_structure_type_t)type,
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

void *lz_chained(const void *structure, enum lz_structure type) {
    const ze_base_desc_t *one = ((const ze_base_desc_t *)structure)->pNext;
    while (one && one->stype != (ze_structure_type_t)type)
        one = one->pNext;
    return (void *)(uintptr_t)one;
}

uint32_t lz_count(uint32_t *count, const void *room, uint32_t there_are) {
    uint32_t writes = room && *count < there_are ? *count : there_are;
    *count = writes;
    return room ? writes : 0;
}

static ze_result_t initialise(bool wants_gpu) {
    LZ_REQUIRE(!settings_broken && wants_gpu, ZE_RESULT_ERROR_UNINITIALIZED);
    initialised = true;
    emu_lock_watch_forks();
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeInit, (uint32_t flags), (flags)) {
    LZ_REQUIRE(flags <= (ZE_INIT_FLAG_GPU_ONLY | ZE_INIT_FLAG_VPU_ONLY),
               ZE_RESULT_ERROR_INVALID_ENUMERATION);
    return initialise(flags != ZE_INIT_FLAG_VPU_ONLY);
}

static ze_result_t get_drivers(uint32_t *count, ze_driver_handle_t *drivers) {
    LZ_POINTER(count);
    if (lz_count(count, drivers, 1))
        drivers[0] = &driver;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeInitDrivers,
        (uint32_t *count, ze_driver_handle_t *drivers, ze_init_driver_type_desc_t *types),
        (count, drivers, types)) {
    LZ_POINTER(count);
    LZ_CHECK(lz_check_structure(types, ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC));
    LZ_REQUIRE(types->flags, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    LZ_CHECK(initialise(types->flags & ZE_INIT_DRIVER_TYPE_FLAG_GPU));
    return get_drivers(count, drivers);
}

LZ_CALL(zeDriverGet, (uint32_t *count, ze_driver_handle_t *drivers), (count, drivers)) {
    return get_drivers(count, drivers);
}

LZ_CALL(zeDriverGetApiVersion, (ze_driver_handle_t handle, ze_api_version_t *version),
        (handle, version)) {
    LZ_CHECK(lz_check_driver(handle));
    LZ_POINTER(version);
    *version = LZ_API_VERSION;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeDriverGetProperties, (ze_driver_handle_t handle, ze_driver_properties_t *properties),
        (handle, properties)) {
    LZ_CHECK(lz_check_driver(handle));
    LZ_CHECK(lz_check_structure(properties, ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES));
    memcpy(properties->uuid.id, "umfpy-lz-driver", sizeof properties->uuid.id);
    properties->driverVersion = LZ_API_VERSION;
    ze_driver_memory_free_ext_properties_t *policies =
        lz_chained(properties, ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES);
    if (policies)
        policies->freePolicies = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE |
                                 ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeDriverGetIpcProperties,
        (ze_driver_handle_t handle, ze_driver_ipc_properties_t *properties), (handle, properties)) {
    LZ_CHECK(lz_check_driver(handle));
    LZ_CHECK(lz_check_structure(properties, ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES));
    properties->flags = ZE_IPC_PROPERTY_FLAG_MEMORY;
    return ZE_RESULT_SUCCESS;
}

static const ze_driver_extension_properties_t extensions[] = {
    {"ZE_experimental_relaxed_allocation_limits", ZE_MAKE_VERSION(1, 0)},
    {"ZE_extension_memory_free_policies", ZE_MAKE_VERSION(1, 0)},
    {"ZE_extension_pci_properties", ZE_MAKE_VERSION(1, 0)},
};

LZ_CALL(zeDriverGetExtensionProperties,
        (ze_driver_handle_t handle, uint32_t *count, ze_driver_extension_properties_t *properties),
        (handle, count, properties)) {
    LZ_CHECK(lz_check_driver(handle));
    LZ_POINTER(count);
    uint32_t writes = lz_count(count, properties, sizeof extensions / sizeof *extensions);
    if (writes)
        memcpy(properties, extensions, writes * sizeof *extensions);
    return ZE_RESULT_SUCCESS;
}

/* Functions that are not in any table; there are none. */
LZ_CALL(zeDriverGetExtensionFunctionAddress,
        (ze_driver_handle_t handle, const char *name, void **function), (handle, name, function)) {
    LZ_CHECK(lz_check_driver(handle));
    LZ_POINTER(name);
    LZ_POINTER(function);
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

LZ_CALL(zeDriverGetLastErrorDescription, (ze_driver_handle_t handle, const char **words),
        (handle, words)) {
    LZ_CHECK(lz_check_driver(handle));
    LZ_POINTER(words);
    *words = "";
    return ZE_RESULT_SUCCESS;
}
