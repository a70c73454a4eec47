"""IPC of allocations, with a real second process."""

import os
import random

import pytest

REFUSED = {1, 400}  # CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE


def export(cu, address):
    return cu.bytes_of(cu("cuIpcGetMemHandle", address))


OPEN = """
def handle_of(data):
    return cu.opaque("CUipcMemHandle", data)
def opened(data):
    return int(cu("cuIpcOpenMemHandle", handle_of(data), 1))
def error(data):
    return cu.error("cuIpcOpenMemHandle", handle_of(data), 1)
0
"""


@pytest.fixture
def importer(peer):
    peer(OPEN)
    return peer


def test_memory_is_one_in_both_processes(cu, importer):
    address = cu.alloc(5 << 20)
    cu.write(address + 4999, b"from here")
    data = export(cu, address)
    assert importer("at = opened(data)\ncu.read(at + 4999, 9)", data=data) == b"from here"
    importer('cu.write(at + 7, b"from there")')
    assert cu.read(address + 7, 10) == b"from there"
    assert importer('cu.error("cuMemsetD8", at, 0, (5 << 20) + 1)') == 1
    assert importer('[int(x) for x in cu("cuMemGetAddressRange", at + 1)] == [at, 5 << 20]')
    importer('cu("cuIpcCloseMemHandle", at)\n0')
    assert importer('cu.error("cuMemsetD8", at, 0, 1)') == 1
    cu("cuMemFree", address)


def test_an_interior_address_exports_its_base(cu, importer):
    cu("cuMemFree", cu.alloc(64))
    low, address = sorted((cu.alloc(512), cu.alloc(1536)))
    assert export(cu, address + 700) == export(cu, address)
    cu.write(address, b"base")
    assert importer("at = opened(data)\ncu.read(at, 4)", data=export(cu, address + 700)) == b"base"
    assert importer("at % 512") == 0
    for piece in (low, address):
        cu("cuMemFree", piece)


def test_opening_twice_is_counted(cu, importer):
    address = cu.alloc(4096)
    data = export(cu, address)
    assert importer("a, b = opened(data), opened(data)\na == b", data=data)
    assert importer('cu("cuIpcCloseMemHandle", a)\ncu.error("cuMemsetD8", a, 0, 1)') == 0
    assert importer('cu("cuIpcCloseMemHandle", a)\ncu.error("cuMemsetD8", a, 0, 1)') == 1
    assert importer('cu.error("cuIpcCloseMemHandle", a)') == 1
    cu("cuMemFree", address)


def test_another_context_opens_for_itself(cu, importer):
    address = cu.alloc(4096)
    code = """
first = opened(data)
other = cu.create_context(0, 0)
second = opened(data)
cu.write(first, b"both")
same = cu.read(second, 4)
cu("cuCtxDestroy", other)
[first != second, same.decode(), cu.error("cuMemsetD8", second, 0, 1), cu.read(first, 4).decode()]
"""
    assert importer(code, data=export(cu, address)) == [True, "both", 1, "both"]
    cu("cuMemFree", address)


def test_the_exporter_cannot_open_its_own(cu):
    address = cu.alloc(4096)
    handle = cu("cuIpcGetMemHandle", address)
    assert cu.error("cuIpcOpenMemHandle", handle, 1) == 201
    cu("cuMemFree", address)
    assert cu.error("cuIpcOpenMemHandle", handle, 1) in REFUSED


def test_only_plain_allocations_are_exported(cu):
    managed, host = int(cu("cuMemAllocManaged", 4096, 1)), cu("cuMemHostAlloc", 4096, 0)
    reserved = int(cu("cuMemAddressReserve", 2 << 20, 0, 0, 0))
    handle = cu("cuMemCreate", 2 << 20, cu.properties(shareable=True), 0)
    cu("cuMemMap", reserved, 2 << 20, 0, handle, 0)
    cu("cuMemRelease", handle)
    for address in (managed, host, reserved, id(cu), 0):
        assert cu.error("cuIpcGetMemHandle", address) == 1
    cu("cuMemUnmap", reserved, 2 << 20)
    cu("cuMemAddressFree", reserved, 2 << 20)
    cu("cuMemFree", managed)
    cu("cuMemFreeHost", host)


def test_an_opened_address_cannot_be_freed_or_exported_again(cu, importer):
    address = cu.alloc(4096)
    assert importer('at = opened(data)\ncu.error("cuMemFree", at)', data=export(cu, address)) == 1
    assert importer('cu.error("cuIpcGetMemHandle", at)') == 1
    cu("cuMemFree", address)


def test_a_handle_dies_with_its_memory_even_when_the_address_comes_back(cu, importer):
    address = cu.alloc(4096)
    old = export(cu, address)
    cu("cuMemFree", address)
    assert importer("error(data)", data=old) in REFUSED
    assert cu.alloc(4096) == address
    new = export(cu, address)
    assert new != old
    assert importer("error(data)", data=old) in REFUSED
    assert importer("opened(data) != 0", data=new)
    cu("cuMemFree", address)


