"""The providers and pools that a command can be pointed at.

To add one, add a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from umfpy.coarse import CoarseProvider
from umfpy.pools.pool import Pool
from umfpy.pools.proxy import ProxyPool
from umfpy.pools.slab import SlabPool

if TYPE_CHECKING:
    from umfpy.pools.base import ProviderPool
    from umfpy.provider import Provider


@dataclass(frozen=True)
class ProviderChoice:
    """A provider that ``--provider`` names."""

    make: Callable[[], Provider]
    driver: str | None = None  #: what ``umfpy.emulate`` can stand in for; None: needs no driver


def _cuda() -> Provider:
    from umfpy.providers.cuda import CudaProvider

    return CudaProvider()


def _cuda_async() -> Provider:
    from umfpy.providers.cuda import CudaAsyncProvider

    return CudaAsyncProvider()


def _cuda_vmm() -> Provider:
    from umfpy.providers.cuda import CudaVmmProvider

    return CudaVmmProvider()


def _host() -> Provider:
    from umfpy.providers.host import HostProvider

    return HostProvider()


def _level_zero() -> Provider:
    from umfpy.providers.level_zero import LevelZeroProvider

    return LevelZeroProvider()


def _level_zero_vmm() -> Provider:
    from umfpy.providers.level_zero import LevelZeroVmmProvider

    return LevelZeroVmmProvider()


def _opencl() -> Provider:
    from umfpy.providers.opencl import OpenCLProvider

    return OpenCLProvider()


def _coarse(provider: Provider) -> ProviderPool:
    return ProxyPool(CoarseProvider(provider))


def _manager(configuration: str) -> Callable[[Provider], ProviderPool]:
    def make(provider: Provider) -> ProviderPool:
        from umfpy.manager import MemoryManager

        return MemoryManager(provider, configuration)

    return make


PROVIDERS: Mapping[str, ProviderChoice] = {
    "cuda": ProviderChoice(_cuda, driver="cuda"),
    "cuda_async": ProviderChoice(_cuda_async, driver="cuda"),
    "cuda_vmm": ProviderChoice(_cuda_vmm, driver="cuda"),
    "level_zero": ProviderChoice(_level_zero, driver="level_zero"),
    "level_zero_vmm": ProviderChoice(_level_zero_vmm, driver="level_zero"),
    "host": ProviderChoice(_host),
    "opencl": ProviderChoice(_opencl),
}

POOLS: Mapping[str, Callable[[Provider], ProviderPool]] = {
    "default": Pool,
    "coarse": _coarse,
    "manager": _manager("sub_slices"),
    "manager:exclusive_pages": _manager("exclusive_pages"),
    "proxy": ProxyPool,
    "slab": SlabPool,
}
