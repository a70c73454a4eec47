"""The emulated Level Zero driver, for Python."""

from __future__ import annotations

import ctypes
from pathlib import Path

from umfpy.providers.emulated import level_zero_library as _library
from umfpy.providers.emulated.control import EmulatedDriver


class EmulatedLevelZero(EmulatedDriver):
    """The emulated Level Zero driver of this process, as `umfpy.emulate` returns it.

    Kinds that `leaks` knows: allocations, host, shared, reservations, handles, mappings, exports,
    opens, contexts, queues, lists, fences, event_pools, events.

    Attributes
    ----------
    has_loader
        Is there a loader, to which the driver was announced?  If not, the driver stands in for it.
    """

    title = "Level Zero"
    out_of_memory = 0x70000003  #: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY

    def __init__(self, path: Path, settings: str) -> None:
        _library.announce(path, settings)
        self.has_loader = _library.load_loader()
        super().__init__(path, settings)
        self._driver.umfpyEmuResidency.restype = ctypes.c_uint64
        self._driver.umfpyEmuResidency.argtypes = [ctypes.c_uint64, ctypes.c_uint]

    def configure(self, settings: str) -> None:
        """Start again with `settings`, and tell the loader of the driver again.

        Whoever restored the environment since, as tests do, has taken the news back.
        """
        super().configure(settings)
        _library.announce(self.library, settings)

    @classmethod
    def find(cls, force: bool) -> Path:
        """Return where the library is, if this process and this machine are free for it."""
        path = _library.driver_library()
        _library.refuse_beside_real_gpu(force)
        _library.refuse_beside_real_driver()
        return path

    def residency(self, ptr: int) -> dict[int, int]:
        """Return where the allocation that holds `ptr` was made resident: device to count.

        The count goes up with each zeContextMakeMemoryResident and down with each
        zeContextEvictMemory; devices with none are left out.
        """
        counts = {
            device: int(self._driver.umfpyEmuResidency(ptr, device))
            for device in range(self.devices)
        }
        return {device: count for device, count in counts.items() if count}

    def preload_environment(self, base: dict[str, str] | None = None) -> dict[str, str]:
        """Return an environment in which a new process runs on the same emulated driver."""
        return _library.environment(self.library, self._settings, self.has_loader, base)
