"""Pools over virtual memory on a real GPU: chunks move, contents do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from umfpy import CudaProvider, CudaVmmProvider, NotSupported, Pool

MIB = 1 << 20


@pytest.fixture
def provider(cuda: CudaProvider) -> Iterator[CudaVmmProvider]:
    try:
        made = CudaVmmProvider(cuda.device)
    except NotSupported as error:
        pytest.skip(f"no virtual memory management: {error}")
    yield made
    made.close()


@pytest.fixture
def pool(provider: CudaVmmProvider) -> Iterator[Pool]:
    with Pool(provider) as made:
        yield made
        made.check("full")


def pattern(size: int, seed: int) -> bytes:
    """Bytes that say where they belong."""
    unit = b"".join((seed * 1_000_003 + i).to_bytes(8, "little") for i in range(4096))
    return (unit * (size // len(unit) + 1))[:size]


def test_memory_moves_between_live_blocks_that_keep_every_byte(pool: Pool) -> None:
    provider = pool.provider
    pieces = [pool.allocate(16 * MIB) for _ in range(8)]
    for seed, piece in enumerate(pieces):
        provider.copy(piece.ptr, pattern(piece.size, seed), piece.size)
    kept = dict(enumerate(pieces[1::2]))
    del pieces, piece

    large = [pool.allocate(32 * MIB) for _ in range(2)]
    for seed, block in enumerate(large):
        provider.copy(block.ptr, pattern(block.size, 100 + seed), block.size)

    assert pool.stats().reserved_bytes == 128 * MIB
    seen = bytearray(32 * MIB)
    for index, piece in kept.items():
        provider.copy(seen, piece.ptr, piece.size)
        assert seen[: piece.size] == pattern(piece.size, 2 * index + 1)
    for seed, block in enumerate(large):
        provider.copy(seen, block.ptr, block.size)
        assert seen == pattern(block.size, 100 + seed)


def test_an_array_grows_in_place(pool: Pool) -> None:
    provider = pool.provider
    array = pool.allocate(MIB)
    provider.copy(array.ptr, pattern(MIB, 7), MIB)
    at = array.ptr
    while array.size < 512 * MIB:
        assert array.resize(array.size * 3 // 2)
    assert array.ptr == at
    assert pool.stats().peak_reserved_bytes < 1.1 * array.size
    seen = bytearray(MIB)
    provider.copy(seen, array.ptr, MIB)
    assert seen == pattern(MIB, 7)


def test_what_went_down_comes_back_as_zeros_if_asked(pool: Pool) -> None:
    provider = pool.provider
    first = pool.allocate(32 * MIB)
    provider.copy(first.ptr, pattern(first.size, 1), first.size)
    first.free()
    assert pool.trim(rung="decommit").rung == "decommit"
    again = pool.allocate(32 * MIB, zero=True)
    provider.synchronize()
    seen = bytearray(again.size)
    provider.copy(seen, again.ptr, again.size)
    assert not any(seen)


def test_kernels_run_on_memory_that_was_put_together(pool: Pool) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ModuleNotFoundError)
    from umfpy.integrations import cupy as plugin

    plugin.install(pool)
    try:
        small = [cupy.full(2 * MIB, i, dtype="float64") for i in range(16)]
        del small[::2]
        large = cupy.arange(8 * MIB, dtype="float64")
        assert float(large.sum()) == (8 * MIB - 1) * 8 * MIB / 2
        for index, array in enumerate(small):
            assert bool((array == 2 * index + 1).all())
        del small, array, large
        cupy.cuda.Device().synchronize()
    finally:
        plugin.uninstall()
