"""Captures of a stream, against a driver that only notes what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.fakes.provider import FakeProvider
from tests.manager.support import PROPERTIES, exclusive
from umfpy import Capability, DriverError, InvalidArgument, MemoryManager, StaleHandle
from umfpy.manager import cuda_graph


class NotedCalls:
    """Stands for the driver: notes each call, and refuses those in `refused`."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.refused: set[str] = set()
        self.bindings = SimpleNamespace(
            CUstream=int,
            CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed"),
        )

    def __call__(self, name: str, *args: object) -> object:
        self.made.append(name)
        if name in self.refused:
            raise DriverError(name, 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
        return name


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> NotedCalls:
    noted = NotedCalls()
    monkeypatch.setattr(cuda_graph, "CudaCalls", lambda: noted)
    return noted


@pytest.fixture
def manager() -> Iterator[MemoryManager]:
    provider = FakeProvider(capabilities=Capability.STREAMS)
    provider.driver = "cuda"
    made = MemoryManager(provider, [exclusive("1MiB")], PROPERTIES)
    yield made
    assert not made.capturing
    assert made.memory_usage().number_allocs == 0
    made.close()


def test_a_capture_pins_its_memory_until_the_graph_is_closed(
    calls: NotedCalls, manager: MemoryManager
) -> None:
    with manager.capture(7) as graph:
        assert manager.capturing
        manager.reserve(1000, stream=7).release()
        assert not manager.configure("sub_slices")
        with pytest.raises(InvalidArgument, match="capture is open"):
            manager.synchronize()
        with pytest.raises(StaleHandle, match="no graph"):
            graph.launch(7)
    place = manager.storage(graph.pins[0]).ptr
    graph.launch(7)
    with manager.reserve(1000) as other:
        assert manager.storage(other).ptr != place
    manager.cleanup(True)
    assert manager.owns(place)
    waits = manager.provider.counts["synchronize"]
    graph.close()
    graph.close()
    assert manager.provider.counts["synchronize"] == waits + 1, "it may be running"
    assert not manager.owns(place)
    assert calls.made == [
        "cuStreamBeginCapture",
        "cuStreamEndCapture",
        "cuGraphInstantiate",
        "cuGraphLaunch",
        "cuGraphExecDestroy",
        "cuGraphDestroy",
    ]
    with pytest.raises(StaleHandle, match="closed"):
        graph.launch(7)


@pytest.mark.parametrize("call", ["cuGraphExecDestroy", "cuGraphDestroy"])
def test_a_graph_that_the_driver_does_not_destroy_is_closed_again(
    calls: NotedCalls, manager: MemoryManager, call: str
) -> None:
    with manager.capture(7) as graph:
        manager.reserve(1000).release()
    place = manager.storage(graph.pins[0]).ptr
    calls.refused.add(call)
    with pytest.raises(DriverError, match=call):
        graph.close()
    runnable = call == "cuGraphExecDestroy"
    assert manager.owns(place) == runnable, "as long as it can be launched"
    if runnable:
        graph.launch(7)
    else:
        with pytest.raises(StaleHandle, match="closed"):
            graph.launch(7)
    calls.refused.clear()
    graph.close()
    assert not manager.owns(place)
    assert calls.made[-2:] == [call, "cuGraphDestroy"], "each was tried until it was done"
    done = len(calls.made)
    graph.close()
    assert len(calls.made) == done


@pytest.mark.parametrize(
    "call", ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate"]
)
def test_a_capture_that_the_driver_refuses_leaves_nothing(
    calls: NotedCalls, manager: MemoryManager, call: str
) -> None:
    calls.refused.add(call)
    with pytest.raises(DriverError, match=call), manager.capture(7) as graph:
        manager.reserve(1000).release()
    if call != "cuStreamBeginCapture":
        assert graph.pins == []
    assert manager.memory_usage().number_allocs == 0
    assert manager.mode() == "auto"
    assert ("cuGraphDestroy" in calls.made) == (call == "cuGraphInstantiate")


@pytest.mark.parametrize("refused", [set(), {"cuStreamEndCapture"}])
def test_a_body_that_fails_leaves_nothing(
    calls: NotedCalls, manager: MemoryManager, refused: set[str]
) -> None:
    calls.refused |= refused
    with pytest.raises(RuntimeError, match="as told"), manager.capture(7) as graph:  # noqa: PT012
        manager.reserve(1000).release()
        raise RuntimeError("as told")
    assert graph.pins == []
    assert ("cuGraphDestroy" in calls.made) == (not refused)
    assert "cuGraphInstantiate" not in calls.made


def test_a_capture_that_is_used_again_captures_another_graph(
    calls: NotedCalls, manager: MemoryManager
) -> None:
    capture, graphs = manager.capture(7), []
    for _ in range(2):
        with capture as graph:
            manager.reserve(1000).release()
        graphs.append(graph)
    first, second = graphs
    places = [manager.storage(graph.pins[0]).ptr for graph in graphs]
    first.close()
    assert [manager.owns(place) for place in places] == [False, True]
    second.launch(7)
    second.close()
    assert calls.made.count("cuGraphDestroy") == 2


def test_what_cannot_be_captured(calls: NotedCalls, manager: MemoryManager) -> None:
    for default in (None, 0, 1):
        with pytest.raises(InvalidArgument, match="default stream"):
            manager.capture(default)
    with manager.capture(7) as graph, pytest.raises(InvalidArgument, match="open already"):
        manager.capture(8).__enter__()
    graph.close()
    assert calls.made.count("cuStreamBeginCapture") == 1
