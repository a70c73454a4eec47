"""A pytest plugin: with ``CI=true`` a skipped test fails, unless the skip has been reviewed.

``ci/allowed_skips.txt`` lists what may be skipped, a line each: a pattern for the test's id, and
words that the reason for the skip must contain.  A test that cannot run where it should is thus
never mistaken for one that passes.  ``ci/test`` loads this with ``-p allowed_skips``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

LIST = Path(__file__).with_name("allowed_skips.txt")


class Rule(NamedTuple):
    """A skip that may happen."""

    pattern: str  #: of the test's id, as fnmatch has it
    words: str  #: in the reason

    def allows(self, node_id: str, reason: str) -> bool:
        return fnmatchcase(node_id, self.pattern) and self.words in reason


def read_rules(path: Path) -> list[Rule]:
    """Read the list: pattern, blanks, words; empty lines and ``#`` comments aside."""
    rules = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, words = line.partition(" ")
        if not words.strip():
            raise pytest.UsageError(f"{path}, line {number}: {line!r} gives no reason")
        rules.append(Rule(pattern, words.strip()))
    return rules


class AllowedSkips:
    """Turns every skip that no rule allows into a failure."""

    def __init__(self, rules: list[Rule]) -> None:
        self._rules = rules

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Iterator[None]:  # the report is sent in
        report = yield
        # An expected failure is reported as a skip too.
        if report.skipped and not hasattr(report, "wasxfail"):
            self._judge(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Iterator[None]:
        report = yield
        if report.skipped:
            self._judge(report)
        return report

    def _judge(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if any(rule.allows(report.nodeid, reason) for rule in self._rules):
            return
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} was skipped: {reason}\n"
            f"A skip is a failure here unless {LIST.name} allows it: make the test run, or have "
            "the skip reviewed and add a line there."
        )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin where continuous integration runs."""
    if os.environ.get("CI", "").lower() in ("true", "1"):
        path = Path(os.environ.get("UMFPY_ALLOWED_SKIPS", LIST))
        config.pluginmanager.register(AllowedSkips(read_rules(path)), "umfpy-allowed-skips")
