"""From command line options to something that traces can be replayed on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

import umfpy
from umfpy.cli.output import note
from umfpy.cli.tables import PROVIDERS
from umfpy.errors import DriverUnavailable
from umfpy.pools.base import ProviderPool
from umfpy.provider import Provider
from umfpy.trace.measure import Target

#: Of an emulated GPU, if the user names no size: as much as large ones have.
EMULATED_MEMORY = "192GiB"

#: Makes a target of what makes pools.
TargetMaker: TypeAlias = Callable[[Callable[[Provider], ProviderPool]], Target]


@contextmanager
def open_target(
    provider_name: str,
    *,
    emulate: bool,
    memory: int | None,
) -> Iterator[TargetMaker]:
    """Yield what makes a target of a kind of pool; its provider is closed at the end.

    Parameters
    ----------
    provider_name
        A key of `PROVIDERS`.
    emulate
        Whether the provider's driver is to be an emulated one.
    memory
        Bytes that the emulated device has, or the most to take from another provider.

    Raises
    ------
    DriverUnavailable
        There is no such driver or device, and no emulation was asked for.
    """
    choice = PROVIDERS[provider_name]
    if emulate and choice.driver is None:
        note(f"{provider_name} memory needs no driver: --emulate changes nothing")
    if emulate and choice.driver is not None:
        # Only this process is affected, and the user asked for it, so that it may hide a real GPU.
        driver = umfpy.emulate(
            choice.driver,
            memory=EMULATED_MEMORY if memory is None else memory,
            force=True,
            children=False,
        )
        provider = choice.make()
        make = partial(Target, provider, clock_us=lambda: driver.clock_us)
    else:
        provider = _make(choice.make, choice.driver)
        make = partial(Target, provider, capacity=memory)
    try:
        yield make
    finally:
        provider.close()


def _make(make: Callable[[], Provider], driver: str | None) -> Provider:
    try:
        return make()
    except DriverUnavailable as error:
        if driver is None:
            raise
        raise DriverUnavailable(f"{error}; on the command line: add --emulate") from error
