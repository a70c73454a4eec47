"""Zeroing and copying on the device."""

from __future__ import annotations

import ctypes

from umfpy.errors import InvalidArgument
from umfpy.provider import Location
from umfpy.providers.host.buffers import address_of
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.lists import CommandLists
from umfpy.providers.level_zero.streams import StreamWork

#: What memory is filled with.  It stays where it is, because work on a list may read it later.
_ZERO = ctypes.c_uint8(0)


class Contents:
    """What a provider does with the bytes of its memory.

    A ``stream`` is a ``ze_command_list_handle_t`` of an immediate command list, of the memory's
    context and one of its devices, as an integer.  As Level Zero has it, no other thread may use
    the list at the same time.  None and 0 stand for a list of umfpy's own, on which work is done
    when the call returns.
    """

    def __init__(self, driver: LevelZeroDriver, lists: CommandLists, work: StreamWork) -> None:
        self._driver = driver
        self._lists = lists
        self._work = work

    def zero(self, ptr: int, size: int, stream: int | None) -> None:
        """Write zeros: zeCommandListAppendMemoryFill."""
        if not _check(size):
            return

        def append(target: int, event: int | None) -> None:
            pattern = ctypes.byref(_ZERO)
            name = "zeCommandListAppendMemoryFill"
            self._driver.call(name, target, ptr, pattern, 1, size, event, 0, None)

        if stream:
            self._work.queue(stream, append)
        else:
            with self._lists.borrowed() as own:
                append(own, None)

    def copy(self, dst: Location, src: Location, size: int, stream: int | None) -> None:
        """Copy between addresses and host buffers: zeCommandListAppendMemoryCopy.

        With a buffer the copy is ordered on the stream and done at return: nothing says how long
        the buffer would have to stay.
        """
        if not _check(size):
            return
        buffers = [side for side in (dst, src) if not isinstance(side, int)]
        if len(buffers) == 2:
            raise InvalidArgument("both sides of the copy are host buffers; one must be an address")
        with (
            address_of(dst, size, writable=True) as to,
            address_of(src, size, writable=False) as of,
        ):

            def append(target: int, event: int | None) -> None:
                name = "zeCommandListAppendMemoryCopy"
                self._driver.call(name, target, to, of, size, event, 0, None)

            if stream and buffers:
                self._work.perform(stream, append)
            elif stream:
                self._work.queue(stream, append)
            else:
                with self._lists.borrowed() as own:
                    append(own, None)


def _check(size: int) -> bool:
    """Return whether there is anything to do."""
    if size < 0:
        raise InvalidArgument(f"a size cannot be negative: {size}")
    return size > 0
