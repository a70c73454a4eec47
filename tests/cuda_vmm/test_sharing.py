"""Memory of several chunks, and of pools, in other processes; and what may come from there."""

from __future__ import annotations

import os
import resource
import socket
import struct
from dataclasses import replace

import pytest
from cuda.bindings.driver import CUresult

import umfpy
from tests.fakes.programs import run_python
from umfpy.errors import InvalidArgument, IpcError, OutOfMemoryError
from umfpy.providers.cuda import CudaAsyncProvider, CudaVmmProvider
from umfpy.providers.cuda.pooled_ipc import PooledPayload
from umfpy.providers.cuda.vmm_ipc import VmmPayload
from umfpy.providers.host.sealed import seal

MIB = 1 << 20
UNIT = 2 * MIB
UNKNOWN = 999

IMPORTER = """
import os, sys
import umfpy
emu = umfpy.emulate("cuda", memory="4GiB", devices=2)
provider = umfpy.CudaVmmProvider() if sys.argv[1] == "vmm" else umfpy.CudaAsyncProvider()
payload, size = bytes.fromhex(sys.argv[2]), int(sys.argv[3])
before = len(os.listdir("/proc/self/fd"))
at = provider.ipc_open(payload, [int(fd) for fd in sys.argv[4:]])
seen = bytearray(16)
provider.copy(seen, at + size - 16, 16)
provider.copy(at, b"from there", 10)
calls = emu.calls["cuMemImportFromShareableHandle"], emu.calls["cuMemSetAccess"]
provider.ipc_close(at, size)
provider.close()
assert len(os.listdir("/proc/self/fd")) <= before
print(seen.decode(), *calls, emu.leaks())
"""

PROVIDERS = {"vmm": CudaVmmProvider, "pool": CudaAsyncProvider}

IMPORTS = {
    "vmm": "cuMemImportFromShareableHandle",
    "pool": "cuMemPoolImportFromShareableHandle",
}


@pytest.fixture(params=list(PROVIDERS))
def kind(request):
    return request.param


@pytest.fixture
def shared(emu, kind):
    """A provider with an exported allocation: (provider, address, bytes, payload)."""
    provider = PROVIDERS[kind]()
    size = 100 * MIB
    ptr = provider.alloc(size)
    payload = provider.ipc_export(ptr, size)
    yield provider, ptr, size, payload
    if provider.live_count():
        provider.ipc_release(payload)
        provider.free(ptr, size)
    provider.close()


@pytest.mark.parametrize("carried", [False, True])
def test_another_process_opens_all_of_it(shared, kind, carried, read):
    provider, ptr, size, payload = shared
    provider.copy(ptr + size - 16, b"16 bytes at end.", 16)
    fds = tuple(provider.ipc_descriptors(payload)) if carried else ()
    if fds:
        assert len(fds) == (8 if kind == "vmm" else 2)
    for fd in fds:
        os.set_inheritable(fd, True)
    said = run_python(IMPORTER, kind, payload.hex(), str(size), *map(str, fds), fds=fds)
    imports = "7 1" if kind == "vmm" else "0 0"
    assert said == f"16 bytes at end. {imports} {{}}"
    assert read(provider, ptr, 10) == b"from there"


def test_an_export_ends_with_release_and_with_the_memory(shared, kind):
    provider, ptr, size, payload = shared
    files = len(os.listdir("/proc/self/fd"))
    again = provider.ipc_export(ptr, size)
    provider.ipc_release(again)
    provider.ipc_release(again)
    assert len(os.listdir("/proc/self/fd")) == files
    assert provider.ipc_descriptors(again) == ()
    with pytest.raises(IpcError):
        provider.ipc_open(again)
    assert provider.ipc_size(again) == size
    provider.free(ptr, size)
    with pytest.raises(IpcError):
        provider.ipc_open(payload)
    provider.ipc_release(payload)
    other = provider.alloc(size)
    with pytest.raises(IpcError):
        provider.ipc_open(payload)
    provider.free(other, size)


