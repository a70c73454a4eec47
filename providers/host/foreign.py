"""Descriptors of other processes: pidfd_getfd(2), or out of /proc."""

from __future__ import annotations

import errno
import os
from typing import Protocol

from umfpy.errors import DriverError, IpcError
from umfpy.providers.host.exports import start_time
from umfpy.providers.host.system import System

#: pidfd_getfd(2) has the same number on every architecture but alpha (syscall tables).
_SYS_PIDFD_GETFD = 438


class Place(Protocol):
    """Which descriptor of which process: ``fd`` of ``pid``, which began at tick ``started``."""

    @property
    def pid(self) -> int: ...

    @property
    def started(self) -> int: ...

    @property
    def fd(self) -> int: ...


def fetch_descriptor(system: System, place: Place) -> int:
    """Return a new descriptor for what an exporter has open, fetched from the exporting process.

    pidfd_getfd(2) if this process may trace the exporter, else /proc/PID/fd, which needs less:
    Yama does not guard it.

    Raises
    ------
    IpcError
        The process is gone, or the system does not let this one at it.
    """
    pid = place.pid
    if pid == os.getpid() and place.started == start_time(pid):
        return duplicate(place.fd)
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise _gone(pid, os.strerror(error.errno or 0)) from None
    except OSError:
        # An old kernel, or a sandbox that forbids the call.
        _check_started(place)
        return _open_in_proc(place)
    try:
        # Looked at while the pidfd holds the process: its number cannot be used again now.
        _check_started(place)
        try:
            return system.call("syscall", _SYS_PIDFD_GETFD, pidfd, place.fd, 0, 0, 0, 0)
        except DriverError as error:
            if error.code not in (errno.EPERM, errno.ENOSYS):
                raise IpcError(
                    f"process {pid} has no descriptor {place.fd} any more: the exported memory was "
                    f"freed, or its provider closed ({error})"
                ) from None
        return _open_in_proc(place)
    finally:
        os.close(pidfd)


def duplicate(fd: int) -> int:
    """Return a new descriptor for the same thing; IpcError if `fd` is none."""
    try:
        return os.dup(fd)
    except OSError as error:
        raise IpcError(f"descriptor {fd}: {os.strerror(error.errno or 0)}") from None


def _check_started(place: Place) -> None:
    try:
        started = start_time(place.pid)
    except OSError as error:
        raise _gone(place.pid, os.strerror(error.errno or 0)) from None
    if started != place.started:
        raise _gone(place.pid, "another process has its number now")


def _gone(pid: int, why: str) -> IpcError:
    return IpcError(
        f"process {pid}, which exported this memory, is gone or in another PID namespace ({why})"
    )


def _open_in_proc(place: Place) -> int:
    link = f"/proc/{place.pid}/fd/{place.fd}"
    try:
        return os.open(link, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise IpcError(
            f"may not fetch a descriptor from process {place.pid} "
            f"({os.strerror(error.errno or 0)}): run both as the same user, let the exporter call "
            "prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY) or set kernel.yama.ptrace_scope to 0, "
            "allow ptrace in the container, or send the descriptor with the handle"
        ) from None
