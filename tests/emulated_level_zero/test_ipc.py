"""Memory of other processes: handles whose first field is a descriptor."""

import ctypes
import os
import random

import pytest

OPEN = "ze.open_bytes(data, fds[0])"


def _send(peer, handle, code=OPEN, **values):
    return peer(code, fds=(handle.descriptor,), data=bytes(handle), **values)


def test_bytes_cross_processes_both_ways(ze, peer):
    ptr = ze.alloc(100_000)
    ze.write(ptr, b"from here")
    theirs = _send(peer, ze.export(ptr))
    assert peer("ze.read(ptr, 9)", ptr=theirs) == b"from here"
    peer("ze.write(ptr, b'from there')", ptr=theirs + 50_000)
    assert ze.read(ptr + 50_000, 10) == b"from there"
    assert peer("access_rights(ptr)", ptr=theirs) == "---p"
    assert peer("ze.properties(ptr)[0]", ptr=theirs) == 2
    peer("ze.close(ptr)", ptr=theirs)
    ze.free(ptr)


def test_every_open_has_its_own_addresses_and_descriptor(ze, z, peer):
    ptr = ze.alloc(100)
    handle = ze.export(ptr)
    before = peer("descriptors()")
    opened = [_send(peer, handle, OPEN + ", os.close(fds[0])")[0] for _ in range(3)]
    assert len(set(opened)) == 3
    assert peer("descriptors()") == before + 3
    peer("ze.close(*opened)", opened=opened)
    assert peer("descriptors()") == before
    ze.free(ptr)


def test_the_exporter_may_open_its_own(ze):
    ptr = ze.alloc(100)
    ze.write(ptr, b"mine")
    opened = ze.open(ze.export(ptr), device=1)
    assert opened != ptr
    assert ze.read(opened, 4) == b"mine"
    assert ze.properties(opened)[3] == ze.devices[1]
    ze.close(opened)
    ze.free(ptr)


def test_small_neighbours_are_not_mistaken_for_each_other(ze, peer):
    ptrs = [ze.alloc(1000) for _ in range(8)]
    for i, ptr in enumerate(ptrs):
        ze.write(ptr, bytes([i]) * 1000)
    opened = [_send(peer, ze.export(ptr)) for ptr in ptrs]
    for i, ptr in enumerate(opened):
        assert peer("ze.read(ptr, 1000)", ptr=ptr) == bytes([i]) * 1000
    peer("ze.close(*opened)", opened=opened)
    ze.free(*ptrs)


def test_gets_are_counted_and_puts_end_the_export(ze, z, emu):
    ptr = ze.alloc(100)
    before = z.descriptors()
    first, second = ze.export(ptr), ze.export(ptr)
    assert bytes(first) == bytes(second)
    assert z.descriptors() == before + 1
    ze("zeMemPutIpcHandle", ze.context, first)
    ze.close(ze.open(second))
    ze("zeMemPutIpcHandle", ze.context, second)
    assert z.descriptors() == before
    assert "exports" not in emu.leaks()
    assert ze.error("zeMemPutIpcHandle", ze.context, second) == z.INVALID_ARGUMENT
    third = ze.export(ptr)
    assert bytes(third)[4:] != bytes(first)[4:]
    ze.free(ptr)
    assert z.descriptors() == before


def test_freed_memory_cannot_be_opened_even_when_its_address_is_in_use_again(ze, z):
    ptr = ze.alloc(100)
    handle = ze.export(ptr)
    kept = os.dup(handle.descriptor)
    ze.free(ptr)
    again = ze.alloc(100)
    assert again == ptr
    ze.export(again)
    out = ctypes.byref(z.Handle())
    stale = z.IpcHandle.of(bytes(handle), kept)
    error = ze.error("zeMemOpenIpcHandle", ze.context, ze.devices[0], stale, 0, out)
    assert error == z.INVALID_ARGUMENT
    os.close(kept)
    ze.free(again)


def test_a_descriptor_that_the_program_closed_is_not_closed_again(ze):
    ptr = ze.alloc(100)
    os.close(ze.export(ptr).descriptor)
    reader, writer = os.pipe()
    ze.free(ptr)
    os.write(writer, b"x")
    assert os.read(reader, 1) == b"x"
    os.close(reader)
    os.close(writer)