def test_descriptors_that_are_used_again_are_found_out(shared):
    """The numbers are those of another export by then."""
    provider, ptr, size, payload = shared
    provider.ipc_release(payload)
    other = provider.ipc_export(ptr, size)
    assert type(provider).name == "cuda_async" or VmmPayload.unpack(other).fds
    with pytest.raises(IpcError, match=r"freed|no descriptor"):
        provider.ipc_open(payload)
    carried = provider.ipc_descriptors(other)
    with pytest.raises(IpcError, match="freed, or its export was released"):
        provider.ipc_open(payload, carried)
    with pytest.raises(IpcError, match="descriptors came with"):
        provider.ipc_open(other, carried[:1])
    provider.ipc_release(other)


def test_a_ticket_that_is_no_file(shared):
    provider, _, _, payload = shared
    carried = list(provider.ipc_descriptors(payload))
    here, there = socket.socketpair()
    with here, there, pytest.raises(IpcError, match="freed"):
        provider.ipc_open(payload, [*carried[:-1], here.fileno()])


def test_exported_memory_serves_nobody_else(emu):
    """Importers may still have it: it is released, and not kept for the next allocation."""
    provider = CudaVmmProvider()
    ptr = provider.alloc(UNIT)
    payload = provider.ipc_export(ptr, UNIT)
    opened = provider.ipc_open(payload)
    provider.free(ptr, UNIT)
    assert provider.kept_bytes == provider.reserved_bytes == 0
    other = provider.alloc(UNIT)
    provider.zero(other, UNIT)
    provider.copy(opened, b"old", 3)
    seen = bytearray(3)
    provider.copy(seen, other, 3)
    assert seen == bytes(3)
    provider.ipc_close(opened, UNIT)
    provider.free(other, UNIT)
    provider.close()


def test_decommit_ends_an_export(emu):
    provider = CudaVmmProvider()
    ptr = provider.alloc(UNIT)
    payload = provider.ipc_export(ptr, UNIT)
    provider.decommit(ptr, UNIT)
    with pytest.raises(IpcError):
        provider.ipc_open(payload)
    with pytest.raises(InvalidArgument, match="commit it first"):
        provider.ipc_export(ptr, UNIT)
    provider.ipc_release(payload)
    provider.free(ptr, UNIT)
    provider.close()


def test_more_chunks_than_descriptors_travel(emu):
    provider = CudaVmmProvider(chunk_size=UNIT)
    ptr = provider.alloc(300 * UNIT)
    payload = provider.ipc_export(ptr, 300 * UNIT)
    assert len(payload) < 1 << 16
    assert provider.ipc_descriptors(payload) == ()
    opened = provider.ipc_open(payload)
    provider.ipc_close(opened, 300 * UNIT)
    provider.free(ptr, 300 * UNIT)
    provider.close()


def test_forged_payloads(shared, kind):
    provider, _, size, payload = shared
    cls = VmmPayload if kind == "vmm" else PooledPayload
    good = cls.unpack(payload)
    assert good.pack() == payload
    for at in range(len(payload)):
        flipped = payload[:at] + bytes([payload[at] ^ 0x40]) + payload[at + 1 :]
        with pytest.raises(IpcError):
            provider.ipc_open(flipped)
    forged = [
        replace(good, uuid="00" * 16),
        replace(good, size=size + 1) if kind == "vmm" else replace(good, size=1 << 63),
        replace(good, size=0),
        replace(good, exporter=replace(good.exporter, pid=1 << 31)),
        replace(good, exporter=replace(good.exporter, pid=0)),
        replace(good, exporter=replace(good.exporter, ticket=-1)),
        replace(good, exporter=replace(good.exporter, started=good.exporter.started + 1)),
        replace(good, exporter=replace(good.exporter, nonce=bytes(16))),
        replace(good, size=5),
    ]
    if kind == "vmm":
        forged += [
            replace(good, chunks=()),
            replace(good, chunks=good.chunks[:1]),
            replace(good, chunks=((0, 1 << 46), (0, 1 << 46))),
            replace(good, chunks=((-1, size),)),
        ]
    for one in forged:
        with pytest.raises(IpcError):
            provider.ipc_open(one.pack())
    for data in (b"", payload[:40], seal(payload[:8]), seal(payload[:8] + bytes(400))):
        with pytest.raises(IpcError):
            provider.ipc_open(data)
    # Said to have one chunk more than there are.
    if kind == "vmm":
        body = bytearray(payload[:-16])
        struct.pack_into("<I", body, 68, 9)
        with pytest.raises(IpcError, match="does not have its"):
            provider.ipc_open(seal(bytes(body)))


