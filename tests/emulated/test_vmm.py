"""Virtual memory management, rule by rule."""

import os

import pytest

GRANULE = 2 << 20


@pytest.fixture
def space(cu):
    """Eight granules of reserved addresses; what is mapped there at the end is unmapped."""
    address = int(cu("cuMemAddressReserve", 8 * GRANULE, 0, 0, 0))
    yield address
    for i in range(8):
        cu.error("cuMemUnmap", address + i * GRANULE, GRANULE)
    cu("cuMemAddressFree", address, 8 * GRANULE)


def chunk(cu, count=1, **properties):
    return cu("cuMemCreate", count * GRANULE, cu.properties(**properties), 0)


def put(cu, address, count=1, access=True, **properties):
    """Map a new chunk, whose handle is released at once: the mapping keeps it."""
    handle = chunk(cu, count, **properties)
    cu("cuMemMap", address, count * GRANULE, 0, handle, 0)
    cu("cuMemRelease", handle)
    if access:
        cu("cuMemSetAccess", address, count * GRANULE, [cu.access()], 1)


def test_granularity(cu):
    for option in cu.driver.CUmemAllocationGranularity_flags:
        assert cu("cuMemGetAllocationGranularity", cu.properties(), option) == GRANULE


@pytest.mark.parametrize("size", [0, 1, GRANULE - 1, GRANULE + 4096])
def test_sizes_are_multiples_of_the_granularity(cu, size):
    assert cu.error("cuMemCreate", size, cu.properties(), 0) == 1


def test_reservations_go_as_a_whole(cu):
    assert cu.error("cuMemAddressReserve", 0, 0, 0, 0) == 1
    assert cu.error("cuMemAddressReserve", 4097, 0, 0, 0) == 1
    assert cu.error("cuMemAddressReserve", GRANULE, 3 * GRANULE, 0, 0) == 1
    assert cu.error("cuMemAddressReserve", 2**62, 0, 0, 0) == 2
    address = int(cu("cuMemAddressReserve", 4 * GRANULE, 64 << 20, 0, 0))
    assert address % (64 << 20) == 0
    for at, size in ((address, GRANULE), (address + GRANULE, 3 * GRANULE), (address, 5 * GRANULE)):
        assert cu.error("cuMemAddressFree", at, size) == 1
    cu("cuMemAddressFree", address, 4 * GRANULE)
    assert cu.error("cuMemAddressFree", address, 4 * GRANULE) == 1


def test_a_free_hint_is_taken(cu):
    address = int(cu("cuMemAddressReserve", GRANULE, 0, 0, 0))
    other = int(cu("cuMemAddressReserve", GRANULE, 0, address, 0))
    assert other != address
    cu("cuMemAddressFree", address, GRANULE)
    assert int(cu("cuMemAddressReserve", GRANULE, 0, address, 0)) == address
    cu("cuMemAddressFree", address, GRANULE)
    cu("cuMemAddressFree", other, GRANULE)


def test_what_cannot_be_mapped(cu, space):
    handle = chunk(cu, 2)
    for address, size, offset in (
        (space, 2 * GRANULE, GRANULE),  # an offset
        (space, GRANULE, GRANULE),
        (space + 4096, GRANULE, 0),  # not aligned
        (space, 4096, 0),
        (space, 0, 0),
        (space, 3 * GRANULE, 0),  # more than there is
        (space + 7 * GRANULE, 2 * GRANULE, 0),  # over the end of the reservation
        (space - GRANULE, GRANULE, 0),  # not reserved
    ):
        assert cu.error("cuMemMap", address, size, offset, handle, 0) == 1, (address, size, offset)
    cu("cuMemMap", space, 2 * GRANULE, 0, handle, 0)
    assert cu.error("cuMemMap", space + GRANULE, GRANULE, 0, handle, 0) == 1  # already mapped
    cu("cuMemUnmap", space, 2 * GRANULE)
    cu("cuMemRelease", handle)
    assert cu.error("cuMemMap", space, GRANULE, 0, handle, 0) == 1  # released


def test_unmap_takes_whole_mappings(cu, space):
    put(cu, space, 2)
    put(cu, space + 2 * GRANULE, 1)
    for address, size in (
        (space, GRANULE),
        (space + GRANULE, GRANULE),
        (space, 4 * GRANULE),
        (space + 4 * GRANULE, GRANULE),
    ):
        assert cu.error("cuMemUnmap", address, size) == 1
    cu("cuMemUnmap", space, 3 * GRANULE)
    assert cu.error("cuMemUnmap", space, 3 * GRANULE) == 1


