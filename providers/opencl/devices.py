"""Which OpenCL device is meant."""

from __future__ import annotations

from typing import Any

from umfpy.arguments import as_number
from umfpy.errors import DriverUnavailable, InvalidArgument
from umfpy.providers.opencl.binding import INSTALL_PLATFORM, OpenCL

#: CL_PLATFORM_NOT_FOUND_KHR, the ICD loader's answer when nothing is installed, and
#: CL_DEVICE_NOT_FOUND, a platform's when it has nothing to offer (cl_ext.h, cl.h).
_NO_PLATFORM = -1001
_NO_DEVICE = -1


def all_devices(driver: OpenCL) -> list[Any]:
    """Return the devices of all platforms, in the loader's order: their indices are ordinals.

    Raises
    ------
    DriverUnavailable
        There is none; the message says what to install.
    """
    cl = driver.cl
    try:
        found = [device for platform in cl.get_platforms() for device in _devices(cl, platform)]
    except cl.Error as error:
        if error.code != _NO_PLATFORM:
            raise driver.failed(error.routine, error.code, str(error)) from error
        raise DriverUnavailable(f"there is no OpenCL platform here; {INSTALL_PLATFORM}") from error
    if not found:
        raise DriverUnavailable(f"no OpenCL platform here has a device; {INSTALL_PLATFORM}")
    return found


def _devices(cl: Any, platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error as error:
        if error.code != _NO_DEVICE:
            raise
        return []


def find_device(driver: OpenCL, wanted: Any, context: Any) -> tuple[int, Any]:
    """Return ordinal and ``pyopencl.Device`` of what the user wants.

    Parameters
    ----------
    wanted
        An ordinal, a part of one device's name or of its platform's, a ``pyopencl.Device``, or
        None for the context's first device, else the first GPU, else the first of all.
    context
        A ``pyopencl.Context`` that must have the device, or None.

    Raises
    ------
    InvalidArgument
        No device, or more than one, is meant; the message lists what there is.
    """
    if context is not None and not isinstance(context, driver.cl.Context):
        raise InvalidArgument(f"a context is a pyopencl.Context or None, not {context!r}")
    devices = all_devices(driver)
    index = as_number(wanted)
    if wanted is None:
        device = context.devices[0] if context is not None else _preferred(driver, devices)
    elif isinstance(wanted, driver.cl.Device):
        device = wanted
    elif isinstance(wanted, str):
        device = _by_name(devices, wanted)
    elif index is not None and 0 <= index < len(devices):
        device = devices[index]
    else:
        raise InvalidArgument(f"no OpenCL device {wanted!r}; there are {_listing(devices)}")
    if context is not None and device not in context.devices:
        raise InvalidArgument(f"the context has no device {describe(device)}")
    # A part of a partitioned device stands for the whole: it has no ordinal of its own.
    ordinal = devices.index(device) if device in devices else 0
    return ordinal, device


def describe(device: Any) -> str:
    """Return a device's name and its platform's."""
    return f"{device.name.strip()!r} of {device.platform.name.strip()!r}"


def _preferred(driver: OpenCL, devices: list[Any]) -> Any:
    gpu = driver.cl.device_type.GPU
    return next((device for device in devices if device.type & gpu), devices[0])


def _by_name(devices: list[Any], name: str) -> Any:
    if not name.strip() or (name.isdecimal() and int(name) < len(devices)):
        raise InvalidArgument(
            f"{name!r} is no name of a device: give a part of it, or an index as a number; there "
            f"are {_listing(devices)}"
        )
    found = [device for device in devices if name.lower() in describe(device).lower()]
    if len(found) != 1:
        number = "more than one OpenCL device is" if found else "no OpenCL device is"
        raise InvalidArgument(f"{number} called {name!r}; there are {_listing(devices)}")
    return found[0]


def _listing(devices: list[Any]) -> str:
    return ", ".join(f"{ordinal}: {describe(device)}" for ordinal, device in enumerate(devices))
