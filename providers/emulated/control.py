"""The control interface of an emulated driver (``model/control.h``), for Python."""

from __future__ import annotations

import ctypes
import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

from umfpy import leaving
from umfpy.arguments import check_device, check_kind, check_number
from umfpy.errors import CapacityExceeded, InvalidArgument
from umfpy.units import parse_size

_BAD, _LIVE, _FULL = 1, 2, 3

#: The largest numbers of C: of an ``int`` and of a ``uint64_t``.
_INT, _LONG = (1 << 31) - 1, (1 << 64) - 1


class LiveObject(NamedTuple):
    """Something that a program has not given back."""

    address: int
    """Of a handle, its value."""
    size: int
    """Bytes; 0 for what has none."""
    device: int
    """Ordinal, or -1 for none."""


class _Item(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("device", ctypes.c_int),
    )


class CallCounts(Mapping[str, int]):
    """How often each driver function was called, by its exported name (``"cuMemAlloc_v2"``).

    Variants of CUDA's for the per-thread default stream count under the same name.  Every function
    that the driver has can be asked for; iteration gives the ones that were called.
    """

    def __init__(self, driver: ctypes.CDLL) -> None:
        self._driver = driver
        self._numbers: dict[str, int] = {}
        while name := driver.umfpyEmuCallName(len(self._numbers)):
            self._numbers[name.decode()] = len(self._numbers)

    def __getitem__(self, name: str) -> int:
        return int(self._driver.umfpyEmuCallCount(self._numbers[name]))

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._numbers if self[name])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)})"

    @property
    def known(self) -> tuple[str, ...]:
        """Every function that the driver has."""
        return tuple(self._numbers)


