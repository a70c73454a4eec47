"""The C structures of the core, read and written from outside: for planting faults in them.

The layouts come from the declarations themselves, so that they cannot drift from them.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

CORE = Path(__file__).parents[2] / "umfpy" / "core"

_STRUCT = re.compile(r"^cdef struct (\w+):\n((?:^ {4}.*\n|^\n)+)", re.MULTILINE)
_FIELD = re.compile(r"^    (\w+)((?:\[\w+\])*)(\**) (\w+)((?:\[\w+\])*)")
_PLAIN: dict[str, Any] = {
    "bint": ctypes.c_int,
    "int": ctypes.c_int,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}

#: Before the map in an `ExtentMap` object: reference count, type, table of methods.
_HEADER = 3 * ctypes.sizeof(ctypes.c_void_p)


def _field(line: str) -> tuple[str, Any] | None:
    match = _FIELD.match(line)
    if match is None:
        return None
    kind, before, pointer, name, after = match.groups()
    if pointer and not after:
        return name, ctypes.c_void_p
    field: Any = ctypes.c_void_p if pointer else _PLAIN[kind]
    for length in reversed(re.findall(r"\[(\w+)\]", before + after)):
        field = field * int(length, 0)
    return name, field


def _read(file: str) -> None:
    for name, body in _STRUCT.findall((CORE / file).read_text()):
        fields = [field for line in body.splitlines() if (field := _field(line))]
        _PLAIN[name] = type(name, (ctypes.Structure,), {"_fields_": fields})


for _file in ("lock.pxd", "bins.pxd", "regions.pxd", "structs.pxd"):
    _read(_file)


class Structures:
    """The structures of one `ExtentMap`; `restore` undoes every `poke`."""

    def __init__(self, space: object) -> None:
        self.map = _PLAIN["Map"].from_address(id(space) + _HEADER)
        self._undo: list[tuple[Any, str | int, int]] = []

    def block(self, index: int) -> Any:
        return self._at("Block", self.map.blocks, index)

    def extent(self, index: int) -> Any:
        return self._at("Extent", self.map.extents, index)

    def bins(self, tag: int) -> Any:
        shelf = ctypes.c_void_p.from_address(self.map.shelves + 8 * tag)
        return _PLAIN["Shelf"].from_address(shelf.value).bins

    def regions(self, extent: int) -> Any:
        return _PLAIN["Regions"].from_address(self.extent(extent).regions)

    def word(self, address: int, index: int, kind: Any) -> Any:
        return (kind * (index + 1)).from_address(address)

    def blocks_of(self, extent: int) -> list[int]:
        """The blocks of an extent in order, without the sentinel."""
        found, block = [], self.extent(extent).first
        while self.block(block).next:
            found.append(block)
            block = self.block(block).next
        return found

    def poke(self, target: Any, field: str | int, value: int) -> None:
        """Write a field, or an element, and remember what was there."""
        if isinstance(field, int):
            self._undo.append((target, field, target[field]))
            target[field] = value
        else:
            self._undo.append((target, field, getattr(target, field)))
            setattr(target, field, value)

    def restore(self) -> None:
        while self._undo:
            target, field, value = self._undo.pop()
            if isinstance(field, int):
                target[field] = value
            else:
                setattr(target, field, value)

    def _at(self, name: str, array: int, index: int) -> Any:
        return _PLAIN[name].from_address(array + index * ctypes.sizeof(_PLAIN[name]))
