"""Dependencies point down only: what a module may import, by the layers of the design."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Each part of the package, and the parts that it may import from besides itself.
BASE = {"arguments", "closing", "errors", "lazy", "leaving", "units"}
PROVIDER = BASE | {"provider"}
CORE = PROVIDER | {"core"}
POOLS = CORE | {"pools"}
ALL_BELOW = POOLS | {"coarse", "find", "ipc", "streams", "manager", "observe", "providers"}
LAYERS = {
    "closing": set(),
    "errors": set(),
    "lazy": set(),
    "leaving": {"errors"},
    "units": {"arguments", "errors"},
    "arguments": {"errors"},
    "provider": BASE,
    "core": PROVIDER,
    "pools": CORE,
    "coarse": POOLS,
    "find": CORE,
    "providers": PROVIDER,
    "ipc": POOLS | {"coarse", "find", "providers"},
    "manager": POOLS | {"coarse", "find", "streams"},
    "streams": POOLS,
    "observe": ALL_BELOW,
    "trace": ALL_BELOW,
    "integrations": ALL_BELOW,
    "testing": ALL_BELOW,
    "bench": ALL_BELOW | {"trace", "integrations", "cli"},
    "cli": ALL_BELOW | {"trace", "integrations", "testing", "bench"},
}

#: The one look upwards: a method of an allocation that needs a layer above when it is called.
UPWARDS = {"umfpy.core.pool": {"umfpy.ipc"}}

#: Modules of drivers and of libraries above; the core knows none.
FOREIGN = {"cuda", "cupy", "torch", "numba", "pyopencl", "ctypes", "numpy"}

_CYTHON_IMPORT = re.compile(r"^\s*from\s+([\w.]+)\s+c?import|^\s*c?import\s+([\w.]+)", re.MULTILINE)


def modules() -> list[Path]:
    return [
        path
        for folder in ("umfpy", "providers")
        for suffix in ("py", "pyx", "pxd", "pyi")
        for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))
    ]


def part_of(name: str) -> str:
    """`umfpy.core.pool` is a part of `core`; `umfpy` itself is the face that shows everything."""
    return name.split(".")[1] if "." in name else ""


def name_of(path: Path) -> str:
    relative = path.relative_to(ROOT).with_suffix("")
    parts = [part for part in relative.parts if part != "__init__"]
    return ".".join(parts if parts[0] == "umfpy" else ["umfpy", *parts])


def imports_of(path: Path) -> set[str]:
    source = path.read_text()
    if path.suffix in (".pyx", ".pxd"):
        return {first or second for first, second in _CYTHON_IMPORT.findall(source)}
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            if node.module == "umfpy":  # through the face: count what is taken from it
                found.update(f"umfpy.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_imports_from_its_own_layer_and_below(path: Path) -> None:
    part = part_of(name_of(path))
    if part in ("", "__main__"):
        return
    allowed = LAYERS[part] | {part}
    wrong = {
        name
        for name in imports_of(path)
        if name.startswith("umfpy.") and part_of(name) in LAYERS and part_of(name) not in allowed
    }
    wrong -= UPWARDS.get(name_of(path), set())
    assert not wrong, f"{part} may import from {sorted(allowed)}"


def test_the_core_knows_no_driver() -> None:
    for path in (ROOT / "umfpy" / "core").iterdir():
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi"):
            roots = {name.split(".")[0] for name in imports_of(path)}
            assert not roots & FOREIGN, path.name


def test_the_test_kit_needs_no_test_framework() -> None:
    for path in (ROOT / "umfpy" / "testing").rglob("*.py"):
        assert not {name.split(".")[0] for name in imports_of(path)} & {"pytest", "hypothesis"}
