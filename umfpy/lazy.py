"""What a package shows and loads only when it is first asked for (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, *, submodules: Iterable[str] = (), names: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package.

    Parameters
    ----------
    package
        The package's ``__name__``.
    submodules
        The public modules in it.
    names
        What else it shows, and the module that each is in.
    """
    modules = frozenset(submodules)
    elsewhere = dict(names or {})
    shown = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in elsewhere:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        shown[name] = value = getattr(import_module(elsewhere[name]), name)
        return value

    def names_of_package() -> list[str]:
        return sorted({*shown, *modules, *elsewhere})

    return get, names_of_package
