"""The checks themselves: each finds the defect planted for it, and no other check does."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from umfpy.errors import InvalidArgument, OutOfMemoryError
from umfpy.provider import Capability
from umfpy.providers.host import HostProvider
from umfpy.testing import CHECKS, ConformanceError, Outcome, check_provider

SLOW = [name for name, check in CHECKS.items() if check.second_process]


@pytest.fixture(scope="module")
def planted():
    """The module of broken providers, importable also in a second process."""
    folder = str(Path(__file__).parent)
    sys.path.insert(0, folder)
    yield importlib.import_module("planted_bugs")
    sys.path.remove(folder)


@pytest.mark.parametrize("check", list(CHECKS))
def test_a_planted_bug_fails_its_check_and_no_other(check, planted):
    # A second process takes its time: only for what it may find.
    skip = [] if check in SLOW else SLOW
    report = check_provider(planted.PLANTED[check], skip=skip)
    assert [result.name for result in report.failed] == [check], str(report)


def test_every_plant_has_a_check(planted):
    assert set(planted.PLANTED) == set(CHECKS)


def test_a_report_says_what_was_broken(planted):
    report = check_provider(planted.PLANTED["zero_range"])
    (failed,) = report.failed
    assert failed.contract == CHECKS["zero_range"].contract
    assert failed.outcome is Outcome.FAILED
    text = str(report)
    assert text.startswith(f"ZeroesMore: {len(report.passed)} passed, 1 failed, ")
    assert "expected: zeros at [1, 2) alone" in text
    assert "seen:     byte 2 of" in text
    with pytest.raises(ConformanceError, match="zero_range"):
        report.raise_if_failed()
    assert pickle.loads(pickle.dumps(report)) == report


def test_a_skip_says_why():
    report = check_provider(HostProvider, checks=["ipc_round_trip"])
    (skipped,) = report.skipped
    assert skipped.reason == "the provider does not announce IPC"
    report.raise_if_failed()


def test_a_defect_that_is_no_umfpy_error_is_a_finding():
    class Confused(HostProvider):
        def memory_info(self):
            return 1

    report = check_provider(Confused)
    (failed,) = report.failed
    assert failed.name == "memory_info"
    assert failed.seen.startswith("TypeError")


def test_choosing_checks():
    assert [r.name for r in check_provider(HostProvider, checks=["distinct"]).results] == [
        "distinct"
    ]
    names = [r.name for r in check_provider(HostProvider, skip=["distinct"]).results]
    assert names == [name for name in CHECKS if name != "distinct"]
    with pytest.raises(InvalidArgument, match="no check 'x'"):
        check_provider(HostProvider, checks=["x"])


def test_a_factory_that_fails_is_the_callers(planted):
    with pytest.raises(OutOfMemoryError):
        check_provider(planted.CannotBeMade)


def test_leaks_are_counted_by_the_callback_where_the_provider_cannot():
    class Silent(HostProvider):
        live_count = None

    checks = ["no_leaks", "refusals_keep_state"]
    assert len(check_provider(Silent, checks=checks).skipped) == 2
    counting = check_provider(Silent, checks=checks, live_count=lambda p: len(p._pieces))
    assert len(counting.passed) == 2
    counts = iter([0, 1])
    leaking = check_provider(Silent, checks=["no_leaks"], live_count=lambda _: next(counts))
    (failed,) = leaking.failed
    assert failed.seen == "1"


def test_a_class_of_main_is_not_sent_to_a_second_process():
    class Local(HostProvider):
        def __init__(self, shared=True):
            super().__init__(shared=True)

    (skipped,) = check_provider(Local, checks=["ipc_round_trip"]).skipped
    assert "second process cannot be told" in skipped.reason
    Local.__module__ = "__main__"
    (skipped,) = check_provider(Local, checks=["ipc_round_trip"]).skipped
    assert "defined in __main__" in skipped.reason


def test_each_check_applies_to_the_capabilities_it_names():
    assert CHECKS["ipc_round_trip"].inapplicable(Capability.IPC) == ""
    assert "IPC" in CHECKS["ipc_round_trip"].inapplicable(Capability.COPY)


def test_no_test_framework_is_imported():
    program = (
        "import sys, umfpy.testing; "
        "print([m for m in ('pytest', 'hypothesis', 'unittest') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
