"""System calls on mappings and files, with ``errno`` as umfpy's errors.

Sources: mmap(2), mprotect(2), madvise(2), memfd_create(2), fallocate(2), mbind(2),
pidfd_getfd(2) of the Linux man-pages; constants from the kernel's uapi headers.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from typing import Any

from umfpy.errors import DriverError, OutOfMemoryError, UmfpyError
from umfpy.provider import NativeError

PROT_NONE = 0
PROT_READ_WRITE = 1 | 2
MAP_SHARED = 0x01
MAP_PRIVATE = 0x02
MAP_FIXED = 0x10
MAP_ANONYMOUS = 0x20
MAP_NORESERVE = 0x4000
MAP_HUGETLB = 0x40000
MADV_DONTNEED = 4
MADV_FREE = 8
MADV_HUGEPAGE = 14
FALLOC_FL_KEEP_SIZE = 0x01
FALLOC_FL_PUNCH_HOLE = 0x02
FALLOC_FL_ZERO_RANGE = 0x10
MFD_CLOEXEC = 0x01
MFD_ALLOW_SEALING = 0x02
MFD_HUGETLB = 0x04
#: Where MAP_HUGETLB and MFD_HUGETLB take the logarithm of the page size.
HUGE_SHIFT = 26

_PTR = ctypes.c_void_p
_SIZE = ctypes.c_size_t
_INT = ctypes.c_int
_LONG = ctypes.c_long
_OFF = ctypes.c_int64

#: name: (result, arguments).  An all-ones result means failure, and errno says which.
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "mmap": (_SIZE, [_PTR, _SIZE, _INT, _INT, _INT, _OFF]),
    "munmap": (_INT, [_PTR, _SIZE]),
    "mprotect": (_INT, [_PTR, _SIZE, _INT]),
    "madvise": (_INT, [_PTR, _SIZE, _INT]),
    "memfd_create": (_INT, [ctypes.c_char_p, ctypes.c_uint]),
    "fallocate": (_INT, [_INT, _INT, _OFF, _OFF]),
    "ftruncate": (_INT, [_INT, _OFF]),
    "syscall": (_LONG, [_LONG] + [_LONG] * 6),
}

#: errno values that mean "no memory left of the kind that was asked for".
_EXHAUSTED = frozenset({errno.ENOMEM, errno.ENOSPC, errno.EFBIG, errno.EDQUOT})

_ADVICE = {
    ("mmap", errno.ENOMEM): "ask for less, or see ulimit -v and vm.overcommit_memory",
    ("munmap", errno.ENOMEM): "the process has vm.max_map_count mappings; raise it",
    ("mprotect", errno.ENOMEM): "the process has vm.max_map_count mappings; raise it",
    ("memfd_create", errno.EMFILE): "the process has no file descriptor left; raise ulimit -n",
    ("posix_fallocate", errno.ENOSPC): "the file system is full; free some space or ask for less",
    ("posix_fallocate", errno.EFBIG): "the file may not grow so far; see ulimit -f",
}


def _load() -> dict[str, Any]:
    libc = ctypes.CDLL(None, use_errno=True)
    functions = {}
    for name, (result, arguments) in _PROTOTYPES.items():
        function = libc[name]
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    return functions


_FUNCTIONS = _load()
_FAILURE = {name: result(-1).value for name, (result, _) in _PROTOTYPES.items()}


class System:
    """The system calls of one provider, which remembers each thread's last failure."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self._local = threading.local()

    def call(self, name: str, *args: Any) -> int:
        """Return what the C function `name` answers; a call that a signal broke is repeated.

        Raises
        ------
        OutOfMemoryError
            errno is ENOMEM, ENOSPC, EFBIG or EDQUOT.
        DriverError
            Any other errno.
        """
        function, failure = _FUNCTIONS[name], _FAILURE[name]
        while True:
            result: int = function(*args)
            if result != failure:
                return result
            code = ctypes.get_errno()
            if code != errno.EINTR:
                raise self.failed(name, code)

    def reserve_blocks(self, fd: int, offset: int, length: int) -> None:
        """Back a range of a file, growing the file if needed: posix_fallocate(3).

        A range that has been backed cannot raise SIGBUS for want of space when it is touched.
        """
        try:
            os.posix_fallocate(fd, offset, length)
        except OSError as error:
            raise self.failed("posix_fallocate", error.errno or 0) from None

    def failed(self, call: str, code: int, words: str = "") -> UmfpyError:
        """Remember a failure for `last_error` and return the error to raise for it."""
        name = errno.errorcode.get(code, "")
        message = words or os.strerror(code)
        self._local.error = NativeError(call=call, code=code, name=name, message=message)
        if code not in _EXHAUSTED:
            return DriverError(call, code, name, message)
        advice = _ADVICE.get((call, code))
        return OutOfMemoryError(
            f"{call} failed with {name} ({code}): {message}" + (f"; {advice}" if advice else ""),
            provider=self.provider,
        )

    def last_error(self) -> NativeError | None:
        """Return the last failure in this thread, or None."""
        error: NativeError | None = getattr(self._local, "error", None)
        return error
