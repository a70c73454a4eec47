"""OpenCL: the binding, the platforms and their devices."""

from __future__ import annotations

import importlib
from typing import Any

from umfpy.cli.checks.finding import Finding, State, installed_version

_NO_PLATFORM = "on Debian: apt-get install pocl-opencl-icd (the CPU as a device), or a GPU's driver"


def check() -> Finding:
    """List the devices of every platform."""
    version = installed_version("pyopencl")
    facts: dict[str, Any] = {"pyopencl": version}
    if version is None:
        return Finding("OpenCL", State.ABSENT, "no pyopencl", facts, 'pip install "umfpy[opencl]"')
    try:
        cl = importlib.import_module("pyopencl")
    except ImportError as error:
        return Finding(
            "OpenCL", State.PROBLEM, f"pyopencl does not load: {error}", facts, _NO_PLATFORM
        )
    try:
        platforms = cl.get_platforms()
        facts["devices"] = [_device(d) for platform in platforms for d in platform.get_devices()]
    except cl.Error as error:
        return Finding("OpenCL", State.ABSENT, f"no platform: {error}", facts, _NO_PLATFORM)
    count = len(facts["devices"])
    if not count:
        return Finding("OpenCL", State.ABSENT, "no device", facts, _NO_PLATFORM)
    return Finding("OpenCL", State.OK, f"{count} device{'' if count == 1 else 's'}", facts)


def _device(device: Any) -> dict[str, Any]:
    return {
        "name": device.name.strip(),
        "platform": device.platform.name.strip(),
        "version": device.version.strip(),
        "total_bytes": device.global_mem_size,
        # The driver gives bits.
        "sub_buffer_alignment_bytes": device.mem_base_addr_align // 8,
    }
