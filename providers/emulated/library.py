"""Where the emulated drivers are, and whether this process and this machine are free for one."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from umfpy.errors import DriverUnavailable, InvalidArgument
from umfpy.units import parse_size

SETTINGS_VARIABLE = "UMFPY_EMULATE_CUDA"

_HERE = Path(__file__).resolve().parent
#: Where NVIDIA's kernel driver shows, on Linux and on the Windows Subsystem for Linux.
GPU_SIGNS = (Path("/dev/nvidiactl"), Path("/proc/driver/nvidia/version"), Path("/dev/dxg"))
_MOST_DEVICES = 16


def cuda_library() -> Path:
    """Return the path of the emulated ``libcuda.so.1``.

    Raises
    ------
    DriverUnavailable
        It was not built with this installation.
    """
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    path = _HERE / f"_libcuda{suffix}"
    if not path.exists():
        raise DriverUnavailable(
            f"the emulated CUDA driver is not built: {path} is missing; it is built on Linux only, "
            "with a C compiler: reinstall umfpy, or run `pip install -e .` in its sources"
        )
    return path


def is_emulated() -> bool:
    """Return whether the CUDA driver in this process is an emulated one."""
    return any(loaded.name.startswith("_libcuda.") for loaded in _loaded_libraries())


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
    for loaded in _loaded_libraries():
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


def _loaded_libraries() -> set[Path]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {Path(line.split(maxsplit=5)[5]) for line in lines if "/" in line}


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
    major, _, minor = capability.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and int(major) < 100 and int(minor) < 10):
        raise InvalidArgument(f"capability must look like 9.0, not {capability!r}")
    return f"{common};capability={major}.{minor}"


def device_settings(memory: int | str, devices: int, report: bool = False) -> str:
    """Return the settings that every driver knows.

    Raises
    ------
    InvalidArgument
        A value that no device could have.
    """
    size = parse_size(memory)
    if not 2 << 20 <= size <= 1 << 44:
        raise InvalidArgument(f"memory must be from 2 MiB to 16 TiB, not {size} bytes")
    if not 1 <= devices <= _MOST_DEVICES:
        raise InvalidArgument(f"devices must be from 1 to {_MOST_DEVICES}, not {devices}")
    return f"memory={size};devices={devices};report={int(report)}"


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
    others = [name for name in environment.get("LD_PRELOAD", "").split(":") if name != text]
    environment["LD_PRELOAD"] = ":".join([text, *filter(None, others)])
    environment[SETTINGS_VARIABLE] = settings
    return environment
