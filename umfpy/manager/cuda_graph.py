"""Captures of a CUDA stream, whose memory stays for as long as the graph may run."""

from __future__ import annotations

import sys
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

from umfpy.core.handle import Handle
from umfpy.core.pages import stream_number
from umfpy.errors import DriverError, InvalidArgument, OutOfMemoryError, StaleHandle, UmfpyError
from umfpy.manager import captures
from umfpy.manager.captures import CaptureMode, read_capture_mode
from umfpy.manager.cuda_calls import CudaCalls

if TYPE_CHECKING:
    from umfpy.core.pool import Stream
    from umfpy.manager.manager import MemoryManager

_LEGACY = (0, 1)  # the default stream by its two names


class CapturedGraph:
    """A graph made by `GraphCapture`, and the memory that it works on.

    Dropping it closes it.

    Attributes
    ----------
    pins
        A handle for each slice that was used in the capture.  The memory is nobody else's until
        `close`.  What the graph uses besides, from before the capture, its user has to hold, or
        to add here as a clone.
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

        Raises
        ------
        CaptureWouldBreak
            It was launched, and another capture is open on the device.  Nothing is changed.
        """
        if self._launched:
            captures.refuse_waiting(f"a graph of {self._manager.name}", self._manager.provider)
            self._manager.provider.synchronize()
            self._launched = False
        executable, self._executable = self._executable, None
        graph, self._graph = self._graph, None
        try:
            if executable is not None:
                self._driver("cuGraphExecDestroy", executable)
        finally:
            while self.pins:
                self.pins.pop().release()
            if graph is not None:
                self._driver("cuGraphDestroy", graph)

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

    def __del__(self) -> None:
        # At the end of the process the driver may be gone already, and takes its graphs along.
        if self._graph is None or sys.is_finalizing():
            return
        try:
            if self._launched and captures.is_frozen(self._manager.provider):
                captures.after(self, self.close)
            else:
                self.close()
        except UmfpyError as error:
            warnings.warn(
                f"a graph of {self._manager.name!r} could not be closed: {error}",
                ResourceWarning,
                stacklevel=2,
            )


class GraphCapture:
    """``with manager.capture(stream) as graph:`` what is queued on the stream becomes the graph.

    Inside, every request of the manager is served from persistent memory, idle pages stay, and
    the layout cannot change.  If the body or the driver fails, everything is given back, and the
    graph cannot be launched.

    Parameters
    ----------
    manager
        Whose memory the graph works on.
    stream
        A stream of CUDA that can be captured: not the default stream.
    mode
        ``"relaxed"``: the driver may be asked for new pages meanwhile.  ``"thread-local"`` and
        ``"global"``: it may not, in this thread or in any, and requests that need one are refused.

    Notes
    -----
    Source: cuStreamBeginCapture and cuThreadExchangeStreamCaptureMode of the CUDA driver API.
    """

    def __init__(
        self, manager: MemoryManager, stream: Stream, mode: CaptureMode | str = CaptureMode.RELAXED
    ) -> None:
        number = stream_number(stream)
        if number in _LEGACY:
            raise InvalidArgument(
                "CUDA cannot capture the default stream; make one with cuStreamCreate, or "
                "cupy.cuda.Stream(non_blocking=True)"
            )
        self._mode = read_capture_mode(mode)
        self._manager = manager
        self._driver = CudaCalls()
        self._stream = self._driver.bindings.CUstream(number)
        self._graph = CapturedGraph(manager, self._driver)

    def __enter__(self) -> CapturedGraph:
        if self._manager.capturing:
            raise InvalidArgument(
                f"{self._manager.name!r} has a capture open already; end it first"
            )
        modes = self._driver.bindings.CUstreamCaptureMode
        mode = getattr(modes, f"CU_STREAM_CAPTURE_MODE_{self._mode.name}")
        self._manager.capture_begin(self._mode)
        try:
            self._driver("cuStreamBeginCapture", self._stream, mode)
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
        except (DriverError, OutOfMemoryError):
            # The driver has dropped what there was of a graph.
            self._manager.capture_end().clear()
            if error is None:
                raise
            return
        ended = not self._manager.capturing
        pins = self._manager.capture_end()
        if error is not None or ended:
            pins.clear()
            self._driver("cuGraphDestroy", graph)
            if error is None:
                raise InvalidArgument(
                    f"the capture of {self._manager.name!r} was ended inside its with block, so "
                    "that the graph's memory is no longer its own; let the block end it"
                )
            return
        try:
            self._graph.finish(graph, pins)
        except BaseException:
            self._graph.close()
            raise
