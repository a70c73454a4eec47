"""What the providers of one device's memory have in common, whatever the driver."""

from __future__ import annotations

import abc

from umfpy import leaving
from umfpy.errors import OutOfMemoryError
from umfpy.provider import Provider
from umfpy.providers.host.pieces import Pieces


class DeviceProvider(Provider):
    """A provider that knows its pieces, and lets go of the driver after the last one."""

    _pieces: Pieces

    def _enter(self) -> None:
        """Have what is kept go back before anybody tells what leaked; the last of `__init__`."""
        leaving.enter(self, lambda provider: provider._rest())

    @abc.abstractmethod
    def _check_open(self) -> None:
        """Raise InvalidArgument if the provider was closed."""

    @abc.abstractmethod
    def _close_if_unused(self) -> None:
        """Let go of the driver if the provider was closed and nothing is left.

        It raises nothing for a driver that refuses: the call that this ends is done.
        """

    def _rest(self) -> None:
        """Give back what is kept for reuse; it comes again with whoever needs it.

        Raises what the driver answered; the rest is kept.
        """

    @abc.abstractmethod
    def _out_of_memory(self, size: int, error: OutOfMemoryError) -> OutOfMemoryError:
        """Return the error for a request of `size` bytes, with what the device has."""
