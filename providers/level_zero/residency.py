"""On which further devices memory is resident."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from umfpy.errors import InvalidArgument, UmfpyError
from umfpy.providers.level_zero.context import Context
from umfpy.providers.level_zero.devices import Device
from umfpy.providers.level_zero.driver import LevelZeroDriver

#: Address and bytes of an allocation.
Range = tuple[int, int]


class Residency:
    """The devices that every allocation of one provider is made resident on.

    ``home`` is the provider's device; with `at_home` its memory is there already.

    Allocating and freeing go on side by side; a change of the devices waits for them, and they
    for it, so that no allocation misses one and none is touched after it was freed.
    """

    def __init__(
        self, driver: LevelZeroDriver, context: Context, home: Device, *, at_home: bool
    ) -> None:
        self._driver = driver
        self._context = context
        self._home = home
        self._at_home = at_home
        self._devices: list[Device] = []
        self._ranges: dict[int, int] = {}
        self._gate = threading.Condition()
        self._waiting = 0  # to take or free memory, until a change is over
        self._inside = 0  # taking or freeing it
        self._changing = False

    def devices(self) -> tuple[int, ...]:
        """Return the devices' indices, in the order in which they were added."""
        return tuple(device.index for device in self._devices)

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Let the devices stay as they are for the block, which takes or frees memory."""
        with self._gate:
            self._waiting += 1
            try:
                self._gate.wait_for(lambda: not self._changing)
                self._inside += 1
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            with self._gate:
                self._inside -= 1
                self._gate.notify_all()

    def settle(self, base: int, size: int) -> None:
        """Make a fresh allocation resident on all devices, or on none: within `steady`."""
        steps = [(device, (base, size)) for device in self._devices]
        self._all_or_nothing(steps, self._make_resident, self._evict)
        with self._gate:
            self._ranges[base] = size

    @contextmanager
    def leaving(self, base: int) -> Iterator[None]:
        """Forget an allocation, unless the block raises, which frees it and with it evicts it."""
        with self.steady():
            with self._gate:
                size = self._ranges.pop(base)
            try:
                yield
            except BaseException:
                with self._gate:
                    self._ranges[base] = size
                raise

    def add(self, device: Device) -> None:
        """Make all allocations, those to come as well, resident on one more device.

        Raises
        ------
        InvalidArgument
            It is the device that the memory is on, is there already, or is another driver's.
        DriverError, OutOfMemoryError
            What zeContextMakeMemoryResident answered; nothing has changed.
        """
        with self._change():
            self._check_new(device)
            steps = [(device, each) for each in self._ranges.items()]
            self._all_or_nothing(steps, self._make_resident, self._evict)
            self._devices.append(device)

    def remove(self, device: Device) -> None:
        """Evict all allocations from a device, and put no more there.

        Raises
        ------
        InvalidArgument
            It was not added.
        DriverError, OutOfMemoryError
            What zeContextEvictMemory answered; nothing has changed.
        """
        with self._change():
            if device not in self._devices:
                raise InvalidArgument(f"{device} is not a resident device; there are {self}")
            steps = [(device, each) for each in self._ranges.items()]
            self._all_or_nothing(steps, self._evict, self._make_resident)
            self._devices.remove(device)

    def __str__(self) -> str:
        return ", ".join(str(device) for device in self._devices) or "none"

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._gate:
            # Whoever waited through the last change goes first: changes in a row would keep them
            # out for good.
            self._gate.wait_for(lambda: not self._changing and not self._waiting)
            self._changing = True
        try:
            with self._gate:
                self._gate.wait_for(lambda: not self._inside)
            yield
        finally:
            with self._gate:
                self._changing = False
                self._gate.notify_all()

    def _check_new(self, device: Device) -> None:
        if device.driver != self._home.driver:
            raise InvalidArgument(
                f"{device} is another driver's than {self._home}: no context has both"
            )
        if self._at_home and device == self._home:
            raise InvalidArgument(f"the memory is on {device} itself: it is resident there already")
        if device in self._devices:
            raise InvalidArgument(f"{device} is a resident device already")

    def _make_resident(self, device: Device, at: Range) -> None:
        self._driver.call("zeContextMakeMemoryResident", self._context.handle, device.handle, *at)

    def _evict(self, device: Device, at: Range) -> None:
        self._driver.call("zeContextEvictMemory", self._context.handle, device.handle, *at)

    def _all_or_nothing(
        self,
        steps: list[tuple[Device, Range]],
        do: Callable[[Device, Range], None],
        undo: Callable[[Device, Range], None],
    ) -> None:
        done: list[tuple[Device, Range]] = []
        try:
            for step in steps:
                do(*step)
                done.append(step)
        except UmfpyError:
            for step in reversed(done):
                # The first failure is the one to tell; residency of the rest is only a cost.
                with contextlib.suppress(UmfpyError):
                    undo(*step)
            raise
