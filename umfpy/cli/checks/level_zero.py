"""Level Zero: Intel's loader, the drivers that it finds, and their devices."""

from __future__ import annotations

from typing import Any

from umfpy.cli.checks.finding import Finding, State
from umfpy.errors import DriverUnavailable, UmfpyError
from umfpy.providers.level_zero import LevelZeroProvider
from umfpy.providers.level_zero.devices import Device, all_devices, memory_sizes
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.library import LOADER


def check() -> Finding:
    """Allocate on every device."""
    try:
        driver = LevelZeroDriver()
        devices = all_devices(driver)
        facts: dict[str, Any] = {
            "loader": LOADER,
            "drivers": len({device.driver for device in devices}),
            "devices": [_describe(driver, device) for device in devices],
        }
    except DriverUnavailable as error:
        return Finding("Level Zero", State.ABSENT, str(error))
    except UmfpyError as error:
        advice = "see whether xpu-smi discovery lists the devices, and restart"
        return Finding("Level Zero", State.PROBLEM, str(error), {"loader": LOADER}, advice)
    count = len(devices)
    return Finding("Level Zero", State.OK, f"{count} device{'' if count == 1 else 's'}", facts)


def _describe(driver: LevelZeroDriver, device: Device) -> dict[str, Any]:
    provider = LevelZeroProvider(device.index)
    facts = {
        "index": device.index,
        "name": device.name,
        "uuid": device.uuid,
        "total_bytes": sum(memory_sizes(driver, device)),
        "max_alloc_bytes": device.max_alloc_bytes,
        "granularity_bytes": provider.granularity(),
        "recommended_granularity_bytes": provider.recommended_granularity(),
    }
    provider.close()
    return facts
