"""Addresses apart from memory."""

import ctypes
from itertools import pairwise

import pytest

KIB, MIB = 1 << 10, 1 << 20
PAGE = 64 * KIB


class Vmm:
    def __init__(self, ze, z):
        self.ze, self.z = ze, z

    def reserve(self, size, start=1):
        """The validation layer of older loaders wants a start; an odd one is ignored."""
        return self.ze.get("zeVirtualMemReserve", self.ze.context, start, size)

    def create(self, size, device=0):
        where = self.ze.devices[device]
        wanted = self.z.PhysicalDesc(size=size)
        return self.ze.get("zePhysicalMemCreate", self.ze.context, where, wanted)

    def map(self, ptr, size, physical, offset=0, access=1):
        self.ze("zeVirtualMemMap", self.ze.context, ptr, size, physical, offset, access)

    def unmap(self, ptr, size):
        self.ze("zeVirtualMemUnmap", self.ze.context, ptr, size)

    def free(self, ptr, size):
        self.ze("zeVirtualMemFree", self.ze.context, ptr, size)

    def destroy(self, *physicals):
        for physical in physicals:
            self.ze("zePhysicalMemDestroy", self.ze.context, physical)

    def error(self, name, *arguments):
        return self.ze.error(name, self.ze.context, *arguments)

    def access(self, ptr, size):
        access, same = self.z.u32(), self.z.size_t()
        out = ctypes.byref(access), ctypes.byref(same)
        self.ze("zeVirtualMemGetAccessAttribute", self.ze.context, ptr, size, *out)
        return access.value, same.value


@pytest.fixture
def vmm(ze, z):
    return Vmm(ze, z)


@pytest.mark.parametrize(
    ("size", "page"),
    [(1, PAGE), (2 * MIB - 1, PAGE), (2 * MIB, 2 * MIB), (1 << 40, 2 * MIB)],
)
def test_pages(ze, z, size, page):
    where = ze.devices[0]
    name = "zeVirtualMemQueryPageSize"
    assert ze.get(name, ze.context, where, size, kind=z.size_t) == page
    out = ctypes.byref(z.size_t())
    assert ze.error(name, ze.context, where, 0, out) == z.UNSUPPORTED_SIZE


def test_reserve_create_map_use_and_undo(vmm, ze):
    ptr, physical = vmm.reserve(4 * MIB), vmm.create(2 * MIB)
    vmm.map(ptr + 2 * MIB, 2 * MIB, physical)
    ze.write(ptr + 2 * MIB, b"bytes")
    vmm.unmap(ptr + 2 * MIB, 2 * MIB)
    vmm.map(ptr, 2 * MIB, physical)
    assert ze.read(ptr, 5) == b"bytes"
    vmm.unmap(ptr, 2 * MIB)
    vmm.destroy(physical)
    vmm.free(ptr, 4 * MIB)


def test_small_pages_and_offsets(vmm, ze):
    """Part of the memory, from inside it; what was written through one part is in the other's."""
    ptr, physical = vmm.reserve(4 * PAGE), vmm.create(4 * PAGE)
    vmm.map(ptr, 4 * PAGE, physical)
    for i in range(4):
        ze.write(ptr + i * PAGE, bytes([i]) * 16)
    vmm.unmap(ptr, 4 * PAGE)
    vmm.map(ptr + PAGE, 2 * PAGE, physical, offset=2 * PAGE)
    assert ze.read(ptr + PAGE, 16) == bytes([2]) * 16
    assert ze.read(ptr + 2 * PAGE, 16) == bytes([3]) * 16
    vmm.unmap(ptr + PAGE, 2 * PAGE)
    vmm.destroy(physical)
    vmm.free(ptr, 4 * PAGE)


