"""The plugin that makes a skip a failure in continuous integration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).resolve().parents[2] / "ci"

TESTS = """
import pytest

def test_passes(): pass

def test_skips(): pytest.skip("the moon is full")

@pytest.mark.skipif(True, reason="no such machine")
def test_marked(): pass

@pytest.mark.xfail(reason="known")
def test_expected(): assert False
"""


@pytest.fixture
def run(tmp_path):
    """Run TESTS with a list of allowed skips, in CI or not; returns status and output."""

    def run(rules, ci="true", tests=TESTS):
        (tmp_path / "test_it.py").write_text(tests, encoding="utf-8")
        (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        listed = tmp_path / "allowed.txt"
        listed.write_text(rules, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(CI), "UMFPY_ALLOWED_SKIPS": str(listed)}
        environment.pop("CI", None)
        if ci is not None:
            environment["CI"] = ci
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "allowed_skips", "-p", "no:cacheprovider", "."],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_skip_that_nobody_reviewed_fails(run):
    status, output = run("")
    assert status == 1
    # A mark skips before the test's own part, where pytest says "error" for "failed".
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in output
    assert "test_it.py::test_skips was skipped: Skipped: the moon is full" in output


def test_a_listed_skip_does_not(run):
    status, output = run("# reviewed\n\ntest_it.py::test_s* moon is full\n* no such machine\n")
    assert status == 0
    assert "1 passed, 2 skipped, 1 xfailed" in output


def test_another_reason_is_another_skip(run):
    status, output = run("* moon is new\n* no such machine\n")
    assert status == 1
    assert "1 failed, 1 passed, 1 skipped" in output


def test_another_test_is_another_skip(run):
    assert run("test_other.py::* moon is full\n* no such machine\n")[0] == 1


@pytest.mark.parametrize("ci", [None, "", "false"])
def test_elsewhere_a_skip_is_a_skip(run, ci):
    status, output = run("", ci=ci)
    assert status == 0
    assert "2 skipped" in output


def test_a_module_that_skips_itself_fails_too(run):
    module = 'import pytest\npytest.importorskip("no_such_module")\n'
    status, output = run("", tests=module)
    assert status != 0
    assert "no_such_module" in output
    assert run("test_it.py no_such_module\n", tests=module)[0] in (0, 5)


def test_a_rule_without_a_reason_is_refused(run):
    status, output = run("test_it.py::test_skips\n")
    assert status == 4
    assert "line 1" in output


def test_the_list_of_this_repository_can_be_read(monkeypatch):
    monkeypatch.syspath_prepend(str(CI))
    import allowed_skips

    assert allowed_skips.read_rules(allowed_skips.LIST)
