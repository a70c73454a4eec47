"""Two processes that share memory, and a provider that only counts."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
import secrets
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import umfpy
from umfpy.ipc import IpcHandle, IpcRoot, ProcessId
from umfpy.ipc import process as process_module

KINDS = ("alloc", "free", "export", "open", "close")


class Counting(umfpy.Provider):
    """Counts what a provider does with success, over all instances of its class."""

    counts: ClassVar[Counter[str]]

    def alloc(self, size: int, alignment: int = 0) -> int:
        ptr = super().alloc(size, alignment)
        self.counts["alloc"] += 1
        return ptr

    def free(self, ptr: int, size: int) -> None:
        super().free(ptr, size)
        self.counts["free"] += 1

    def ipc_export(self, ptr: int, size: int) -> bytes:
        payload = super().ipc_export(ptr, size)
        self.counts["export"] += 1
        return payload

    def ipc_release(self, payload: bytes) -> None:
        super().ipc_release(payload)
        self.counts["release"] += 1

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        ptr = super().ipc_open(payload, descriptors)
        self.counts["open"] += 1
        self.counts["descriptors"] += len(descriptors)
        return ptr

    def ipc_close(self, ptr: int, size: int) -> None:
        super().ipc_close(ptr, size)
        self.counts["close"] += 1


class CountingHost(Counting, umfpy.HostProvider):
    """Shared host memory, counted."""

    counts: ClassVar[Counter[str]] = Counter()


class CountingVmm(Counting, umfpy.CudaVmmProvider):
    """CUDA memory that is mapped in chunks, counted."""

    counts: ClassVar[Counter[str]] = Counter()


class CountingAsync(Counting, umfpy.CudaAsyncProvider):
    """CUDA memory out of a pool of the driver's, counted."""

    counts: ClassVar[Counter[str]] = Counter()


class Side:
    """One kind of memory in this process: a provider, and native counts since `reset`."""

    def __init__(
        self,
        kind: str,
        provider: umfpy.Provider,
        read: Callable[[str], int],
        leaks: Callable[[], object] = dict,
    ) -> None:
        self.kind = kind
        self.provider = provider
        self._read = read
        self.leaks = leaks
        self.reset()

    def reset(self) -> None:
        self._start = {kind: self._read(kind) for kind in KINDS}

    def counts(self) -> dict[str, int]:
        """Native calls since `reset`, without the zeros."""
        now = {kind: self._read(kind) - self._start[kind] for kind in KINDS}
        return {kind: count for kind, count in now.items() if count}

    def write(self, ptr: int, data: bytes) -> None:
        self.provider.copy(ptr, data, len(data))

    def read(self, ptr: int, size: int) -> bytes:
        data = bytearray(size)
        self.provider.copy(data, ptr, size)
        return bytes(data)


_CUDA_CALLS = {
    "alloc": "cuMemAlloc_v2",
    "free": "cuMemFree_v2",
    "export": "cuIpcGetMemHandle",
    "open": "cuIpcOpenMemHandle_v2",
    "close": "cuIpcCloseMemHandle",
}
_LEVEL_ZERO_CALLS = {
    "alloc": "zeMemAllocDevice",
    "free": "zeMemFree",
    "export": "zeMemGetIpcHandle",
    "open": "zeMemOpenIpcHandle",
    "close": "zeMemCloseIpcHandle",
}
#: What providers of CUDA have for themselves until they are closed.
_CUDA_OWN = {
    "cuda_vmm": (CountingVmm, {"reservations", "handles"}),
    "cuda_async": (CountingAsync, {"pools", "streams"}),
}
#: What a Level Zero provider has for itself until it is closed.
_LEVEL_ZERO_OWN = {"contexts", "lists", "event_pools", "events"}


def make_side(kind: str) -> Side:
    """Return shared host memory, or CUDA or Level Zero on the emulated driver."""
    if kind == "host":
        umfpy.ipc.register_provider("host", CountingHost)
        return Side(kind, CountingHost(shared=True), lambda name: CountingHost.counts[name])
    if kind == "level_zero":
        return _level_zero_side()
    emu = umfpy.emulate("cuda", memory="1GiB")
    if kind in _CUDA_OWN:
        return _counting_side(kind, emu)
    return Side(kind, umfpy.CudaProvider(0), lambda name: emu.calls[_CUDA_CALLS[name]], emu.leaks)


