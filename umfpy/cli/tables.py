"""The providers and pools that a command can be pointed at.

To add one, add a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from umfpy.coarse import CoarseProvider
from umfpy.pools.pool import Pool
from umfpy.pools.proxy import ProxyPool
from umfpy.pools.slab import SlabPool

if TYPE_CHECKING:
    from umfpy.pools.base import ProviderPool
    from umfpy.provider import Provider
    from umfpy.trace.trace import Trace

#: Makes the pool that a trace is replayed on, with this name.
PoolMaker: TypeAlias = "Callable[[Trace, str, Provider], ProviderPool]"

#: The largest page that a manager can have.
_LARGEST_PAGE = (1 << 62) - 1


@dataclass(frozen=True)
class ProviderChoice:
    """A provider that ``--provider`` names."""

    make: Callable[[], Provider]
    driver: str | None = None  #: what ``umfpy.emulate`` can stand in for; None: needs no driver
    virtual: bool = False  #: whether addresses and memory can be had apart


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


def _coarse(provider: Provider, *, name: str) -> ProviderPool:
    return ProxyPool(CoarseProvider(provider), name=name)


def _preset(configuration: str) -> Callable[..., ProviderPool]:
    def make(provider: Provider, *, name: str) -> ProviderPool:
        from umfpy.manager import MemoryManager

        return MemoryManager(provider, configuration, name=name)

    return make


def _any_trace(make: Callable[..., ProviderPool]) -> PoolMaker:
    """Return what makes the same pool for every trace."""
    return lambda trace, name, provider: make(provider, name=name)


def _single_arena(trace: Trace, name: str, provider: Provider) -> ProviderPool:
    from umfpy.manager import MemoryConfiguration, MemoryManager

    info = provider.memory_info()
    most = _LARGEST_PAGE if info is None else info[1]
    # A page for what no device holds could never be had, and then nothing would be served.
    largest = max((size for size in trace.sizes if size <= most), default=0)
    return MemoryManager(provider, MemoryConfiguration.single_arena(largest), name=name)


PROVIDERS: Mapping[str, ProviderChoice] = {
    "cuda": ProviderChoice(_cuda, driver="cuda"),
    "cuda_async": ProviderChoice(_cuda_async, driver="cuda"),
    "cuda_vmm": ProviderChoice(_cuda_vmm, driver="cuda", virtual=True),
    "level_zero": ProviderChoice(_level_zero, driver="level_zero"),
    "level_zero_vmm": ProviderChoice(_level_zero_vmm, driver="level_zero", virtual=True),
    "host": ProviderChoice(_host, virtual=True),
    "opencl": ProviderChoice(_opencl),
}

POOLS: Mapping[str, PoolMaker] = {
    "default": _any_trace(Pool),
    "coarse": _any_trace(_coarse),
    "manager": _any_trace(_preset("sub_slices")),
    "manager:exclusive_pages": _any_trace(_preset("exclusive_pages")),
    "manager:single_arena": _single_arena,
    "proxy": _any_trace(ProxyPool),
    "slab": _any_trace(SlabPool),
    "vmm": _any_trace(partial(Pool, virtual=True)),
}

#: Pools that need a provider with virtual memory.
VIRTUAL_POOLS = frozenset({"vmm"})

#: Where a pool takes memory from if the user names no provider, for pools that need a certain one.
DEFAULT_PROVIDERS: Mapping[str, str] = {"vmm": "cuda_vmm"}
