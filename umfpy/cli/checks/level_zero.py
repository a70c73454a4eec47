"""Level Zero: Intel's loader and the drivers that it finds."""

from __future__ import annotations

import ctypes

from umfpy.cli.checks.finding import Finding, State

_LOADER = "libze_loader.so.1"

#: ze_result_t (ze_api.h): what zeInit answers if there is no driver, or none that starts.
_UNINITIALIZED = 0x78000001


def check() -> Finding:
    """Count drivers and devices: zeInit, zeDriverGet, zeDeviceGet."""
    try:
        loader = ctypes.CDLL(_LOADER)
    except OSError:
        return Finding(
            "Level Zero",
            State.ABSENT,
            f"no {_LOADER}",
            advice="on Debian: apt-get install libze1, and Intel's GPU driver",
        )
    result = loader.zeInit(0) & 0xFFFFFFFF
    if result:
        why = "finds no driver" if result == _UNINITIALIZED else f"answers {result:#x} to zeInit"
        return Finding(
            "Level Zero",
            State.ABSENT,
            f"the loader is there but {why}",
            {"loader": _LOADER, "ze_init": result},
            "install Intel's GPU driver (libze-intel-gpu1)",
        )
    devices = [len(_get(loader.zeDeviceGet, driver)) for driver in _get(loader.zeDriverGet)]
    facts = {"loader": _LOADER, "drivers": len(devices), "devices": sum(devices)}
    return Finding("Level Zero", State.OK, f"{len(devices)} drivers, {sum(devices)} devices", facts)


def _get(function: ctypes._NamedFuncPointer, *first: ctypes.c_void_p) -> list[ctypes.c_void_p]:
    """Return the handles that a zeXxxGet(..., count, handles) function gives; [] if it fails."""
    count = ctypes.c_uint32(0)
    if function(*first, ctypes.byref(count), None):
        return []
    handles = (ctypes.c_void_p * count.value)()
    if function(*first, ctypes.byref(count), handles):
        return []
    return [ctypes.c_void_p(handle) for handle in handles]
