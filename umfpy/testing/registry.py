"""The checks, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from umfpy.provider import Capability
from umfpy.testing.subject import Subject

CheckFunction = Callable[[Subject], None]


@dataclass(frozen=True)
class Check:
    """One sentence of the contract, and the function that tries it.

    It applies to providers that announce all of ``needs``, and to none that announces any of
    ``unless``.  ``second_process`` says that it starts one.
    """

    name: str
    contract: str
    run: CheckFunction
    needs: Capability = Capability.NONE
    unless: Capability = Capability.NONE
    second_process: bool = False

    def inapplicable(self, capabilities: Capability) -> str:
        """Return why the check says nothing about such a provider, or ``""``."""
        missing = self.needs & ~capabilities
        if missing:
            return f"the provider does not announce {missing.name}"
        excess = self.unless & capabilities
        return f"the provider announces {excess.name}" if excess else ""


#: Every check of providers, in the order in which they run.
CHECKS: dict[str, Check] = {}


def check(
    contract: str,
    *,
    needs: Capability = Capability.NONE,
    unless: Capability = Capability.NONE,
    second_process: bool = False,
) -> Callable[[CheckFunction], CheckFunction]:
    """Enter a function in `CHECKS` under its own name."""

    def enter(function: CheckFunction) -> CheckFunction:
        name = function.__name__
        CHECKS[name] = Check(name, contract, function, needs, unless, second_process)
        return function

    return enter
