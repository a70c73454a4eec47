"""What all emulated drivers have in common: where they are, and how they are loaded."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from pathlib import Path

from umfpy.arguments import check_flag, check_number
from umfpy.errors import DriverUnavailable, InvalidArgument
from umfpy.units import parse_size

HERE = Path(__file__).resolve().parent
_MOST_DEVICES = 16


def find_library(name: str, title: str, folder: Path = HERE) -> Path:
    """Return the path of the library that was built under `name`.

    Raises
    ------
    DriverUnavailable
        It was not built with this installation.
    """
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    path = folder / f"{name}{suffix}"
    if not path.exists():
        raise DriverUnavailable(
            f"the emulated {title} driver is not built: {path} is missing; it is built on Linux "
            "only, with a C compiler: reinstall umfpy, or run `pip install -e .` in its sources"
        )
    return path


def loaded_libraries() -> set[Path]:
    """Return every file that is mapped into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {Path(line.split(maxsplit=5)[5]) for line in lines if "/" in line}


def preloaded(library: Path, environment: Mapping[str, str]) -> str:
    """Return an ``LD_PRELOAD`` with `library` first, before what `environment` has there."""
    others = environment.get("LD_PRELOAD", "").split(":")
    return ":".join([str(library), *(name for name in others if name not in ("", str(library)))])


def device_settings(
    memory: int | str, devices: int, report: bool = False, *, least_devices: int = 1
) -> str:
    """Return the settings that every driver knows (``model/settings.h``).

    Raises
    ------
    InvalidArgument
        A value that no device could have.
    """
    size = parse_size(memory)
    if not 2 << 20 <= size <= 1 << 44:
        raise InvalidArgument(f"memory must be from 2 MiB to 16 TiB, not {size} bytes")
    devices = check_number(devices, "devices", least=least_devices, most=_MOST_DEVICES)
    return f"memory={size};devices={devices};report={int(check_flag(report, 'report'))}"
