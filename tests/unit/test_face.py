"""What `import umfpy` shows, and what it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import umfpy

#: Packages that show their submodules without an import of these.
SUBMODULES = {
    "umfpy": ("integrations", "ipc", "manager", "providers", "testing", "trace"),
    "umfpy.integrations": ("arrays", "cupy", "dlpack", "pyopencl", "pytorch", "sycl"),
    "umfpy.providers": ("cuda", "emulated", "host", "level_zero", "opencl"),
}
FULL_NAMES = [f"{package}.{name}" for package, names in SUBMODULES.items() for name in names]


def told_by(code: str) -> str:
    """Return what a fresh interpreter prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize("name", FULL_NAMES)
def test_a_public_submodule_needs_no_import_of_its_own(name: str) -> None:
    if name == "umfpy.integrations.cupy":
        pytest.importorskip("cupy")
    assert told_by(f"import umfpy; print({name}.__name__)") == name


@pytest.mark.parametrize("package", SUBMODULES)
def test_a_package_lists_what_it_would_load(package: str) -> None:
    listed = told_by(f"import umfpy; print(*dir({package}))").split()
    assert set(SUBMODULES[package]) <= set(listed)
    assert listed == sorted(listed)


def test_everything_public_is_listed_and_there() -> None:
    assert set(umfpy.__all__) <= set(dir(umfpy))
    assert all(hasattr(umfpy, name) for name in umfpy.__all__)


def test_sharing_is_at_the_top_both_ways() -> None:
    assert umfpy.export is umfpy.ipc.export
    assert umfpy.open_ipc is umfpy.ipc.open_ipc


def test_an_import_of_umfpy_loads_no_back_end() -> None:
    loaded = told_by("import sys, umfpy; print(*sys.modules)").split()
    assert not {name for name in FULL_NAMES if name in loaded}
    assert not {"numpy", "ctypes", "cuda", "cupy", "pyopencl"} & set(loaded)


@pytest.mark.parametrize("package", SUBMODULES)
def test_what_is_not_there_is_an_attribute_error(package: str) -> None:
    module = sys.modules.get(package) or __import__(package, fromlist=["_"])
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nonsense'"):
        _ = module.nonsense