def test_what_is_written_through_an_offset_lies_there(vmm, ze):
    """Two mappings that begin inside their memory, and a copy and a fill over both."""
    ptr, physicals = vmm.reserve(4 * PAGE), [vmm.create(2 * PAGE), vmm.create(2 * PAGE)]
    for i, physical in enumerate(physicals):
        vmm.map(ptr + i * PAGE, PAGE, physical, offset=PAGE)
    copies = ze.immediate()
    ze("zeCommandListAppendMemoryFill", copies, ptr + 16, b"=", 1, 2 * PAGE - 32, None, 0, None)
    ze.write(ptr + PAGE - 4, b"over the edge")
    ze("zeCommandListDestroy", copies)
    vmm.unmap(ptr, 2 * PAGE)
    for physical, written, at in zip(
        physicals, (b"==over", b" the edge=="), (2 * PAGE - 6, PAGE), strict=True
    ):
        vmm.map(ptr, 2 * PAGE, physical)
        assert ze.read(ptr, PAGE) == bytes(PAGE)
        assert ze.read(ptr + at, len(written)) == written
        vmm.unmap(ptr, 2 * PAGE)
    vmm.destroy(*physicals)
    vmm.free(ptr, 4 * PAGE)


def test_memory_is_at_one_address_at_a_time(vmm, z):
    ptr, physical = vmm.reserve(4 * MIB), vmm.create(2 * MIB)
    vmm.map(ptr, 2 * MIB, physical)
    again = vmm.error("zeVirtualMemMap", ptr + 2 * MIB, 2 * MIB, physical, 0, 1)
    assert again == z.INVALID_ARGUMENT
    assert vmm.error("zePhysicalMemDestroy", physical) == z.IN_USE
    vmm.unmap(ptr, 2 * MIB)
    vmm.map(ptr + 2 * MIB, 2 * MIB, physical)
    vmm.unmap(ptr + 2 * MIB, 2 * MIB)
    vmm.destroy(physical)
    vmm.free(ptr, 4 * MIB)