def test_every_flipped_byte_is_refused(cu, importer):
    address = cu.alloc(4096)
    data = export(cu, address)
    code = """
answers = set()
for i in range(len(data)):
    for bit in range(8):
        answers.add(error(data[:i] + bytes([data[i] ^ 1 << bit]) + data[i + 1 :]))
sorted(answers)
"""
    assert set(importer(code, data=data)) <= REFUSED
    cu("cuMemFree", address)


def test_noise_is_refused(cu, importer):
    noise = random.Random(5)
    for data in (bytes(64), b"\xff" * 64, *(noise.randbytes(64) for _ in range(100))):
        assert importer("error(data)", data=data) in REFUSED


def checksummed(body):
    """A handle with a good checksum over any content, as a hostile process could write it."""
    hashed = 0xCBF29CE484222325
    for byte in body:
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    return body + hashed.to_bytes(8, "little")


def test_a_forged_handle_with_a_good_checksum_is_refused(cu, importer):
    address = cu.alloc(4096)
    data = export(cu, address)
    assert checksummed(data[:56]) == data
    noise = random.Random(6)
    for _ in range(300):
        body = bytearray(data[:56])
        start = noise.randrange(56)
        body[start : start + 4] = noise.randbytes(min(4, 56 - start))
        spare = bytes(body[:48]) == data[:48]  # the last eight bytes mean nothing
        answer = importer("error(data)", data=checksummed(bytes(body)))
        assert answer in REFUSED or spare
    cu("cuMemFree", address)


def test_a_handle_cannot_make_us_open_other_files(cu, importer, tmp_path):
    """The exporter's pid with any other descriptor: a pipe would block, a file is not ours."""
    address = cu.alloc(4096)
    data = export(cu, address)
    pipe = os.pipe()
    plain = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    for fd in (*pipe, plain, 0, 1, 2, 5000):
        body = bytearray(data[:56])
        body[24:28] = fd.to_bytes(4, "little")
        assert importer("error(data)", data=checksummed(bytes(body))) in REFUSED
    for fd in (*pipe, plain):
        os.close(fd)
    cu("cuMemFree", address)


def test_an_exporter_that_was_killed(cu, peer):
    """What was opened stays readable; its handle can no longer be opened."""
    data = peer(
        """
at = cu.alloc(4096)
cu.write(at, b"last words")
cu.bytes_of(cu("cuIpcGetMemHandle", at))
"""
    )
    handle = cu.opaque("CUipcMemHandle", data)
    address = int(cu("cuIpcOpenMemHandle", handle, 1))
    peer.kill()
    assert cu.read(address, 10) == b"last words"
    assert cu.error("cuIpcOpenMemHandle", handle, 1) in REFUSED
    cu("cuIpcCloseMemHandle", address)


def test_an_importer_that_was_killed_leaves_nothing(cu, importer):
    address = cu.alloc(4096)
    importer("opened(data)", data=export(cu, address))
    importer.kill()
    cu("cuMemsetD8", address, 1, 4096)
    cu("cuMemFree", address)


def test_opens_need_no_descriptor_each(cu, importer):
    pieces = [cu.alloc(4096) for _ in range(200)]
    before = importer("len(os.listdir('/proc/self/fd'))")
    mine = len(os.listdir("/proc/self/fd"))
    for piece in pieces:
        importer("opened(data)", data=export(cu, piece))
    assert importer("len(os.listdir('/proc/self/fd'))") == before
    assert len(os.listdir("/proc/self/fd")) == mine
    for piece in pieces:
        cu("cuMemFree", piece)


def test_one_export_for_an_allocation(cu, emu):
    address = cu.alloc(4096)
    assert len({export(cu, address + i) for i in range(100)}) == 1
    assert len(emu.leaks()["exports"]) == 1
    cu("cuMemFree", address)


def test_events_cross_processes(cu, peer):
    event = cu("cuEventCreate", 6)
    data = cu.bytes_of(cu("cuIpcGetEventHandle", event))
    code = """
handle = cu.opaque("CUipcEventHandle", data)
event = cu("cuIpcOpenEventHandle", handle)
cu("cuEventSynchronize", event)
cu("cuStreamWaitEvent", 0, event, 0)
cu("cuEventDestroy", event)
flipped = data[:8] + bytes([data[8] ^ 1]) + data[9:]
cu.error("cuIpcOpenEventHandle", cu.opaque("CUipcEventHandle", flipped))
"""
    assert peer(code, data=data) in REFUSED
    cu("cuEventDestroy", event)
    code = 'cu.error("cuIpcOpenEventHandle", cu.opaque("CUipcEventHandle", data))'
    assert peer(code, data=data) in REFUSED
    plain = cu("cuEventCreate", 0)
    assert cu.error("cuIpcGetEventHandle", plain) == 400
    cu("cuEventDestroy", plain)
