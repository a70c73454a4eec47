"""Files that one provider alone grows: named shared objects and files on disk."""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from umfpy.arguments import check_kind
from umfpy.errors import InvalidArgument
from umfpy.providers.host.sharing import SHM_FOLDER, in_shared_memory
from umfpy.providers.host.system import System

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

#: What open(2) answers when the caller has to choose another path.
_REFUSED = {
    errno.EACCES: "may not be read and written",
    errno.EPERM: "may not be written",
    errno.EROFS: "lies on a read-only file system",
    errno.ETXTBSY: "is a running program",
    errno.EISDIR: "is a directory",
    errno.ENOENT: "lies in a folder that does not exist",
    errno.ENOTDIR: "lies under something that is not a folder",
    errno.ELOOP: "is a symbolic link",
    errno.ENXIO: "is not a regular file",
    errno.ENODEV: "is not a regular file",
    errno.ENAMETOOLONG: "is too long a name",
}


def create_named(system: System, name: str) -> tuple[int, str]:
    """Return descriptor and path of a new shared object: shm_open(3) on Linux is a file there.

    An object of that name whose owner died is replaced.

    Raises
    ------
    InvalidArgument
        `name` has a slash or is empty, or a living provider uses it.
    """
    path = f"{SHM_FOLDER}/{check_kind(name, str, 'name', 'a word').removeprefix('/')}"
    if not in_shared_memory(path) or "\0" in name:
        raise InvalidArgument(f"{name!r} cannot name a shared object: use a word without slashes")
    fd = open_alone(system, path)
    try:
        os.ftruncate(fd, 0)
    except OSError as error:
        os.close(fd)
        raise system.failed("ftruncate", error.errno or 0) from None
    return fd, path


def open_alone(system: System, path: str) -> int:
    """Return a descriptor for a regular file that no other provider uses, made if need be.

    The file is locked (flock(2)) for as long as the descriptor, or a copy of it, is open; the
    lock goes with the process, also when that is killed.

    Raises
    ------
    InvalidArgument
        The path cannot be used, or is in use by another provider; the message says which.
    DriverError
        Any other errno of open(2) or flock(2).
    """
    try:
        fd = os.open(path, _FLAGS | os.O_CREAT, 0o600)
    except OSError as error:
        code = error.errno or 0
        failure = system.failed("open", code)
        if code in _REFUSED:
            raise InvalidArgument(f"{path!r} {_REFUSED[code]}; give another path") from failure
        raise failure from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InvalidArgument(f"{path!r} is not a regular file; give another path")
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except BlockingIOError:
        os.close(fd)
        raise InvalidArgument(
            f"{path!r} is in use by another provider, in this process or another: two would "
            "overwrite each other; close that one or give another path"
        ) from None
    except OSError as error:
        os.close(fd)
        raise system.failed("flock", error.errno or 0) from None
    except InvalidArgument:
        os.close(fd)
        raise