def _counting_side(kind: str, emu: Any) -> Side:
    cls, own = _CUDA_OWN[kind]
    umfpy.ipc.register_provider(kind, cls)

    def leaks() -> object:
        return {what: items for what, items in emu.leaks().items() if what not in own}

    return Side(kind, cls(0), lambda name: cls.counts[name], leaks)


def _level_zero_side() -> Side:
    emu = umfpy.emulate("level_zero", memory="1GiB")
    provider = umfpy.LevelZeroProvider(0)
    provider.granularity()  # asked once, of an allocation that is not the test's

    def leaks() -> object:
        return {kind: items for kind, items in emu.leaks().items() if kind not in _LEVEL_ZERO_OWN}

    return Side("level_zero", provider, lambda name: emu.calls[_LEVEL_ZERO_CALLS[name]], leaks)


class Peer:
    """A second process that runs code: ``peer("open_ipc(h).size", h=handle)`` is its value.

    Lines before the last one, which must be an expression, are run first; names stay.  What it
    raises is raised here.
    """

    def __init__(self, kind: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )

    def __call__(self, code: str, **values: Any) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        pickle.dump((code, values), self.process.stdin)
        self.process.stdin.flush()
        good, answer = pickle.load(self.process.stdout)
        if not good:
            raise answer
        return answer

    def kill(self) -> None:
        """SIGKILL, awaited."""
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Let it end by itself, which must be silent and fine."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()
        assert self.process.wait(timeout=30) in (0, -9)


def _serve(kind: str) -> None:
    # What the code prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    names: dict[str, Any] = {"umfpy": umfpy, "os": os, **vars(umfpy.ipc)}
    names["side"] = make_side(kind)
    while True:
        try:
            code, values = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        names.update(values)
        *before, last = code.strip().splitlines()
        try:
            exec("\n".join(before), names)
            answer = True, eval(last, names)
            data = pickle.dumps(answer)
        except Exception as error:  # noqa: BLE001 - the other side raises it
            traceback.clear_frames(error.__traceback__)
            data = pickle.dumps((False, error))
        answers.write(data)
        answers.flush()


class FakeImporter(umfpy.Provider):
    """Opens anything at made-up addresses; keeps a log, and fails when told to."""

    name = "fake"
    capabilities = umfpy.Capability.IPC

    def __init__(self) -> None:
        self.log: list[tuple[str, bytes]] = []
        self.open_at: dict[int, bytes] = {}
        self.fail: umfpy.UmfpyError | None = None
        self.gate: threading.Event | None = None
        self._addresses = itertools.count(1 << 40, 1 << 32)

    def alloc(self, size: int, alignment: int = 0) -> int:
        raise umfpy.OutOfMemoryError("a fake has no memory")

    def free(self, ptr: int, size: int) -> None:
        raise umfpy.InvalidArgument("a fake has no memory")

    def granularity(self, size: int = 0) -> int:
        return 512

    def ipc_export(self, ptr: int, size: int) -> bytes:
        raise umfpy.NotSupported("a fake has no memory")

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        if self.gate is not None:
            self.gate.wait()
        if self.fail is not None:
            raise self.fail
        address = next(self._addresses)
        self.log.append(("open", payload))
        self.open_at[address] = payload
        return address

    def ipc_close(self, ptr: int, size: int) -> None:
        if self.fail is not None:
            raise self.fail
        self.log.append(("close", self.open_at.pop(ptr)))

    def count(self, what: str) -> int:
        return sum(entry[0] == what for entry in self.log)


def other_process() -> ProcessId:
    """A process that lives longer than the test: this one's parent."""
    here = ProcessId.current()
    pid = os.getppid()
    return dataclasses.replace(here, pid=pid, started=process_module._read_stat(pid)[1])


def fake_handle(
    payload: bytes = b"", *, offset: int = 0, size: int = 512, root_size: int = 1 << 20, **root: Any
) -> IpcHandle:
    """A handle that another process might have made, for a `FakeImporter`."""
    values: dict[str, Any] = {
        "provider": "fake",
        "scope": "",
        "payload": payload,
        "exporter": other_process(),
        "export_id": secrets.token_bytes(16),
        "size": root_size,
    }
    return IpcHandle(IpcRoot(**(values | root)), offset, size)


def descriptors() -> int:
    """How many file descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    _serve(sys.argv[1])
