"""The checks, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from umfpy.arguments import check_items
from umfpy.errors import InvalidArgument
from umfpy.provider import Capability
from umfpy.testing.subject import Subject

S = TypeVar("S", bound=Subject)
C = TypeVar("C", bound="AnyCheck[Any]")


@dataclass(frozen=True)
class AnyCheck(Generic[S]):
    """One sentence of a contract, and the function that tries it on a subject."""

    name: str
    contract: str
    run: Callable[[S], None]
    needs: Capability = Capability.NONE
    unless: Capability = Capability.NONE
    second_process: bool = False

    def inapplicable(self, capabilities: Capability) -> str:
        """Return why the check says nothing about what has `capabilities`, or ``""``."""
        missing = self.needs & ~capabilities
        if missing:
            return f"the provider does not announce {missing.name}"
        excess = self.unless & capabilities
        return f"the provider announces {excess.name}" if excess else ""


class Check(AnyCheck[Subject]):
    """One sentence of the contract, and the function that tries it.

    It applies to providers that announce all of ``needs``, and to none that announces any of
    ``unless``.  ``second_process`` says that it starts one.
    """


class Registry(Generic[S, C]):
    """The checks of one kind of subject.

    Attributes
    ----------
    checks
        Each under the name of its function, in the order in which they run.
    """

    def __init__(self, kind: type[C]) -> None:
        self.kind = kind
        self.checks: dict[str, C] = {}

    def enter(
        self,
        contract: str,
        *,
        needs: Capability = Capability.NONE,
        unless: Capability = Capability.NONE,
        second_process: bool = False,
    ) -> Callable[[Callable[[S], None]], Callable[[S], None]]:
        """Enter a function in `checks` under its own name."""

        def entered(function: Callable[[S], None]) -> Callable[[S], None]:
            name = function.__name__
            self.checks[name] = self.kind(name, contract, function, needs, unless, second_process)
            return function

        return entered

    def choose(self, checks: Iterable[str] | None, skip: Iterable[str]) -> list[C]:
        """Return the checks of these names, or all, but those of `skip`."""
        skipped = check_items(skip, "skip", "names")
        wanted = tuple(self.checks) if checks is None else check_items(checks, "checks", "names")
        known = tuple(self.checks)  # in which names that have no hash can be looked for, too
        unknown = [name for name in (*wanted, *skipped) if name not in known]
        if unknown:
            raise InvalidArgument(f"no check {unknown[0]!r}; there are {', '.join(self.checks)}")
        return [self.checks[name] for name in wanted if name not in skipped]


REGISTRY: Registry[Subject, Check] = Registry(Check)
check = REGISTRY.enter

#: Every check of providers, in the order in which they run.
CHECKS = REGISTRY.checks
