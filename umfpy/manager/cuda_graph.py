"""Captures of a CUDA stream, whose memory stays for as long as the graph may run."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from umfpy.core.pages import stream_number
from umfpy.errors import DriverError, InvalidArgument, OutOfMemoryError
from umfpy.manager.captured_graph import CapturedGraph
from umfpy.manager.choices import read_choice
from umfpy.manager.cuda_calls import CudaCalls
from umfpy.manager.errors import has_capture
from umfpy.pools.captures import CaptureMode, driver_of

if TYPE_CHECKING:
    from umfpy.core.pool import Stream
    from umfpy.manager.manager import MemoryManager

_LEGACY = (0, 1)  # the default stream by its two names


class GraphCapture:
    """``with manager.capture(stream) as graph:`` what is queued on the stream becomes the graph.

    Each ``with`` captures another one.

    Inside, every request of the manager is served from persistent memory, idle pages stay, and
    the layout cannot change.  If the body or the driver fails, everything is given back, and the
    graph cannot be launched.

    Parameters
    ----------
    manager
        Whose memory the graph works on: of CUDA.
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
        driver = driver_of(manager.provider)
        if driver != "cuda":
            raise InvalidArgument(
                f"{manager.name!r} has memory of {driver!r}, and a stream of CUDA is captured by a "
                "manager over a CUDA provider; CudaProvider(memory_type='host') has memory of the "
                "host"
            )
        self._mode = read_choice(CaptureMode, mode, "the mode of a capture")
        self._manager = manager
        self._driver = CudaCalls()
        self._stream = self._driver.bindings.CUstream(number)
        self._graph: CapturedGraph

    def __enter__(self) -> CapturedGraph:
        modes = self._driver.bindings.CUstreamCaptureMode
        mode = getattr(modes, f"CU_STREAM_CAPTURE_MODE_{self._mode.name}")
        if not self._manager.capture_begin(self._mode):
            raise has_capture(self._manager.name)
        self._graph = CapturedGraph(self._manager, self._driver)
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