def test_a_copy_may_cross_mappings(vmm, ze):
    ptr = vmm.reserve(4 * PAGE)
    physicals = [vmm.create(PAGE) for _ in range(4)]
    for i, physical in enumerate(physicals):
        vmm.map(ptr + i * PAGE, PAGE, physical)
    data = bytes(range(256)) * (3 * PAGE // 256)
    ze.write(ptr + 100, data)
    assert ze.read(ptr + 100, len(data)) == data
    device = ze.alloc(len(data))
    copies = ze.immediate()
    ze("zeCommandListAppendMemoryCopy", copies, device, ptr + 100, len(data), None, 0, None)
    pattern = b"12345678"
    ze("zeCommandListAppendMemoryFill", copies, ptr, pattern, 8, 4 * PAGE, None, 0, None)
    ze("zeCommandListDestroy", copies)
    assert ze.read(device, len(data)) == data
    assert ze.read(ptr, 4 * PAGE) == pattern * (PAGE // 2)
    ze.free(device)
    vmm.free(ptr, 4 * PAGE)  # unmaps what is still there
    vmm.destroy(*physicals)


def test_access_is_kept(vmm, ze, z):
    ptr, physicals = vmm.reserve(6 * MIB), [vmm.create(2 * MIB), vmm.create(2 * MIB)]
    vmm.map(ptr, 2 * MIB, physicals[0], access=z.READ_ONLY)
    vmm.map(ptr + 2 * MIB, 2 * MIB, physicals[1], access=z.NONE)
    list_ = ze.immediate()
    data = ctypes.create_string_buffer(4)

    def write(at):
        arguments = at, data, 4, None, 0, None
        return ze.error("zeCommandListAppendMemoryCopy", list_, *arguments)

    def read(at):
        arguments = data, at, 4, None, 0, None
        return ze.error("zeCommandListAppendMemoryCopy", list_, *arguments)

    assert (read(ptr), write(ptr)) == (0, z.INVALID_ARGUMENT)
    assert (read(ptr + 2 * MIB), read(ptr + 4 * MIB)) == (z.INVALID_ARGUMENT,) * 2
    assert read(ptr + 2 * MIB - 2) == z.INVALID_ARGUMENT
    assert vmm.access(ptr, 6 * MIB) == (z.READ_ONLY, 2 * MIB)
    assert vmm.access(ptr + 2 * MIB, 4 * MIB) == (z.NONE, 4 * MIB)
    set_access = "zeVirtualMemSetAccessAttribute"
    ze(set_access, ze.context, ptr, 4 * MIB, z.READ_WRITE)
    assert (read(ptr + 2 * MIB - 2), write(ptr + 2 * MIB - 2)) == (0, 0)
    assert vmm.access(ptr, 6 * MIB) == (z.READ_WRITE, 4 * MIB)
    assert vmm.access(ptr + PAGE, 2 * MIB) == (z.READ_WRITE, 2 * MIB)
    assert vmm.error(set_access, ptr, 6 * MIB, z.READ_WRITE) == z.INVALID_ARGUMENT
    assert vmm.error(set_access, ptr, PAGE, z.READ_WRITE) == z.INVALID_ARGUMENT
    assert vmm.error(set_access, ptr, 4 * MIB, 3) == z.INVALID_ENUMERATION
    vmm.unmap(ptr, 4 * MIB)
    assert vmm.access(ptr, 6 * MIB) == (z.NONE, 6 * MIB)
    ze("zeCommandListDestroy", list_)
    vmm.free(ptr, 6 * MIB)
    vmm.destroy(*physicals)


def test_mappings_go_whole(vmm, z):
    ptr, physical = vmm.reserve(4 * MIB), vmm.create(4 * MIB)
    vmm.map(ptr, 4 * MIB, physical)
    assert vmm.error("zeVirtualMemUnmap", ptr, 2 * MIB) == z.INVALID_ARGUMENT
    assert vmm.error("zeVirtualMemUnmap", ptr + 2 * MIB, 2 * MIB) == z.INVALID_ARGUMENT
    assert vmm.error("zeVirtualMemUnmap", ptr, 1) == z.UNSUPPORTED_SIZE
    assert vmm.error("zeVirtualMemUnmap", ptr + 1, 4 * MIB) == z.UNSUPPORTED_ALIGNMENT
    assert vmm.error("zeVirtualMemUnmap", ptr, 0) == z.UNSUPPORTED_SIZE
    vmm.unmap(ptr, 4 * MIB)
    assert vmm.error("zeVirtualMemUnmap", ptr, 4 * MIB) == z.INVALID_ARGUMENT
    vmm.destroy(physical)
    vmm.free(ptr, 4 * MIB)


def test_what_cannot_be_mapped(vmm, z):
    ptr, large, small = vmm.reserve(8 * MIB), vmm.create(4 * MIB), vmm.create(PAGE)
    argument, size, alignment = z.INVALID_ARGUMENT, z.UNSUPPORTED_SIZE, z.UNSUPPORTED_ALIGNMENT
    for at, length, physical, offset, access, expected in [
        (ptr, 4 * MIB, large, 2 * MIB, 1, argument),
        (ptr, 6 * MIB, large, 0, 1, argument),
        (ptr, PAGE, large, 0, 1, size),
        (ptr + PAGE, 2 * MIB, large, 0, 1, alignment),
        (ptr, 2 * MIB, large, PAGE, 1, alignment),
        (ptr + 6 * MIB, 4 * MIB, large, 0, 1, argument),
        (ptr + 8 * MIB, 2 * MIB, large, 0, 1, argument),
        (ptr, 2 * MIB, large, 0, 3, z.INVALID_ENUMERATION),
        (ptr, 0, large, 0, 1, size),
        (ptr, PAGE, None, 0, 1, z.INVALID_NULL_HANDLE),
        (ptr, PAGE, 4096, 0, 1, argument),
        (ptr, PAGE, small, PAGE, 1, argument),
    ]:
        assert vmm.error("zeVirtualMemMap", at, length, physical, offset, access) == expected
    vmm.map(ptr + PAGE, PAGE, small)
    assert vmm.error("zeVirtualMemMap", ptr, 2 * MIB, large, 0, 1) == argument
    vmm.unmap(ptr + PAGE, PAGE)
    vmm.map(ptr, 2 * MIB, large, offset=2 * MIB)
    vmm.unmap(ptr, 2 * MIB)
    vmm.destroy(large, small)
    vmm.free(ptr, 8 * MIB)


def test_reservations_are_freed_exactly(vmm, z):
    ptr = vmm.reserve(4 * MIB)
    for at, size in [(ptr, 2 * MIB), (ptr + 2 * MIB, 2 * MIB), (ptr, 6 * MIB)]:
        assert vmm.error("zeVirtualMemFree", at, size) == z.INVALID_ARGUMENT
    assert vmm.error("zeVirtualMemFree", ptr, 0) == z.UNSUPPORTED_SIZE
    vmm.free(ptr, 4 * MIB)
    assert vmm.error("zeVirtualMemFree", ptr, 4 * MIB) == z.INVALID_ARGUMENT


def test_sizes_are_in_pages(vmm, ze, z):
    out = ctypes.byref(z.Handle())
    for size in (0, 1, PAGE + 1, 2 * MIB + PAGE):
        assert vmm.error("zeVirtualMemReserve", 1, size, out) == z.UNSUPPORTED_SIZE
        wanted = z.PhysicalDesc(size=size)
        error = vmm.error("zePhysicalMemCreate", ze.devices[0], wanted, out)
        assert error == z.UNSUPPORTED_SIZE
    wanted = z.PhysicalDesc(size=2 << 30)
    error = vmm.error("zePhysicalMemCreate", ze.devices[0], wanted, out)
    assert error == z.OUT_OF_DEVICE_MEMORY
    assert vmm.error("zeVirtualMemReserve", 1, 1 << 60, out) == z.OUT_OF_HOST_MEMORY


def test_the_wanted_start_is_tried(vmm):
    ptr = vmm.reserve(4 * MIB)
    other = vmm.reserve(4 * MIB, start=ptr)
    assert other != ptr
    vmm.free(ptr, 4 * MIB)
    again = vmm.reserve(4 * MIB, start=ptr)
    assert again == ptr
    vmm.free(again, 4 * MIB)
    vmm.free(other, 4 * MIB)


def test_physical_memory_is_charged_and_fresh(vmm, ze, z):
    physicals = [vmm.create(256 * MIB) for _ in range(4)]
    wanted, out = z.PhysicalDesc(size=PAGE), ctypes.byref(z.Handle())
    error = vmm.error("zePhysicalMemCreate", ze.devices[0], wanted, out)
    assert error == z.OUT_OF_DEVICE_MEMORY
    vmm.destroy(*physicals)
    ptr = vmm.reserve(2 * MIB)
    for _ in range(2):
        physical = vmm.create(2 * MIB)
        vmm.map(ptr, 2 * MIB, physical)
        assert ze.read(ptr, 16) == bytes(16)
        ze.write(ptr, b"dirt")
        vmm.unmap(ptr, 2 * MIB)
        vmm.destroy(physical)
    vmm.free(ptr, 2 * MIB)


def test_mapped_addresses_are_known(vmm, ze, z, emu):
    ptr, physical = vmm.reserve(2 * MIB), vmm.create(2 * MIB, device=1)
    assert ze.properties(ptr) == (0, 0, 0, None)
    vmm.map(ptr, 2 * MIB, physical)
    kind, _, page, device = ze.properties(ptr + 5)
    assert (kind, page, device) == (z.DEVICE, 2 * MIB, ze.devices[1])
    assert z.access_rights(ptr) == "---p"
    ze("zeContextMakeMemoryResident", ze.context, ze.devices[0], ptr, 2 * MIB)
    assert emu.residency(ptr) == {0: 1}
    out = ctypes.byref(z.IpcHandle())
    assert vmm.error("zeMemGetIpcHandle", ptr, out) == z.INVALID_ARGUMENT
    assert vmm.error("zeMemFree", ptr) == z.INVALID_ARGUMENT
    assert set(emu.leaks()) == {"reservations", "handles", "mappings", "contexts"}
    vmm.unmap(ptr, 2 * MIB)
    vmm.destroy(physical)
    vmm.free(ptr, 2 * MIB)


def test_reservations_do_not_overlap(vmm):
    ptrs = sorted(vmm.reserve(4 * MIB) for _ in range(16))
    assert all(low + 4 * MIB <= high for low, high in pairwise(ptrs))
    for ptr in ptrs:
        vmm.free(ptr, 4 * MIB)
