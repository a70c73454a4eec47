"""What is installed: every package, every source of what is compiled, nothing at the top level."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def _listed(key: str) -> list[str]:
    """The strings of a list in pyproject.toml; Python 3.10 has no tomllib."""
    block = re.search(rf"^{key} = \[\n(.*?)^\]", PYPROJECT, re.DOTALL | re.MULTILINE)
    assert block is not None
    return re.findall(r'"([^"]+)"', block[1])


def _packages_there() -> set[str]:
    found = set()
    for top, name in (("umfpy", "umfpy"), ("providers", "umfpy.providers")):
        for file in (ROOT / top).rglob("__init__.py"):
            parts = file.parent.relative_to(ROOT / top).parts
            found.add(".".join([name, *parts]))
    return found


def test_every_package_is_listed():
    assert set(_listed("packages")) == _packages_there()


def test_every_c_file_of_the_emulated_drivers_is_built():
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "providers/emulated").rglob("*")
        if path.suffix in (".c", ".h", ".def")
    }
    listed = {name for name in _listed("ext-modules") if name.startswith("providers/emulated/")}
    assert listed == files


def test_every_cython_module_is_built():
    listed = set(_listed("ext-modules"))
    for path in (ROOT / "umfpy").rglob("*.pyx"):
        assert str(path.relative_to(ROOT)) in listed


def test_the_installed_command_runs():
    command = shutil.which("umfpy", path=str(Path(sys.executable).parent))
    assert command is not None
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "umfpy, version 0.1.0\n"


def test_python_dash_m_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "umfpy", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "umfpy, version 0.1.0\n"


def test_nothing_called_providers_at_the_top_level(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import umfpy.providers.host, providers"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert "No module named 'providers'" in done.stderr
