"""One provider of each kind, with the rungs that are its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

from tests.opencl.support import KINDS as OPENCL
from umfpy import (
    CoarseProvider,
    CudaAsyncProvider,
    CudaProvider,
    CudaVmmProvider,
    FileProvider,
    FixedProvider,
    HostProvider,
    LevelZeroProvider,
    LevelZeroVmmProvider,
    Provider,
)
from umfpy.providers.emulated import emulate
from umfpy.providers.emulated.control import EmulatedDriver

ALL = ("dalloc", "purge_lazy", "decommit", "purge_force", "free")
NOT_LAZY = ("dalloc", "decommit", "decommit", "purge_force", "free")
ONLY_FREE = ("free",) * 5


@dataclass(frozen=True)
class Kind:
    """A kind of provider, and what it takes for each rung, the gentlest first."""

    make: Callable[[Path], Provider]
    taken: tuple[str, ...]
    device: str = ""

    @property
    def lowers(self) -> bool:
        """Whether it has any rung but the last."""
        return self.taken != ONLY_FREE


def _coarse(make: Callable[[Path], Provider], folder: Path) -> Provider:
    return CoarseProvider(make(folder))


BASIC = {
    "host private": Kind(lambda folder: HostProvider(), ALL),
    "host shared": Kind(lambda folder: HostProvider(shared=True), NOT_LAZY),
    "file": Kind(lambda folder: FileProvider(folder / "memory", keep=False), NOT_LAZY),
    "fixed": Kind(lambda folder: FixedProvider(bytearray(32 << 20)), ONLY_FREE),
    "cuda device": Kind(lambda folder: CudaProvider(), ONLY_FREE, "cuda"),
    "cuda host": Kind(lambda folder: CudaProvider(memory_type="host"), ONLY_FREE, "cuda"),
    "cuda managed": Kind(lambda folder: CudaProvider(memory_type="managed"), ONLY_FREE, "cuda"),
    "cuda async": Kind(lambda folder: CudaAsyncProvider(), ONLY_FREE, "cuda"),
    "cuda vmm": Kind(lambda folder: CudaVmmProvider(), NOT_LAZY, "cuda"),
    "level_zero device": Kind(lambda folder: LevelZeroProvider(), ONLY_FREE, "level_zero"),
    "level_zero vmm": Kind(lambda folder: LevelZeroVmmProvider(), NOT_LAZY, "level_zero"),
}
COARSE = {
    f"coarse over {name}": Kind(partial(_coarse, kind.make), ONLY_FREE, kind.device)
    for name, kind in BASIC.items()
    if name in ("host private", "host shared", "file", "fixed", "cuda vmm", "level_zero vmm")
}
KINDS = {
    **BASIC,
    **COARSE,
    **{
        f"opencl {kind}": Kind(lambda folder, kind=kind: kind.provider(), ONLY_FREE)
        for kind in OPENCL
    },
}
LOWERING = [name for name, kind in KINDS.items() if kind.lowers]


@contextmanager
def provider_of(name: str, folder: Path) -> Iterator[Provider]:
    """Yield a provider of that kind; nothing may be left on an emulated device afterwards."""
    with device_of(name):
        provider = KINDS[name].make(folder)
        yield provider
        provider.close()
        if isinstance(provider, CoarseProvider):
            provider.upstream.close()


@contextmanager
def device_of(name: str) -> Iterator[EmulatedDriver | None]:
    """Yield the emulated driver that a kind needs, if any; nothing may be left on it."""
    device = KINDS[name].device
    with mock.patch.dict(os.environ):
        emulated = emulate(device, memory="4GiB") if device else None
        before = emulated.leaks() if emulated else None
        yield emulated
        if emulated is not None:
            emulated.clear_faults()
            assert emulated.leaks() == before


def write(provider: Provider, ptr: int, data: bytes) -> None:
    provider.copy(ptr, data, len(data))


def read(provider: Provider, ptr: int, size: int) -> bytes:
    data = bytearray(size)
    provider.copy(data, ptr, size)
    return bytes(data)


def pattern(ptr: int, size: int) -> bytes:
    """Bytes that no two places have in common."""
    return hashlib.shake_128(str(ptr).encode()).digest(size)
