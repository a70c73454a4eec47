"""Captures of a CUDA stream, whose memory stays for as long as the graph may run."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from umfpy.core.handle import Handle
from umfpy.core.pages import stream_number
from umfpy.errors import DriverError, InvalidArgument, StaleHandle
from umfpy.manager.cuda_calls import CudaCalls

if TYPE_CHECKING:
    from umfpy.core.pool import Stream
    from umfpy.manager.manager import MemoryManager

_LEGACY = (0, 1)  # the default stream by its two names


class CapturedGraph:
    """A graph made by `GraphCapture`, and the memory that it works on.

    Attributes
    ----------
    pins
        A handle for each slice that was used in the capture.  The memory is nobody else's until
        `close`.
    """

    def __init__(self, manager: MemoryManager, driver: CudaCalls) -> None:
        self._manager = manager
        self._driver = driver
        self._graph: Any = None
        self._executable: Any = None
        self._launched = False
        self.pins: list[Handle] = []

    def launch(self, stream: Stream = None) -> None:
        """Run the graph on a stream: cuGraphLaunch.

        Raises
        ------
        StaleHandle
            The capture has not ended well, or the graph is closed.
        """
        if self._executable is None:
            raise StaleHandle("there is no graph to launch: its capture is open, failed, or closed")
        self._launched = True
        self._driver(
            "cuGraphLaunch", self._executable, self._driver.bindings.CUstream(stream_number(stream))
        )

    def close(self) -> None:
        """Destroy the graph, and give its memory back; closing twice is fine.

        Waits for the device if the graph was ever launched, since it may still be running.
        """
        if self._launched:
            self._manager.provider.synchronize()
            self._launched = False
        executable, self._executable = self._executable, None
        if executable is not None:
            self._driver("cuGraphExecDestroy", executable)
        graph, self._graph = self._graph, None
        if graph is not None:
            self._driver("cuGraphDestroy", graph)
        while self.pins:
            self.pins.pop().release()

    def finish(self, graph: Any, pins: list[Handle]) -> None:
        """Take over what a capture brought, and make it ready to run: cuGraphInstantiate."""
        self._graph = graph
        self.pins += pins
        self._executable = self._driver("cuGraphInstantiate", graph, 0)

    def __enter__(self) -> CapturedGraph:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class GraphCapture:
    """``with manager.capture(stream) as graph:`` what is queued on the stream becomes the graph.

    Inside, every request of the manager is served from persistent memory, idle pages stay, and
    the layout cannot change; the driver may be asked for new pages, for which the capture is a
    relaxed one (CU_STREAM_CAPTURE_MODE_RELAXED).  If the body or the driver fails, everything is
    given back, and the graph cannot be launched.

    Parameters
    ----------
    manager
        Whose memory the graph works on.
    stream
        A stream of CUDA that can be captured: not the default stream.
    """

    def __init__(self, manager: MemoryManager, stream: Stream) -> None:
        number = stream_number(stream)
        if number in _LEGACY:
            raise InvalidArgument(
                "CUDA cannot capture the default stream; make one with cuStreamCreate, or "
                "cupy.cuda.Stream(non_blocking=True)"
            )
        self._manager = manager
        self._driver = CudaCalls()
        self._stream = self._driver.bindings.CUstream(number)
        self._graph = CapturedGraph(manager, self._driver)

    def __enter__(self) -> CapturedGraph:
        if self._manager.capturing:
            raise InvalidArgument(
                f"{self._manager.name!r} has a capture open already; end it first"
            )
        relaxed = self._driver.bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._manager.capture_begin()
        try:
            self._driver("cuStreamBeginCapture", self._stream, relaxed)
        except BaseException:
            self._manager.capture_end().clear()
            raise
        return self._graph

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            graph = self._driver("cuStreamEndCapture", self._stream)
        except DriverError:
            # The driver has dropped what there was of a graph.
            self._manager.capture_end().clear()
            if error is None:
                raise
            return
        pins = self._manager.capture_end()
        if error is not None:
            pins.clear()
            self._driver("cuGraphDestroy", graph)
            return
        try:
            self._graph.finish(graph, pins)
        except BaseException:
            self._graph.close()
            raise
