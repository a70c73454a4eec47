"""What is held is counted to the byte, whatever is done with it, and never exceeds a capacity."""

from __future__ import annotations

import functools
import random

import pytest

import umfpy
from umfpy.provider import Capability
from umfpy.testing import CHECKS, check_provider
from umfpy.trace.metered import Metered

MIB = 1 << 20
UNIT = 2 * MIB
PAGE = umfpy.HostProvider().granularity()


class WithoutChunks(umfpy.HostProvider):
    """Host memory as it would be of somebody who knows nothing of addresses without memory."""

    def __init__(self):
        super().__init__()
        self.capabilities &= ~Capability.RESERVE


@pytest.fixture
def vmm():
    umfpy.emulate("cuda", memory="1GiB")
    provider = umfpy.CudaVmmProvider()
    yield provider
    assert provider.live_count() == 0
    provider.close()


def test_a_decommitted_piece_is_not_counted_twice_when_it_is_freed():
    metered = Metered(WithoutChunks())
    ptr = metered.alloc(4 * PAGE)
    metered.split(ptr, 4 * PAGE, PAGE)
    metered.decommit(ptr, PAGE)
    metered.decommit(ptr, PAGE)
    assert metered.held_bytes == 3 * PAGE
    metered.free(ptr, PAGE)
    assert metered.held_bytes == 3 * PAGE
    with pytest.raises(umfpy.InvalidArgument):
        metered.free(ptr, PAGE)
    rest = ptr + PAGE
    metered.dalloc(rest, 3 * PAGE)
    metered.commit(rest, 3 * PAGE)
    assert metered.held_bytes == 3 * PAGE
    # Of a merged piece some parts may have memory and some not.
    metered.split(rest, 3 * PAGE, PAGE)
    metered.decommit(rest, PAGE)
    metered.dalloc(rest + PAGE, 2 * PAGE)
    metered.merge(rest, rest + PAGE, 3 * PAGE)
    assert metered.held_bytes == 2 * PAGE
    metered.free(rest, 3 * PAGE)
    assert metered.held_bytes == 0
    assert metered.peak_bytes == 4 * PAGE
    assert (metered.allocs, metered.frees) == (1, 4)


def test_a_free_that_fails_leaves_the_count():
    class Fails(WithoutChunks):
        fails = False

        def free(self, ptr, size):
            if self.fails:
                raise umfpy.DriverError("munmap", 1)
            super().free(ptr, size)

    upstream = Fails()
    metered = Metered(upstream)
    ptr = metered.alloc(2 * PAGE)
    metered.split(ptr, 2 * PAGE, PAGE)
    metered.decommit(ptr, PAGE)
    upstream.fails = True
    for at in (ptr, ptr + PAGE):
        with pytest.raises(umfpy.DriverError):
            metered.free(at, PAGE)
    assert metered.held_bytes == PAGE
    upstream.fails = False
    metered.free(ptr, PAGE)
    assert metered.held_bytes == PAGE
    metered.free(ptr + PAGE, PAGE)
    assert metered.held_bytes == metered.frees - 3 == 0


def test_addresses_cost_nothing_and_chunks_are_the_truth(vmm):
    metered = Metered(vmm)
    ptr = metered.reserve(64 * MIB)
    assert metered.held_bytes == 0
    metered.split(ptr, 64 * MIB, 8 * MIB)
    metered.commit(ptr, 8 * MIB, clear=False, chunk_size=4 * MIB)
    assert metered.held_bytes == vmm.reserved_bytes == 8 * MIB
    assert [chunk.size for chunk in metered.chunks(ptr, 8 * MIB)] == [4 * MIB] * 2
    metered.commit(ptr, 8 * MIB)
    target = metered.reserve(8 * MIB)
    metered.remap([(ptr, 8 * MIB)], target, 8 * MIB)
    assert metered.held_bytes == metered.peak_bytes == 8 * MIB
    metered.free(ptr, 8 * MIB)
    metered.free(ptr + 8 * MIB, 56 * MIB)
    assert metered.held_bytes == 8 * MIB
    assert metered.extend(target, 8 * MIB, 1)
    assert metered.held_bytes == 10 * MIB
    metered.free(target, 8 * MIB + 1)
    odd = metered.alloc(1)
    assert metered.held_bytes - metered.kept_bytes == UNIT
    metered.free(odd, 1)


def test_what_is_kept_for_reuse_is_held(vmm):
    metered = Metered(vmm)
    ptr = metered.alloc(8 * MIB)
    metered.decommit(ptr, 8 * MIB)
    assert metered.held_bytes == metered.kept_bytes == 8 * MIB
    other = metered.alloc(16 * MIB)  # of chunks of 4 MiB, of which none is kept
    assert metered.held_bytes == metered.peak_bytes == vmm.reserved_bytes == 24 * MIB
    assert metered.trim(2 * MIB) == 6 * MIB
    assert metered.trim() == UNIT
    assert metered.held_bytes == 16 * MIB
    assert metered.peak_bytes == 24 * MIB
    metered.free(other, 16 * MIB)
    metered.free(ptr, 8 * MIB)


