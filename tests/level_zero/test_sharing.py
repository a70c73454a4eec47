"""Sharing Level Zero memory: descriptors, forged and stale handles, what the loader lacks."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace

import pytest

from tests.fakes.programs import run_python
from umfpy import ProxyPool
from umfpy.errors import DriverError, InvalidArgument, IpcError, NotSupported
from umfpy.providers.level_zero import LevelZeroProvider, imports
from umfpy.providers.level_zero.constants import Result
from umfpy.providers.level_zero.ipc import LevelZeroPayload

MIB = 1 << 20

IMPORTER = """
import sys
from umfpy import IpcError, LevelZeroProvider
scope, payload, size = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
descriptors = [int(number) for number in sys.argv[4:]]
import os
before = len(os.listdir("/proc/self/fd"))
try:
    provider = LevelZeroProvider.for_ipc(scope)
    ptr = provider.ipc_open(payload, descriptors)
except IpcError as error:
    print("IpcError:", error)
else:
    seen = bytearray(5); provider.copy(seen, ptr, 5)
    again = provider.ipc_open(payload, descriptors)
    provider.copy(again + size - 5, b"world", 5)
    provider.ipc_close(again, size); provider.ipc_close(ptr, size)
    try: provider.ipc_close(ptr, size)
    except ValueError: print(provider.device, ptr == again, seen.decode())
    provider.close()
"""


@pytest.fixture
def provider(emu):
    provider = LevelZeroProvider()
    yield provider
    provider.close()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("sent", [False, True], ids=["fetched", "sent along"])
@pytest.mark.parametrize("index", [0, 2])
def test_another_process_opens_by_uuid(index, sent, emu):
    provider = LevelZeroProvider(index)
    ptr = provider.alloc(MIB)
    provider.copy(ptr, b"hello", 5)
    payload = provider.ipc_export(ptr, MIB)
    carried = provider.ipc_descriptors(payload)
    assert len(carried) == 1
    numbers = [str(fd) for fd in carried] if sent else []
    fds = tuple(carried) if sent else ()
    arguments = provider.ipc_scope(), payload.hex(), str(MIB), *numbers
    # Each open is a mapping of its own.
    assert run_python(IMPORTER, *arguments, fds=fds) == f"{index} False hello"
    seen = bytearray(5)
    provider.copy(seen, ptr + MIB - 5, 5)
    assert seen == b"world"
    provider.ipc_release(payload)
    provider.free(ptr, MIB)
    provider.close()


def test_an_allocation_that_is_a_part_of_a_native_one(provider, emu):
    emu.fail("zeMemAllocDevice", error=Result.ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT)
    ptr = provider.alloc(MIB, 8 * MIB)
    provider.copy(ptr, b"inner", 5)
    payload = provider.ipc_export(ptr, MIB)
    assert LevelZeroPayload.unpack(payload).offset == ptr - provider.properties(ptr)["base"]
    answer = run_python(IMPORTER, provider.ipc_scope(), payload.hex(), str(MIB))
    assert answer == "0 False inner"
    provider.ipc_release(payload)
    provider.free(ptr, MIB)


def test_opening_and_closing_leaves_no_descriptor(provider, emu):
    """Of umfpy's own; a driver may keep one of its own for each open that is not closed yet."""
    ptr = provider.alloc(MIB)
    payload = provider.ipc_export(ptr, MIB)
    before = descriptors()
    for _ in range(3):
        opened = [provider.ipc_open(payload) for _ in range(4)]
        assert len({ptr, *opened}) == 5
        for address in opened:
            provider.ipc_close(address, MIB)
        with pytest.raises(InvalidArgument, match="no imported memory"):
            provider.ipc_close(opened[0], MIB)
    emu.fail("zeMemOpenIpcHandle", error=Result.ZE_RESULT_ERROR_INVALID_ARGUMENT)
    with pytest.raises(IpcError, match=r"zeMemOpenIpcHandle failed .*; the allocation was freed"):
        provider.ipc_open(payload)
    assert descriptors() == before
    provider.ipc_release(payload)
    provider.free(ptr, MIB)


def test_a_close_that_fails_can_be_repeated(provider, emu):
    ptr = provider.alloc(MIB)
    payload = provider.ipc_export(ptr, MIB)
    opened = provider.ipc_open(payload)
    emu.fail("zeMemCloseIpcHandle", error=Result.ZE_RESULT_ERROR_UNKNOWN)
    with pytest.raises(DriverError):
        provider.ipc_close(opened, MIB)
    provider.ipc_close(opened, MIB)
    provider.free(ptr, MIB)


def test_a_descriptor_whose_number_is_another_files_now(provider):
    ptr = provider.alloc(MIB)
    parsed = LevelZeroPayload.unpack(provider.ipc_export(ptr, MIB))
    with pytest.raises(IpcError, match="is of another file by now"):
        provider.ipc_open(replace(parsed, inode=parsed.inode + 1).pack())
    with open(os.devnull) as other, pytest.raises(IpcError, match="is of another file by now"):
        provider.ipc_open(parsed.pack(), [other.fileno()])
    with pytest.raises(IpcError, match="2 descriptors came with a handle that has one"):
        provider.ipc_open(parsed.pack(), [0, 1])
    with pytest.raises(IpcError, match=r"descriptor 1000000: Bad file"):
        provider.ipc_open(parsed.pack(), [1_000_000])
    provider.free(ptr, MIB)