def test_a_mapped_reservation_cannot_be_freed(cu, space):
    put(cu, space + 7 * GRANULE)
    assert cu.error("cuMemAddressFree", space, 8 * GRANULE) == 1


def test_no_access_before_it_was_given(cu, space):
    put(cu, space, access=False)
    assert cu.error("cuMemsetD8", space, 0, 1) == 1
    assert cu.error("cuMemcpyDtoH", bytearray(1), space, 1) == 1
    cu("cuMemSetAccess", space, GRANULE, [cu.access(flags=1)], 1)
    assert cu.read(space, 1) == b"\0"
    assert cu.error("cuMemsetD8", space, 0, 1) == 1
    own = cu.access()  # kept, as its location is a part of it
    assert int(cu("cuMemGetAccess", own.location, space)) == 1
    cu("cuMemSetAccess", space, GRANULE, [cu.access()], 1)
    cu("cuMemsetD8", space, 5, GRANULE)
    cu("cuMemSetAccess", space, GRANULE, [cu.access(flags=0)], 1)
    assert cu.error("cuMemcpyDtoH", bytearray(1), space, 1) == 1


def test_access_is_given_to_mapped_ranges_only(cu, space):
    put(cu, space, access=False)
    for address, size in ((space, 2 * GRANULE), (space + GRANULE, GRANULE), (space, 0)):
        assert cu.error("cuMemSetAccess", address, size, [cu.access()], 1) == 1
    assert cu.error("cuMemSetAccess", space, GRANULE, [cu.access(device=2)], 1) == 101


def test_access_is_by_device(cu, space):
    put(cu, space, access=False)
    cu("cuMemSetAccess", space, GRANULE, [cu.access(device=1)], 1)
    assert cu.error("cuMemsetD8", space, 0, 1) == 1
    cu("cuCtxPushCurrent", cu("cuDevicePrimaryCtxRetain", 1))
    cu("cuMemsetD8", space, 0, 1)
    cu("cuCtxPopCurrent")
    cu("cuDevicePrimaryCtxRelease", 1)


def test_copies_cross_from_one_mapping_to_the_next(cu, space):
    put(cu, space)
    put(cu, space + GRANULE)
    data = os.urandom(4096)
    cu.write(space + GRANULE - 1000, data)
    assert cu.read(space + GRANULE - 1000, 4096) == data
    assert cu.error("cuMemsetD8", space + GRANULE, 0, GRANULE + 1) == 1
    assert [int(x) for x in cu("cuMemGetAddressRange", space + GRANULE + 5)] == [
        space + GRANULE,
        GRANULE,
    ]


def test_one_handle_at_two_addresses_is_one_memory(cu, space):
    handle = chunk(cu)
    for address in (space, space + 3 * GRANULE):
        cu("cuMemMap", address, GRANULE, 0, handle, 0)
        cu("cuMemSetAccess", address, GRANULE, [cu.access()], 1)
    cu("cuMemRelease", handle)
    cu.write(space + 10, b"same")
    assert cu.read(space + 3 * GRANULE + 10, 4) == b"same"


def test_memory_lives_until_handles_and_mappings_are_gone(cu, space, emu):
    free = cu("cuMemGetInfo")[0]
    handle = chunk(cu)
    cu("cuMemMap", space, GRANULE, 0, handle, 0)
    cu("cuMemRelease", handle)
    assert cu.error("cuMemRelease", handle) == 1
    assert cu("cuMemGetInfo")[0] == free - GRANULE
    again = cu("cuMemRetainAllocationHandle", space + 12345)
    assert int(again) == int(handle)
    cu("cuMemUnmap", space, GRANULE)
    assert cu("cuMemGetInfo")[0] == free - GRANULE
    assert len(emu.leaks()["handles"]) == 1
    cu("cuMemRelease", again)
    assert cu("cuMemGetInfo")[0] == free


def test_capacity(cu):
    handle = chunk(cu, 512)
    assert cu.error("cuMemCreate", GRANULE, cu.properties(), 0) == 2
    assert cu.error("cuMemAlloc", 1) == 2
    cu("cuMemRelease", handle)


