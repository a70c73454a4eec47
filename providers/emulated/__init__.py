"""Emulated GPU drivers: real shared libraries on which unmodified programs run without a GPU.

>>> import umfpy
>>> emu = umfpy.emulate("cuda", memory="16GiB", devices=2)
>>> from cuda.bindings import driver
>>> driver.cuInit(0)
(<CUresult.CUDA_SUCCESS: 0>,)
>>> emu.calls["cuInit"]
1

``umfpy emulate cuda -- PROGRAM`` does the same for a whole program.  How the drivers are built
is described beside them: ``model/common.h`` and ``cuda/driver.h``.
"""

from __future__ import annotations

import os
from typing import Literal, TypeVar, overload

from umfpy.arguments import check_flag
from umfpy.errors import NotSupported
from umfpy.providers.emulated import level_zero_library as _level_zero_library
from umfpy.providers.emulated import library as _library
from umfpy.providers.emulated.control import CallCounts, EmulatedDriver, LiveObject
from umfpy.providers.emulated.cuda_control import EmulatedCuda
from umfpy.providers.emulated.level_zero_control import EmulatedLevelZero

__all__ = ["CallCounts", "EmulatedCuda", "EmulatedLevelZero", "LiveObject", "emulate"]

_Driver = TypeVar("_Driver", bound=EmulatedDriver)

#: What this process runs on.
_loaded: dict[type[EmulatedDriver], EmulatedDriver] = {}


@overload
def emulate(
    driver: Literal["cuda"] = "cuda",
    *,
    memory: int | str = ...,
    devices: int = ...,
    capability: str = ...,
    report: bool = ...,
    force: bool = ...,
    children: bool = ...,
) -> EmulatedCuda: ...


@overload
def emulate(
    driver: Literal["level_zero"],
    *,
    memory: int | str = ...,
    devices: int = ...,
    report: bool = ...,
    force: bool = ...,
    children: bool = ...,
) -> EmulatedLevelZero: ...


@overload
def emulate(
    driver: str,
    *,
    memory: int | str = ...,
    devices: int = ...,
    capability: str = ...,
    report: bool = ...,
    force: bool = ...,
    children: bool = ...,
) -> EmulatedCuda | EmulatedLevelZero: ...


def emulate(
    driver: str = "cuda",
    *,
    memory: int | str = "16GiB",
    devices: int = 1,
    capability: str = "9.0",
    report: bool = False,
    force: bool = False,
    children: bool = True,
) -> EmulatedCuda | EmulatedLevelZero:
    """Load an emulated driver into this process, before anything loads the real one.

    A second call sets the same driver up anew: its counters, faults and clock are reset, and it
    is refused while memory is in use.

    Parameters
    ----------
    driver
        ``"cuda"`` or ``"level_zero"``.
    memory
        Bytes of each device, or text such as ``"16GiB"``, which is ``"16G"``, while ``"16GB"`` is
        16 · 10^9 bytes; 2 MiB to 16 TiB.  Costs nothing until it is written.
    devices
        How many, 1 to 16; of Level Zero also 0, a driver without devices.
    capability
        Compute capability that CUDA devices claim.
    report
        Say on standard error, when the process ends, what leaked and what was called.  What pools
        and providers of umfpy merely keep for reuse goes back first.
    force
        Also on a machine with a real GPU, which this process then does not see.
    children
        Put ``LD_PRELOAD`` and ``UMFPY_EMULATE_CUDA`` into ``os.environ``, so that the processes
        started from here (multiprocessing's spawn among them) run on an emulated driver too.  Level
        Zero's loader is told of the driver by ``ZE_ENABLE_ALT_DRIVERS`` there in any case.

    Raises
    ------
    DriverUnavailable
        The library is not built, a real driver is already loaded, or the machine has a real GPU.
    InvalidArgument
        A setting makes no sense, or the driver is in use; nothing was changed.
    NotSupported
        There is no emulation of `driver`.
    """
    check_flag(force, "force")
    check_flag(children, "children")
    if driver == "cuda":
        settings = _library.cuda_settings(memory, devices, capability, report)
        return _emulate(EmulatedCuda, settings, force, children)
    if driver == "level_zero":
        settings = _level_zero_library.driver_settings(memory, devices, report)
        return _emulate(EmulatedLevelZero, settings, force, children)
    raise NotSupported(f"there is no emulated {driver!r} driver; there is: cuda, level_zero")


def _emulate(kind: type[_Driver], settings: str, force: bool, children: bool) -> _Driver:
    found = _loaded.get(kind)
    driver = found if isinstance(found, kind) else kind(kind.find(force), settings)
    driver.configure(settings)
    _loaded[kind] = driver
    if children:
        preloaded = {"LD_PRELOAD": os.environ.get("LD_PRELOAD", "")}
        os.environ.update(driver.preload_environment(preloaded))
    return driver
