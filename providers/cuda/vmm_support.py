"""What a device can do in virtual memory management, and in which units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umfpy.errors import NotSupported
from umfpy.providers.cuda.context import find_device
from umfpy.providers.cuda.driver import CudaDriver

#: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR (cuda.h), also as a bit of what a device supports.
POSIX_DESCRIPTOR = 1


def device_has(driver: CudaDriver, device: Any, attribute: str, bits: int = -1) -> bool:
    """Return whether the device has an attribute, or one of these bits of it.

    cuDeviceGetAttribute, CU_DEVICE_ATTRIBUTE_...
    """
    names = driver.bindings.CUdevice_attribute
    which = getattr(names, f"CU_DEVICE_ATTRIBUTE_{attribute}")
    return bool(int(driver.call("cuDeviceGetAttribute", which, device)) & bits)


def check_ability(driver: CudaDriver, device: Any, attribute: str, what: str) -> None:
    """Raise NotSupported unless the device has an attribute."""
    if not device_has(driver, device, attribute):
        raise NotSupported(
            f"this CUDA device has no {what} (CU_DEVICE_ATTRIBUTE_{attribute} is 0); use "
            "CudaProvider, which needs none"
        )


def check_peers(driver: CudaDriver, device: Any, peers: Sequence[int]) -> None:
    """Raise unless each peer can reach the memory of the device: cuDeviceCanAccessPeer.

    Raises
    ------
    InvalidArgument
        There is no such peer.
    NotSupported
        It is there, and cannot.
    """
    for ordinal in peers:
        peer = find_device(driver, ordinal)
        if int(peer) != int(device) and not driver.call("cuDeviceCanAccessPeer", peer, device):
            raise NotSupported(
                f"CUDA device {ordinal} cannot reach the memory of device {int(device)}: leave it "
                "out of peers, and copy through the host"
            )


def physical_properties(driver: CudaDriver, ordinal: int, *, shareable: bool, rdma: bool) -> Any:
    """Return the CUmemAllocationProp of memory on a device.

    Shareable memory can be exported as a file descriptor; with `rdma` other devices on the bus
    may read it, where the device supports that for such memory.
    """
    names = driver.bindings
    prop = names.CUmemAllocationProp()
    prop.type = names.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = names.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = ordinal
    if shareable:
        kinds = names.CUmemAllocationHandleType
        prop.requestedHandleTypes = kinds.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    prop.allocFlags.gpuDirectRDMACapable = int(rdma)
    return prop


def granularity(driver: CudaDriver, properties: Any, option: str) -> int:
    """Return a unit in bytes, MINIMUM or RECOMMENDED: cuMemGetAllocationGranularity."""
    names = driver.bindings.CUmemAllocationGranularity_flags
    which = getattr(names, f"CU_MEM_ALLOC_GRANULARITY_{option}")
    return int(driver.call("cuMemGetAllocationGranularity", properties, which))
