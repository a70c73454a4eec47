"""Memory that other processes get at through file descriptors: exports, and finding them."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from umfpy.errors import IpcError
from umfpy.providers.host.exports import start_time
from umfpy.providers.host.foreign import duplicate, fetch_descriptor
from umfpy.providers.host.system import MFD_CLOEXEC, System

#: Bytes of a digest: at a payload's end, and in a ticket.
_DIGEST_SIZE = 16

#: The most descriptors that `umfpy.ipc` takes along with a handle: it counts them in one byte.
_MOST_CARRIED = 255


@dataclass(frozen=True)
class Exporter:
    """The process ``pid``, which began at clock tick ``started``, and its ``ticket``.

    The ticket is a descriptor there, of a small file in memory that holds the payload's digest
    while the export is good.  Numbers of descriptors are used again; ``nonce`` is not, and so an
    importer that has fetched the descriptors first and sees the digest last has the right ones.
    """

    pid: int
    started: int
    ticket: int
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    #: The format of `fields` in a payload.
    LAYOUT: ClassVar[str] = "QQi16s"

    @property
    def fields(self) -> tuple[int, int, int, bytes]:
        """What `Exporter` is made of, in the order of its arguments."""
        return self.pid, self.started, self.ticket, self.nonce

    @property
    def possible(self) -> bool:
        """Whether there can be such a process, with such a descriptor."""
        return 0 < self.pid < 1 << 31 and self.ticket >= 0


@dataclass(frozen=True)
class Place:
    """A descriptor of another process."""

    pid: int
    started: int
    fd: int


@dataclass
class Export:
    """What belongs to one export: a range, and descriptors of this process."""

    ptr: int
    size: int
    ticket: int
    fds: Sequence[int]
    own: bool


class Exports:
    """The exports of one provider, until they or their memory are given back."""

    def __init__(self, name: str) -> None:
        self._system = System(name)
        self._lock = threading.Lock()
        self._live: dict[bytes, Export] = {}

    def enter(
        self,
        ptr: int,
        size: int,
        fds: Sequence[int],
        make: Callable[[Exporter], bytes],
        *,
        own: bool = True,
    ) -> bytes:
        """Return the payload that `make` makes of a new ticket.

        With `own` the descriptors are closed when the export ends.

        Raises
        ------
        OutOfMemoryError, DriverError
            There is no room for the ticket, or no descriptor left: memfd_create(2), open(2).
        """
        ticket = self._system.call("memfd_create", b"umfpy-export", MFD_CLOEXEC)
        try:
            pid = os.getpid()
            payload = make(Exporter(pid, start_time(pid), ticket))
            os.pwrite(ticket, ticket_of(payload), 0)
        except OSError as error:
            os.close(ticket)
            raise self._system.failed("open", error.errno or 0) from error
        except BaseException:
            os.close(ticket)
            raise
        with self._lock:
            self._live[payload] = Export(ptr, size, ticket, fds, own)
        return payload

    def descriptors(self, payload: bytes) -> Sequence[int]:
        """Return the descriptors to send along, the ticket last; none if they are too many."""
        with self._lock:
            found = self._live.get(payload)
            if found is None or len(found.fds) >= _MOST_CARRIED:
                return ()
            return (*found.fds, found.ticket)

    def end(self, payload: bytes) -> None:
        """End an export; one that has ended already, as with its memory, is fine."""
        with self._lock:
            export = self._live.pop(payload, None)
        if export is not None:
            _end(export)

    def forget(self, ptr: int, size: int) -> None:
        """End every export that has to do with a range that loses its memory."""
        if not self._live:
            return
        with self._lock:
            ended = [
                payload
                for payload, export in self._live.items()
                if export.ptr < ptr + size and ptr < export.ptr + export.size
            ]
        for payload in ended:
            self.end(payload)


def _end(export: Export) -> None:
    # The ticket goes first: while it is good, all the others are.
    os.ftruncate(export.ticket, 0)
    os.close(export.ticket)
    if export.own:
        for fd in export.fds:
            os.close(fd)


@contextmanager
def descriptors_of(
    system: System, exporter: Exporter, fds: Sequence[int], payload: bytes, given: Sequence[int]
) -> Iterator[list[int]]:
    """Yield this process's descriptors for the exporter's `fds`, and close them afterwards.

    `given` are duplicates that came with the handle; without them the exporter's are fetched.

    Raises
    ------
    IpcError
        They cannot be had, or the export has ended.
    """
    numbers = [*fds, exporter.ticket]
    if given and len(given) != len(numbers):
        raise IpcError(f"{len(given)} descriptors came with a handle that has {len(numbers)}")
    opened: list[int] = []
    try:
        for at, number in enumerate(numbers):
            place = Place(exporter.pid, exporter.started, number)
            opened.append(duplicate(given[at]) if given else fetch_descriptor(system, place))
        _check_ticket(opened[-1], payload)
        yield opened[:-1]
    finally:
        for fd in opened:
            os.close(fd)


def _check_ticket(fd: int, payload: bytes) -> None:
    if stat.S_ISREG(os.fstat(fd).st_mode) and os.pread(fd, _DIGEST_SIZE, 0) == ticket_of(payload):
        return
    raise IpcError("the exported memory was freed, or its export was released")


def ticket_of(payload: bytes) -> bytes:
    """Return what a ticket for this payload holds."""
    return hashlib.blake2b(payload, digest_size=_DIGEST_SIZE, person=b"ticket").digest()
