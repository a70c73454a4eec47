"""Memory of Level Zero drivers, through Intel's loader."""

from umfpy.providers.level_zero.provider import LevelZeroProvider
from umfpy.providers.level_zero.vmm import LevelZeroVmmProvider

__all__ = ["LevelZeroProvider", "LevelZeroVmmProvider"]
