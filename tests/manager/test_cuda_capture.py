"""Captures of streams of the emulated driver: what replays read and write, and what stays."""

from __future__ import annotations

import gc
import threading

import pytest

from tests.manager.device import LAYOUT, SIZE, Device
from tests.manager.support import KIB, MIB, pattern
from umfpy import DriverError, InvalidArgument, MemoryManager, StaleHandle
from umfpy.manager import CaptureWouldBreak
from umfpy.manager.captured_graph import CapturedGraph

STRICT = ("thread-local", "global")
UNSUPPORTED, INVALIDATED = 900, 901

#: Who waits for a stream that is being captured spoils the capture.
SPOILT = (
    pytest.mark.refuses("cuStreamSynchronize", UNSUPPORTED),
    pytest.mark.refuses("cuStreamEndCapture", INVALIDATED),
)


class Surroundings:
    """Slices around those of a capture, each with its own pattern, which nobody may change."""

    def __init__(self, gpu: Device, manager: MemoryManager, count: int) -> None:
        self.gpu, self.manager = gpu, manager
        self.held = {seed: manager.reserve(SIZE) for seed in range(1000, 1000 + count)}
        for seed in self.held:
            gpu.write(self.place(seed), pattern(seed, SIZE))

    def place(self, seed: int) -> int:
        return self.manager.storage(self.held[seed]).ptr

    def places(self) -> set[int]:
        return {self.place(seed) for seed in self.held}

    def leave_gaps(self) -> None:
        for seed in list(self.held)[1::2]:
            del self.held[seed]

    def check(self) -> None:
        for seed in self.held:
            assert self.gpu.read(self.place(seed)) == pattern(seed, SIZE), seed


