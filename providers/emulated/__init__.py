"""Emulated GPU drivers: real shared libraries on which unmodified programs run without a GPU.

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

from umfpy.errors import NotSupported
from umfpy.providers.emulated import library as _library
from umfpy.providers.emulated.cuda_control import CallCounts, EmulatedCuda, LiveObject

__all__ = ["CallCounts", "EmulatedCuda", "LiveObject", "emulate"]

_cuda: EmulatedCuda | None = None


def emulate(
    driver: str = "cuda",
    *,
    memory: int | str = "16GiB",
    devices: int = 1,
    capability: str = "9.0",
    report: bool = False,
    force: bool = False,
    children: bool = True,
) -> EmulatedCuda:
    """Load an emulated driver into this process, before anything loads the real one.

    A second call sets the same driver up anew: its counters, faults and clock are reset, and it
    is refused while memory is in use.

    Parameters
    ----------
    driver
        ``"cuda"``.
    memory
        Bytes of each device, or text such as ``"16GiB"``; 2 MiB to 16 TiB.  Costs nothing until it
        is written.
    devices
        How many, 1 to 16.
    capability
        Compute capability that the devices claim.
    report
        Say on standard error, when the process ends, what leaked and what was called.
    force
        Also on a machine with a real GPU, which this process then does not see.
    children
        Put ``LD_PRELOAD`` and ``UMFPY_EMULATE_CUDA`` into ``os.environ``, so that the processes
        started from here (multiprocessing's spawn among them) run on an emulated driver too.

    Raises
    ------
    DriverUnavailable
        The library is not built, a real driver is already loaded, or the machine has a real GPU.
    InvalidArgument
        A setting makes no sense, or the driver is in use; nothing was changed.
    NotSupported
        There is no emulation of `driver`.
    """
    global _cuda
    if driver != "cuda":
        raise NotSupported(f"there is no emulated {driver!r} driver; there is: cuda")
    settings = _library.cuda_settings(memory, devices, capability, report)
    if _cuda is None:
        path = _library.cuda_library()
        _library.refuse_beside_real_gpu(force)
        _library.refuse_beside_real_driver(path)
        loaded = EmulatedCuda(path, settings)
        loaded.configure(settings)
        _cuda = loaded
    else:
        _cuda.configure(settings)
    if children:
        os.environ.update(
            _cuda.preload_environment({"LD_PRELOAD": os.environ.get("LD_PRELOAD", "")})
        )
    return _cuda
