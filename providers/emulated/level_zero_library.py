"""How a process gets the emulated Level Zero driver: through Intel's loader, or without one.

A loader (``libze_loader.so.1``; Debian package libze1) takes the driver named by
``ZE_ENABLE_ALT_DRIVERS`` and leaves the real ones aside.  Where there is no loader, the driver
stands in for it: its own SONAME is ``libze_loader.so.1`` and it exports every ``ze`` function, so
that once it is loaded, ``ctypes.CDLL("libze_loader.so.1")`` and ``dlopen`` of that name find it.
Whichever is loaded first under that name is found: so the loader, if there is one, goes first.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from umfpy.errors import DriverUnavailable, InvalidArgument
from umfpy.providers.emulated.process import (
    HERE,
    device_settings,
    find_library,
    loaded_libraries,
    preloaded,
)

LOADER = "libze_loader.so.1"
SETTINGS_VARIABLE = "UMFPY_EMULATE_LEVEL_ZERO"
DRIVERS_VARIABLE = "ZE_ENABLE_ALT_DRIVERS"

_HERE = HERE
_INTEL = "0x8086"

#: Kept loaded: the loader must stay the first of its name.
_loaded: list[ctypes.CDLL] = []


def driver_library() -> Path:
    """Return the path of the emulated driver.

    Raises
    ------
    DriverUnavailable
        It was not built with this installation.
    """
    return find_library("_libze_emulated", "Level Zero", _HERE)


def driver_settings(memory: int | str, devices: int, report: bool = False) -> str:
    """Return the settings of a Level Zero driver, which may have no device at all.

    Raises
    ------
    InvalidArgument
        A value that no device could have.
    """
    return device_settings(memory, devices, report, least_devices=0)


def refuse_beside_real_gpu(force: bool, cards: Path = Path("/sys/class/drm")) -> None:
    """Raise `DriverUnavailable` where this machine has a GPU of Intel's, unless `force`."""
    if force:
        return
    for vendor in cards.glob("renderD*/device/vendor"):
        if vendor.read_text().strip() == _INTEL:
            raise DriverUnavailable(
                f"this machine has a GPU of Intel's ({vendor.parent.parent}), and an emulated "
                "driver would hide it; pass force=True (`--force` on the command line) if that is "
                "what you want"
            )


def refuse_beside_real_driver() -> None:
    """Raise `DriverUnavailable` where a loader is set up for another driver already."""
    for loaded in loaded_libraries():
        if loaded.name.startswith("libze_intel_gpu.so"):
            raise DriverUnavailable(
                f"the real Level Zero driver is already loaded in this process ({loaded}); call "
                "umfpy.emulate before anything initialises Level Zero, or start the program with "
                "`umfpy emulate level_zero -- PROGRAM`"
            )


def announce(path: Path, settings: str) -> None:
    """Tell a loader in this process of the driver: it asks the environment when it initialises."""
    _check_path(path)
    os.environ[DRIVERS_VARIABLE] = str(path)
    os.environ[SETTINGS_VARIABLE] = settings


def load_loader() -> bool:
    """Load Intel's loader if there is one, without initialising it; is there one?"""
    try:
        loader = ctypes.CDLL(LOADER)
    except OSError:
        return False
    _loaded.append(loader)
    return not hasattr(loader, "umfpyEmuConfigure")  # preloaded, the driver answers to that name


def _check_path(path: Path) -> None:
    text = str(path)
    if any(mark in text for mark in " :,;"):
        raise InvalidArgument(
            f"neither {DRIVERS_VARIABLE} nor LD_PRELOAD can name {text!r}, which has a space or "
            "punctuation in it that separates names there; install umfpy elsewhere"
        )


def environment(
    path: Path, settings: str, loader: bool, base: dict[str, str] | None = None
) -> dict[str, str]:
    """Return `base` (by default this process's environment), for processes on the emulated driver.

    Without a `loader` the driver is preloaded, to stand in for it.

    Raises
    ------
    InvalidArgument
        The library lies where neither loader nor linker can be told of it.
    """
    _check_path(path)
    made = dict(os.environ if base is None else base)
    made[DRIVERS_VARIABLE] = str(path)
    made[SETTINGS_VARIABLE] = settings
    if not loader:
        made["LD_PRELOAD"] = preloaded(path, made)
    return made
