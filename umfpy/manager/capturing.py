"""The mode of a manager, and its capture: from when on requests are persistent, and until when."""

from __future__ import annotations

from umfpy.core.handle import Handle
from umfpy.manager.holdings import Holdings
from umfpy.manager.installed import InstalledLayout
from umfpy.manager.log import LOG
from umfpy.manager.modes import Mode, Persistence
from umfpy.manager.pins import Pins
from umfpy.manager.serving import Server
from umfpy.pools import captures
from umfpy.pools.captures import Window


class Capturing:
    """Sets the mode of a manager's requests, and opens and closes its capture.

    Attributes
    ----------
    restore
        During a capture, the mode to go back to; else None.
    """

    def __init__(
        self,
        holdings: Holdings,
        persistence: Persistence,
        installed: InstalledLayout,
        server: Server,
        pins: Pins,
    ) -> None:
        self.restore: Mode | None = None
        self._holdings = holdings
        self._persistence = persistence
        self._installed = installed
        self._server = server
        self._pins = pins

    def set_mode(self, wanted: Mode) -> None:
        """Have requests be for this; during a capture only once it is over."""
        name = self._holdings.name
        with self._installed.changing:
            if not self._persistence.honours_mode:
                LOG.info(
                    "%s: mode %s is ignored: persistent memory is %s",
                    name,
                    wanted.value,
                    self._persistence.value,
                )
            elif self.restore is not None:
                self.restore = wanted
            else:
                self._server.mode = wanted
                LOG.info("%s: mode %s", name, wanted.value)

    def begin(self, window: Window) -> bool:
        """Open a capture, and return True; False if one is open."""
        with self._installed.changing:
            opens = self.restore is None
            if opens:
                self._installed.get()  # raises if the manager is closed
                self._open(window)
                self.restore = self._server.mode
                LOG.info("%s: capture begins", self._holdings.name)
            self._server.mode = Mode.PERSISTENT
        return opens

    def _open(self, window: Window) -> None:
        captures.open_window(window)
        try:
            # What is on its way down in another thread is gone by then, and nothing follows:
            # pages of the capture stay.
            with self._pins.still():
                self._holdings.window = window
                self._pins.start()
        except BaseException:
            self._holdings.window = None
            captures.close_window(window)
            raise

    def end(self, manager: object) -> list[Handle]:
        """Close the capture, and return the pins of what it used; [] if none is open."""
        with self._installed.changing:
            if self.restore is None:
                return []
            self._server.mode, self.restore = self.restore, None
            pins = self._pins.end(manager)
            self._holdings.totals.note()  # what was idle by now is live again
            window, self._holdings.window = self._holdings.window, None
            LOG.info("%s: capture ends with %d slices", self._holdings.name, len(pins))
        if window is not None:
            captures.close_window(window)
        return pins
