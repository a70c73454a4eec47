"""The kinds of OpenCL memory that this machine has, and providers of each.

PoCL (Debian: pocl-opencl-icd) has shared virtual memory and buffers.  Unified shared memory comes
with a GPU of Intel's, or with its runtime for CPUs, whose ICD then has to be found:
``pip install intel-opencl-rt intel-cmplr-lib-rt``, with OCL_ICD_VENDORS and LD_LIBRARY_PATH set.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass

from umfpy import DriverUnavailable, OpenCLProvider
from umfpy.providers.opencl.binding import OpenCL
from umfpy.providers.opencl.devices import all_devices
from umfpy.providers.opencl.offers import offers_of


@dataclass(frozen=True)
class Kind:
    """One kind of memory, and the first device that has it."""

    device: int
    mode: str
    memory_type: str

    def provider(self, **options: object) -> OpenCLProvider:
        options = {"mode": self.mode, "memory_type": self.memory_type} | options
        return OpenCLProvider(self.device, **options)

    def __str__(self) -> str:
        return f"{self.mode}-{self.memory_type}"


def find_kinds() -> tuple[list[Kind], str]:
    """Return every kind that there is, and why there is none."""
    try:
        driver = OpenCL()
        devices = all_devices(driver)
    except DriverUnavailable as absent:
        return [], str(absent)
    found: dict[tuple[str, str], Kind] = {}
    for ordinal, device in enumerate(devices):
        for offer in offers_of(driver, device):
            kind = Kind(ordinal, offer.mode, offer.memory_type)
            found.setdefault((offer.mode, offer.memory_type), kind)
    return list(found.values()), ""


KINDS, ABSENT = find_kinds()

#: Patterns that no two places have in common.
_numbers = itertools.count(1)


def pattern(size: int) -> bytes:
    """Return bytes that differ from those of other calls, and by position."""
    return hashlib.shake_128(str(next(_numbers)).encode()).digest(size)
