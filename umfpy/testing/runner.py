"""Runs the checks on a provider, and those of any other kind."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TypeVar

from umfpy.arguments import check_callable, check_number
from umfpy.errors import InvalidArgument, UmfpyError
from umfpy.provider import Provider
from umfpy.testing.registry import REGISTRY, AnyCheck, S
from umfpy.testing.report import CheckResult, Outcome, Report
from umfpy.testing.subject import Broken, Factory, Importer, Options, Skipped, Subject
from umfpy.units import parse_size

for _name in (
    "requests",
    "refusals",
    "contents",
    "lifecycle",
    "pieces",
    "reserving",
    "threads",
    "questions",
):
    importlib.import_module(f"umfpy.testing.{_name}")
importlib.import_module("umfpy.testing.ipc")

P = TypeVar("P")

#: What a defect in somebody's provider or pool raises; each is a finding, and none stops the run.
_FAULTS = (
    UmfpyError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def check_provider(
    factory: Factory,
    *,
    checks: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    live_count: Callable[[Provider], int] | None = None,
    importer: Importer | None = None,
    process_setup: Callable[[], object] | None = None,
    largest_alignment: int | str = "64MiB",
    threads: int = 8,
) -> Report:
    """Try every sentence of the provider contract on a provider.

    Each check gets a provider of its own from `factory`, and frees and closes it.

    Parameters
    ----------
    factory
        Makes a provider: its class, or any callable.  A few MiB must be free in it.
    checks, skip
        Names out of `CHECKS`: only these, all but those.
    live_count
        How many native allocations a provider holds; if not given, its own ``live_count()``, if
        it has one.  Without either, leaks go unseen.
    importer
        Makes, from `Provider.ipc_scope`, the provider that opens handles in the second process;
        if not given, the provider's own ``for_ipc``.  It must pickle.
    process_setup
        What the second process does first, such as loading an emulated driver.  It must pickle.
    largest_alignment
        Where to stop trying alignments, in bytes or as text.
    threads
        How many threads allocate at once.

    Raises
    ------
    InvalidArgument
        There is no check of that name, or another argument makes no sense; `factory` is a
        provider, or makes none.

    Examples
    --------
    >>> from umfpy.providers.host import HostProvider
    >>> check_provider(HostProvider, checks=["granularity"]).failed
    []
    """
    check_callable(factory, "factory", "makes a provider, such as its class")
    if live_count is not None:
        check_callable(live_count, "live_count", "counts what a provider holds")
    if importer is not None:
        check_callable(importer, "importer", "makes a provider")
    if process_setup is not None:
        check_callable(process_setup, "process_setup", "is called first in the second process")
    options = Options(
        live_count=live_count,
        importer=importer,
        process_setup=process_setup,
        largest_alignment=parse_size(largest_alignment),
        threads=check_number(threads, "threads", least=1),
    )
    chosen = REGISTRY.choose(checks, skip)
    return run_checks(chosen, factory, lambda provider: Subject(_made(provider), options))


def _made(provider: object) -> Provider:
    if isinstance(provider, Provider):
        return provider
    raise InvalidArgument(f"what the factory makes must be a umfpy.Provider, not {provider!r}")


def run_checks(
    checks: Iterable[AnyCheck[S]], factory: Callable[[], P], subject_of: Callable[[P], S]
) -> Report:
    """Run each check on a subject of its own, around what `factory` makes."""
    results = tuple(_run(one, lambda: subject_of(factory())) for one in checks)
    return Report(getattr(factory, "__name__", repr(factory)), results)


def _run(one: AnyCheck[S], fresh: Callable[[], S]) -> CheckResult:
    def result(
        outcome: Outcome, expected: str = "", seen: str = "", reason: str = ""
    ) -> CheckResult:
        return CheckResult(one.name, one.contract, outcome, expected, seen, reason)

    subject = fresh()
    try:
        reason = one.inapplicable(subject.abilities())
        if reason:
            return result(Outcome.SKIPPED, reason=reason)
        one.run(subject)
    except Skipped as skipped:
        return result(Outcome.SKIPPED, reason=str(skipped))
    except Broken as broken:
        return result(Outcome.FAILED, broken.expected, broken.seen)
    except _FAULTS as error:
        return result(Outcome.FAILED, "no error", f"{type(error).__name__}: {error}")
    finally:
        subject.finish()
    return result(Outcome.PASSED)
