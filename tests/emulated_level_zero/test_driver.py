"""The driver and its devices: what they say of themselves."""

import ctypes

import pytest


def test_there_is_one_driver_and_it_says_what_it_can_do(ze, z):
    version = ze.get("zeDriverGetApiVersion", ze.handle, kind=z.u32)
    assert version >> 16 == 1
    assert version & 0xFFFF >= 10
    policies = z.FreePolicies()
    properties = z.DriverProperties(policies)
    ze("zeDriverGetProperties", ze.handle, properties)
    assert any(properties.uuid)
    assert policies.freePolicies == 3
    ipc = z.IpcProperties()
    ze("zeDriverGetIpcProperties", ze.handle, ipc)
    assert ipc.flags == 1
    names = {
        one.name for one in ze.all("zeDriverGetExtensionProperties", ze.handle, kind=z.Extension)
    }
    assert b"ZE_experimental_relaxed_allocation_limits" in names
    assert b"ZE_extension_memory_free_policies" in names


def test_initialising_again_is_allowed_and_wrong_flags_are_not(ze, z):
    ze("zeInit", 0)
    ze("zeInit", 1)
    direct = ze._driver_itself()
    assert direct.zeInit(8) & 0xFFFFFFFF == z.INVALID_ENUMERATION
    assert direct.zeInit(2) & 0xFFFFFFFF == z.UNINITIALIZED  # no such processor here


def test_zeinitdrivers_gives_the_same_driver(ze, z):
    count, found = z.u32(1), z.Handle()
    out = ctypes.byref(count), ctypes.byref(found)
    ze("zeInitDrivers", *out, z.InitTypes(flags=0xFFFFFFFF))
    assert (count.value, found.value) == (1, ze.handle)
    assert ze.error("zeInitDrivers", *out, z.InitTypes(flags=2)) == z.UNINITIALIZED
    assert ze.error("zeInitDrivers", *out, z.InitTypes()) == z.INVALID_ENUMERATION
    assert ze.error("zeInitDrivers", *out, z.InitTypes(stype=3)) == z.INVALID_ARGUMENT


def test_a_count_of_fewer_takes_the_first_and_of_more_is_lowered(ze, z):
    count, found = z.u32(1), (z.Handle * 5)()
    ze("zeDeviceGet", ze.handle, ctypes.byref(count), found)
    assert (count.value, found[0], found[1]) == (1, ze.devices[0], None)
    count.value = 5
    ze("zeDeviceGet", ze.handle, ctypes.byref(count), found)
    assert (count.value, found[:3]) == (2, [*ze.devices, None])


def _properties(ze, z, device, **values):
    properties = z.DeviceProperties(**values)
    ze("zeDeviceGetProperties", ze.devices[device], properties)
    return properties


def test_devices_differ_in_nothing_but_their_identity(ze, z):
    one, other = _properties(ze, z, 0), _properties(ze, z, 1)
    assert bytes(one.uuid) != bytes(other.uuid)
    assert one.name == other.name == b"umfpy emulated GPU"
    assert (one.type, one.vendorId) == (1, 0x8086)
    assert one.maxMemAllocSize == 512 << 20
    assert one.timerResolution == 1
    assert _properties(ze, z, 0, stype=0x20006).timerResolution == 1_000_000_000


def test_identities_are_the_same_in_every_process(ze, z, peer):
    theirs = peer(
        "p = DeviceProperties()\nze('zeDeviceGetProperties', ze.devices[1], p)\nbytes(p.uuid)"
    )
    assert theirs == bytes(_properties(ze, z, 1).uuid)