class EmulatedDriver:
    """An emulated driver of this process, as `umfpy.emulate` returns it.

    Attributes
    ----------
    calls
        Call counts by exported name.
    library
        Path of the library.
    """

    title: ClassVar[str]
    """What the driver is called in messages."""
    out_of_memory: ClassVar[int]
    """The number that it answers when a device is full."""

    def __init__(self, path: Path, settings: str, mode: int = ctypes.RTLD_LOCAL) -> None:
        self.library = path
        self._settings = settings
        self._driver = _declare(ctypes.CDLL(str(path), mode=mode))
        self._kinds: list[str] = []
        while name := self._driver.umfpyEmuKindName(len(self._kinds)):
            self._kinds.append(name.decode())
        self.calls = CallCounts(self._driver)

    @classmethod
    def find(cls, force: bool) -> Path:
        """Return where the library is, if this process and this machine are free for it.

        Raises
        ------
        DriverUnavailable
            It is not built, a real driver is loaded, or, unless `force`, there is a real GPU.
        """
        raise NotImplementedError

    def preload_environment(self, base: dict[str, str] | None = None) -> dict[str, str]:
        """Return an environment in which a new process runs on the same emulated driver."""
        raise NotImplementedError

    def configure(self, settings: str) -> None:
        """Start again with `settings`; counters, faults and clock are reset.

        Raises
        ------
        InvalidArgument
            Memory is still in use; the message lists it, and nothing was changed.
        """
        answer = self._driver.umfpyEmuConfigure(settings.encode())
        if answer == _LIVE:
            alive = ", ".join(f"{len(items)} {kind}" for kind, items in self.live().items())
            raise InvalidArgument(
                f"the emulated {self.title} driver cannot be set up anew while in use: alive are "
                f"{alive}; free them first, or use another process"
            )
        if answer:
            raise InvalidArgument(f"the emulated {self.title} driver cannot read {settings!r}")
        self._settings = settings
        leaving.expect_report(self.title, "report=1" in settings.split(";"))

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return int(self._driver.umfpyEmuDevices())

    @property
    def memory(self) -> int:
        """Capacity of each device, in bytes (of device 0, if they were made to differ)."""
        return int(self._driver.umfpyEmuMemory(0))

    def set_memory(self, memory: int | str, device: int = 0) -> None:
        """Change a device's capacity, at any time, to no less than what is in use.

        Raises
        ------
        InvalidArgument
            Less than is in use, more than four times what it started with, or no such device.
        """
        size = parse_size(memory)
        device = check_device(device)
        if (
            not 0 <= device < self.devices
            or size > 1 << 46
            or self._driver.umfpyEmuSetMemory(device, size)
        ):
            raise InvalidArgument(
                f"device {device} cannot have {size} bytes: that is less than is in use, more than "
                f"four times what it started with, or there is no such device (of {self.devices})"
            )

    def reset_calls(self) -> None:
        """Count from 0 again."""
        self._driver.umfpyEmuResetCalls()

    def fail(self, name: str, nth: int = 1, error: int | None = None, *, times: int = 1) -> None:
        """Let the `nth` call from now of function `name` answer `error`, without doing anything.

        Parameters
        ----------
        name
            Exported name, such as ``"cuMemAlloc_v2"`` or ``"zeMemAllocDevice"``; ``"*"`` counts
            the calls of all functions.
        nth
            1 is the next call.
        error
            A ``CUresult`` or ``ze_result_t``; by default the one for a device that is full,
            `out_of_memory`.
        times
            How many calls in a row fail.

        Raises
        ------
        InvalidArgument
            The driver has no such function, or a number makes no sense.
        CapacityExceeded
            64 faults are waiting already.
        """
        nth = check_number(nth, "nth", least=1, most=_LONG)
        times = check_number(times, "times", least=1, most=_LONG)
        error = self.out_of_memory if error is None else error
        error = check_number(error, "error", least=1, most=_INT)
        check_kind(name, str, "name", "the name of a function, or '*'")
        if name != "*" and name not in self.calls.known:
            close = difflib.get_close_matches(name, self.calls.known, 3, 0.5)
            raise InvalidArgument(
                f"the emulated {self.title} driver has no function {name!r}"
                + (f"; did you mean {' or '.join(close)}?" if close else "")
            )
        if self._driver.umfpyEmuFail(name.encode(), nth, times, error) == _FULL:
            raise CapacityExceeded("64 faults are waiting; clear_faults() drops them")

    def clear_faults(self) -> None:
        """Drop the faults that have not happened yet."""
        self._driver.umfpyEmuClearFaults()

    @property
    def clock_us(self) -> float:
        """Modelled time since the last reset, in microseconds: what the calls cost on hardware."""
        return int(self._driver.umfpyEmuClock()) / 1000

    def reset_clock(self) -> None:
        """Read 0 from now on."""
        self._driver.umfpyEmuResetClock()

    def live(self) -> dict[str, list[LiveObject]]:
        """Return everything alive by kind, also what `leaks` does not count as one."""
        room = int(self._driver.umfpyEmuLive(None, 0)) + 64
        while True:
            items = (_Item * room)()
            count = int(self._driver.umfpyEmuLive(items, room))
            if count <= room:
                break
            room = count + 64
        found: dict[str, list[LiveObject]] = {}
        for item in items[:count]:
            one = LiveObject(item.address, item.size, item.device)
            found.setdefault(self._kinds[item.kind], []).append(one)
        return found

    def leaks(self) -> dict[str, list[LiveObject]]:
        """Return what has not been given back, by kind; empty, and so false, when clean.

        Among it is what pools and providers of umfpy keep for reuse, until they are closed.
        """
        return {
            kind: items
            for kind, items in self.live().items()
            if self._driver.umfpyEmuKindLeaks(self._kinds.index(kind))
        }

    def __repr__(self) -> str:
        return f"<emulated {self.title} driver: {self.devices} x {self.memory} bytes>"


def _declare(driver: ctypes.CDLL) -> ctypes.CDLL:
    """Give every function of ``control.h`` its types."""
    number, text, word = ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int
    items = ctypes.POINTER(_Item)
    signatures: dict[str, tuple[type | None, list[type]]] = {
        "umfpyEmuConfigure": (word, [text]),
        "umfpyEmuDevices": (ctypes.c_uint, []),
        "umfpyEmuMemory": (number, [ctypes.c_uint]),
        "umfpyEmuSetMemory": (word, [ctypes.c_uint, number]),
        "umfpyEmuCallName": (text, [word]),
        "umfpyEmuCallCount": (number, [word]),
        "umfpyEmuResetCalls": (None, []),
        "umfpyEmuFail": (word, [text, number, number, word]),
        "umfpyEmuClearFaults": (None, []),
        "umfpyEmuClock": (number, []),
        "umfpyEmuResetClock": (None, []),
        "umfpyEmuLive": (ctypes.c_size_t, [items, ctypes.c_size_t]),
        "umfpyEmuKindName": (text, [word]),
        "umfpyEmuKindLeaks": (word, [word]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(driver, name)
        function.restype = result
        function.argtypes = arguments
    return driver