def test_only_a_base_of_device_memory_is_exported(ze, z):
    device, host, shared = ze.alloc(100), ze.alloc_host(100), ze.alloc_shared(100)
    opened = ze.open(ze.export(device))
    out = z.IpcHandle()
    for ptr in (device + 1, host, shared, opened, 4096):
        error = ze.error("zeMemGetIpcHandle", ze.context, ptr, ctypes.byref(out))
        assert error == z.INVALID_ARGUMENT
    for ptr in (device, opened + 1):
        error = ze.error("zeMemCloseIpcHandle", ze.context, ptr)
        assert error == z.INVALID_ARGUMENT
    assert ze.error("zeMemFree", ze.context, opened) == z.INVALID_ARGUMENT
    ze.close(opened)
    ze.free(device, host, shared)


def test_from_a_descriptor_to_a_handle_and_back(ze, z, peer):
    ptrs = [ze.alloc(1000), ze.alloc(1000)]
    ze.write(ptrs[1], b"second")
    handle = [ze.export(ptr) for ptr in ptrs][1]
    fd = ze.get("zeMemGetFileDescriptorFromIpcHandleExp", ze.context, handle, kind=z.u64)
    assert fd == handle.descriptor
    code = """
handle = ze.get("zeMemGetIpcHandleFromFileDescriptorExp", ze.context, fds[0], kind=IpcHandle)
ptr = ze.open(handle)
data = ze.read(ptr, 6)
ze.close(ptr)
data"""
    assert peer(code, fds=(fd,)) == b"second"
    out = ctypes.byref(z.IpcHandle())
    with open("/dev/null") as null:
        for wrong in (null.fileno(), 1 << 40, 999_999):
            error = ze.error("zeMemGetIpcHandleFromFileDescriptorExp", ze.context, wrong, out)
            assert error == z.INVALID_ARGUMENT
    ze.free(*ptrs)


def test_hostile_handles(ze, z):
    """Any byte changed, any other file: an error, and nothing opened."""
    ptr = ze.alloc(100)
    handle = ze.export(ptr)
    good = bytes(handle)
    out = ctypes.byref(z.Handle())

    def error(data):
        ipc = z.IpcHandle.of(bytes(data))
        return ze.error("zeMemOpenIpcHandle", ze.context, ze.devices[0], ipc, 0, out)

    for position in range(4, 64):
        changed = bytearray(good)
        changed[position] ^= 1 << position % 8
        assert error(changed) == z.INVALID_ARGUMENT, position
    source = random.Random(1)
    for _ in range(50):
        assert error(source.randbytes(64)) == z.INVALID_ARGUMENT
    memfd = os.memfd_create("umfpy-device", os.MFD_ALLOW_SEALING)
    with open("/dev/null") as null:
        for fd in (-1, 2**31 - 1, null.fileno(), memfd):
            other = z.IpcHandle.of(good, fd)
            assert error(other) == z.INVALID_ARGUMENT
    os.close(memfd)
    assert (
        ze.error("zeMemOpenIpcHandle", ze.context, ze.devices[0], handle, 8, out)
        == z.INVALID_ENUMERATION
    )
    ze.free(ptr)


def test_the_exporter_may_die_first(ze, peer):
    code = """
ptr = ze.alloc(1000)
ze.write(ptr, b"a legacy")
handle = ze.export(ptr)
send = [handle.descriptor]
bytes(handle)"""
    data, fd = peer(code)
    opened = ze.open_bytes(data, fd)
    os.close(fd)
    peer.kill()
    assert ze.read(opened, 8) == b"a legacy"
    ze.close(opened)


@pytest.mark.parametrize("sizes", [(1,), (65536, 65537), (2 << 20, (2 << 20) + 1)])
def test_sizes_are_kept(ze, z, sizes):
    for size in sizes:
        ptr = ze.alloc(size)
        opened = ze.open(ze.export(ptr))
        base, length = z.Handle(), z.size_t()
        out = ctypes.byref(base), ctypes.byref(length)
        ze("zeMemGetAddressRange", ze.context, opened + size - 1, *out)
        assert (base.value, length.value) == (opened, size)
        ze.write(opened + size - 1, b"!")
        assert ze.read(ptr + size - 1, 1) == b"!"
        ze.close(opened)
        ze.free(ptr)
