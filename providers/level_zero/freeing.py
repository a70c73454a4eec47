"""How memory is given back: at once, when the device is done with it, or some time later."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from umfpy.arguments import check_choice
from umfpy.errors import NotSupported
from umfpy.providers.level_zero.constants import Flag
from umfpy.providers.level_zero.devices import Device
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.structs import (
    ze_driver_memory_free_ext_properties_t,
    ze_driver_properties_t,
    ze_memory_free_ext_desc_t,
)

#: ``ze_driver_memory_free_policy_ext_flags_t`` by umfpy's word.
_POLICIES: Mapping[str, int] = {
    "default": 0,
    "blocking": Flag.ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE,
    "deferred": Flag.ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE,
}


class FreePolicy:
    """What `LevelZeroProvider.free` does.

    Raises
    ------
    InvalidArgument
        There is no such policy.
    NotSupported
        The driver does not know it (Memory Free Policies extension).
    """

    def __init__(self, driver: LevelZeroDriver, device: Device, name: str) -> None:
        self._driver = driver
        self._flags = _POLICIES[check_choice(name, _POLICIES, "free_policy")]
        if self._flags and not self._flags & _known_policies(driver, device):
            raise NotSupported(
                f"the driver of {device} has no {name} free; use free_policy='default'"
            )

    def free(self, context: int, ptr: int) -> None:
        """Give an allocation back: zeMemFree, or zeMemFreeExt with the policy."""
        if not self._flags:
            self._driver.call("zeMemFree", context, ptr)
            return
        policy = ze_memory_free_ext_desc_t(freePolicy=self._flags)
        self._driver.call("zeMemFreeExt", context, policy, ptr)


def _known_policies(driver: LevelZeroDriver, device: Device) -> int:
    """Return the flags that the driver has: zeDriverGetProperties with its extension."""
    found, policies = ze_driver_properties_t(), ze_driver_memory_free_ext_properties_t()
    found.chain(policies)
    driver.call("zeDriverGetProperties", device.driver, ctypes.byref(found))
    return int(policies.freePolicies)
