"""NVIDIA's driver, the binding to it, and its devices."""

from __future__ import annotations

import ctypes
from typing import Any

from umfpy.cli.checks.finding import Finding, State, installed_version
from umfpy.errors import DriverUnavailable, UmfpyError
from umfpy.providers.cuda import CudaProvider
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.emulated.library import GPU_SIGNS, is_emulated


def check() -> Finding:
    """Open every device."""
    bindings = installed_version("cuda-bindings")
    facts: dict[str, Any] = {"cuda_bindings": bindings}
    if bindings is None:
        return _without_bindings(facts)
    try:
        driver = CudaDriver()
        facts["driver_version"] = _version(driver.call("cuDriverGetVersion"))
        facts["emulated"] = is_emulated()
        count = driver.call("cuDeviceGetCount")
        facts["devices"] = [_device(driver, ordinal) for ordinal in range(count)]
    except DriverUnavailable as error:
        state = State.PROBLEM if has_gpu() else State.ABSENT
        return Finding("CUDA", state, str(error), facts, "" if has_gpu() else "try it: umfpy demo")
    except UmfpyError as error:
        return Finding(
            "CUDA", State.PROBLEM, str(error), facts, "see whether nvidia-smi works, and restart"
        )
    kind = "emulated " if facts["emulated"] else ""
    return Finding("CUDA", State.OK, f"{count} {kind}device{'' if count == 1 else 's'}", facts)


def has_gpu() -> bool:
    """Return whether this machine has an NVIDIA GPU, working or not."""
    return any(sign.exists() for sign in GPU_SIGNS)


def _without_bindings(facts: dict[str, Any]) -> Finding:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Finding(
            "CUDA",
            State.PROBLEM if has_gpu() else State.ABSENT,
            "neither a CUDA driver nor the binding to one",
            facts,
            'pip install "umfpy[cuda13]"; without a GPU it runs on an emulated one',
        )
    version = ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    facts["driver_version"] = _version(version.value)
    extra = "cuda13" if version.value >= 13000 else "cuda12"
    return Finding(
        "CUDA",
        State.PROBLEM,
        f"a driver for CUDA {facts['driver_version']}, but no binding to it",
        facts,
        f'pip install "umfpy[{extra}]"',
    )


def _version(number: int) -> str:
    """Return cuDriverGetVersion's number as people write it: 1000 x major + 10 x minor."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _device(driver: CudaDriver, ordinal: int) -> dict[str, Any]:
    attributes = driver.bindings.CUdevice_attribute
    handle = driver.call("cuDeviceGet", ordinal)

    def attribute(name: str) -> int:
        return int(driver.call("cuDeviceGetAttribute", getattr(attributes, name), handle))

    name: bytes = driver.call("cuDeviceGetName", 256, handle)
    major = attribute("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR")
    minor = attribute("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR")
    provider = CudaProvider(ordinal)
    free, total = provider.memory_info()
    facts = {
        "ordinal": ordinal,
        "name": name.split(b"\0")[0].decode(),
        "uuid": provider.ipc_scope(),
        "compute_capability": f"{major}.{minor}",
        "free_bytes": free,
        "total_bytes": total,
        "granularity_bytes": provider.granularity(),
        "recommended_granularity_bytes": provider.recommended_granularity(),
        "virtual_memory_management": bool(
            attribute("CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED")
        ),
    }
    provider.close()
    return facts
