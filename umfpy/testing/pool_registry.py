"""The checks of pools, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from umfpy.provider import Capability
from umfpy.testing.pool_subject import PoolSubject

PoolCheckFunction = Callable[[PoolSubject], None]


@dataclass(frozen=True)
class PoolCheck:
    """One sentence of the contract of pools, and the function that tries it.

    It applies to pools whose memory can do all of ``needs``, and to none whose memory can do any
    of ``unless``.  ``second_process`` says that it starts one.
    """

    name: str
    contract: str
    run: PoolCheckFunction
    needs: Capability = Capability.NONE
    unless: Capability = Capability.NONE
    second_process: bool = False

    def inapplicable(self, capabilities: Capability) -> str:
        """Return why the check says nothing about such a pool, or ``""``."""
        missing = self.needs & ~capabilities
        if missing:
            return f"the provider does not announce {missing.name}"
        excess = self.unless & capabilities
        return f"the provider announces {excess.name}" if excess else ""


#: Every check of pools, in the order in which they run.
POOL_CHECKS: dict[str, PoolCheck] = {}


def pool_check(
    contract: str,
    *,
    needs: Capability = Capability.NONE,
    unless: Capability = Capability.NONE,
    second_process: bool = False,
) -> Callable[[PoolCheckFunction], PoolCheckFunction]:
    """Enter a function in `POOL_CHECKS` under its own name."""

    def enter(function: PoolCheckFunction) -> PoolCheckFunction:
        name = function.__name__
        POOL_CHECKS[name] = PoolCheck(name, contract, function, needs, unless, second_process)
        return function

    return enter
