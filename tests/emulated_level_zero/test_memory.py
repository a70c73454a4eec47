"""Allocations: kinds, limits, alignments, and what is known of an address."""

import ctypes

import pytest

MIB = 1 << 20


def test_each_kind_says_what_it_is(ze, z):
    device, host, shared = ze.alloc(100, device=1), ze.alloc_host(100), ze.alloc_shared(100)
    loose, large = ze.alloc_shared(100, device=None), ze.alloc(3 * MIB)
    everything = [device, host, shared, loose, large]
    found = [ze.properties(ptr) for ptr in everything]
    assert [(kind, page, where) for kind, _, page, where in found] == [
        (z.DEVICE, 64 << 10, ze.devices[1]),
        (z.HOST, 4096, None),
        (z.SHARED, 64 << 10, ze.devices[0]),
        (z.SHARED, 64 << 10, None),
        (z.DEVICE, 2 * MIB, ze.devices[0]),
    ]
    assert len({number for _, number, _, _ in found}) == 5
    ze.free(*everything)


def test_an_identity_is_never_used_again(ze):
    seen = set()
    for _ in range(5):
        ptr = ze.alloc(100)
        seen.add(ze.properties(ptr)[1])
        ze.free(ptr)
    assert len(seen) == 5


def test_from_any_address_to_its_allocation(ze, z):
    ptr = ze.alloc(1000)
    base, size = z.Handle(), z.size_t()
    out = ctypes.byref(base), ctypes.byref(size)
    for address in (ptr, ptr + 999):
        ze("zeMemGetAddressRange", ze.context, address, *out)
        assert (base.value, size.value) == (ptr, 1000)
        assert ze.properties(address)[0] == z.DEVICE
    ze("zeMemGetAddressRange", ze.context, ptr, None, None)
    assert ze.error("zeMemGetAddressRange", ze.context, ptr + 1000, *out) == z.INVALID_ARGUMENT
    mine = ctypes.create_string_buffer(10)
    assert ze.properties(ctypes.addressof(mine)) == (0, 0, 0, None)
    ze.free(ptr)


def test_the_host_reaches_host_and_shared_memory_only(ze, z):
    device, host, shared = ze.alloc(100), ze.alloc_host(100), ze.alloc_shared(100)
    assert z.access_rights(device) == "---p"
    for ptr in (host, shared):
        ctypes.memset(ptr, 7, 100)
        ze.write(device, ctypes.string_at(ptr, 50))
        assert ze.read(device, 50) == b"\x07" * 50
        assert ze.read(ptr, 100) == b"\x07" * 100
    ze.free(device, host, shared)


@pytest.mark.parametrize("alignment", [0, 1, 64, 4096, 1 << 16, 1 << 21, 1 << 25])
def test_alignment(ze, alignment):
    ptrs = [
        ze.alloc(5, alignment),
        ze.alloc(5, alignment),
        ze.alloc_host(5, alignment),
        ze.alloc_shared(5, alignment),
    ]
    for ptr in ptrs:
        assert ptr % (alignment or 1) == 0
    ze.free(*ptrs)


def _errors(ze, z, size, alignment):
    context, out = ze.context, ctypes.byref(z.Handle())
    on_device, on_host, where = z.DeviceAllocDesc(), z.HostAllocDesc(), ze.devices[0]
    both = on_device, on_host
    return {
        ze.error("zeMemAllocDevice", context, on_device, size, alignment, where, out),
        ze.error("zeMemAllocHost", context, on_host, size, alignment, out),
        ze.error("zeMemAllocShared", context, *both, size, alignment, where, out),
    }


def test_sizes_and_alignments_that_no_allocation_has(ze, z):
    assert _errors(ze, z, 0, 0) == {z.UNSUPPORTED_SIZE}
    assert _errors(ze, z, 64, 3) == {z.UNSUPPORTED_ALIGNMENT}


def test_descriptors_are_checked(ze, z):
    out = ctypes.byref(z.Handle())

    def error(wanted, device=ze.devices[0]):
        return ze.error("zeMemAllocDevice", ze.context, wanted, 64, 0, device, out)

    assert error(z.DeviceAllocDesc(ordinal=1)) == z.INVALID_ARGUMENT
    assert error(z.DeviceAllocDesc(flags=8)) == z.INVALID_ENUMERATION
    assert error(z.DeviceAllocDesc(stype=0)) == z.INVALID_ARGUMENT
    assert error(None) == z.INVALID_NULL_POINTER
    assert error(z.DeviceAllocDesc(), None) == z.INVALID_NULL_HANDLE


def test_above_the_limit_only_with_the_descriptor_that_lifts_it(ze, z):
    out = ctypes.byref(z.Handle())
    limit = 512 * MIB
    arguments = 0, ze.devices[0], out
    refused = ze.error("zeMemAllocDevice", ze.context, z.DeviceAllocDesc(), limit + 1, *arguments)
    assert refused == z.UNSUPPORTED_SIZE
    useless = z.DeviceAllocDesc(z.RelaxedLimits())
    refused = ze.error("zeMemAllocDevice", ze.context, useless, limit + 1, *arguments)
    assert refused == z.UNSUPPORTED_SIZE
    ptrs = [ze.alloc(limit), ze.alloc(limit + 1, device=1, chain=z.RelaxedLimits(flags=1))]
    ze.free(*ptrs)


