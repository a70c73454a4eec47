"""Giving back what is merely kept, before an emulated driver tells what leaked.

Pools and providers keep memory, addresses and handles for whoever needs them next, also when the
interpreter ends.  That is no leak of the program's; so it goes first, and what is told afterwards
is what somebody still has.

Only where that is told: a real driver takes everything back by itself when the process ends, at
once and without waiting for the work that is queued, which giving back has to.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import itertools
import os
import weakref
from collections.abc import Callable, Mapping
from typing import TypeVar

from umfpy.errors import UmfpyError

T = TypeVar("T")

#: The settings that a process was started with, one variable for each emulated driver.
_SETTINGS = "UMFPY_EMULATE_"

_numbers = itertools.count()
#: In the order in which they were made: who stands on another one comes after it.
_holders: dict[int, Callable[[], None]] = {}
#: Drivers that were loaded into this process, and whether they tell.
_told_by: dict[str, bool] = {}


def enter(holder: T, give_back: Callable[[T], object]) -> None:
    """Have `give_back(holder)` called in the end, if the holder still exists.

    It gives back what nobody uses, and the holder works on: code that runs later may need it.
    Holders that stand on others are entered after these.
    """
    number = next(_numbers)

    def forget(_: object) -> None:
        _holders.pop(number, None)

    alive = weakref.ref(holder, forget)

    def ask() -> None:
        found = alive()
        if found is not None:
            # Of a driver that is gone nothing is left to be given back, and nobody is there to
            # be told of one that refuses.
            with contextlib.suppress(UmfpyError):
                give_back(found)

    _holders[number] = ask


def expect_report(driver: str, told: bool) -> None:
    """Say whether a driver that was loaded into this process will tell what leaked."""
    _told_by[driver] = told


def is_told(environment: Mapping[str, str]) -> bool:
    """Return whether anybody tells what leaked when this process ends."""
    return any(_told_by.values()) or any(
        name.startswith(_SETTINGS) and "report=1" in settings.split(";")
        for name, settings in environment.items()
    )


def give_all_back() -> None:
    """Have every holder give back what it merely keeps, the one made last first."""
    gc.collect()  # what lies in cycles was let go
    with contextlib.ExitStack() as stack:  # one that raises keeps no other from its turn
        for ask in list(_holders.values()):
            stack.callback(ask)


def _at_exit() -> None:
    if _holders and is_told(os.environ):
        give_all_back()


# Once, and early: what programs have registered since then runs before it.
atexit.register(_at_exit)

if hasattr(os, "register_at_fork"):
    # What the parent holds a forked child cannot give back.
    os.register_at_fork(after_in_child=_holders.clear)
