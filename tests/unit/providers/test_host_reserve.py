"""HostProvider with addresses and memory apart."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from tests.fakes.resident import resident
from umfpy.errors import DriverError, InvalidArgument, NotSupported, OutOfMemoryError
from umfpy.provider import Capability, ChunkInfo
from umfpy.providers.host import FileProvider, HostProvider
from umfpy.providers.host.system import System

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
CHUNK = 2 * MIB


@pytest.fixture
def provider():
    provider = HostProvider()
    yield provider
    assert provider.live_count() == 0


def chunks(provider, ptr, size):
    return [(chunk.ptr - ptr, chunk.size) for chunk in provider.chunks(ptr, size)]


def test_addresses_cost_nothing(provider):
    size = 1 << 40
    ptr = provider.reserve(size, 1 << 30)
    assert ptr % (1 << 30) == 0
    assert provider.properties(ptr)["committed"] is False
    far = ptr + size - 16 * MIB
    provider.split(ptr, size, size - 16 * MIB)
    provider.commit(far, 16 * MIB)
    provider.copy(far, b"\1" * 16 * MIB, 16 * MIB)
    assert resident(far - 16 * MIB, 32 * MIB) == 16 * MIB
    provider.decommit(far, 16 * MIB)
    assert resident(far, 16 * MIB) == 0
    provider.merge(ptr, far, size)
    provider.free(ptr, size)


def test_too_many_addresses_are_an_error_with_the_numbers(provider):
    with pytest.raises(OutOfMemoryError, match=f"host cannot reserve {1 << 50} bytes") as caught:
        provider.reserve(1 << 50)
    assert (caught.value.requested, caught.value.provider) == (1 << 50, "host")
    provider.close()
    with pytest.raises(InvalidArgument, match="closed"):
        provider.reserve(PAGE)


@pytest.mark.parametrize("undone", [False, True])
def test_nobody_gets_at_reserved_addresses(undone):
    program = (
        "import ctypes, sys, umfpy; host = umfpy.HostProvider(); ptr = host.reserve(8192); "
        + ("host.commit(ptr, 8192); host.decommit(ptr, 8192); " if undone else "")
        + "ctypes.string_at(ptr, 1)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == -signal.SIGSEGV


def test_chunks_end_at_multiples_of_2_mib_and_where_memory_ends(provider):
    ptr = provider.reserve(16 * MIB, CHUNK)
    provider.split(ptr, 16 * MIB, 5 * MIB)
    middle = ptr + 5 * MIB
    provider.split(middle, 11 * MIB, 6 * MIB)
    provider.commit(middle, 6 * MIB)
    every = [(5 * MIB, MIB), (6 * MIB, CHUNK), (8 * MIB, CHUNK), (10 * MIB, MIB)]
    assert chunks(provider, ptr, 16 * MIB) == every
    assert chunks(provider, ptr, 7 * MIB) == [(5 * MIB, MIB), (6 * MIB, MIB)]
    assert provider.chunks(middle + PAGE, 1) == [ChunkInfo(middle + PAGE, PAGE)]
    provider.dalloc(middle, 6 * MIB)
    assert chunks(provider, ptr, 16 * MIB) == every
    provider.decommit(middle, 6 * MIB)
    assert provider.chunks(ptr, 16 * MIB) == []
    for at, size in ((0, 5), (5, 6), (11, 5)):
        provider.free(ptr + at * MIB, size * MIB)
    ptr = provider.alloc(100)
    assert provider.chunks(ptr, 100) == [ChunkInfo(ptr, PAGE)]
    provider.free(ptr, 100)
    assert provider.chunks(ptr, PAGE) == []


def test_memory_goes_where_it_is_needed(provider, peek):
    ptrs = [provider.alloc(4 * MIB) for _ in range(4)]
    for ptr in ptrs:
        provider.copy(ptr, b"\1" * 4 * MIB, 4 * MIB)
    target = provider.reserve(8 * MIB)
    provider.remap([(ptrs[0], 4 * MIB), (ptrs[2], 4 * MIB)], target, 8 * MIB)
    assert [resident(ptr, 4 * MIB) >> 20 for ptr in (*ptrs, target)] == [0, 4, 0, 4, 0]
    provider.copy(target, b"\2" * 8 * MIB, 8 * MIB)
    assert peek(ptrs[1], 4 * MIB) == peek(ptrs[3], 4 * MIB) == b"\1" * 4 * MIB
    provider.commit(ptrs[0], 4 * MIB)
    assert peek(ptrs[0], 4 * MIB) == bytes(4 * MIB)
    for ptr, size in ((target, 8 * MIB), *((ptr, 4 * MIB) for ptr in ptrs)):
        provider.free(ptr, size)


def test_what_cannot_be_dropped_is_gone_before_it_is_seen_again(provider, peek, monkeypatch):
    """The memory has moved; a kernel that keeps the old pages for now is no reason to fail."""
    call, fails = System.call, True

    def refused(system, name, *args):
        if name == "madvise" and fails:
            raise system.failed(name, errno.EIO)
        return call(system, name, *args)

    ptr = provider.alloc(2 * PAGE)
    provider.split(ptr, 2 * PAGE, PAGE)
    for at in (ptr, ptr + PAGE):
        provider.copy(at, b"old", 3)
    target = provider.reserve(2 * PAGE)
    monkeypatch.setattr(System, "call", refused)
    provider.remap([(ptr, PAGE), (ptr + PAGE, PAGE)], target, 2 * PAGE)
    assert peek(target, 3) == bytes(3)
    assert provider.chunks(ptr, 2 * PAGE) == []
    with pytest.raises(DriverError, match="madvise"):
        provider.commit(ptr, PAGE)
    assert provider.properties(ptr)["committed"] is False
    fails = False
    provider.commit(ptr, PAGE)
    assert peek(ptr, PAGE) == bytes(PAGE)
    for at, size in ((ptr, PAGE), (ptr + PAGE, PAGE), (target, 2 * PAGE)):
        provider.free(at, size)
    assert provider._backed.spoiled(0, 1 << 48) == []


def test_a_chunk_size_is_checked_though_there_is_none(provider):
    ptr = provider.reserve(4 * PAGE)
    for wanted in (0, -PAGE, PAGE + 1):
        with pytest.raises(InvalidArgument, match=f"chunk_size is {wanted}; .* {PAGE} bytes"):
            provider.commit(ptr, 4 * PAGE, chunk_size=wanted)
    provider.commit(ptr, 4 * PAGE, chunk_size=2 * PAGE, clear=False)
    provider.free(ptr, 4 * PAGE)


def test_only_private_memory_of_the_systems_pages_is_apart_from_its_addresses(tmp_path):
    for other in (HostProvider(shared=True), FileProvider(tmp_path / "file", keep=False)):
        assert Capability.RESERVE not in other.capabilities
        for call in (
            lambda other=other: other.reserve(PAGE),
            lambda other=other: other.chunks(1 << 30, PAGE),
            lambda other=other: other.remap([], 1 << 30, PAGE),
        ):
            with pytest.raises(NotSupported, match="RESERVE"):
                call()
        other.close()