def test_a_handle_that_claims_more_than_was_exported(provider, emu):
    ptr = provider.alloc(MIB)
    parsed = LevelZeroPayload.unpack(provider.ipc_export(ptr, MIB))
    for size, offset in ((1 << 40, 0), (MIB, MIB), (1, 1 << 40), (MIB + (64 << 10), 0)):
        with pytest.raises(IpcError, match="beyond what was exported"):
            provider.ipc_open(replace(parsed, size=size, offset=offset).pack())
    provider.free(ptr, MIB)


def test_a_handle_without_a_descriptor_is_opened_as_it_is(provider, monkeypatch):
    """Some driver's handles may say all by themselves."""
    parsed = LevelZeroPayload.of_this_process(provider.ipc_scope(), b"\xff" * 64, 0, MIB)
    assert parsed.fd == -1
    assert LevelZeroPayload.unpack(parsed.pack()) == parsed
    seen = []

    def make(driver, name, *arguments):
        seen.append((name, bytes(arguments[2])))
        raise DriverError(name, 1)

    monkeypatch.setattr(imports.LevelZeroDriver, "make", make)
    with pytest.raises(IpcError):
        provider.ipc_open(parsed.pack())
    assert seen == [("zeMemOpenIpcHandle", b"\xff" * 64)]


def test_what_to_allow_when_the_kernel_refuses(provider, monkeypatch):
    ptr = provider.alloc(MIB)
    parsed = LevelZeroPayload.unpack(provider.ipc_export(ptr, MIB))

    def refuse(system, name, *arguments):
        raise DriverError("pidfd_getfd", 1, "EPERM", "Operation not permitted")

    def not_there(path, flags):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("umfpy.providers.host.foreign.System.call", refuse)
    monkeypatch.setattr("umfpy.providers.host.foreign.os.open", not_there)
    monkeypatch.setattr("umfpy.providers.host.foreign.os.getpid", lambda: -1)
    words = r"PR_SET_PTRACER.*kernel.yama.ptrace_scope.*allow ptrace.*send the descriptor"
    with pytest.raises(IpcError, match=words):
        provider.ipc_open(parsed.pack())
    monkeypatch.undo()
    provider.free(ptr, MIB)


def test_only_whole_allocations_are_exported(provider):
    ptr = provider.alloc(2 * MIB)
    for address, size in ((ptr, MIB), (ptr + MIB, MIB), (ptr, 3 * MIB), (id(ptr), MIB)):
        with pytest.raises(InvalidArgument, match="no Level Zero allocation"):
            provider.ipc_export(address, size)
    provider.free(ptr, 2 * MIB)


def test_an_export_is_released_once(provider):
    ptr = provider.alloc(MIB)
    payload = provider.ipc_export(ptr, MIB)
    provider.ipc_release(payload)
    for method in (provider.ipc_release, provider.ipc_descriptors):
        with pytest.raises(InvalidArgument, match="released already"):
            method(payload)
        with pytest.raises(IpcError, match="do not describe Level Zero memory"):
            method(b"nothing")
    provider.free(ptr, MIB)


def test_host_and_shared_memory_have_no_handles(emu):
    for kind in ("host", "shared"):
        provider = LevelZeroProvider(0, kind)
        ptr = provider.alloc(MIB)
        with pytest.raises(NotSupported, match=f"no IPC for {kind} memory"):
            provider.ipc_export(ptr, MIB)
        provider.free(ptr, MIB)
        provider.close()


def test_memory_of_another_device(provider, emu):
    other = LevelZeroProvider(1)
    ptr = provider.alloc(MIB)
    with pytest.raises(IpcError, match=r"the memory is on device .* this provider is on"):
        other.ipc_open(provider.ipc_export(ptr, MIB))
    with pytest.raises(IpcError, match="sees no Level Zero device ffff"):
        LevelZeroProvider.for_ipc("ff" * 16)
    provider.free(ptr, MIB)
    other.close()


FUZZ = """
import sys, collections, json
from umfpy import LevelZeroProvider, UmfpyError
scope = sys.argv[1]
provider = LevelZeroProvider.for_ipc(scope)
outcome = collections.Counter()
for line in sys.stdin:
    payload, size = bytes.fromhex(line.split()[0]), int(line.split()[1])
    try:
        ptr = provider.ipc_open(payload)
    except UmfpyError as error:
        outcome[type(error).__name__] += 1
    else:
        provider.ipc_close(ptr, size)
        outcome["opened"] += 1
provider.close()
print(json.dumps(outcome))
"""


