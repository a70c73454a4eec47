"""Devices: what there is, and what they say of themselves."""

import pytest


def test_count_name_memory_and_capability(cu, emu):
    assert cu("cuDeviceGetCount") == 2 == emu.devices
    assert cu("cuDeviceTotalMem", 1) == 1 << 30 == emu.memory
    assert cu("cuDeviceGetName", 64, 0).split(b"\0")[0] == b"umfpy emulated GPU"
    attribute = cu.driver.CUdevice_attribute
    major = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    assert cu("cuDeviceGetAttribute", major, 0) == 9


def test_devices_differ_by_uuid_and_bus(cu):
    assert len({bytes(cu("cuDeviceGetUuid", device).bytes) for device in (0, 1)}) == 2
    buses = [cu("cuDeviceGetPCIBusId", 32, device) for device in (0, 1)]
    assert buses[0] != buses[1]
    assert [int(cu("cuDeviceGetByPCIBusId", bus)) for bus in buses] == [0, 1]


@pytest.mark.parametrize(
    "name",
    [
        "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
        "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
        "MEMORY_POOLS_SUPPORTED",
        "IPC_EVENT_SUPPORTED",
        "UNIFIED_ADDRESSING",
        "MANAGED_MEMORY",
        "CONCURRENT_MANAGED_ACCESS",
    ],
)
def test_what_is_built_is_announced(cu, name):
    attribute = getattr(cu.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    assert cu("cuDeviceGetAttribute", attribute, 0) == 1


def test_a_device_that_is_not_there(cu):
    assert cu.error("cuDeviceGet", 2) == 101
    assert cu.error("cuDeviceGet", -1) == 101
    assert cu.error("cuDevicePrimaryCtxRetain", 2) == 101


def test_peers(cu):
    assert cu("cuDeviceCanAccessPeer", 0, 1) == 1
    assert cu("cuDeviceCanAccessPeer", 0, 0) == 0
    other = cu("cuDevicePrimaryCtxRetain", 1)
    assert cu.error("cuCtxDisablePeerAccess", other) == 705
    cu("cuCtxEnablePeerAccess", other, 0)
    assert cu.error("cuCtxEnablePeerAccess", other, 0) == 704
    cu("cuCtxDisablePeerAccess", other)
    cu("cuDevicePrimaryCtxRelease", 1)


def test_nothing_works_before_init(run):
    result = run(
        """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 3
assert cuda.cuInit(1) == 1
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 3
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
assert count.value == 3
""",
        preload=False,
        LD_PRELOAD=_library(),
        UMFPY_EMULATE_CUDA="devices=3",
    )
    assert result.returncode == 0, result.stderr


def test_settings_that_make_no_sense_are_said_and_not_guessed_at(run):
    code = "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 1"
    result = run(code, preload=False, LD_PRELOAD=_library(), UMFPY_EMULATE_CUDA="memroy=5")
    assert result.returncode == 0, result.stderr
    assert "cannot read UMFPY_EMULATE_CUDA=memroy=5" in result.stderr


def _library():
    from umfpy.providers.emulated import library

    return str(library.cuda_library())
