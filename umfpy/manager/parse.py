"""Entries of a layout, from objects, dicts and files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from umfpy.arguments import check_path
from umfpy.errors import InvalidArgument
from umfpy.manager.errors import MalformedConfiguration
from umfpy.manager.options import KINDS, ExclusiveOptions, PoolOptions, SlicedOptions
from umfpy.units import parse_size

#: The standard library's from Python 3.11 on; the same as a package before.
_toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

_TOP_KEYS = ("preset", "pools")


def parse_entries(entries: Iterable[object]) -> tuple[PoolOptions, ...]:
    """Return the options that the entries stand for; MalformedConfiguration names the first bad.

    An entry is `SlicedOptions`, `ExclusiveOptions`, or a mapping with a ``type`` of ``"sliced"``
    or ``"exclusive"`` and the fields of these.  Sizes are bytes or text.
    """
    if isinstance(entries, (str, bytes, Mapping)) or not isinstance(entries, Iterable):
        raise MalformedConfiguration(
            f"a layout is a list of pools, not {type(entries).__name__}: put the pools into a list"
        )
    return tuple(_parse(place, entry) for place, entry in enumerate(entries))


def read_file(path: str | Path) -> Mapping[str, Any]:
    """Return the contents of a TOML file: ``preset`` or ``pools``.

    Raises MalformedConfiguration, naming the file, if it is no TOML or has anything else.
    """
    try:
        with open(check_path(path, "path"), "rb") as file:
            found: dict[str, Any] = _toml.load(file)
    except (_toml.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedConfiguration(f"{path} is no TOML: {error}") from error
    except OSError as error:
        raise MalformedConfiguration(f"{path} cannot be read: {error}") from error
    if unknown := sorted(set(found) - set(_TOP_KEYS)):
        raise MalformedConfiguration(
            f"{path}: {unknown[0]!r} is unknown at the top; there are 'preset' and [[pools]]",
            field=unknown[0],
        )
    if len(found) != 1:
        how = "both 'preset' and [[pools]]" if found else "neither 'preset' nor [[pools]]"
        raise MalformedConfiguration(f"{path} has {how}; give one of them")
    if not isinstance(found.get("pools", []), list):
        raise MalformedConfiguration(
            f"{path}: pools is no list: write [[pools]] above the fields of each pool",
            field="pools",
        )
    return found


def _parse(place: int, entry: object) -> PoolOptions:
    if isinstance(entry, (SlicedOptions, ExclusiveOptions)):
        entry = {"type": _name(entry), **vars(entry)}
    if not isinstance(entry, Mapping):
        raise MalformedConfiguration(
            f"pools[{place}] is {entry!r}; write a table with a type and its fields", entry=place
        )
    kind = entry.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise MalformedConfiguration(
            f"pools[{place}]: type = {kind!r} is no kind of pool; use "
            f"{' or '.join(map(repr, KINDS))}",
            entry=place,
            field="type",
        )
    return _build(place, kind, entry)


def _name(options: PoolOptions) -> str:
    return next(name for name, kind in KINDS.items() if isinstance(options, kind))


def _build(place: int, kind: str, entry: Mapping[str, Any]) -> PoolOptions:
    known = {field.name: field for field in fields(KINDS[kind])}
    for name in entry:
        if name != "type" and name not in known:
            raise MalformedConfiguration(
                f"pools[{place}] ({kind}): {name!r} is no field of it; there are "
                f"{', '.join(known)}",
                entry=place,
                field=str(name),
            )
    values: dict[str, Any] = {}
    for name, field in known.items():
        required = field.default is MISSING
        value = entry.get(name)
        if value is None and required:
            raise MalformedConfiguration(
                f"pools[{place}] ({kind}): {name} is missing; give it in bytes, or as text such "
                "as '64MiB'",
                entry=place,
                field=name,
            )
        values[name] = None if value is None else _number(place, kind, name, value)
    return KINDS[kind](**values)


def _number(place: int, kind: str, name: str, value: object) -> int:
    """Read a size, or a count of requests."""
    counted = name == "dealloc_period"
    what = "a number of requests from 1 on" if counted else "bytes, or text such as '64MiB'"
    if isinstance(value, bool) or not isinstance(value, int if counted else (int, str)):
        raise _malformed(place, kind, name, value, what)
    try:
        number = parse_size(value)
    except InvalidArgument as error:
        raise _malformed(place, kind, name, value, what) from error
    if (counted and number == 0) or number >= 1 << 62:
        raise _malformed(place, kind, name, value, f"{what}, below 2^62")
    return number


def _malformed(
    place: int, kind: str, name: str, value: object, what: str
) -> MalformedConfiguration:
    return MalformedConfiguration(
        f"pools[{place}] ({kind}): {name} = {value!r} cannot be read; write {what}",
        entry=place,
        field=name,
        value=value,
    )
