"""Device, host, managed and registered memory, and what is known of an address."""

import ctypes

import pytest

GIB = 1 << 30


def test_alignment_and_charging(cu):
    start = cu("cuMemGetInfo")
    pieces = [cu.alloc(size) for size in (1, 511, 512, 513, (1 << 20) + 1)]
    assert all(piece % 512 == 0 for piece in pieces)
    assert pieces[-1] % (2 << 20) == 0
    charged = 512 * 3 + 1024 + (1 << 20) + 512
    assert cu("cuMemGetInfo") == (start[0] - charged, GIB)
    for piece in pieces:
        cu("cuMemFree", piece)
    assert cu("cuMemGetInfo") == start == (GIB, GIB)


def test_capacity_is_exact(cu):
    whole = cu.alloc(GIB)
    assert cu.error("cuMemAlloc", 1) == 2
    cu("cuMemFree", whole)
    assert cu.error("cuMemAlloc", GIB + 1) == 2
    cu("cuMemFree", cu.alloc(GIB))


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**64 - 512, 2**40])
def test_sizes_that_no_device_has(cu, size):
    assert cu.error("cuMemAlloc", size) == 2
    assert cu("cuMemGetInfo")[0] == GIB


def test_size_zero_is_refused(cu):
    assert cu.error("cuMemAlloc", 0) == 1
    assert cu.error("cuMemHostAlloc", 0, 0) == 1
    assert cu.error("cuMemAllocManaged", 0, 1) == 1


def test_only_a_base_can_be_freed_and_only_once(cu):
    base = cu.alloc(4096)
    for wrong in (base + 512, base + 1, base - 512, 0, id(cu)):
        assert cu.error("cuMemFree", wrong) == 1
    cu("cuMemFree", base)
    assert cu.error("cuMemFree", base) == 1


def test_addresses_are_used_again(cu):
    first = cu.alloc(4096)
    cu("cuMemFree", first)
    again = cu.alloc(4096)
    assert again == first
    cu("cuMemFree", again)


def test_everything_merges_again(cu):
    pieces = [cu.alloc(size) for size in range(512, 200_000, 1536)]
    for piece in pieces[::2] + pieces[1::2]:
        cu("cuMemFree", piece)
    cu("cuMemFree", cu.alloc(GIB))


def test_range_of_an_interior_address(cu):
    base = cu.alloc(5000)
    assert [int(x) for x in cu("cuMemGetAddressRange", base + 4999)] == [base, 5000]
    assert cu.error("cuMemGetAddressRange", base + 5000) == 500
    cu("cuMemFree", base)


def test_pitch(cu):
    address, pitch = cu("cuMemAllocPitch", 1000, 3, 4)
    assert pitch == 1024
    assert cu("cuMemGetAddressRange", address)[1] == 3 * 1024
    cu("cuMemFree", address)
    assert cu.error("cuMemAllocPitch", 1000, 3, 5) == 1
    assert cu.error("cuMemAllocPitch", 2**40, 2**40, 4) == 2


def test_host_memory_is_reached_from_both_sides(cu):
    host = cu("cuMemHostAlloc", 4096, 2)
    ctypes.memset(host, 7, 4096)
    assert int(cu("cuMemHostGetDevicePointer", host, 0)) == host
    device = cu.alloc(4096)
    cu("cuMemcpyDtoD", device, host, 4096)
    assert cu.read(device, 4096) == b"\7" * 4096
    assert cu("cuMemHostGetFlags", host) == 3
    assert cu.error("cuMemFree", host) == 1
    assert cu.error("cuMemFreeHost", device) == 1
    cu("cuMemFreeHost", host)
    assert cu.error("cuMemFreeHost", host) == 1
    cu("cuMemFree", device)


def test_registered_memory(cu):
    buffer = ctypes.create_string_buffer(8192)
    address = ctypes.addressof(buffer)
    assert cu.error("cuMemHostUnregister", address) == 713
    cu("cuMemHostRegister", address, 8192, 0)
    assert cu.error("cuMemHostRegister", address + 4096, 8192, 0) == 712
    assert int(cu("cuMemHostGetDevicePointer", address + 5, 0)) == address + 5
    cu("cuMemsetD8", address, 9, 8192)
    assert buffer.raw == b"\x09" * 8192
    cu("cuMemHostUnregister", address)
    assert cu.error("cuMemsetD8", address, 9, 8192) == 1


def test_managed_memory(cu):
    address = int(cu("cuMemAllocManaged", 1 << 16, 1))
    cu("cuMemsetD8", address, 3, 1 << 16)
    assert ctypes.string_at(address, 3) == b"\3\3\3"
    ctypes.memset(address, 4, 1 << 16)
    assert cu.read(address, 2) == b"\4\4"
    access = cu.access()  # kept, as its location is a part of it
    location = access.location
    prefetch = cu.by_location("cuMemPrefetchAsync")
    cu(prefetch, address, 1 << 16, location, 0, 0)
    assert cu.error(prefetch, address, (1 << 16) + 1, location, 0, 0) == 1
    advice = cu.driver.CUmem_advise.CU_MEM_ADVISE_SET_READ_MOSTLY
    cu(cu.by_location("cuMemAdvise"), address, 1 << 16, advice, location)
    cu("cuMemFree", address)


def attribute(cu, name, address):
    number = getattr(cu.driver.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
    return cu("cuPointerGetAttribute", number, address)


def test_what_is_known_of_an_address(cu):
    device, host = cu.alloc(4096), cu("cuMemHostAlloc", 4096, 0)
    managed = int(cu("cuMemAllocManaged", 4096, 1))
    types = {p: int(attribute(cu, "MEMORY_TYPE", p)) for p in (device, host, managed)}
    assert types == {device: 2, host: 1, managed: 2}
    assert [bool(attribute(cu, "IS_MANAGED", p)) for p in (device, managed)] == [False, True]
    assert attribute(cu, "DEVICE_ORDINAL", device + 100) == 0
    assert int(attribute(cu, "RANGE_START_ADDR", device + 100)) == device
    assert attribute(cu, "RANGE_SIZE", device + 100) == 4096
    assert int(attribute(cu, "CONTEXT", device)) == int(cu("cuCtxGetCurrent"))
    assert attribute(cu, "IS_LEGACY_CUDA_IPC_CAPABLE", device)
    first = attribute(cu, "BUFFER_ID", device)
    cu("cuMemFree", device)
    device = cu.alloc(4096)
    assert attribute(cu, "BUFFER_ID", device) != first
    for free, address in (("cuMemFree", device), ("cuMemFreeHost", host), ("cuMemFree", managed)):
        cu(free, address)
    number = cu.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert cu.error("cuPointerGetAttribute", number, device) == 1


def test_attributes_of_an_unknown_address_are_an_answer(cu):
    names = cu.driver.CUpointer_attribute
    wanted = [
        names.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        names.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ]
    values = cu("cuPointerGetAttributes", len(wanted), wanted, 4096)
    assert [int(value) for value in values] == [0, -2]


def test_a_working_set_of_many_allocations_needs_no_descriptor_each(cu):
    import os

    pieces = [cu.alloc(4096) for _ in range(3)]
    before = len(os.listdir("/proc/self/fd"))
    pieces += [cu.alloc(200_000) for _ in range(1500)]
    assert len(os.listdir("/proc/self/fd")) == before
    for piece in pieces:
        cu("cuMemFree", piece)
