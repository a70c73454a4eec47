"""What a layout is made for: the device's largest page, and the unit of slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umfpy.errors import InvalidArgument
from umfpy.provider import Provider
from umfpy.units import parse_size

#: The part of a device that a page may take, and what stands for it where nobody knows the whole.
_PAGE_PART = 4
_UNKNOWN_MAX_PAGE = 128 << 20
_NAMES = ("max_page_size", "alignment")


@dataclass(frozen=True)
class MemoryProperties:
    """The numbers that presets are made of.

    Attributes
    ----------
    max_page_size
        The largest page of a preset in bytes.
    alignment
        Slices start at multiples of it within their page, and are padded to it; any number of
        bytes, as a rule a power of two.
    """

    max_page_size: int
    alignment: int

    def __post_init__(self) -> None:
        for name in _NAMES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidArgument(f"{name} must be a number of bytes from 1 on, not {value!r}")
        if self.granule > 1 << 30 or self.max_page_size >= 1 << 62:
            raise InvalidArgument(
                f"alignment may have at most 30 factors of two, and max_page_size less than 2^62 "
                f"bytes: not {self.alignment} and {self.max_page_size}"
            )

    @classmethod
    def of(
        cls, provider: Provider, given: MemoryProperties | Mapping[str, Any] | None
    ) -> MemoryProperties:
        """Return what is given, and for the rest what the provider says.

        Raises InvalidArgument for an unknown name, or a value that is no size.
        """
        if isinstance(given, MemoryProperties):
            return given
        chosen = dict(given or {})
        if unknown := set(chosen) - set(_NAMES):
            raise InvalidArgument(
                f"properties has no {sorted(map(str, unknown))}; there are {', '.join(_NAMES)}"
            )
        alignment = chosen.get("alignment")
        largest = chosen.get("max_page_size")
        unit = provider.granule if alignment is None else parse_size(alignment)
        return cls(_page_of(provider, unit) if largest is None else parse_size(largest), unit)

    @property
    def granule(self) -> int:
        """The largest power of two that divides the alignment: the unit of the extent map."""
        return self.alignment & -self.alignment

    def align_up(self, size: int) -> int:
        """Return the lowest multiple of the alignment that is at least `size`."""
        return -(-size // self.alignment) * self.alignment

    def align_down(self, size: int) -> int:
        """Return the highest multiple of the alignment that is at most `size`."""
        return size // self.alignment * self.alignment


def _page_of(provider: Provider, unit: int) -> int:
    info = provider.memory_info()
    if info is None:
        return _UNKNOWN_MAX_PAGE
    return max(info[1] // _PAGE_PART // max(unit, 1) * unit, unit)
