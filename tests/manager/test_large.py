"""Requests beyond the largest page of a preset."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.fakes.provider import FakeProvider
from tests.manager.support import MIB
from umfpy import InvalidArgument, LevelZeroProvider, MemoryManager, OutOfMemoryError, emulate
from umfpy.manager import BufferTooBig, MemoryProperties
from umfpy.provider import Provider
from umfpy.trace import Trace
from umfpy.trace.replay import replay
from umfpy.trace.shipped import load_shipped

GIB = 1 << 30
PRESETS = ["sub_slices", "exclusive_pages"]
FOLDER = Path(__file__).parents[3] / "shared" / "traces"
TRACES = sorted(FOLDER.glob("*.csv.gz"))


@pytest.mark.parametrize("preset", PRESETS)
def test_whatever_the_device_holds_is_served(preset: str) -> None:
    provider = FakeProvider(capacity=64 * MIB)
    with MemoryManager(provider, preset) as manager:
        for size in (16 * MIB + 1, 40 * MIB, 64 * MIB):
            with manager.reserve(size):
                kinds = [pool.kind for pool in manager.pool_usage() if pool.usage.number_allocs]
                assert kinds == ["direct"]
                assert manager.memory_usage().bytes_reserved == -(-size // 512) * 512
        with pytest.raises(BufferTooBig) as caught:
            manager.reserve(64 * MIB + 1)
        assert caught.value.largest == 64 * MIB
        assert manager.configure("sub_slices"), "nothing lives"
        manager.reserve(40 * MIB).release()


@pytest.mark.parametrize("preset", PRESETS)
def test_a_device_of_unknown_size_says_itself_what_it_has(preset: str) -> None:
    provider = FakeProvider()
    assert provider.memory_info() is None
    with MemoryManager(provider, preset) as manager:
        manager.reserve(128 * MIB).release()
        manager.reserve(30 * GIB).release()
        with pytest.raises(OutOfMemoryError, match=r"has no 1\.00 PiB") as caught:
            manager.reserve(1 << 50)
        assert not isinstance(caught.value, BufferTooBig)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_largest_page_that_is_given_bounds_requests(preset: str) -> None:
    provider = FakeProvider()
    with MemoryManager(provider, preset, {"max_page_size": 64 * MIB}) as manager:
        manager.reserve(64 * MIB).release()
        with pytest.raises(BufferTooBig):
            manager.reserve(64 * MIB + 1)
    given = {"max_page_size": 64 * MIB, "largest_request": "1GiB"}
    with MemoryManager(provider, preset, given) as manager:
        manager.reserve(GIB).release()
        with pytest.raises(BufferTooBig):
            manager.reserve(GIB + 1)
    for wrong in (0, -1, 1 << 62):
        with pytest.raises(InvalidArgument):
            MemoryProperties.of(provider, {"largest_request": wrong})


def test_an_idle_page_serves_what_nearly_fills_it() -> None:
    provider = FakeProvider()
    with MemoryManager(provider, "sub_slices") as manager:
        manager.reserve(400 * MIB).release()
        with manager.reserve(330 * MIB):
            assert manager.memory_usage().bytes_reserved == 400 * MIB
            manager.check("full")
        with manager.reserve(300 * MIB):
            assert manager.memory_usage().bytes_reserved == 300 * MIB, "the other went for it"
        assert provider.counts["alloc"] == 2


def test_an_idle_page_of_its_own_goes_by_itself() -> None:
    with MemoryManager(FakeProvider(), "sub_slices", thrifty=False) as manager:
        manager.reserve(400 * MIB).release()
        with manager.reserve(100):
            held = manager.memory_usage().bytes_reserved - 400 * MIB
            for _ in range(2 * 5000):
                manager.reserve(100).release()
            assert manager.memory_usage().bytes_reserved == held


@pytest.fixture
def level_zero() -> Iterator[Provider]:
    """Memory of an emulated device of 80 GiB; a test that leaves something behind fails."""
    with mock.patch.dict(os.environ):
        emulated = emulate("level_zero", memory="80GiB")
        provider = LevelZeroProvider()
        yield provider
        provider.close()
        assert emulated.leaks() == {}


def check_replay(trace: Trace, preset: str, provider: Provider) -> None:
    with MemoryManager(provider, preset) as manager:
        result = replay(trace, manager)
        assert (result.failed, result.refusal) == (0, "")
        assert result.allocations == trace.allocations
        manager.check("full")


def scaled(trace: Trace, factor: int) -> Trace:
    """Return the same trace with larger requests."""
    sizes = array("Q", (size * factor for size in trace.sizes))
    return replace(trace, sizes=sizes, peak_live_bytes=trace.peak_live_bytes * factor)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_device_that_does_not_say_what_is_free(preset: str, level_zero: Provider) -> None:
    assert level_zero.memory_info() is None
    trace = scaled(load_shipped(), 20)
    assert max(trace.sizes) > 4 * 128 * MIB, "beyond any page that is chosen without a total"
    check_replay(trace, preset, level_zero)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("file", TRACES or [None], ids=lambda file: file and file.stem)
def test_recorded_traces_on_level_zero(
    file: Path | None, preset: str, level_zero: Provider
) -> None:
    if file is None:
        pytest.skip("../shared/traces is absent")
    check_replay(Trace.load(file), preset, level_zero)
