"""`Allocation.buffer`: the memory as pyopencl takes it."""

from __future__ import annotations

import gc

import pytest

import umfpy


def test_it_is_the_memory_of_the_allocation_and_keeps_it(kind):
    with umfpy.Pool(umfpy.CoarseProvider(kind.provider())) as pool:
        buffer = pool.allocate(4096).buffer
        gc.collect()

        assert pool.stats().live_allocations == 1
        assert buffer.size == 4096
        del buffer
        assert pool.stats().live_allocations == 0


def test_freed_memory_has_none(kind):
    with umfpy.Pool(kind.provider()) as pool:
        allocation = pool.allocate(4096)
        allocation.free()
        with pytest.raises(umfpy.StaleHandle):
            _ = allocation.buffer


def test_memory_used_by_its_address_has_none():
    with (
        umfpy.Pool(umfpy.HostProvider()) as pool,
        pool.allocate(64) as allocation,
        pytest.raises(umfpy.NotSupported, match="by its address"),
    ):
        _ = allocation.buffer
