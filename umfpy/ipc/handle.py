"""What names memory to another process: what was exported, and where the piece lies in that."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from umfpy.errors import IpcError
from umfpy.ipc.process import HOST_SIZE, ProcessId
from umfpy.ipc.wire import seal, unseal
from umfpy.units import format_size

#: Bytes of an export id: drawn at random, so that none is ever used again.
EXPORT_ID_SIZE = 16

#: Longest name and scope of a provider in bytes, and its payload's.
_MAX_NAME = 64
_MAX_SCOPE = 8192
_MAX_PAYLOAD = 1 << 16
#: Signed 64-bit addresses and offsets end here: off_t, ptrdiff_t.
_MAX_SIZE = 1 << 63

#: Exporter (host, namespace, pid, start), export id, root size, offset, size; then the lengths
#: of name, scope and payload, which follow.
_FIXED = struct.Struct(f"<{HOST_SIZE}sQQQ{EXPORT_ID_SIZE}sQQQHHI")


@dataclass(frozen=True)
class IpcRoot:
    """What its process exported by one native export: a physical root, or a run of its chunks.

    Attributes
    ----------
    provider
        The name of the provider that the root came from.
    scope
        Which device of that provider, as `Provider.ipc_scope` says it.
    payload
        What the provider itself needs to open it.
    exporter
        The process that exported it.
    export_id
        16 random bytes, drawn for this export: never those of another one.
    size
        Its bytes.
    """

    provider: str
    scope: str
    payload: bytes = field(repr=False)
    exporter: ProcessId
    export_id: bytes
    size: int

    def __post_init__(self) -> None:
        _require(self.provider.isprintable() and self.provider != "", "names no provider")
        _require(len(_encode(self.provider)) <= _MAX_NAME, "has an endless provider name")
        _require(len(_encode(self.scope)) <= _MAX_SCOPE, "has an endless scope")
        _require(len(self.payload) <= _MAX_PAYLOAD, "has an endless payload")
        _require(len(self.export_id) == EXPORT_ID_SIZE, "has no export id")
        _require(len(self.exporter.host) == HOST_SIZE, "names no host")
        _require(0 < self.exporter.pid < 1 << 31, f"names process {self.exporter.pid}")
        _require(0 <= self.exporter.started < 1 << 64, "names no start of its process")
        _require(0 <= self.exporter.namespace < 1 << 64, "names no PID namespace")
        _require(0 < self.size < _MAX_SIZE, f"is of memory of {self.size} bytes")


@dataclass(frozen=True)
class IpcHandle:
    """Names a piece of memory for other processes; `open_ipc` opens it there.

    ``bytes(handle)`` and `IpcHandle.from_bytes` carry it over any channel, and it pickles.  It
    keeps nothing alive: the exporting process has to keep the memory until all importers have
    closed it.

    Attributes
    ----------
    root
        What was exported, see `IpcRoot`.
    offset, size
        Where in that the piece lies, in bytes.

    Raises
    ------
    IpcError
        The values cannot be those of a piece of memory.
    """

    root: IpcRoot
    offset: int
    size: int
    #: Where `multiprocessing` said that the root's file descriptors can be had.
    sender: bytes | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _require(self.size > 0 and self.offset >= 0, f"is of {self.size} bytes at {self.offset}")
        _require(
            self.offset + self.size <= self.root.size,
            f"is of {self.size} bytes at {self.offset}, beyond its root of {self.root.size} bytes",
        )

    def __bytes__(self) -> bytes:
        root, exporter = self.root, self.root.exporter
        name, scope = _encode(root.provider), _encode(root.scope)
        fixed = _FIXED.pack(
            exporter.host,
            exporter.namespace,
            exporter.pid,
            exporter.started,
            root.export_id,
            root.size,
            self.offset,
            self.size,
            len(name),
            len(scope),
            len(root.payload),
        )
        return seal(fixed + name + scope + root.payload)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> IpcHandle:
        """Return the handle that ``bytes(handle)`` made, whoever sent it.

        Raises
        ------
        IpcError
            The bytes are cut short, changed, of another version of umfpy, or say what cannot be.
        InvalidArgument
            `data` is not bytes.
        """
        content = unseal(data)
        _require(len(content) >= _FIXED.size, f"has a content of only {len(content)} bytes")
        host, namespace, pid, started, export_id, *rest = _FIXED.unpack_from(content)
        root_size, offset, size, *lengths = rest
        _require(
            len(content) == _FIXED.size + sum(lengths),
            f"has a content of {len(content)} bytes, which are not those that it counts",
        )
        name_end = _FIXED.size + lengths[0]
        scope_end = name_end + lengths[1]
        root = IpcRoot(
            provider=_decode(content[_FIXED.size : name_end]),
            scope=_decode(content[name_end:scope_end]),
            payload=content[scope_end:],
            exporter=ProcessId(host, namespace, pid, started),
            export_id=export_id,
            size=root_size,
        )
        return cls(root, offset, size)

    def __reduce__(self) -> tuple[Callable[..., IpcHandle], tuple[Any, ...]]:
        return IpcHandle.from_bytes, (bytes(self),)

    def __str__(self) -> str:
        return (
            f"{format_size(self.size)} at {self.offset:#x} of {self.root.provider} memory of "
            f"{self.root.exporter}"
        )


# Names may be paths, and those may hold bytes that are no text (PEP 383).


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise IpcError(f"this IPC handle {what}: no umfpy made it")
