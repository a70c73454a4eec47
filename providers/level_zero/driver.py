"""Calls of the Level Zero API, with their results as umfpy's errors."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from umfpy.errors import DriverError, NotSupported, OutOfMemoryError, UmfpyError
from umfpy.provider import NativeError
from umfpy.providers.level_zero.constants import Result, result_name
from umfpy.providers.level_zero.library import check_not_forked, load

#: Results that mean "no memory left", and of which kind.
_EXHAUSTED = {
    int(Result.ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY): "host",
    int(Result.ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY): "device",
}


class LevelZeroDriver:
    """The driver calls of one provider, which remembers each thread's last failure.

    ``handle`` is the driver that is asked for its words about a failure; it is set as soon as
    the provider's device is known.
    """

    def __init__(self) -> None:
        self._functions = load()
        self._local = threading.local()
        self.handle: int | None = None

    def has(self, name: str) -> bool:
        """Return whether the loader has the function `name`."""
        return self._functions.get(name) is not None

    def call(self, name: str, *args: Any) -> None:
        """Call a function of the API.

        Raises
        ------
        OutOfMemoryError
            ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY or ..._DEVICE_MEMORY; the message says which.
        DriverError
            Any other result but success, with its name and the driver's words for it.
        NotSupported
            The loader is older than the function.
        DriverUnavailable
            This is a forked child.
        """
        check_not_forked()
        function = self._functions[name]
        if function is None:
            raise NotSupported(f"this Level Zero loader has no {name}; install a later one")
        code: int = function(*args)
        if code:
            raise self._failed(name, code)

    def make(self, name: str, *args: Any) -> int:
        """Return the handle or address that a function writes to its last argument.

        Raises
        ------
        DriverError
            Also if it answers success and writes nothing, as the loader's null driver does.
        """
        made = ctypes.c_void_p()
        self.call(name, *args, ctypes.byref(made))
        if not made.value:
            raise DriverError(
                name, 0, Result.ZE_RESULT_SUCCESS.name, "nothing came with it: a null driver?"
            )
        return made.value

    def handles(self, name: str, *parents: int) -> list[int]:
        """Return the handles that a function of the form ``(..., count, handles)`` lists."""
        count = ctypes.c_uint32()
        self.call(name, *parents, ctypes.byref(count), None)
        found = (ctypes.c_void_p * count.value)()
        if count.value:
            self.call(name, *parents, ctypes.byref(count), found)
        return [handle for handle in found if handle]

    def last_error(self) -> NativeError | None:
        """Return the last failure in this thread, or None."""
        error: NativeError | None = getattr(self._local, "error", None)
        return error

    def _failed(self, call: str, code: int) -> UmfpyError:
        name, words = result_name(code), self._words()
        self._local.error = NativeError(call=call, code=code, name=name, message=words)
        kind = _EXHAUSTED.get(code)
        if kind is None:
            return DriverError(call, code, name, words)
        text = f"{call} failed with {name} ({code:#x}): out of {kind} memory"
        return OutOfMemoryError(text + (f": {words}" if words else ""), provider="level_zero")

    def _words(self) -> str:
        """Return what the driver says of this thread's last failure, if it says anything.

        zeDriverGetLastErrorDescription.
        """
        describe = self._functions["zeDriverGetLastErrorDescription"]
        text = ctypes.c_char_p()
        if describe is None or self.handle is None or describe(self.handle, ctypes.byref(text)):
            return ""
        return (text.value or b"").decode(errors="replace").strip()
