/* Devices: what there is, and what they say of themselves. */
#include "control.h"
#include "driver.h"

#include <stdio.h>
#include <string.h>

struct emu_settings cu_settings = EMU_DEFAULT_SETTINGS;

static bool initialised, settings_broken;

bool cu_is_initialised(void) { return initialised; }

bool cu_is_device(CUdevice device) { return device >= 0 && (unsigned)device < emu_machine.devices; }

__attribute__((constructor)) static void load(void) { settings_broken = !emu_driver_load(); }

CU_CALL(cuInit, (unsigned flags), (flags)) {
    if (flags || settings_broken)
        return CUDA_ERROR_INVALID_VALUE;
    initialised = true;
    emu_lock_watch_forks();
    return CUDA_SUCCESS;
}

CU_CALL(cuDriverGetVersion, (int *version), (version)) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = CU_DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CU_CALL(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal)) {
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cu_is_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CU_CALL(cuDeviceGetCount, (int *count), (count)) {
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (int)emu_machine.devices;
    return CUDA_SUCCESS;
}

static CUresult check(const void *result, CUdevice device) {
    if (!result)
        return CUDA_ERROR_INVALID_VALUE;
    return cu_is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CU_CALL(cuDeviceGetName, (char *name, int length, CUdevice device), (name, length, device)) {
    CUresult result = check(name, device);
    if (!result && length > 0)
        snprintf(name, (size_t)length, "umfpy emulated GPU");
    return result;
}

/* The same in every process, so that handles from another one find the same device. */
static CUresult uuid(CUuuid *uuid, CUdevice device) {
    CUresult result = check(uuid, device);
    if (result)
        return result;
    memcpy(uuid->bytes, "umfpy-emulated\0", sizeof uuid->bytes);
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

CU_CALL(cuDeviceGetUuid, (CUuuid * id, CUdevice device), (id, device)) { return uuid(id, device); }

CU_CALL(cuDeviceGetUuid_v2, (CUuuid * id, CUdevice device), (id, device)) {
    return uuid(id, device);
}

CU_CALL(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device), (bytes, device)) {
    CUresult result = check(bytes, device);
    if (!result)
        *bytes = emu_device((unsigned)device)->capacity;
    return result;
}

static int attribute(int number, CUdevice device) {
    switch (number) {
#define ATTRIBUTE(number, value)                                                                   \
    case number:                                                                                   \
        return value;
#include "attributes.def"
#undef ATTRIBUTE
    case 33: /* PCI bus */
        return device + 1;
    case 75:
        return (int)cu_settings.capability_major;
    case 76:
        return (int)cu_settings.capability_minor;
    case 85: /* board group: each its own */
        return device;
    default:
        return 0;
    }
}

#define LAST_ATTRIBUTE 147

CU_CALL(cuDeviceGetAttribute, (int *value, int number, CUdevice device), (value, number, device)) {
    CUresult result = check(value, device);
    if (result)
        return result;
    if (number < 1 || number > LAST_ATTRIBUTE)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute(number, device);
    return CUDA_SUCCESS;
}

CU_CALL(cuDeviceGetProperties, (CUdevprop * properties, CUdevice device), (properties, device)) {
    CUresult result = check(properties, device);
    if (result)
        return result;
    *properties = (CUdevprop){
        .maxThreadsPerBlock = attribute(1, device),
        .maxThreadsDim = {attribute(2, device), attribute(3, device), attribute(4, device)},
        .maxGridSize = {attribute(5, device), attribute(6, device), attribute(7, device)},
        .sharedMemPerBlock = attribute(8, device),
        .totalConstantMemory = attribute(9, device),
        .SIMDWidth = attribute(10, device),
        .memPitch = attribute(11, device),
        .regsPerBlock = attribute(12, device),
        .clockRate = attribute(13, device),
        .textureAlign = attribute(14, device),
    };
    return CUDA_SUCCESS;
}

CU_CALL(cuDeviceComputeCapability, (int *major, int *minor, CUdevice device),
        (major, minor, device)) {
    CUresult result = check(minor, device);
    if (result || !major)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    *major = attribute(75, device);
    *minor = attribute(76, device);
    return CUDA_SUCCESS;
}

CU_CALL(cuDeviceGetPCIBusId, (char *text, int length, CUdevice device), (text, length, device)) {
    CUresult result = check(text, device);
    if (result)
        return result;
    int written = snprintf(text, length > 0 ? (size_t)length : 0, "0000:%02X:00.0", device + 1);
    return written < length ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CU_CALL(cuDeviceGetByPCIBusId, (CUdevice * device, const char *text), (device, text)) {
    unsigned domain, bus, slot, function = 0;
    if (!device || !text)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) < 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (domain || slot || function || !cu_is_device((CUdevice)bus - 1))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = (CUdevice)bus - 1;
    return CUDA_SUCCESS;
}

CU_CALL(cuDeviceGetExecAffinitySupport, (int *supported, int type, CUdevice device),
        (supported, type, device)) {
    CUresult result = check(supported, device);
    if (!result)
        *supported = 0;
    (void)type;
    return result;
}

CU_CALL(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), (can, device, peer)) {
    CUresult result = check(can, device);
    if (result || !cu_is_device(peer))
        return result ? result : CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer;
    return CUDA_SUCCESS;
}

/* 1: performance rank, 2: access, 3: native atomics, 4: arrays. */
CU_CALL(cuDeviceGetP2PAttribute, (int *value, int number, CUdevice device, CUdevice peer),
        (value, number, device, peer)) {
    CUresult result = check(value, device);
    if (result || !cu_is_device(peer) || device == peer)
        return result ? result : CUDA_ERROR_INVALID_DEVICE;
    if (number < 1 || number > 5)
        return CUDA_ERROR_INVALID_VALUE;
    *value = number == 2;
    return CUDA_SUCCESS;
}