def record(gpu: Device, manager: MemoryManager, source: int, target: int) -> CapturedGraph:
    """Copy `source` to a scratch slice, set its first half, and copy that to `target`."""
    stream = gpu.streams[0]
    with manager.capture(stream) as graph, manager.reserve(SIZE, stream=stream) as scratch:
        place = manager.storage(scratch).ptr
        gpu.copy(place, source, stream)
        gpu.set(place, 0xAA, stream, SIZE // 2)
        gpu.copy(target, place, stream)
    return graph


@pytest.mark.parametrize("mode", ["auto", "persistent"])
def test_replays_stay_on_the_memory_that_was_pinned(gpu: Device, mode: str) -> None:
    with gpu.manager() as manager:
        manager.mode(mode)
        source, target = manager.reserve(SIZE), manager.reserve(SIZE)
        read_from, written = (manager.storage(one).ptr for one in (source, target))
        before = Surroundings(gpu, manager, 6)
        before.leave_gaps()
        graph = record(gpu, manager, read_from, written)
        (pin,) = [manager.storage(pin).ptr for pin in graph.pins]
        after = Surroundings(gpu, manager, 12)  # reuses whatever is free
        assert pin not in after.places()
        for seed in (1, 2):
            gpu.write(read_from, pattern(seed, SIZE))
            graph.launch(gpu.streams[seed])
            gpu.wait(gpu.streams[seed])
            half = SIZE // 2
            expected = b"\xaa" * half + pattern(seed, SIZE)[half:]
            assert gpu.read(pin) == expected
            assert gpu.read(written) == expected
            assert gpu.read(read_from) == pattern(seed, SIZE)
            before.check()
            after.check()
        assert gpu.emu.calls["cuGraphLaunch"] == 2
        graph.close()
        source.release()
        target.release()
        before.held.clear()
        after.held.clear()
        manager.cleanup(True)


def test_pins_last_as_long_as_the_graph(gpu: Device) -> None:
    with gpu.manager() as manager:
        with manager.capture(gpu.streams[0]) as graph:
            manager.reserve(SIZE).release()
        place = manager.storage(graph.pins[0]).ptr
        manager.cleanup(True)
        assert manager.owns(place), "a launch would touch it"
        graph.launch(gpu.streams[0])
        del graph
        assert not manager.owns(place)
        assert "graphs" not in gpu.emu.leaks()
        manager.mode("persistent")
        with manager.reserve(SIZE) as again:
            assert manager.storage(again).ptr == place


@pytest.mark.parametrize("mode", STRICT)
def test_growth_that_would_break_the_capture_is_refused(gpu: Device, mode: str) -> None:
    stream = gpu.streams[0]
    with gpu.manager(persistent="enforced") as manager:
        manager.reserve(SIZE, stream=stream).release()
        with manager.capture(stream, mode) as graph:
            handle = manager.reserve(SIZE, stream=stream)
            gpu.set(manager.storage(handle).ptr, 7, stream)
            usage = manager.memory_usage()
            gpu.emu.reset_calls()
            for ask in (manager.reserve, manager.malloc, manager.allocate):
                with pytest.raises(CaptureWouldBreak, match=f"open \\({mode}.*'relaxed'"):
                    ask(2 * SIZE)
            with pytest.raises(CaptureWouldBreak, match="cannot wait for the device"):
                manager.synchronize()
            assert (manager.cleanup(True), manager.trim(), manager.configure(LAYOUT)) == (0, 0, 0)
            assert not gpu.emu.calls, "none of it got to the driver"
            assert manager.memory_usage() == usage
            manager.check("full")
        graph.launch(stream)
        gpu.wait(stream)
        assert gpu.read(manager.storage(handle).ptr) == b"\x07" * SIZE
        graph.close()
        handle.release()


def test_a_relaxed_capture_may_grow(gpu: Device) -> None:
    with gpu.manager() as manager:
        allocations = gpu.emu.calls["cuMemAlloc_v2"]
        with manager.capture(gpu.streams[0]) as graph:
            for size in (SIZE, 3 * SIZE, MIB):
                manager.reserve(size).release()
        assert gpu.emu.calls["cuMemAlloc_v2"] == allocations + 3
        assert len(graph.pins) == 3
        graph.close()


def test_other_managers_of_the_device_keep_still_as_well(gpu: Device) -> None:
    first, second, third = gpu.manager(), gpu.manager(), gpu.manager(name="closing")
    idle = [second.reserve(SIZE, stream=stream) for stream in gpu.streams]
    late = third.reserve(SIZE)
    idle.clear()
    graph_of_second = record(gpu, second, *_two_places(gpu, second))
    graph_of_second.launch(gpu.streams[1])
    with first.capture(gpu.streams[0]) as graph:
        with first.reserve(SIZE) as handle:
            gpu.set(first.storage(handle).ptr, 1, gpu.streams[0])
        gpu.emu.reset_calls()
        assert (second.cleanup(True), second.trim(), second.configure(LAYOUT)) == (0, 0, 0)
        with pytest.raises(CaptureWouldBreak):
            second.synchronize()
        with pytest.raises(CaptureWouldBreak):
            graph_of_second.close()
        assert graph_of_second.pins
        with second.reserve(60 * KIB, stream=gpu.streams[2]):
            assert second.memory_usage().bytes_reserved, "it may use more"
        with pytest.warns(ResourceWarning, match="'closing' was closed with 1 live"):
            third.close()
        late.release()
        del graph_of_second  # waits for the end
        gc.collect()
        for name in ("cuCtxSynchronize", "cuMemFree_v2", "cuGraphExecDestroy"):
            assert not gpu.emu.calls[name]
        held = gpu.emu.live()
    assert len(graph.pins) == 1
    assert gpu.emu.calls["cuGraphExecDestroy"] == 1, "after the capture, what had to wait is done"
    assert gpu.emu.calls["cuMemFree_v2"] == 1
    assert gpu.emu.live() != held
    graph.close()
    second.close()
    first.close()


def _two_places(gpu: Device, manager: MemoryManager) -> tuple[int, int]:
    """Two addresses with a page of their own, for a graph that nobody looks at."""
    both = manager.reserve(2 * SIZE)
    start = manager.storage(both).ptr
    gpu.write(start, bytes(2 * SIZE))
    return start, start + SIZE


@pytest.mark.parametrize("mode", STRICT)
def test_other_managers_cannot_grow_in_a_strict_capture(gpu: Device, mode: str) -> None:
    first, second = gpu.manager(), gpu.manager()
    with first.capture(gpu.streams[0], mode) as graph, pytest.raises(CaptureWouldBreak):
        second.reserve(SIZE)
    graph.close()
    second.reserve(SIZE).release()
    second.close()
    first.close()


@pytest.mark.parametrize(
    "call", ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"]
)
def test_a_call_that_fails_gives_everything_back(gpu: Device, call: str) -> None:
    with gpu.manager() as manager:
        gpu.emu.fail(call, nth=1, error=999)
        with pytest.raises(DriverError) as caught, manager.capture(gpu.streams[0]):  # noqa: PT012
            manager.reserve(SIZE).release()
            gpu.set(_place(manager), 1, gpu.streams[0])
        assert caught.value.code == 999
        del caught
        _assert_nothing_left(gpu, manager)


def _place(manager: MemoryManager) -> int:
    with manager.reserve(SIZE) as handle:
        return manager.storage(handle).ptr


def _assert_nothing_left(gpu: Device, manager: MemoryManager) -> None:
    gpu.emu.clear_faults()
    if int(gpu.call("cuStreamIsCapturing", gpu.streams[0])):
        # The failing call was the one that would have ended it.
        gpu.call("cuGraphDestroy", gpu.call("cuStreamEndCapture", gpu.streams[0]))
    assert not manager.capturing
    assert manager.mode() == "auto"
    assert manager.memory_usage().number_allocs == 0
    manager.cleanup(True)
    assert manager.memory_usage().bytes_reserved == 0
    assert gpu.emu.live() == gpu.before
    with manager.capture(gpu.streams[0]) as graph:
        gpu.set(_place(manager), 1, gpu.streams[0])
    graph.close()


@pytest.mark.refuses("cuStreamSynchronize", UNSUPPORTED)
@pytest.mark.refuses("cuStreamEndCapture", INVALIDATED)
def test_a_capture_that_somebody_spoils_gives_everything_back(gpu: Device) -> None:
    with gpu.manager() as manager:
        stream = gpu.streams[0]
        with pytest.raises(DriverError) as caught, manager.capture(stream) as graph:  # noqa: PT012
            gpu.set(_place(manager), 1, stream)
            with pytest.raises(DriverError):
                gpu.wait(stream)
        assert caught.value.code == INVALIDATED
        assert graph.pins == []
        with pytest.raises(StaleHandle, match="failed"):
            graph.launch(gpu.streams[0])
        del caught
        _assert_nothing_left(gpu, manager)


@pytest.mark.parametrize("spoilt", [False, pytest.param(True, marks=SPOILT)])
def test_an_error_in_the_body_gives_everything_back(gpu: Device, spoilt: bool) -> None:
    def fail(manager: MemoryManager) -> None:
        with manager.capture(gpu.streams[0]):
            gpu.set(_place(manager), 1, gpu.streams[0])
            manager.free(manager.malloc(200))
            if spoilt:
                gpu.wait(gpu.streams[0])
            raise RuntimeError("as told")

    with gpu.manager() as manager:
        with pytest.raises(DriverError if spoilt else RuntimeError):
            fail(manager)
        gc.collect()
        _assert_nothing_left(gpu, manager)


def test_several_streams_in_one_capture(gpu: Device) -> None:
    """Work forks to a second stream and joins again; scratch of both is pinned."""
    first, second, _ = gpu.streams
    fork, join = (gpu.call("cuEventCreate", 2) for _ in range(2))
    with gpu.manager() as manager:
        source, target = manager.reserve(SIZE), manager.reserve(2 * SIZE)
        read_from, written = manager.storage(source).ptr, manager.storage(target).ptr
        with manager.capture(first) as graph:
            places = []
            gpu.call("cuEventRecord", fork, first)
            gpu.call("cuStreamWaitEvent", second, fork, 0)
            for number, stream in enumerate((first, second)):
                with manager.reserve(SIZE, stream=stream) as scratch:
                    places.append(manager.storage(scratch).ptr)
                    gpu.copy(places[-1], read_from, stream)
                    gpu.set(places[-1], 0x10 + number, stream, 8)
                    gpu.copy(written + number * SIZE, places[-1], stream)
            gpu.call("cuEventRecord", join, second)
            gpu.call("cuStreamWaitEvent", first, join, 0)
        assert len(set(places)) == 2, "the second stream may run beside the first"
        assert {manager.storage(pin).ptr for pin in graph.pins} == set(places)
        around = Surroundings(gpu, manager, 8)
        for seed in (3, 4):
            gpu.write(read_from, pattern(seed, SIZE))
            graph.launch(first)
            gpu.wait(first)
            tail = pattern(seed, SIZE)[8:]
            assert gpu.read(written) == b"\x10" * 8 + tail
            assert gpu.read(written + SIZE) == b"\x11" * 8 + tail
            around.check()
        graph.close()
        around.held.clear()
        source.release()
        target.release()
    for event in (fork, join):
        gpu.call("cuEventDestroy", event)


def test_two_graphs_never_share_memory(gpu: Device) -> None:
    with gpu.manager() as manager:
        graphs = []
        for number, stream in enumerate(gpu.streams):
            with manager.capture(stream) as graph:
                gpu.set(_place(manager), number + 1, stream)
            graphs.append(graph)
        places = [manager.storage(pin).ptr for graph in graphs for pin in graph.pins]
        assert len(set(places)) == 3
        for _ in range(2):
            for graph, stream in zip(graphs, gpu.streams, strict=True):
                graph.launch(stream)
            for stream in gpu.streams:
                gpu.wait(stream)
            assert [gpu.read(place) for place in places] == [bytes([n]) * SIZE for n in (1, 2, 3)]
        for graph in graphs:
            graph.close()


def test_memory_without_handles_outlives_its_free(gpu: Device) -> None:
    stream = gpu.streams[0]
    with gpu.manager() as manager:
        with manager.capture(stream) as graph:
            inside, after = manager.allocate(SIZE), manager.allocate(SIZE)
            raw = manager.malloc(SIZE)
            places = [inside.ptr, after.ptr, raw]
            for number, place in enumerate(places):
                gpu.set(place, number, stream)
            inside.free()
        assert {manager.storage(pin).ptr for pin in graph.pins} == set(places)
        after.free()
        manager.free(raw, SIZE)
        manager.mode("persistent")
        around = Surroundings(gpu, manager, 6)
        assert not around.places() & set(places)
        for _ in range(2):
            graph.launch(stream)
            gpu.wait(stream)
            assert [gpu.read(place) for place in places] == [bytes([n]) * SIZE for n in range(3)]
            around.check()
        graph.close()
        around.held.clear()


def test_a_capture_that_is_ended_inside_its_block_is_no_graph(gpu: Device) -> None:
    with gpu.manager() as manager:
        with (  # noqa: PT012
            pytest.raises(InvalidArgument, match="ended inside"),
            manager.capture(gpu.streams[0]) as graph,
        ):
            gpu.set(_place(manager), 1, gpu.streams[0])
            manager.capture_end().clear()
        with pytest.raises(StaleHandle):
            graph.launch(gpu.streams[0])
        _assert_nothing_left(gpu, manager)


def test_the_modes_of_a_capture_have_names(gpu: Device) -> None:
    with gpu.manager() as manager:
        with pytest.raises(InvalidArgument, match="'relaxed', 'thread-local', 'global'"):
            manager.capture(gpu.streams[0], "loose")
        with manager.capture(gpu.streams[0], "thread_local") as graph:
            growing = threading.Thread(target=lambda: manager.reserve(SIZE).release())
            growing.start()  # which the driver allows
            growing.join()
        assert len(graph.pins) == 1
        graph.close()