def test_properties_come_back(cu):
    handle = chunk(cu, device=1, shareable=True)
    properties = cu("cuMemGetAllocationPropertiesFromHandle", handle)
    assert properties.location.id == 1
    assert int(properties.requestedHandleTypes) == 1
    cu("cuMemRelease", handle)


def test_export_only_of_what_was_made_for_it(cu):
    handle = chunk(cu)
    assert cu.error("cuMemExportToShareableHandle", handle, cu.posix, 0) == 1
    cu("cuMemRelease", handle)


def test_contents_survive_the_first_export(cu, space):
    handle = chunk(cu, shareable=True)
    cu("cuMemMap", space, GRANULE, 0, handle, 0)
    cu("cuMemSetAccess", space, GRANULE, [cu.access()], 1)
    cu.write(space + 99, b"before")
    os.close(int(cu("cuMemExportToShareableHandle", handle, cu.posix, 0)))
    assert cu.read(space + 99, 6) == b"before"
    cu("cuMemRelease", handle)


def test_import_in_the_same_process_is_the_same_memory(cu):
    handle = chunk(cu, shareable=True)
    fd = int(cu("cuMemExportToShareableHandle", handle, cu.posix, 0))
    free = cu("cuMemGetInfo")[0]
    again = cu("cuMemImportFromShareableHandle", fd, cu.posix)
    os.close(fd)
    assert cu("cuMemGetInfo")[0] == free
    cu("cuMemRelease", handle)
    cu("cuMemRelease", again)
    assert cu.error("cuMemRelease", again) == 1


def test_a_descriptor_of_something_else_is_refused(cu, tmp_path):
    files = [os.open(tmp_path / "plain", os.O_RDWR | os.O_CREAT), os.memfd_create("fake")]
    os.truncate(files[1], GRANULE + 4096)
    for fd in (*files, 9999):
        assert cu.error("cuMemImportFromShareableHandle", fd, cu.posix) == 1
    for fd in files:
        os.close(fd)


def test_memory_crosses_processes_by_descriptor(cu, peer, space):
    handle = chunk(cu, shareable=True)
    cu("cuMemMap", space, GRANULE, 0, handle, 0)
    cu("cuMemSetAccess", space, GRANULE, [cu.access()], 1)
    cu.write(space, b"from here")
    fd = int(cu("cuMemExportToShareableHandle", handle, cu.posix, 0))
    theirs = peer(
        """
handle = cu("cuMemImportFromShareableHandle", fds[0], cu.posix)
os.close(fds[0])
at = int(cu("cuMemAddressReserve", 2 << 20, 0, 0, 0))
cu("cuMemMap", at, 2 << 20, 0, handle, 0)
cu("cuMemRelease", handle)
refused = cu.error("cuMemcpyDtoH", bytearray(1), at, 1)
cu("cuMemSetAccess", at, 2 << 20, [cu.access()], 1)
[refused, cu.read(at, 9).decode(), cu.write(at + 20, b"from there")]
""",
        fds=(fd,),
    )
    os.close(fd)
    assert theirs[:2] == [1, "from here"]
    assert cu.read(space + 20, 10) == b"from there"
    cu("cuMemUnmap", space, GRANULE)
    cu("cuMemRelease", handle)
    assert peer("cu.read(at, 9)") == b"from here"  # its mapping keeps the memory


def test_a_descriptor_outlives_its_exporter(cu, peer, space):
    """What was exported lives while a descriptor does, even when the exporter was killed."""
    fd = peer(
        """
import array
handle = cu("cuMemCreate", 2 << 20, cu.properties(shareable=True), 0)
at = int(cu("cuMemAddressReserve", 2 << 20, 0, 0, 0))
cu("cuMemMap", at, 2 << 20, 0, handle, 0)
cu("cuMemSetAccess", at, 2 << 20, [cu.access()], 1)
cu.write(at, b"testament")
int(cu("cuMemExportToShareableHandle", handle, cu.posix, 0))
"""
    )
    mine = os.open(f"/proc/{peer.process.pid}/fd/{fd}", os.O_RDWR)
    peer.kill()
    handle = cu("cuMemImportFromShareableHandle", mine, cu.posix)
    os.close(mine)
    cu("cuMemMap", space, GRANULE, 0, handle, 0)
    cu("cuMemRelease", handle)
    cu("cuMemSetAccess", space, GRANULE, [cu.access()], 1)
    assert cu.read(space, 9) == b"testament"