def test_a_capacity_holds_for_all_that_takes_memory(vmm):
    metered = Metered(vmm, capacity=16 * MIB)
    ptr = metered.reserve(32 * MIB)
    with pytest.raises(umfpy.OutOfMemoryError, match="capacity") as caught:
        metered.commit(ptr, 32 * MIB)
    assert (caught.value.requested, caught.value.limit) == (32 * MIB, 16 * MIB)
    metered.split(ptr, 32 * MIB, 12 * MIB)
    metered.commit(ptr, 12 * MIB)
    assert metered.memory_info() == (4 * MIB, 16 * MIB)
    with pytest.raises(umfpy.OutOfMemoryError, match=r"12\.00 MiB are held"):
        metered.alloc(4 * MIB + 1)
    grown = metered.alloc(2 * MIB)
    with pytest.raises(umfpy.OutOfMemoryError):
        metered.extend(grown, 2 * MIB, 4 * MIB)
    assert metered.extend(grown, 2 * MIB, 2 * MIB)
    # What is kept goes first: the device has no more than the capacity.
    metered.decommit(ptr, 12 * MIB)
    assert metered.kept_bytes == 12 * MIB
    other = metered.alloc(10 * MIB)
    assert vmm.reserved_bytes == metered.held_bytes == 14 * MIB
    assert metered.peak_bytes == 16 * MIB
    for at, size in ((grown, 4 * MIB), (other, 10 * MIB), (ptr, 12 * MIB)):
        metered.free(at, size)
    metered.free(ptr + 12 * MIB, 20 * MIB)
    assert metered.held_bytes == metered.kept_bytes


def test_a_source_that_cannot_grow_in_place_says_so():
    metered = Metered(WithoutChunks(), capacity=PAGE)
    ptr = metered.alloc(PAGE)
    assert not metered.extend(ptr, PAGE, PAGE)
    assert metered.trim() == metered.kept_bytes == 0
    metered.free(ptr, PAGE)


@pytest.mark.parametrize("seed", range(4))
def test_the_count_is_what_the_provider_reserves_of_the_device(seed, vmm):
    rng = random.Random(seed)
    metered = Metered(vmm)
    pieces: dict[int, tuple[int, bool]] = {}
    peak = 0
    for _ in range(300):
        action = rng.choice(["alloc", "reserve", "toggle", "free", "split", "remap", "trim"])
        size = UNIT * rng.randint(1, 8)
        if action == "alloc":
            pieces[metered.alloc(size)] = size, True
        elif action == "reserve":
            pieces[metered.reserve(size)] = size, False
        elif action == "trim":
            metered.trim(rng.choice([0, 8 * MIB]))
        elif pieces:
            ptr = rng.choice(list(pieces))
            size, backed = pieces[ptr]
            if action == "free":
                metered.free(ptr, size)
                del pieces[ptr]
            elif action == "toggle":
                (metered.decommit if backed else metered.commit)(ptr, size)
                pieces[ptr] = size, not backed
            elif action == "split" and not backed and size > UNIT:
                metered.split(ptr, size, UNIT)
                pieces[ptr] = UNIT, False
                pieces[ptr + UNIT] = size - UNIT, False
            elif action == "remap" and backed:
                to = metered.reserve(size)
                metered.remap([(ptr, size)], to, size)
                pieces[ptr], pieces[to] = (size, False), (size, True)
        assert metered.held_bytes == vmm.reserved_bytes
        behind = sum(size for size, backed in pieces.values() if backed)
        assert metered.held_bytes - metered.kept_bytes == behind
        peak = max(peak, metered.held_bytes)
        assert metered.peak_bytes == peak
    for ptr, (size, _) in pieces.items():
        metered.free(ptr, size)
    assert metered.held_bytes == metered.kept_bytes


def test_it_keeps_the_contract_and_answers_as_what_it_measures(vmm):
    shared = functools.partial(umfpy.HostProvider, shared=True)
    for upstream in (shared, WithoutChunks, umfpy.HostProvider, umfpy.CudaVmmProvider):
        measured = []

        def factory(upstream=upstream, measured=measured):
            measured.append(Metered(upstream()))
            return measured[-1]

        report = check_provider(
            factory,
            skip={"close_keeps_memory"} | {n for n, c in CHECKS.items() if c.second_process},
            live_count=lambda metered: metered.upstream.live_count(),
        )
        report.raise_if_failed()
        assert all(each.held_bytes == each.kept_bytes for each in measured)
        for each in measured:
            each.upstream.close()
    metered = Metered(umfpy.HostProvider(shared=True))
    ptr = metered.alloc(PAGE)
    payload = metered.ipc_export(ptr, PAGE)
    assert metered.ipc_size(payload) == PAGE
    assert len(metered.ipc_descriptors(payload)) == 1
    metered.ipc_release(payload)
    with pytest.raises(umfpy.IpcError):
        metered.ipc_open(payload)
    with pytest.raises(umfpy.NotSupported, match="used by its address"):
        metered.buffer(ptr, PAGE)
    metered.free(ptr, PAGE)
    assert metered.driver == "host"
    assert Metered(vmm).driver == "cuda"
    assert Metered(vmm).ipc_scope() == vmm.ipc_scope()