def test_a_ticket_for_what_the_driver_does_not_take(emu, kind, request):
    """The exporter is whoever makes tickets: the driver itself has to be asked as well."""
    request.applymarker(pytest.mark.refuses(IMPORTS[kind], CUresult.CUDA_ERROR_INVALID_VALUE))
    provider = PROVIDERS[kind]()
    ptr = provider.alloc(UNIT)
    read_end, write_end = os.pipe()

    def forge(exporter):
        uuid = provider.ipc_scope()
        if kind == "vmm":
            return VmmPayload(uuid, exporter, UNIT, ((read_end, UNIT),)).pack()
        return PooledPayload(uuid, exporter, bytes(16), read_end, bytes(64), 0, UNIT).pack()

    exports = provider._exchange.exports if kind == "vmm" else provider._exports
    payload = exports.enter(ptr, UNIT, [read_end], forge, own=False)
    with pytest.raises(IpcError, match="ShareableHandle failed"):
        provider.ipc_open(payload)
    provider.ipc_release(payload)
    os.close(read_end)
    os.close(write_end)
    provider.free(ptr, UNIT)
    provider.close()


@pytest.mark.refuses("cuMemMap", CUresult.CUDA_ERROR_INVALID_VALUE)
def test_a_chunk_that_is_smaller_than_its_payload_says(emu):
    provider = CudaVmmProvider()
    ptr = provider.alloc(UNIT)
    good = VmmPayload.unpack(provider.ipc_export(ptr, UNIT))

    def forge(exporter):
        chunks = tuple((fd, 2 * UNIT) for fd in good.fds)
        return VmmPayload(good.uuid, exporter, 2 * UNIT, chunks).pack()

    payload = provider._exchange.exports.enter(ptr, UNIT, good.fds, forge, own=False)
    with pytest.raises(IpcError, match="cuMemMap failed"):
        provider.ipc_open(payload)
    provider.free(ptr, UNIT)
    provider.close()


def test_refusals_of_the_exporter(shared, kind):
    provider, ptr, size, payload = shared
    with pytest.raises(InvalidArgument):
        provider.ipc_export(ptr, size - 1)
    with pytest.raises(InvalidArgument):
        provider.ipc_export(ptr + UNIT, UNIT)
    with pytest.raises(IpcError):
        provider.ipc_release(b"x")
    opened = provider.ipc_open(payload)
    for at, length in ((opened, size - 1), (opened + 1, size), (ptr - UNIT, size)):
        with pytest.raises(InvalidArgument):
            provider.ipc_close(at, length)
    provider.ipc_close(opened, size)
    with pytest.raises(InvalidArgument):
        provider.ipc_close(opened, size)


def test_an_open_mapping_keeps_the_provider(emu, kind):
    exporter, importer = PROVIDERS[kind](), PROVIDERS[kind]()
    ptr = exporter.alloc(UNIT)
    payload = exporter.ipc_export(ptr, UNIT)
    first, second = importer.ipc_open(payload), importer.ipc_open(payload)
    importer.close()
    importer.zero(first, UNIT)
    importer.ipc_close(first, UNIT)
    importer.zero(second, UNIT)
    importer.ipc_close(second, UNIT)
    exporter.free(ptr, UNIT)
    exporter.close()


# Parts of a piece.


@pytest.fixture
def parts(provider):
    """A piece of 4 chunks in the middle of a reservation: (provider, address of the piece)."""
    base = provider.reserve(12 * MIB)
    ptr = base + UNIT
    provider.split(base, 12 * MIB, UNIT)
    provider.split(ptr, 10 * MIB, 4 * UNIT)
    provider.commit(ptr, 4 * UNIT, chunk_size=UNIT)
    yield provider, ptr
    provider.free(ptr, 4 * UNIT)
    provider.free(base, UNIT)
    provider.free(ptr + 4 * UNIT, UNIT)


