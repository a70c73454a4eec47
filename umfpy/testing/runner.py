"""Runs the checks on a provider."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

from umfpy.errors import InvalidArgument, UmfpyError
from umfpy.provider import Provider
from umfpy.testing.registry import CHECKS, Check
from umfpy.testing.report import CheckResult, Outcome, Report
from umfpy.testing.subject import Broken, Factory, Importer, Options, Skipped, Subject
from umfpy.units import parse_size

for _name in ("requests", "refusals", "contents", "lifecycle", "pieces", "threads", "questions"):
    importlib.import_module(f"umfpy.testing.{_name}")
importlib.import_module("umfpy.testing.ipc")

#: What a defect in somebody's provider raises; each is a finding, and none stops the run.
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
        There is no check of that name.

    Examples
    --------
    >>> from umfpy.providers.host import HostProvider
    >>> check_provider(HostProvider, checks=["granularity"]).failed
    []
    """
    options = Options(
        live_count=live_count,
        importer=importer,
        process_setup=process_setup,
        largest_alignment=parse_size(largest_alignment),
        threads=threads,
    )
    chosen = [one for one in _choose(checks, skip)]
    results = [_run(one, factory, options) for one in chosen]
    return Report(getattr(factory, "__name__", repr(factory)), tuple(results))


def _choose(checks: Iterable[str] | None, skip: Iterable[str]) -> list[Check]:
    skipped = frozenset(skip)
    wanted = list(CHECKS) if checks is None else list(checks)
    unknown = [name for name in (*wanted, *skipped) if name not in CHECKS]
    if unknown:
        raise InvalidArgument(f"no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    return [CHECKS[name] for name in wanted if name not in skipped]


def _run(one: Check, factory: Factory, options: Options) -> CheckResult:
    def result(
        outcome: Outcome, expected: str = "", seen: str = "", reason: str = ""
    ) -> CheckResult:
        return CheckResult(one.name, one.contract, outcome, expected, seen, reason)

    subject = Subject(factory(), options)
    try:
        reason = one.inapplicable(subject.provider.capabilities)
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
