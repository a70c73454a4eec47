"""What kinds of memory a device has, and which one to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umfpy.arguments import check_choice
from umfpy.errors import InvalidArgument
from umfpy.providers.opencl.binding import OpenCL
from umfpy.providers.opencl.devices import describe
from umfpy.providers.opencl.extension import EXTENSION, usm_types

MODES = ("auto", "usm", "svm", "buffer")
MEMORY_TYPES = ("device", "shared", "host")


@dataclass(frozen=True)
class Offer:
    """One kind of memory: how it is taken, and who may touch it.

    ``"svm"`` with ``"shared"`` is fine-grained: host and device may touch it at any time;
    coarse-grained memory must be mapped first, and counts as ``"device"``.
    """

    mode: str
    memory_type: str

    def __str__(self) -> str:
        return f"{self.mode} ({self.memory_type})"


def offers_of(driver: OpenCL, device: Any) -> list[Offer]:
    """Return what the device reports, the best first."""
    found = []
    if EXTENSION in device.extensions.split():
        types = usm_types(driver, device)
        found += [Offer("usm", kind) for kind in MEMORY_TYPES if kind in types]
    fine, coarse = _svm_grains(driver, device)
    if fine:
        found.append(Offer("svm", "shared"))
    if coarse:
        found.append(Offer("svm", "device"))
    return [*found, Offer("buffer", "device")]


def choose(driver: OpenCL, device: Any, mode: str, memory_type: str | None) -> Offer:
    """Return the best offer of that mode and type; any will do for ``"auto"`` and None.

    Raises
    ------
    InvalidArgument
        The device has none such; the message lists what it has.
    """
    check_choice(mode, MODES, "mode")
    if memory_type is not None:
        check_choice(memory_type, MEMORY_TYPES, "memory_type")
    offers = offers_of(driver, device)
    for offer in offers:
        if mode in ("auto", offer.mode) and memory_type in (None, offer.memory_type):
            return offer
    wanted = mode if memory_type is None else f"{mode} ({memory_type})"
    raise InvalidArgument(
        f"{describe(device)} has no {wanted} memory; it has {', '.join(map(str, offers))}"
    )


def _svm_grains(driver: OpenCL, device: Any) -> tuple[bool, bool]:
    """Return whether there is fine- and coarse-grained memory: CL_DEVICE_SVM_CAPABILITIES."""
    names = driver.cl.device_svm_capabilities
    try:
        reported = device.svm_capabilities
    except driver.cl.Error:
        # Before OpenCL 2.0 the question itself is unknown.
        return False, False
    fine = bool(reported & names.FINE_GRAIN_BUFFER)
    return fine, bool(reported & names.COARSE_GRAIN_BUFFER)