def test_whole_chunks_inside_a_piece_are_exported(parts, read):
    provider, ptr = parts
    root = ptr - UNIT, 12 * MIB
    wanted = provider.ipc_range(ptr + UNIT + 100, UNIT, root)
    assert wanted == (ptr + UNIT, 2 * UNIT)
    payload = provider.ipc_export(*wanted)
    assert provider.ipc_size(payload) == 2 * UNIT
    exported = [chunk.exported for chunk in provider.chunks(ptr, 4 * UNIT)]
    assert exported == [False, True, True, False]
    provider.copy(ptr + 3 * UNIT - 16, b"16 bytes at end.", 16)
    said = run_python(IMPORTER, "vmm", payload.hex(), str(2 * UNIT))
    assert said == "16 bytes at end. 2 1 {}"
    assert read(provider, ptr + UNIT, 10) == b"from there"
    provider.ipc_release(payload)


def test_the_others_come_and_go_while_some_are_exported(parts):
    provider, ptr = parts
    payload = provider.ipc_export(ptr + UNIT, UNIT)
    provider.split(ptr, 4 * UNIT, 2 * UNIT)
    provider.decommit(ptr + 2 * UNIT, 2 * UNIT)
    provider.ipc_close(provider.ipc_open(payload), UNIT)
    provider.commit(ptr + 2 * UNIT, 2 * UNIT)
    provider.merge(ptr, ptr + 2 * UNIT, 4 * UNIT)
    provider.ipc_close(provider.ipc_open(payload), UNIT)
    for end in (UNIT, 2 * UNIT):
        provider.split(ptr, 4 * UNIT, end)
        provider.decommit(ptr, end)
        provider.commit(ptr, end)
        provider.merge(ptr, ptr + end, 4 * UNIT)
        assert bool(provider.ipc_descriptors(payload)) == (end == UNIT)
    with pytest.raises(IpcError):
        provider.ipc_open(payload)


def test_what_is_to_be_exported_of_a_root(parts):
    provider, ptr = parts
    root = ptr - UNIT, 12 * MIB
    for start, size, chunks in (
        (ptr, 1, (0, 1)),
        (ptr + UNIT - 1, 1, (0, 1)),
        (ptr + UNIT - 1, 2, (0, 2)),
        (ptr + 1, 4 * UNIT - 2, (0, 4)),
        (ptr + 3 * UNIT, UNIT, (3, 1)),
    ):
        first, count = chunks
        assert provider.ipc_range(start, size, root) == (ptr + first * UNIT, count * UNIT)
    for start, size in ((ptr - 1, 2), (ptr - UNIT, UNIT), (ptr + 4 * UNIT - 1, 2)):
        with pytest.raises(InvalidArgument, match="no memory"):
            provider.ipc_range(start, size, root)
    whole = provider.alloc(100 * MIB + 1)
    assert provider.ipc_range(whole + 5, 10, (whole, 100 * MIB + 1)) == (whole, 100 * MIB + 1)
    provider.dalloc(whole, 100 * MIB + 1)
    assert provider.ipc_range(whole + 5, 10, (whole, 100 * MIB + 1))[1] < 100 * MIB
    provider.free(whole, 100 * MIB + 1)


