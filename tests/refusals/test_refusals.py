"""What a driver refuses fails a test: seen on tests that break its rules, in a pytest of theirs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.emulation_support import plain_environment
from tests.refusals import provoking

PROVOKING = Path(provoking.__file__)
NAMES = [name for name in vars(provoking) if name.startswith("test_")]


@pytest.fixture(scope="module")
def output() -> str:
    """What pytest says of the tests that break rules."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(PROVOKING)],
        cwd=PROVOKING.parents[2],
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def ends(output: str) -> dict[str, set[str]]:
    """By a test's name, how it and what comes after it ended."""
    found = defaultdict(set)
    for end, name in re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", output, re.MULTILINE):
        found[name].add(end)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_how_it_ends(ends: dict[str, set[str]], name: str) -> None:
    """Each of them does what it should; the ones that break rules fail for that alone."""
    assert ends[name] == ({"PASSED"} if name.startswith("test_right") else {"PASSED", "ERROR"})


def test_the_complaint_names_call_answer_and_place(output: str) -> None:
    assert "1 x cuMemFree failed with CUDA_ERROR_INVALID_VALUE (1): invalid argument" in output
    assert "2 x cuMemFree" not in output, "the one that was ordered is none of them"
    assert 'provider._driver.call("cuMemFree", BAD)' in output
    assert "cuMemFree was not refused with 1, as a mark `refuses` says" in output
