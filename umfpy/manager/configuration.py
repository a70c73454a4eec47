"""Which pools a manager has: a preset, or a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umfpy.arguments import check_flag
from umfpy.errors import ConfigurationError, InvalidArgument
from umfpy.manager.errors import MalformedConfiguration
from umfpy.manager.options import PoolOptions, SlicedOptions
from umfpy.manager.parse import parse_entries, read_file
from umfpy.manager.presets import PRESETS
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.resolve import needs_sliced, refuse_sliced_preset, resolve_pools
from umfpy.units import parse_size

_SMALLEST_ARENA = 32 << 20


@dataclass(frozen=True)
class MemoryConfiguration:
    """Which pools a `MemoryManager` has.

    Made by `sub_slices`, `exclusive_pages`, `single_arena`, `explicit` or `from_toml`; by hand it
    raises MalformedConfiguration as these do.

    Attributes
    ----------
    preset
        The preset's name, None for a list.
    pools
        The list as it was written, () for a preset.
    checked
        Whether a manager takes the list only as `resolve` does.  Otherwise, for lists made in a
        program, a cap below one page shrinks the pages.
    source
        The file that it comes from, None if from none.
    """

    preset: str | None = None
    pools: tuple[PoolOptions, ...] = ()
    checked: bool = False
    source: str | None = None

    def __post_init__(self) -> None:
        if self.preset is None:
            object.__setattr__(self, "pools", parse_entries(self.pools))
            return
        object.__setattr__(self, "preset", _preset_name(self.preset))
        if self.pools:
            raise MalformedConfiguration(
                f"a configuration has a preset or a list of pools: leave {self.preset!r} out, or "
                "the list",
                field="preset",
            )

    @classmethod
    def sub_slices(cls) -> MemoryConfiguration:
        """A few sizes of pages, cut into slices: few driver calls, dense."""
        return cls(preset="sub_slices")

    @classmethod
    def exclusive_pages(cls) -> MemoryConfiguration:
        """A page for each slice, given back after a while of idleness."""
        return cls(preset="exclusive_pages")

    @classmethod
    def single_arena(cls, largest: int | str) -> MemoryConfiguration:
        """One sliced pool for all requests, with pages for the largest of them.

        Parameters
        ----------
        largest
            The largest request in bytes, or as text; pages have at least 32 MiB.
        """
        return cls.explicit([SlicedOptions(max(parse_size(largest), _SMALLEST_ARENA))])

    @classmethod
    def explicit(cls, entries: Iterable[object]) -> MemoryConfiguration:
        """The pools in this order: the first that accepts a request serves it.

        Parameters
        ----------
        entries
            `SlicedOptions`, `ExclusiveOptions`, or mappings such as ``{"type": "sliced",
            "page_size": "64MiB", "max_slice_size": None, "max_pool_size": "1GiB",
            "dealloc_period": None}`` and ``{"type": "exclusive", "max_alloc_size": "1MiB"}``;
            sizes in bytes or as text.

        Raises
        ------
        MalformedConfiguration
            An unknown kind or field, a missing one, or a value that cannot be read.
        """
        return cls(pools=parse_entries(entries))

    @classmethod
    def from_toml(cls, path: str | Path) -> MemoryConfiguration:
        """Read a file: ``preset = "sub_slices"``, or tables ``[[pools]]`` as in `explicit`.

        Raises
        ------
        MalformedConfiguration
            The file cannot be read, or as of `explicit`; the message names it.
        InvalidArgument
            `path` is none.
        """
        found = read_file(path)
        try:
            if "preset" in found:
                return cls(preset=found["preset"], source=str(path))
            return cls(pools=found["pools"], checked=True, source=str(path))
        except MalformedConfiguration as error:
            raise _naming(path, error) from error

    @classmethod
    def of(cls, chosen: str | MemoryConfiguration | Iterable[object]) -> MemoryConfiguration:
        """Return a configuration: itself, a preset by name, or a list as of `explicit`."""
        if isinstance(chosen, cls):
            return chosen
        if isinstance(chosen, str):
            return cls(preset=chosen)
        if isinstance(chosen, Iterable):
            return cls.explicit(chosen)
        raise MalformedConfiguration(
            f"a configuration is a preset ({', '.join(map(repr, PRESETS))}), a "
            f"MemoryConfiguration or a list of pools, not {chosen!r}"
        )

    def resolve(
        self,
        properties: MemoryProperties | Mapping[str, Any],
        *,
        exclusive_only: bool = False,
    ) -> tuple[PoolOptions, ...]:
        """Return the pools that this comes to, with every size aligned.

        Parameters
        ----------
        properties
            `MemoryProperties`, or a mapping with its fields in bytes; ``largest_request`` may be
            left out.
        exclusive_only
            Whether sliced pools are unavailable.

        Raises
        ------
        ConfigurationError
            One of `umfpy.manager.errors`, naming entry, field, value and remedy.
        InvalidArgument
            Another argument makes no sense.
        """
        check_flag(exclusive_only, "exclusive_only")
        return self._resolve(_as_properties(properties), exclusive_only, shrink=False)

    def build_pools(self, properties: MemoryProperties) -> tuple[PoolOptions, ...]:
        """Return the pools that a manager makes of this; raises as `resolve`, see `checked`."""
        return self._resolve(properties, exclusive_only=False, shrink=not self.checked)

    def _resolve(
        self, properties: MemoryProperties, exclusive_only: bool, shrink: bool
    ) -> tuple[PoolOptions, ...]:
        if self.preset is not None:
            pools = PRESETS[self.preset](properties)
            if exclusive_only and needs_sliced(pools):
                refuse_sliced_preset(self.preset)
            return pools
        try:
            return resolve_pools(
                self.pools, properties, exclusive_only=exclusive_only, shrink=shrink
            )
        except ConfigurationError as error:
            if self.source is None:
                raise
            raise _naming(self.source, error) from error


def resolve(
    layout: str | MemoryConfiguration | Iterable[object] | None,
    default: str | MemoryConfiguration,
    properties: MemoryProperties | Mapping[str, Any],
    *,
    exclusive_only: bool = False,
) -> tuple[PoolOptions, ...]:
    """Return the pools of `layout`, or of `default` where it is None; see the method."""
    chosen = MemoryConfiguration.of(default if layout is None else layout)
    return chosen.resolve(properties, exclusive_only=exclusive_only)


def _as_properties(properties: MemoryProperties | Mapping[str, Any]) -> MemoryProperties:
    if isinstance(properties, MemoryProperties):
        return properties
    try:
        return MemoryProperties(**properties)
    except TypeError as error:
        raise InvalidArgument(
            "properties needs max_page_size and alignment, may have largest_request, and nothing "
            f"else, not {properties!r}"
        ) from error


def _preset_name(name: object) -> str:
    normal = name.replace("-", "_") if isinstance(name, str) else ""
    if normal not in PRESETS:
        raise MalformedConfiguration(
            f"preset = {name!r} is unknown; use {' or '.join(map(repr, PRESETS))}, a list of "
            f"pools, or {_made_elsewhere(name)}",
            field="preset",
        )
    return normal


def _made_elsewhere(name: object) -> str:
    """Say what makes a configuration that is no preset; of a file, if `name` may be one."""
    if isinstance(name, str) and (name.endswith(".toml") or "/" in name):
        return f"for a file MemoryConfiguration.from_toml({name!r})"
    return "MemoryConfiguration.single_arena(largest)"


def _naming(path: object, error: ConfigurationError) -> ConfigurationError:
    """Return the same error with the file in front of its message."""
    named = type(error).__new__(type(error))
    named.args = (f"{path}: {error}",)
    named.__dict__.update(error.__dict__)
    return named
