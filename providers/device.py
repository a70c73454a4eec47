"""What the providers of one device's memory have in common, whatever the driver."""

from __future__ import annotations

import abc

from umfpy.errors import OutOfMemoryError
from umfpy.provider import Provider
from umfpy.providers.host.pieces import Pieces


class DeviceProvider(Provider):
    """A provider that knows its pieces, and lets go of the driver after the last one."""

    _pieces: Pieces

    @abc.abstractmethod
    def _check_open(self) -> None:
        """Raise InvalidArgument if the provider was closed."""

    @abc.abstractmethod
    def _close_if_unused(self) -> None:
        """Let go of the driver if the provider was closed and nothing is left.

        It raises nothing for a driver that refuses: the call that this ends is done.
        """

    @abc.abstractmethod
    def _out_of_memory(self, size: int, error: OutOfMemoryError) -> OutOfMemoryError:
        """Return the error for a request of `size` bytes, with what the device has."""
