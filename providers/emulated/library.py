"""Where the emulated CUDA driver is, and whether this process and machine are free for it."""

from __future__ import annotations

import os
from pathlib import Path

from umfpy.errors import DriverUnavailable, InvalidArgument
from umfpy.providers.emulated.process import (
    device_settings,
    find_library,
    loaded_libraries,
    preloaded,
)

SETTINGS_VARIABLE = "UMFPY_EMULATE_CUDA"

#: Where NVIDIA's kernel driver shows, on Linux and on the Windows Subsystem for Linux.
GPU_SIGNS = (Path("/dev/nvidiactl"), Path("/proc/driver/nvidia/version"), Path("/dev/dxg"))


def cuda_library() -> Path:
    """Return the path of the emulated ``libcuda.so.1``.

    Raises
    ------
    DriverUnavailable
        It was not built with this installation.
    """
    return find_library("_libcuda", "CUDA")


def is_emulated() -> bool:
    """Return whether the CUDA driver in this process is an emulated one."""
    return any(loaded.name.startswith("_libcuda.") for loaded in loaded_libraries())


def refuse_beside_real_gpu(force: bool) -> None:
    """Raise `DriverUnavailable` where this machine has a real GPU, unless `force`."""
    if force:
        return
    for sign in GPU_SIGNS:
        if sign.exists():
            raise DriverUnavailable(
                f"this machine has a real GPU ({sign} exists), and an emulated driver would hide "
                "it; pass force=True (`--force` on the command line) if that is what you want"
            )


def refuse_beside_real_driver(emulated: Path) -> None:
    """Raise `DriverUnavailable` where a library called libcuda is loaded that is not `emulated`."""
    for loaded in loaded_libraries():
        if loaded.name.startswith("_libcuda.") and loaded != emulated:
            raise DriverUnavailable(
                f"the emulated CUDA driver of another installation is already loaded ({loaded}); "
                "look for it in LD_PRELOAD"
            )
        if loaded.name.startswith("libcuda.so") and loaded != emulated:
            raise DriverUnavailable(
                f"the real CUDA driver is already loaded in this process ({loaded}); call "
                "umfpy.emulate before anything imports CUDA, or start the program with "
                "`umfpy emulate cuda -- PROGRAM`"
            )


def cuda_settings(
    memory: int | str, devices: int, capability: str = "9.0", report: bool = False
) -> str:
    """Return the settings of a CUDA driver as the library reads them (``model/settings.h``).

    Raises
    ------
    InvalidArgument
        A value that no device could have.
    """
    common = device_settings(memory, devices, report)
    major, _, minor = capability.partition(".") if isinstance(capability, str) else ("", "", "")
    if not (major.isdecimal() and minor.isdecimal() and int(major) < 100 and int(minor) < 10):
        raise InvalidArgument(f"capability must look like 9.0, not {capability!r}")
    return f"{common};capability={major}.{minor}"


def preload_environment(
    library: Path, settings: str, base: dict[str, str] | None = None
) -> dict[str, str]:
    """Return `base` (by default this process's environment) with the emulated driver preloaded.

    Raises
    ------
    InvalidArgument
        The loader cannot preload from such a path.
    """
    text = str(library)
    if " " in text or ":" in text:
        raise InvalidArgument(
            f"LD_PRELOAD cannot name {text!r}, which has a space or a colon in it; "
            "install umfpy elsewhere, or pass children=False"
        )
    environment = dict(os.environ if base is None else base)
    environment["LD_PRELOAD"] = preloaded(library, environment)
    environment[SETTINGS_VARIABLE] = settings
    return environment
