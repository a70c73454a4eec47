"""Element types, as NumPy, DLPack and the buffer protocol name them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from umfpy.errors import InvalidArgument

#: DLDataTypeCode of dlpack.h, by the kind letter of NumPy's typestr.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4

#: The buffer protocol's format, by typestr without byte order: what `memoryview.cast` takes.
_FORMATS = dict(
    zip(
        ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"),
        "?bhiqBHIQfd",
        strict=True,
    )
)

_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}

#: What Python's own types mean in NumPy.
_PYTHON = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}

_ORDER = "<" if sys.byteorder == "little" else ">"


@dataclass(frozen=True)
class ElementType:
    """One type of array elements, in this machine's byte order.

    Attributes
    ----------
    name
        NumPy's, such as ``"float32"``; also ``"bfloat16"``.
    code
        DLPack's DLDataTypeCode.
    itemsize
        Bytes.
    typestr
        NumPy's, such as ``"<f4"``; None where it has none.
    format
        The buffer protocol's; None where it has none.
    """

    name: str
    code: int
    itemsize: int
    typestr: str | None
    format: Any

    @property
    def dlpack(self) -> tuple[int, int, int]:
        """DLPack's code, bits and lanes."""
        return self.code, 8 * self.itemsize, 1

    def __str__(self) -> str:
        return self.name


def _make(kind: str, size: int) -> ElementType:
    name = _KINDS[kind] + ("" if kind == "b" else str(8 * size))
    order = _ORDER if size > 1 else "|"
    return ElementType(
        name, _CODES[kind], size, f"{order}{kind}{size}", _FORMATS.get(f"{kind}{size}")
    )


_TYPES = [_make(kind, size) for kind, sizes in _SIZES.items() for size in sizes]
_TYPES.append(ElementType("bfloat16", _BFLOAT, 2, None, None))
_BY_NAME = {one.name: one for one in _TYPES}
_BY_TYPESTR = {one.typestr.lstrip("<>|"): one for one in _TYPES if one.typestr}
_BY_DLPACK = {one.dlpack: one for one in _TYPES}


def element_type(dtype: Any) -> ElementType:
    """Return the type that `dtype` means.

    Parameters
    ----------
    dtype
        A name (``"float32"``), a typestr (``"f4"``, ``"<f4"``), a NumPy dtype or scalar type,
        PyTorch's (``torch.float32``), one of Python's number types, or an `ElementType`.

    Raises
    ------
    InvalidArgument
        It means none that arrays here can have; the message lists them.
    """
    if isinstance(dtype, ElementType):
        return dtype
    text = _PYTHON.get(dtype) if isinstance(dtype, type) else None
    if text is None:
        text = dtype if isinstance(dtype, str) else _text_of(dtype)
    found = _BY_NAME.get(text)
    if found is None and text[:1] in ("|", "=", _ORDER):
        found = _BY_TYPESTR.get(text[1:])
    found = found or _BY_TYPESTR.get(text)
    if found is None:
        raise InvalidArgument(
            f"{dtype!r} is no element type here; use one of {', '.join(_BY_NAME)}, in this "
            "machine's byte order"
        )
    return found


def dlpack_type(code: int, bits: int, lanes: int) -> ElementType:
    """Return the type that a DLDataType means; raises InvalidArgument for unknown ones."""
    found = _BY_DLPACK.get((code, bits, lanes))
    if found is None:
        raise InvalidArgument(
            f"DLPack's type with code {code}, {bits} bits and {lanes} lanes is none of "
            f"{', '.join(_BY_NAME)}"
        )
    return found


def _text_of(dtype: Any) -> str:
    # A NumPy dtype has `str`, a scalar type `__name__`; PyTorch's says "torch.float32".
    text = getattr(dtype, "str", None)
    if isinstance(text, str):
        return text
    name = getattr(dtype, "__name__", None) or str(dtype)
    return str(name).rpartition(".")[2]