def test_running_out_of_device_memory_is_not_running_out_of_the_hosts(ze, z):
    ptrs = [ze.alloc(512 * MIB), ze.alloc(512 * MIB)]
    out = ctypes.byref(z.Handle())
    more = z.DeviceAllocDesc(), 1, 0, ze.devices[0], out
    assert ze.error("zeMemAllocDevice", ze.context, *more) == z.OUT_OF_DEVICE_MEMORY
    ptrs.append(ze.alloc(512 * MIB, device=1))
    huge = z.HostAllocDesc(), 1 << 60, 0, out
    assert ze.error("zeMemAllocHost", ze.context, *huge) == z.OUT_OF_HOST_MEMORY
    relaxed = z.DeviceAllocDesc(z.RelaxedLimits(flags=1))
    for size in (1 << 60, (1 << 64) - 1):
        wrapped = ze.error("zeMemAllocDevice", ze.context, relaxed, size, 0, ze.devices[1], out)
        assert wrapped == z.OUT_OF_DEVICE_MEMORY
    ze.free(*ptrs)
    ze.free(ze.alloc(512 * MIB))


def test_pages_are_charged(ze, z):
    """1 GiB is 16384 pages of 64 KiB, whatever little of each is asked for."""
    ptrs = [ze.alloc(1) for _ in range(1024)]
    rest = ze.alloc((1 << 30) - 1024 * (64 << 10), chain=z.RelaxedLimits(flags=1))
    out = ctypes.byref(z.Handle())
    more = z.DeviceAllocDesc(), 1, 0, ze.devices[0], out
    assert ze.error("zeMemAllocDevice", ze.context, *more) == z.OUT_OF_DEVICE_MEMORY
    ze.free(rest, *ptrs)


def test_what_cannot_be_freed(ze, z):
    ptr, host = ze.alloc(1000), ze.alloc_host(10)
    other = ze.get("zeContextCreate", ze.handle, z.ContextDesc())
    assert ze.error("zeMemFree", ze.context, ptr + 8) == z.INVALID_ARGUMENT
    assert ze.error("zeMemFree", ze.context, None) == z.INVALID_NULL_POINTER
    assert ze.error("zeMemFree", other, ptr) == z.INVALID_ARGUMENT
    ze.free(ptr, host)
    assert ze.error("zeMemFree", ze.context, ptr) == z.INVALID_ARGUMENT
    assert ze.error("zeMemFree", ze.context, host) == z.INVALID_ARGUMENT
    ze("zeContextDestroy", other)


@pytest.mark.parametrize("policy", [0, 1, 2])
def test_policies_of_freeing(ze, z, policy):
    ptr = ze.alloc(64)
    ze("zeMemFreeExt", ze.context, z.FreeDesc(freePolicy=policy), ptr)
    again = ze.error("zeMemFreeExt", ze.context, z.FreeDesc(freePolicy=policy), ptr)
    assert again == z.INVALID_ARGUMENT


def test_blocking_waits_for_the_device(ze, z, emu):
    """Until 4 MiB have come over the bus at 25 GB/s."""
    size = 4 * MIB
    ptr, host, other = ze.alloc(size), ze.alloc_host(size), ze.alloc(64)
    list_ = ze.immediate(mode=2)
    ze("zeCommandListAppendMemoryCopy", list_, ptr, host, size, None, 0, None)
    before = emu.clock_us
    ze("zeMemFreeExt", ze.context, z.FreeDesc(freePolicy=1), other)
    assert emu.clock_us - before > 150
    ze("zeCommandListDestroy", list_)
    ze.free(ptr, host)


def test_fresh_memory_reads_as_zero(ze):
    for _ in range(3):
        ptr = ze.alloc(3 * MIB)
        assert ze.read(ptr, 4096) == bytes(4096)
        ze.write(ptr, b"dirt" * 1024)
        ze.free(ptr)


def test_residency_is_counted_for_each_device(ze, z, emu):
    ptr = ze.alloc(1 << 16)
    make, evict = "zeContextMakeMemoryResident", "zeContextEvictMemory"
    one, other = ze.devices
    assert emu.residency(ptr) == {}
    ze(make, ze.context, other, ptr, 1 << 16)
    ze(make, ze.context, other, ptr, 100)
    ze(make, ze.context, one, ptr + 5, 100)
    assert emu.residency(ptr) == emu.residency(ptr + 77) == {0: 1, 1: 2}
    ze(evict, ze.context, other, ptr, 1 << 16)
    ze(evict, ze.context, one, ptr, 1)
    assert emu.residency(ptr) == {1: 1}
    assert ze.error(evict, ze.context, one, ptr, 1) == z.INVALID_ARGUMENT
    assert ze.error(make, ze.context, one, ptr, (1 << 16) + 1) == z.INVALID_ARGUMENT
    assert ze.error(make, ze.context, one, 4096, 1) == z.INVALID_ARGUMENT
    ze.free(ptr)
    again = ze.alloc(1 << 16)
    assert again == ptr
    assert emu.residency(again) == {}
    ze.free(again)
