"""A CUDA graph, and the memory that it works on."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from umfpy.closing import Closing
from umfpy.core.handle import Handle
from umfpy.core.pages import stream_number
from umfpy.errors import StaleHandle, UmfpyError
from umfpy.manager.cuda_calls import CudaCalls
from umfpy.pools import captures

if TYPE_CHECKING:
    from umfpy.core.pool import Stream
    from umfpy.manager.manager import MemoryManager


class CapturedGraph(Closing):
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
        DriverError
            The driver did not destroy it: closing again tries again.  The memory stays as long as
            the graph can be launched.
        CaptureWouldBreak
            It was launched, and another capture is open on the device.  Nothing is changed.
        """
        if self._launched:
            provider = self._manager.provider
            with captures.waiting(f"a graph of {self._manager.name}", provider):
                provider.synchronize()
            self._launched = False
        executable, self._executable = self._executable, None
        try:
            if executable is not None:
                self._driver("cuGraphExecDestroy", executable)
        except BaseException:
            self._executable = executable
            raise
        while self.pins:
            self.pins.pop().release()
        graph, self._graph = self._graph, None
        try:
            if graph is not None:
                self._driver("cuGraphDestroy", graph)
        except BaseException:
            self._graph = graph
            raise

    def finish(self, graph: Any, pins: list[Handle]) -> None:
        """Take over what a capture brought, and make it ready to run: cuGraphInstantiate."""
        self._graph = graph
        self.pins += pins
        self._executable = self._driver("cuGraphInstantiate", graph, 0)

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
