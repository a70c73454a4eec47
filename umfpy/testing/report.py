"""What a run of the checks found."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Outcome(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class ConformanceError(AssertionError):
    """A provider breaks its contract; the message is the report."""


@dataclass(frozen=True)
class CheckResult:
    """The end of one check.

    ``contract`` is the sentence that was tested.  A failed check has what it ``expected`` and
    what it has ``seen``; a skipped one its ``reason``.
    """

    name: str
    contract: str
    outcome: Outcome
    expected: str = ""
    seen: str = ""
    reason: str = ""

    def __str__(self) -> str:
        line = f"{self.outcome.value:<7} {self.name}"
        if self.outcome is Outcome.SKIPPED:
            return f"{line}: {self.reason}"
        if self.outcome is Outcome.FAILED:
            return (
                f"{line}\n    contract: {self.contract}\n    expected: {self.expected}\n"
                f"    seen:     {self.seen}"
            )
        return line


@dataclass(frozen=True)
class Report:
    """The results of all checks on one provider, in the order in which they ran."""

    subject: str
    results: Sequence[CheckResult]

    @property
    def passed(self) -> list[CheckResult]:
        """The checks that the provider passes."""
        return self._with(Outcome.PASSED)

    @property
    def failed(self) -> list[CheckResult]:
        """The checks that it does not."""
        return self._with(Outcome.FAILED)

    @property
    def skipped(self) -> list[CheckResult]:
        """The checks that do not apply to it, each with a reason."""
        return self._with(Outcome.SKIPPED)

    def raise_if_failed(self) -> None:
        """Raise ConformanceError, with the whole report, unless no check failed."""
        if self.failed:
            raise ConformanceError(str(self))

    def __str__(self) -> str:
        counts = (
            f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"
        )
        lines = [f"  {result}" for result in self.results]
        return "\n".join([f"{self.subject}: {counts}", *lines])

    def _with(self, outcome: Outcome) -> list[CheckResult]:
        return [result for result in self.results if result.outcome is outcome]
