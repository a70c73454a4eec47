"""What the providers of Level Zero memory have in common: a device, a context, and contents."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sized
from typing import Any

from umfpy.errors import DriverError, InvalidArgument, OutOfMemoryError, UmfpyError
from umfpy.provider import Location, NativeError
from umfpy.providers.device import DeviceProvider
from umfpy.providers.host.later import Later
from umfpy.providers.host.pieces import Pieces
from umfpy.providers.level_zero.contents import Contents
from umfpy.providers.level_zero.context import Context
from umfpy.providers.level_zero.devices import Device, all_devices, find_device, memory_sizes
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.library import check_not_forked
from umfpy.providers.level_zero.lists import CommandLists
from umfpy.providers.level_zero.pages import page_size
from umfpy.providers.level_zero.properties import address_range, allocation_properties
from umfpy.providers.level_zero.streams import StreamWork
from umfpy.units import format_size

#: A request so large, in bytes, that the driver answers with its largest page.
_LARGE = 32 << 20


class LevelZeroBase(DeviceProvider):
    """A provider on one device, in one context; see its subclasses."""

    #: The largest alignment of any type in OpenCL C (double16; its specification, Alignment of
    #: Types), and two cache lines.  The driver is asked for it, and so gives it.
    granule = 128

    def __init__(self, device: int | str | None, context: int | None, ordinal: int) -> None:
        self._driver = LevelZeroDriver()
        self._devices = all_devices(self._driver)
        self._device = find_device(self._devices, 0 if device is None else device)
        self._driver.handle = self._device.driver
        self._ordinal = ordinal
        self._memory_sizes = memory_sizes(self._driver, self._device)
        self._pieces = Pieces()
        self._closed = False
        self._context = Context(self._driver, self._device.driver, context)
        self._lists = CommandLists(self._driver, self._context, self._device)
        self._work = StreamWork(self._driver, self._context)
        self._contents = Contents(self._driver, self._lists, self._work)
        self._later = Later()
        #: What has to be empty before the context may go.
        self._holdings: list[Sized] = [self._pieces]
        # A provider that is dropped without close() must not keep the context; one with live
        # memory must, because that would go with it.  At exit the driver cleans up by itself.
        self._release = _Release(self._later, self._work, self._lists, self._context)
        finalizer = weakref.finalize(self, _drop, self._release, self._holdings)
        finalizer.atexit = False

    @property
    def context(self) -> int:
        """The ``ze_context_handle_t`` that the memory is of, for kernels and lists on it."""
        return self._context.handle

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        """Write zeros: zeCommandListAppendMemoryFill on `stream`, else done when the call returns.

        `stream` is a ``ze_command_list_handle_t`` of an immediate list of this context.
        """
        self._contents.zero(ptr, size, stream)

    def copy(self, dst: Location, src: Location, size: int, stream: int | None = None) -> None:
        """Copy between addresses and host buffers, on `stream`, else done at return.

        zeCommandListAppendMemoryCopy.  With a host buffer it is done at return in any case,
        after what the stream had before.
        """
        self._contents.copy(dst, src, size, stream)

    def watch_stream(self, stream: int) -> None:
        """Have `synchronize` wait for an immediate command list, with whatever is on it.

        Level Zero cannot wait for a whole device.  Who gives a pool the streams that kernels run
        on has them watched first, and no longer (`unwatch_stream`) before they are destroyed.
        """
        self._work.watch(stream)

    def unwatch_stream(self, stream: int) -> None:
        """Undo `watch_stream`; raises InvalidArgument for a list that is not watched."""
        self._work.unwatch(stream)

    def synchronize(self) -> None:
        """Wait for all work that this provider has queued, and for the watched streams.

        zeCommandListAppendBarrier with an event, zeEventHostSynchronize.
        """
        self._work.wait()

    def ipc_scope(self) -> str:
        """Return the device's UUID in hexadecimal: ze_device_properties_t."""
        return self._device.uuid

    def properties(self, ptr: int) -> dict[str, Any]:
        """Return what the driver knows of an address; {} for foreign ones.

        ``base``, ``size``, ``memory_type``, ``buffer_id``, ``page_size`` (bytes), ``device`` (its
        index, -1 for none) and ``context``: zeMemGetAllocProperties, zeMemGetAddressRange.
        """
        found = allocation_properties(self._driver, self._context.handle, ptr)
        if found is None:
            return {}
        base, size = address_range(self._driver, self._context.handle, ptr)
        indices = {device.handle: device.index for device in self._devices}
        return {
            "base": base,
            "size": size,
            "memory_type": found.memory_type,
            "buffer_id": found.id,
            "page_size": found.page_size,
            "device": indices.get(found.device, -1),
            "context": self._context.handle,
        }

    def native_error(self) -> NativeError | None:
        """Return this thread's last failure: the result's name, and the driver's own words."""
        return self._driver.last_error()

    def live_count(self) -> int:
        """Return how many pieces are allocated: 0 when everything was freed."""
        return len(self._pieces)

    def close(self) -> None:
        """Let go of lists and context, as soon as nothing is allocated or opened any more."""
        self._closed = True
        self._release_if_unused()

    def _release_if_unused(self) -> None:
        if not any(map(len, self._holdings)):
            self._release()

    def _close_if_unused(self) -> None:
        if self._closed:
            with contextlib.suppress(DriverError, OutOfMemoryError):
                self._release_if_unused()

    def _rest(self) -> None:
        self._later.settle()
        self._work.close()
        self._lists.close()
        with self._pieces.none_there() as none:
            others = [holding for holding in self._holdings if holding is not self._pieces]
            if none and not any(map(len, others)):
                self._context.rest()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument(f"this {self.name} provider is closed; make a new one")

    def _page_size(self, size: int) -> int:
        """Return the page of virtual memory for a request: zeVirtualMemQueryPageSize."""
        return page_size(self._driver, self._context.handle, self._device, size)

    def _recommended_page(self, size: int) -> int:
        """Return the page for a request, and for none the device's largest."""
        return self._page_size(size or _LARGE)

    def _total_memory(self) -> int:
        """Return the bytes of the memory that allocations come from."""
        return self._memory_sizes[self._ordinal] if self._memory_sizes else 0

    def _out_of_memory(self, size: int, error: UmfpyError) -> OutOfMemoryError:
        text = (
            f"no {self.memory_type} memory for {size} bytes ({format_size(size)}): {error}; "
            f"{self._device} has {self._total_memory()} bytes in all"
        )
        return OutOfMemoryError(text, requested=size, provider=self.name)

    def _find_device(self, wanted: int | str) -> Device:
        return find_device(self._devices, wanted)


class _Release:
    """Gives back what a provider holds besides memory, in the order that the driver wants."""

    def __init__(
        self, later: Later, work: StreamWork, lists: CommandLists, context: Context
    ) -> None:
        self._parts: list[Callable[[], object]] = [
            later.settle,
            work.close,
            lists.close,
            context.release,
        ]

    def before(self, part: Callable[[], object]) -> None:
        """Have something else given back first."""
        self._parts.insert(0, part)

    def __call__(self) -> None:
        for part in self._parts:
            part()


def _drop(release: _Release, holdings: list[Sized]) -> None:
    # Nobody is there to be told.  A forked child has nothing to release, and must not wait for
    # locks that a thread of its parent may hold for ever.
    with contextlib.suppress(UmfpyError):
        check_not_forked()
        if not any(map(len, holdings)):
            release()
