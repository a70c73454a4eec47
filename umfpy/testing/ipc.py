"""Checks of IPC, with a second process."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from umfpy.errors import InvalidArgument, IpcError, UmfpyError
from umfpy.provider import Capability
from umfpy.testing.ipc_child import Answer, Task
from umfpy.testing.registry import check
from umfpy.testing.subject import Broken, Importer, Skipped, Subject, expect

#: A second process that has not answered by then never will.
_SECONDS = 60


@dataclass(frozen=True)
class _Exported:
    ptr: int
    size: int
    payload: bytes


def _export(subject: Subject) -> _Exported:
    size = 2 * subject.unit
    ptr = subject.alloc(size)
    payload = subject.provider.ipc_export(ptr, size)
    expect(isinstance(payload, bytes), "ipc_export returns bytes", type(payload).__name__)
    subject.fill(ptr, size, "exporter")
    if subject.has(Capability.STREAMS):
        subject.provider.synchronize()
    return _Exported(ptr, size, payload)


def _importer(subject: Subject) -> Importer:
    kind = type(subject.provider)
    importer = subject.options.importer or kind.for_ipc
    if subject.options.importer is None and kind.__module__ == "__main__":
        raise Skipped(
            f"{kind.__name__} is defined in __main__, which a second process cannot import"
        )
    return importer


def _ask(task: Task, descriptors: Sequence[int]) -> Answer:
    """Let a new process do a task; return its answer."""
    try:
        message = pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Skipped(f"a second process cannot be told how to open the memory: {error}") from None
    here, there = socket.socketpair()
    code = "from umfpy.testing.ipc_child import main; main()"
    with here, there:
        here.settimeout(_SECONDS)
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(there.fileno())],
            pass_fds=[there.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        there.close()
        try:
            return _exchange(here, message, descriptors)
        except TimeoutError:
            child.kill()
            raise Broken("an answer from the second process", "none in time") from None
        finally:
            child.wait()


def _exchange(here: socket.socket, message: bytes, descriptors: Sequence[int]) -> Answer:
    if descriptors:
        socket.send_fds(here, [b"d"], list(descriptors))
    else:
        here.sendall(b"-")
    with here.makefile("rwb") as stream:
        stream.write(message)
        stream.flush()
        try:
            answer: Any = pickle.load(stream)
        except EOFError:
            raise Broken("an answer from the second process", "it ended without one") from None
    if not isinstance(answer, Answer):
        raise Broken("an answer from the second process", repr(answer))
    return answer


def _task(subject: Subject, exported: _Exported) -> Task:
    return Task(
        importer=_importer(subject),
        scope=subject.provider.ipc_scope(),
        payload=exported.payload,
        size=exported.size,
        expected="exporter",
        reply="importer",
        setup=subject.options.process_setup,
    )


def _round_trip(subject: Subject, descriptors: bool) -> None:
    exported = _export(subject)
    payload = exported.payload
    carried = subject.provider.ipc_descriptors(payload) if descriptors else ()
    if descriptors and not carried:
        raise Skipped("no descriptors travel with this provider's handles")
    answer = _ask(_task(subject, exported), carried)
    expect(not answer.error, "the memory opens in another process", answer.error)
    expect(not answer.difference, "the importer reads what was written here", answer.difference)
    subject.expect_pattern(
        exported.ptr, exported.size, "importer", "what the importer wrote, read here"
    )
    subject.provider.ipc_release(payload)
    subject.free(exported.ptr)


@check(
    "another process opens an export, and both see what the other writes",
    needs=Capability.IPC,
    second_process=True,
)
def ipc_round_trip(subject: Subject) -> None:
    _round_trip(subject, descriptors=False)


@check(
    "the same with the descriptors of `ipc_descriptors` sent along",
    needs=Capability.IPC,
    second_process=True,
)
def ipc_descriptors(subject: Subject) -> None:
    _round_trip(subject, descriptors=True)


@check(
    "an export whose memory was freed is an IpcError in another process",
    needs=Capability.IPC,
    second_process=True,
)
def ipc_stale(subject: Subject) -> None:
    exported = _export(subject)
    subject.provider.ipc_release(exported.payload)
    subject.free(exported.ptr)
    reused = subject.alloc(exported.size)
    answer = _ask(_task(subject, exported), ())
    seen = answer.error or "it opened"
    expect(seen.startswith("IpcError"), "IpcError in the second process", seen)
    subject.free(reused)


@check("bytes that are no export are an IpcError", needs=Capability.IPC)
def ipc_hostile_payloads(subject: Subject) -> None:
    exported = _export(subject)
    payload = exported.payload
    wrong = [b"", b"x", b"\0" * len(payload), b"\xff" * len(payload), payload[:-1], payload + b"x"]
    wrong.append(bytes([payload[0] ^ 1]) + payload[1:])
    for data in wrong:
        what = f"ipc_open of {len(data)} bytes that are no export"
        subject.refused(what, (IpcError,), subject.provider.ipc_open, data)
    subject.provider.ipc_release(payload)


@check("memory that alloc never gave, or that was freed, is not exported", needs=Capability.IPC)
def ipc_export_refusals(subject: Subject) -> None:
    ptr = subject.alloc(subject.unit)
    subject.free(ptr)
    buffer = bytearray(64)
    for address in (id(buffer) & -64, ptr):
        what = f"ipc_export of {address:#x}, which is no allocation"
        export = subject.provider.ipc_export
        subject.refused(what, (UmfpyError,), export, address, subject.unit)


@check("ipc_size is what was exported, or None", needs=Capability.IPC)
def ipc_size(subject: Subject) -> None:
    exported = _export(subject)
    size = subject.provider.ipc_size(exported.payload)
    expect(size in (None, exported.size), f"{exported.size} or None", repr(size))
    subject.provider.ipc_release(exported.payload)


@check(
    "what ipc_range says lies in the root, holds the range, and is exported", needs=Capability.IPC
)
def ipc_range(subject: Subject) -> None:
    unit = subject.unit
    ptr = subject.alloc(4 * unit)
    for start, size in ((0, 4 * unit), (0, 1), (3 * unit, unit), (unit - 1, unit + 2)):
        _expect_exported(subject, ptr + start, size, (ptr, 4 * unit))
    if not subject.has(Capability.RESERVE):
        return
    low = subject.reserve(6 * unit)
    middle = subject.split(low, 6 * unit, 2 * unit)
    subject.split(middle, 4 * unit, 3 * unit)
    subject.provider.commit(middle, 3 * unit, chunk_size=unit)
    for start, size in ((0, 3 * unit), (0, 1), (2 * unit, unit), (unit - 1, 2)):
        _expect_exported(subject, middle + start, size, (low, 6 * unit))


def _expect_exported(subject: Subject, ptr: int, size: int, root: tuple[int, int]) -> None:
    provider = subject.provider
    said = base, length = provider.ipc_range(ptr, size, root)
    holds = root[0] <= base <= ptr and ptr + size <= base + length <= sum(root)
    expect(holds, f"a part of {root} that holds {size} bytes at {ptr:#x}", said)
    payload = provider.ipc_export(base, length)
    again = provider.ipc_range(ptr, size, root)
    expect(again == said, f"{said} as long as the memory is in use", again)
    provider.ipc_release(payload)


@check("closing what was not opened is refused", needs=Capability.IPC)
def ipc_close_refusals(subject: Subject) -> None:
    ptr = subject.alloc(subject.unit)
    buffer = bytearray(64)
    for address in (ptr, id(buffer) & -64):
        what = "ipc_close of memory that was not opened"
        close = subject.provider.ipc_close
        subject.refused(what, (InvalidArgument,), close, address, subject.unit)
    subject.free(ptr)
