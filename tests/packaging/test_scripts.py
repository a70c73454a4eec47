"""The scripts of ci/, as far as they can be tested without installing anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ["ci/demo", "ci/test", ".ci/run"]


def shell(code, cwd=ROOT, **environment):
    """Run code in a POSIX shell, after ci/environment.sh."""
    return subprocess.run(
        ["sh", "-eu", "-c", f". ci/environment.sh\n{code}"],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def copy(tmp_path):
    """A folder with the scripts and something to install, but no environment."""
    shutil.copytree(ROOT / "ci", tmp_path / "ci")
    (tmp_path / "umfpy").mkdir()
    (tmp_path / "providers").mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_can_be_executed_and_parsed(name):
    path = ROOT / name
    assert os.access(path, os.X_OK)
    assert subprocess.run(["sh", "-n", str(path)]).returncode == 0


def test_a_suitable_python_is_found():
    done = shell("find_python")
    assert done.returncode == 0
    version = "import sys; print(sys.version_info >= (3, 10))"
    found = subprocess.run(
        [done.stdout.strip(), "-c", version], capture_output=True, text=True, timeout=60
    )
    assert found.stdout == "True\n"


def test_the_python_that_is_asked_for_is_taken():
    assert shell("find_python", PYTHON=sys.executable).stdout.strip() == sys.executable


def test_an_unsuitable_python_is_refused_with_a_remedy(tmp_path):
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    done = shell("find_python", PYTHON=str(old))
    assert done.returncode == 1
    assert str(old) in done.stderr
    assert "python3-venv" in done.stderr


def test_no_python_at_all_is_said(tmp_path):
    tools = _tools(tmp_path)
    done = shell("base=$(find_python) || exit 1", PATH=str(tools), PYTHON="")
    assert done.returncode == 1
    assert "no Python >= 3.10" in done.stderr


def test_no_compiler_is_said(tmp_path):
    done = shell(f"check_compiler {sys.executable}", CC="no-such-compiler")
    assert done.returncode == 1
    assert "no C compiler" in done.stderr


def test_the_environment_of_the_caller_does_not_leak_in():
    done = shell('echo "${PYTHONPATH-none} ${VIRTUAL_ENV-none}"', PYTHONPATH="/x", VIRTUAL_ENV="/y")
    assert done.stdout == "none none\n"


def test_a_changed_source_or_requirement_means_a_new_installation(copy):
    first = shell("state test", cwd=copy).stdout
    assert first == shell("state test", cwd=copy).stdout
    assert first != shell("state cuda13", cwd=copy).stdout
    (copy / "umfpy" / "core.pyx").write_text("x = 1\n", encoding="utf-8")
    second = shell("state test", cwd=copy).stdout
    (copy / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    third = shell("state test", cwd=copy).stdout
    assert len({first, second, third}) == 3


def test_a_python_source_does_not(copy):
    first = shell("state test", cwd=copy).stdout
    (copy / "umfpy" / "core.py").write_text("x = 1\n", encoding="utf-8")
    assert first == shell("state test", cwd=copy).stdout


def test_the_scripts_go_to_the_repository_by_themselves(copy):
    """ci/demo from another folder: with no Python there, it says so, and about the right place."""
    tools = _tools(copy)
    (tools / "dirname").symlink_to(shutil.which("dirname"))
    done = subprocess.run(
        [str(copy / "ci" / "demo")],
        cwd="/",
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "no Python >= 3.10" in done.stderr


def _tools(folder):
    """A PATH with what the scripts need, and neither Python nor a compiler."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "cksum", "tr", "find", "sort", "rm"):
        (tools / name).symlink_to(shutil.which(name))
    return tools