def forgeries(genuine, count):
    """Payloads that say something else, each with a digest that fits."""
    chance = random.Random(54)
    for number in range(count):
        field = chance.choice(["uuid", "handle", "offset", "size", "pid", "started", "inode"])
        value = chance.choice([0, 1, 64, 4096, MIB, chance.getrandbits(31), chance.getrandbits(62)])
        if field == "uuid":
            yield replace(genuine, uuid=chance.randbytes(16).hex())
        elif field == "handle":
            data = bytearray(genuine.handle)
            # The first four bytes are the descriptor, which is checked by what it leads to.
            data[number % 64] ^= chance.randrange(1, 256)
            yield replace(genuine, handle=bytes(data))
        elif field == "pid":
            yield replace(genuine, pid=chance.choice([1, os.getppid(), 1 << 30]))
        elif value != getattr(genuine, field):
            yield replace(genuine, **{field: value})


@pytest.mark.refuses("zeMemOpenIpcHandle", Result.ZE_RESULT_ERROR_INVALID_ARGUMENT)
def test_forged_payloads_open_nothing_beyond_and_crash_nothing(provider, emu):
    ptr = provider.alloc(2 * MIB)
    genuine = LevelZeroPayload.unpack(provider.ipc_export(ptr, 2 * MIB))
    forged = list(forgeries(genuine, 400))
    lines = "".join(f"{each.pack().hex()} {each.size}\n" for each in forged)
    answer = json.loads(run_python(FUZZ, provider.ipc_scope(), input=lines))
    assert sum(answer.values()) == len(forged) > 300
    assert set(answer) <= {"IpcError", "opened"}
    # What still opens is a part of what was exported, or differs in bytes that the driver skips.
    inside = sum(
        each.offset + each.size <= 2 * MIB and each.handle == genuine.handle for each in forged
    )
    handles = sum(each.handle != genuine.handle for each in forged)
    assert answer["IpcError"] >= len(forged) - inside - handles
    provider.free(ptr, 2 * MIB)


OPEN_HANDLES = """
import sys, collections, json, umfpy
from umfpy.ipc import cache_info, clear_cache, open_ipc
outcome = collections.Counter()
for line in sys.stdin:
    data, mark = line.split()
    try:
        mapping = open_ipc(bytes.fromhex(data))
    except umfpy.UmfpyError as error:
        outcome[mark + type(error).__name__] += 1
    else:
        outcome[mark + "opened"] += 1
        mapping.close()
clear_cache()
info = cache_info()
outcome["left"] = info.used + info.idle + info.opens - info.closes
print(json.dumps(outcome))
"""


def damaged(handle, count):
    """Handles with flipped bytes, as they come over a bad channel."""
    chance = random.Random(4)
    for _ in range(count):
        data = bytearray(bytes(handle))
        data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        yield bytes(data)


@pytest.mark.refuses("zeMemOpenIpcHandle", Result.ZE_RESULT_ERROR_INVALID_ARGUMENT)
def test_forged_and_damaged_handles_through_open_ipc(provider, emu):
    pool = ProxyPool(provider)
    allocation = pool.allocate(2 * MIB)
    handle = allocation.ipc_handle()
    genuine = LevelZeroPayload.unpack(handle.root.payload)
    lines = [f"{bytes(handle).hex()} genuine:\n"]
    lines += [f"{data.hex()} damaged:\n" for data in damaged(handle, 200)]
    # What a handle says of its root has to agree with the payload, or it is refused for that.
    for forged in forgeries(genuine, 200):
        root = replace(handle.root, payload=forged.pack())
        lines.append(f"{bytes(replace(handle, root=root)).hex()} forged:\n")
    answer = json.loads(run_python(OPEN_HANDLES, input="".join(lines)))
    assert answer.pop("genuine:opened") == 1
    assert answer.pop("damaged:IpcError") == 200
    assert answer.pop("left") == 0
    assert answer.pop("forged:IpcError") > 100
    # Bytes of a driver's handle that it does not look at may differ.
    assert set(answer) <= {"forged:opened"}
    allocation.free()
    pool.close()


WITHOUT_LOADER = """
import os, sys
import umfpy
from umfpy.providers.emulated import level_zero_library
from umfpy.providers.level_zero import library
library.LOADER = str(level_zero_library.driver_library())
emu = umfpy.emulate("level_zero", memory="1GiB")
provider = umfpy.LevelZeroProvider()
ptr = provider.alloc(1 << 20)
before = len(os.listdir("/proc/self/fd"))
payload = provider.ipc_export(ptr, 1 << 20)
provider.ipc_release(payload)
emu.fail("zeMemPutIpcHandle", error=0x7FFFFFFE)
payload = provider.ipc_export(ptr, 1 << 20)
try: provider.ipc_release(payload)
except umfpy.DriverError: provider.ipc_release(payload)
print(emu.calls["zeMemPutIpcHandle"], len(os.listdir("/proc/self/fd")) - before)
try: provider.alloc(1 << 40)
except umfpy.OutOfMemoryError as error: print(provider.native_error().name)
provider.free(ptr, 1 << 20)
provider.close()
print(emu.leaks())
"""


def test_a_loader_that_has_everything():
    """Called directly, the driver also has what older loaders do not pass on."""
    calls, name, leaks = run_python(WITHOUT_LOADER).splitlines()
    assert calls == "3 0"
    assert name.startswith("ZE_RESULT_ERROR_")
    assert leaks == "{}"
