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
#: The largest request that an extent map takes.
_LARGEST = (1 << 62) - 1
_NAMES = ("max_page_size", "alignment", "largest_request")


@dataclass(frozen=True)
class MemoryProperties:
    """The numbers that presets are made of.

    Attributes
    ----------
    max_page_size
        The largest page of a preset in bytes.
    alignment
        Slices start at multiples of it within their page, and are padded to it; any number of
        bytes, as a rule a power of two, of which their addresses are multiples as well.  With
        another number these are multiples of the largest power of two that divides it alone.
    largest_request
        The bytes up to which a preset serves what is larger than its largest page, each request
        with a page of its own.  None: it serves nothing that is larger.
    """

    max_page_size: int
    alignment: int
    largest_request: int | None = None

    def __post_init__(self) -> None:
        for name in _NAMES:
            value = getattr(self, name)
            if value is None and name == "largest_request":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidArgument(f"{name} must be a number of bytes from 1 on, not {value!r}")
            if value > _LARGEST:
                raise InvalidArgument(f"{name} must be less than 2^62 bytes, not {value}")
        if self.granule > 1 << 30:
            raise InvalidArgument(
                f"alignment may have at most 30 factors of two, and {self.alignment} has more"
            )
        if self.largest_request is not None and self.largest_request < self.max_page_size:
            raise InvalidArgument(
                f"largest_request = {self.largest_request} is less than max_page_size = "
                f"{self.max_page_size}, up to which presets take requests anyway; raise the one, "
                "or lower the other"
            )

    @classmethod
    def of(
        cls, provider: Provider, given: MemoryProperties | Mapping[str, Any] | None
    ) -> MemoryProperties:
        """Return what is given, and for the rest what the provider says.

        A largest page that is given bounds requests to presets.  One that follows from the device
        does not: then whatever the device could hold is served.

        Raises InvalidArgument for an unknown name, or a value that is no size.
        """
        if isinstance(given, MemoryProperties):
            return given
        chosen = _sizes_in({} if given is None else given)
        alignment = chosen.setdefault("alignment", provider.granule)
        if "max_page_size" not in chosen:
            page, largest = _bounds_of(provider, alignment)
            largest = chosen.setdefault("largest_request", largest)
            page = min(page, max(largest // alignment * alignment, alignment))
            chosen["max_page_size"] = page
        return cls(**chosen)

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


def _sizes_in(given: object) -> dict[str, int]:
    """Return the properties that are given, in bytes."""
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            f"properties are MemoryProperties, or a mapping with any of {', '.join(_NAMES)}, not "
            f"{given!r}"
        )
    if unknown := set(given) - set(_NAMES):
        raise InvalidArgument(
            f"properties has no {sorted(map(str, unknown))}; there are {', '.join(_NAMES)}"
        )
    return {name: _size_of(name, value) for name, value in given.items() if value is not None}


def _size_of(name: str, value: Any) -> int:
    try:
        size = parse_size(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"{name} = {value!r} cannot be read: {error}") from error
    if size == 0:
        raise InvalidArgument(f"{name} must be a number of bytes from 1 on, not {value!r}")
    return size


def _bounds_of(provider: Provider, unit: int) -> tuple[int, int]:
    """Return the largest page for a provider's memory, and the largest request."""
    info = provider.memory_info()
    if info is None:
        return _UNKNOWN_MAX_PAGE, _LARGEST
    total = min(info[1], _LARGEST)
    return max(total // _PAGE_PART // unit * unit, unit), max(total, 1)
