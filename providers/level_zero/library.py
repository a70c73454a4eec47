"""Level Zero's loader in this process: found, initialised once, and not used after fork(2)."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from umfpy.errors import DriverUnavailable
from umfpy.providers.level_zero.constants import Result, result_name
from umfpy.providers.level_zero.prototypes import OPTIONAL, PROTOTYPES, RESULT

LOADER = "libze_loader.so.1"

_EMULATE = (
    'or emulate one: call umfpy.emulate("level_zero") before anything else, or start the program '
    "with `umfpy emulate level_zero -- PROGRAM`"
)

#: A function of the API by name, or None if this loader lacks it.
Functions = dict[str, Any]

_lock = threading.Lock()
_loaded: Functions | None = None
_forked = False


def _mark_forked() -> None:
    global _forked
    _forked = _loaded is not None


os.register_at_fork(after_in_child=_mark_forked)


def check_not_forked() -> None:
    """Raise DriverUnavailable in a process that was forked after zeInit.

    Contexts, lists and memory of the parent are of no use in the child (Core API, zeInit: each
    forked process has to initialise anew), and drivers do not survive it.
    """
    if _forked:
        raise DriverUnavailable(
            "this process was forked after Level Zero had been initialised, and what it had there "
            'does not work in such a child; start it with multiprocessing.get_context("spawn"), '
            "or use Level Zero only in the child"
        )


def load() -> Functions:
    """Return the functions of the loader, initialised: zeInit.

    Raises
    ------
    DriverUnavailable
        The loader or a driver is missing, or this is a forked child; the message says what to
        install.
    """
    global _loaded
    check_not_forked()
    with _lock:
        if _loaded is None:
            functions = _declare(_open())
            _initialise(functions)
            _loaded = functions
        return _loaded


def _open() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(LOADER)
    except OSError as error:
        raise DriverUnavailable(
            f"no Level Zero loader, {LOADER} ({error}); install it (on Debian: apt-get install "
            f"libze1) and a driver (libze-intel-gpu1), {_EMULATE}"
        ) from error


def _declare(library: ctypes.CDLL) -> Functions:
    functions: Functions = {}
    for name, arguments in {**PROTOTYPES, **OPTIONAL}.items():
        function = getattr(library, name, None)
        if function is None and name in PROTOTYPES:
            raise DriverUnavailable(
                f"{LOADER} has no {name}; umfpy needs a loader of version 1.8 or later"
            )
        if function is not None:
            function.restype, function.argtypes = RESULT, arguments
        functions[name] = function
    return functions


def _initialise(functions: Functions) -> None:
    code = functions["zeInit"](0)
    if code == Result.ZE_RESULT_ERROR_UNINITIALIZED:
        raise DriverUnavailable(
            "Level Zero's loader finds no driver that starts; install one (on Debian: apt-get "
            "install libze-intel-gpu1) and start this program again, because the loader looks only "
            f"once; {_EMULATE}"
        )
    if code:
        raise DriverUnavailable(f"zeInit failed with {result_name(code)} ({code:#x})")