def test_what_are_no_whole_chunks_is_not_exported(parts):
    provider, ptr = parts
    odd = provider.alloc(UNIT + 1)
    for start, size, message in (
        (ptr + 1, UNIT, "lies inside a chunk"),
        (ptr, UNIT - 1, "neither a piece nor whole chunks"),
        (odd + UNIT, 1, "neither a piece nor whole chunks"),
        (ptr - UNIT, UNIT, "commit it first"),
        (ptr - UNIT, 2 * UNIT, "commit it first"),
        (ptr + 3 * UNIT, 2 * UNIT, "commit it first"),
        (ptr, 0, "neither|commit"),
        (ptr, -UNIT, "commit"),
        (ptr, 1 << 64, "commit"),
        (ptr + (1 << 46), UNIT, "not memory of"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            provider.ipc_export(start, size)
    assert not any(chunk.exported for chunk in provider.chunks(ptr, 4 * UNIT))
    provider.dalloc(odd, UNIT + 1)
    with pytest.raises(InvalidArgument, match="commit it first"):
        provider.ipc_export(odd, UNIT + 1)
    provider.free(odd, UNIT + 1)


@pytest.mark.parametrize("call", ["cuMemRetainAllocationHandle", "cuMemExportToShareableHandle"])
def test_an_export_that_fails_leaves_memory_that_can_be_taken_elsewhere(parts, emu, call):
    provider, ptr = parts
    payload = provider.ipc_export(ptr + UNIT, UNIT)
    emu.fail(call, nth=3, error=UNKNOWN)
    with pytest.raises(umfpy.DriverError):
        provider.ipc_export(ptr, 4 * UNIT)
    exported = [chunk.exported for chunk in provider.chunks(ptr, 4 * UNIT)]
    assert exported == [False, True, False, False]
    provider.split(ptr, 4 * UNIT, UNIT)
    target = provider.reserve(UNIT)
    provider.remap([(ptr, UNIT)], target, UNIT)
    provider.free(target, UNIT)
    provider.commit(ptr, UNIT)
    provider.merge(ptr, ptr + UNIT, 4 * UNIT)
    provider.ipc_release(payload)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("at", ["cuMemRetainAllocationHandle", "cuMemExportToShareableHandle"])
def test_memory_that_another_thread_drops_meanwhile(parts, monkeypatch, at, again):
    """Also if other memory is there by then: nobody gets it, and no descriptor is left."""
    provider, ptr = parts
    provider.split(ptr, 4 * UNIT, UNIT)
    provider.ipc_release(provider.ipc_export(ptr + UNIT, UNIT))
    driver = provider._driver
    original = driver.call
    files = len(os.listdir("/proc/self/fd"))

    def call(name, *arguments):
        if name == at:
            monkeypatch.setattr(driver, "call", original)
            provider.decommit(ptr, UNIT)
            if again:
                provider.commit(ptr, UNIT)
        return original(name, *arguments)

    monkeypatch.setattr(driver, "call", call)
    with pytest.raises(InvalidArgument, match="freed while they were exported"):
        provider.ipc_export(ptr, UNIT)
    assert len(os.listdir("/proc/self/fd")) <= files
    if not again:
        provider.commit(ptr, UNIT)
    provider.merge(ptr, ptr + UNIT, 4 * UNIT)
    provider.ipc_release(provider.ipc_export(ptr, UNIT))


def test_memory_that_another_thread_wants_to_take_elsewhere_meanwhile(parts, monkeypatch, read):
    provider, ptr = parts
    provider.split(ptr, 4 * UNIT, UNIT)
    provider.copy(ptr, b"here", 4)
    target = provider.reserve(UNIT)
    driver = provider._driver
    original = driver.call

    def call(name, *arguments):
        if name == "cuMemRetainAllocationHandle":
            with pytest.raises(InvalidArgument, match="was exported"):
                provider.remap([(ptr, UNIT)], target, UNIT)
        return original(name, *arguments)

    monkeypatch.setattr(driver, "call", call)
    provider.ipc_release(provider.ipc_export(ptr, UNIT))
    monkeypatch.undo()
    assert read(provider, ptr, 4) == b"here"
    provider.merge(ptr, ptr + UNIT, 4 * UNIT)
    provider.free(target, UNIT)


@pytest.mark.parametrize("call", ["cuMemAddressFree", "cuMemRelease"])
def test_an_import_that_cannot_be_taken_apart_is_later(emu, call):
    provider = CudaVmmProvider()
    ptr = provider.alloc(UNIT)
    payload = provider.ipc_export(ptr, UNIT)
    emu.fail(call, error=UNKNOWN)
    provider.ipc_close(provider.ipc_open(payload), UNIT)
    provider.trim()
    provider.free(ptr, UNIT)
    provider.close()


@pytest.mark.refuses("cuMemExportToShareableHandle", CUresult.CUDA_ERROR_OPERATING_SYSTEM)
def test_out_of_descriptors(emu):
    provider = CudaVmmProvider()
    ptr = provider.alloc(8 * UNIT)
    # Also for the driver's own, which it makes once for each chunk.
    provider.ipc_release(provider.ipc_export(ptr, 8 * UNIT))
    used = max(map(int, os.listdir("/proc/self/fd")))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    for extra in range(1, 4):
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + extra, hard))
        try:
            with pytest.raises((umfpy.DriverError, OutOfMemoryError)):
                _export_forever(provider, ptr)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        provider._exchange.exports.forget(ptr, 8 * UNIT)
        assert len(os.listdir("/proc/self/fd")) == before
    provider.free(ptr, 8 * UNIT)
    provider.close()


def _export_forever(provider, ptr):
    while True:
        provider.ipc_export(ptr, 8 * UNIT)
