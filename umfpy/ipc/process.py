"""Which process on which machine: what a bare process number does not say."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path

#: Bytes of `ProcessId.host`.
HOST_SIZE = 16


@dataclass(frozen=True)
class ProcessId:
    """A process, told apart from every other one, also from a later one of the same number.

    Attributes
    ----------
    host
        `HOST_SIZE` bytes that the processes of one running kernel share: its boot id (random(4)).
        Another machine has another one, and so has this machine after its next start.
    namespace
        The PID namespace that `pid` counts in (pid_namespaces(7)), 0 where the system hides it.
    pid
        The process number.
    started
        The clock tick at which it began (proc_pid_stat(5), field 22): numbers are used again.
    """

    host: bytes
    namespace: int
    pid: int
    started: int

    @classmethod
    def current(cls) -> ProcessId:
        """Return this process's own; looked up once for each process."""
        return _identify(os.getpid())

    def ended(self) -> bool:
        """Return whether this process of the same host is known to be gone.

        False where that cannot be seen: in another PID namespace, or with ``/proc`` hidden.
        """
        if self.namespace != ProcessId.current().namespace:
            return False
        try:
            state, started = _read_stat(self.pid)
        except OSError:
            return _is_free(self.pid)
        # A zombie has given up its memory; only its number is still taken.
        return started != self.started or state in "ZX"

    def __str__(self) -> str:
        return f"process {self.pid}"


@functools.lru_cache(maxsize=1)
def _identify(pid: int) -> ProcessId:
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return ProcessId(_host(), namespace, pid, _read_stat(pid)[1])


def _host() -> bytes:
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return bytes.fromhex(text.replace("-", ""))[:HOST_SIZE].ljust(HOST_SIZE, b"\0")
    except (OSError, ValueError):
        # Without a boot id the name has to do: the same for all processes of the machine.
        return hashlib.blake2b(platform.node().encode(), digest_size=HOST_SIZE).digest()


def _read_stat(pid: int) -> tuple[str, int]:
    """Return state and start time: proc_pid_stat(5), fields 3 and 22."""
    text = Path(f"/proc/{pid}/stat").read_text()
    # Field 2 is the program's name in parentheses, and may hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _is_free(pid: int) -> bool:
    """Return whether no process has this number: kill(2) with signal 0."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
