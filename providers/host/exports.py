"""The exporter's side of IPC: which ranges of a file are exported, noted in the file itself."""

from __future__ import annotations

import mmap
import os
import secrets
import threading
from pathlib import Path

from umfpy.errors import InvalidArgument
from umfpy.providers.host.filemap import FileBacking
from umfpy.providers.host.payload import DIGEST_SIZE, Payload
from umfpy.providers.host.system import System


def start_time(pid: int) -> int:
    """Return the clock tick at which process `pid` began: proc_pid_stat(5), field 22.

    A process number can be used again; the pair of number and start time cannot.

    Raises
    ------
    OSError
        There is no such process in this PID namespace.
    """
    text = Path(f"/proc/{pid}/stat").read_text()
    # Field 2 is the program's name in parentheses, and may hold blanks and parentheses.
    return int(text.rpartition(")")[2].split()[19])


class Exports:
    """The exports out of one file.

    Each valid export has a slot of 16 bytes in the file, which holds the payload's digest and is
    cleared when the export or its memory goes.  So an importer learns at once that it is too
    late, and is never given what was put in the same place later.
    """

    def __init__(self, system: System, backing: FileBacking, path: str = "") -> None:
        self._system = system
        self._backing = backing
        self._path = path
        self._lock = threading.Lock()
        self._tables: dict[int, mmap.mmap] = {}
        self._free_slots: list[int] = []
        self._slots: dict[int, list[Payload]] = {}

    def export(self, offset: int, size: int) -> bytes:
        """Return a new payload for a range of the file."""
        backing = self._backing
        status = os.fstat(backing.fd)
        with self._lock:
            if not self._free_slots:
                self._add_table()
            payload = Payload(
                pid=os.getpid(),
                started=start_time(os.getpid()),
                fd=backing.fd,
                page_shift=backing.pages.size.bit_length() - 1,
                dev=status.st_dev,
                inode=status.st_ino,
                offset=offset,
                size=size,
                slot=self._free_slots.pop(),
                nonce=secrets.token_bytes(16),
                path=self._path,
            )
            self._write(payload.slot, payload.digest())
            self._slots.setdefault(offset, []).append(payload)
        return payload.pack()

    def release(self, data: bytes) -> None:
        """End one export.

        Raises
        ------
        InvalidArgument
            It is not one of this file's, or has ended already.
        """
        payload = Payload.unpack(data)
        with self._lock:
            exported = self._slots.get(payload.offset, [])
            if payload not in exported:
                raise InvalidArgument(
                    "this export is not of this provider, or was released already"
                )
            exported.remove(payload)
            if not exported:
                del self._slots[payload.offset]
            self._end(payload)

    def forget(self, offset: int, size: int) -> None:
        """End every export out of a range that is being freed."""
        with self._lock:
            for start in [s for s in self._slots if offset <= s < offset + size]:
                for payload in self._slots.pop(start):
                    self._end(payload)

    def close(self) -> None:
        """Unmap the slots."""
        for table in self._tables.values():
            table.close()

    def _add_table(self) -> None:
        page = self._backing.pages.size
        start = self._backing.take(page)
        try:
            self._tables[start] = mmap.mmap(self._backing.fd, page, offset=start)
        except OSError as error:
            self._backing.give_back(start, page)
            raise self._system.failed("mmap", error.errno or 0) from None
        # A huge page would hold more slots than anyone exports; 4096 of them are 64 KiB.
        count = min(page // DIGEST_SIZE, 4096)
        self._free_slots = [start + i * DIGEST_SIZE for i in reversed(range(count))]

    def _end(self, payload: Payload) -> None:
        self._write(payload.slot, bytes(DIGEST_SIZE))
        self._free_slots.append(payload.slot)

    def _write(self, slot: int, digest: bytes) -> None:
        start = slot & -self._backing.pages.size
        at = slot - start
        self._tables[start][at : at + DIGEST_SIZE] = digest