def test_what_a_device_has(ze, z):
    device = ze.devices[0]
    (memory,) = ze.all("zeDeviceGetMemoryProperties", device, kind=z.MemoryProperties)
    assert memory.totalSize == 1 << 30
    groups = ze.all("zeDeviceGetCommandQueueGroupProperties", device, kind=z.GroupProperties)
    assert [(group.flags, group.numQueues) for group in groups] == [(3, 4), (2, 1)]
    (cache,) = ze.all("zeDeviceGetCacheProperties", device, kind=z.CacheProperties)
    assert cache.cacheSize
    assert ze.all("zeDeviceGetSubDevices", device) == []
    access, compute = z.AccessProperties(), z.ComputeProperties()
    ze("zeDeviceGetMemoryAccessProperties", device, access)
    ze("zeDeviceGetComputeProperties", device, compute)
    assert access.device & 1
    assert not access.system
    assert compute.maxTotalGroupSize == 1024
    external, pci = z.ExternalProperties(), z.PciProperties()
    ze("zeDeviceGetExternalMemoryProperties", device, external)
    ze("zeDevicePciGetPropertiesExt", ze.devices[1], pci)
    assert not any(external.types)
    assert list(pci.address) == [0, 2, 0, 0]
    ze("zeDeviceGetStatus", device)
    host, there = z.u64(), z.u64()
    ze("zeDeviceGetGlobalTimestamps", device, ctypes.byref(host), ctypes.byref(there))
    assert host.value
    assert ze.get("zeDeviceGetRootDevice", device) is None


def test_every_device_reaches_every_other(ze, z):
    one, other = ze.devices
    assert ze.get("zeDeviceCanAccessPeer", one, other, kind=ctypes.c_uint8) == 1
    peers = z.P2pProperties()
    ze("zeDeviceGetP2PProperties", other, one, peers)
    assert peers.flags == 1


def test_wrong_handles_and_structures_are_told_apart(ze, z):
    properties = z.DeviceProperties()
    name, device = "zeDeviceGetProperties", ze.devices[0]
    assert ze.error(name, None, properties) == z.INVALID_NULL_HANDLE
    assert ze.error(name, device, None) == z.INVALID_NULL_POINTER
    assert ze.error(name, 4096, properties) == z.INVALID_ARGUMENT
    assert ze.error(name, ze.handle, properties) == z.INVALID_ARGUMENT
    assert ze.error(name, device, z.DeviceProperties(stype=1)) == z.INVALID_ARGUMENT
    assert ze.error("zeDeviceGetStatus", ze.context) == z.INVALID_ARGUMENT


def test_a_context_is_for_the_devices_it_was_made_for(ze, z):
    only = (z.Handle * 1)(ze.devices[1])
    context = ze.get("zeContextCreateEx", ze.handle, z.ContextDesc(), 1, only)
    ze("zeContextGetStatus", context)
    ze("zeContextSystemBarrier", context, ze.devices[1])
    arguments = z.DeviceAllocDesc(), 4096, 0
    out = ctypes.byref(z.Handle())
    wrong = ze.error("zeMemAllocDevice", context, *arguments, ze.devices[0], out)
    assert wrong == z.INVALID_ARGUMENT
    ptr = ze.get("zeMemAllocDevice", context, *arguments, ze.devices[1])
    assert ze.error("zeContextDestroy", context) == z.IN_USE
    ze("zeMemFree", context, ptr)
    ze("zeContextDestroy", context)
    assert ze.error("zeContextGetStatus", context) == z.INVALID_ARGUMENT
    desc = z.ContextDesc()
    assert ze.error("zeContextCreateEx", ze.handle, desc, 1, None, out) in (
        z.INVALID_SIZE,
        z.INVALID_NULL_POINTER,
    )


@pytest.mark.parametrize("minor", [0, 3, 4, 9, 10])
def test_a_table_is_filled_as_far_as_its_version_goes(ze, z, minor):
    expected = {0: 9, 3: 10, 4: 10, 9: 12, 10: 12}[minor]
    table = (z.Handle * 16)()
    fill = ze._driver_itself().zeGetMemProcAddrTable
    assert fill(1 << 16 | minor, table) == 0
    assert [bool(entry) for entry in table] == [True] * expected + [False] * (16 - expected)
    assert fill(2 << 16, table) & 0xFFFFFFFF == z.UNSUPPORTED_VERSION
    assert fill(1 << 16, None) & 0xFFFFFFFF == z.INVALID_NULL_POINTER
