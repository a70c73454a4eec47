"""The ladder of each provider: which rungs are its own, and what is read after each.

The gentlest keep the contents (dalloc), or may (purge_lazy: each byte is the old one or zero); the
others leave zeros.  What lies beside, in the same allocation or in another one, keeps every byte.
"""

from __future__ import annotations

import ctypes
import os
from unittest import mock

import pytest

from umfpy import (
    Capability,
    CoarseProvider,
    CudaAsyncProvider,
    CudaProvider,
    CudaVmmProvider,
    FileProvider,
    FixedProvider,
    HostProvider,
    LevelZeroProvider,
    LevelZeroVmmProvider,
    emulate,
)

#: What an access after the rung sees, once `commit` has brought back what the rung took away.
OLD, OLD_OR_ZERO, ZERO = "old", "old or zero", "zero"
LADDER = {
    "dalloc": (Capability.DALLOC, OLD),
    "purge_lazy": (Capability.PURGE_LAZY, OLD_OR_ZERO),
    "decommit": (Capability.COMMIT, ZERO),
    "purge_force": (Capability.PURGE_FORCE, ZERO),
}

ALL = tuple(LADDER)
NOT_LAZY = ("dalloc", "decommit", "purge_force")
NONE = ()

#: Each kind of provider, and the rungs that are its own; the framework replaces the others.
NATIVE = {
    "host private": (lambda folder: HostProvider(), ALL),
    "host shared": (lambda folder: HostProvider(shared=True), NOT_LAZY),
    "file": (lambda folder: FileProvider(folder / "memory", keep=False), NOT_LAZY),
    "fixed": (lambda folder: FixedProvider(bytearray(1 << 20)), NONE),
    "coarse": (lambda folder: CoarseProvider(HostProvider()), NONE),
    "cuda device": (lambda folder: CudaProvider(), NONE),
    "cuda host": (lambda folder: CudaProvider(memory_type="host"), NONE),
    "cuda managed": (lambda folder: CudaProvider(memory_type="managed"), NONE),
    "cuda async": (lambda folder: CudaAsyncProvider(), NONE),
    "cuda vmm": (lambda folder: CudaVmmProvider(), NOT_LAZY),
    "level_zero device": (lambda folder: LevelZeroProvider(), NONE),
    "level_zero vmm": (lambda folder: LevelZeroVmmProvider(), NOT_LAZY),
}

CASES = [(kind, rung) for kind, (_, rungs) in NATIVE.items() for rung in rungs]


@pytest.fixture
def provider(request, tmp_path):
    """The provider of that kind, on an emulated device where it needs one."""
    driver = request.param.split()[0]
    with mock.patch.dict(os.environ):
        if driver in ("cuda", "level_zero"):
            emulate(driver, memory="4GiB")
        provider = NATIVE[request.param][0](tmp_path)
        yield provider
        provider.close()


@pytest.mark.parametrize("provider", NATIVE, indirect=True)
def test_the_rungs_that_are_native(provider, request):
    native = NATIVE[request.node.callspec.params["provider"]][1]
    announced = tuple(rung for rung, (needs, _) in LADDER.items() if needs in provider.capabilities)
    assert announced == native


def write(provider, ptr, data):
    if Capability.HOST_ACCESS in provider.capabilities:
        ctypes.memmove(ptr, data, len(data))
    else:
        provider.copy(ptr, data, len(data))


def read(provider, ptr, size):
    if Capability.HOST_ACCESS in provider.capabilities:
        return ctypes.string_at(ptr, size)
    data = bytearray(size)
    provider.copy(data, ptr, size)
    return bytes(data)


def pattern(seed, size):
    """Bytes without a zero, so that zeros are seen."""
    return bytes((seed + at * 7) % 255 + 1 for at in range(size))


@pytest.mark.parametrize("together", [True, False], ids=["one allocation", "three allocations"])
@pytest.mark.parametrize(
    ("provider", "rung"), CASES, indirect=["provider"], ids=[" ".join(case) for case in CASES]
)
def test_what_is_read_after_a_rung(provider, rung, together):
    size = provider.granularity()
    if together:
        low = provider.alloc(3 * size)
        provider.split(low, 3 * size, size)
        provider.split(low + size, 2 * size, size)
        pieces = [low, low + size, low + 2 * size]
    else:
        pieces = [provider.alloc(size) for _ in range(3)]
    old = {ptr: pattern(at, size) for at, ptr in enumerate(pieces)}
    for ptr, data in old.items():
        write(provider, ptr, data)
    middle = pieces[1]
    for _ in range(2):
        getattr(provider, rung)(middle, size)
        for ptr in (pieces[0], pieces[2]):
            assert read(provider, ptr, size) == old[ptr]
        if rung in ("dalloc", "decommit"):
            provider.commit(middle, size)
        seen = read(provider, middle, size)
        if LADDER[rung][1] == OLD:
            assert seen == old[middle]
        elif LADDER[rung][1] == ZERO:
            assert seen == bytes(size)
        else:
            assert all(byte in (0, was) for byte, was in zip(seen, old[middle], strict=True))
        write(provider, middle, old[middle])
        assert read(provider, middle, size) == old[middle]
    for ptr in pieces:
        provider.free(ptr, size)
    assert provider.live_count() == 0
