"""What a manager has, as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from umfpy.manager.usage import MemoryUsage, PoolUsage
from umfpy.units import format_size

if TYPE_CHECKING:
    from umfpy.manager.persistent import PageCounts


def format_report(
    name: str,
    usage: MemoryUsage,
    persistent: Mapping[int, PageCounts],
    pools: Sequence[PoolUsage],
) -> str:
    """Return the report: persistent pages by size, each dynamic pool, and a summary.

    Parameters
    ----------
    persistent
        {page size: counts}.
    """
    lines = [f"Memory of {name}", "  persistent pages"]
    lines += [_persistent_line(size, counts) for size, counts in persistent.items()] or ["    none"]
    lines.append("  pools")
    lines += [_pool_line(pool) for pool in pools]
    lines += _summary(usage)
    return "\n".join(lines)


def _persistent_line(size: int, pages: PageCounts) -> str:
    asleep = f"{pages.asleep} asleep, " if pages.asleep else ""
    return (
        f"    {format_size(size)}: {pages.ready} free, {asleep}{pages.used} full, "
        f"{pages.total} in all"
    )


def _pool_line(pool: PoolUsage) -> str:
    usage = pool.usage
    idle = f"{pool.idle_pages} idle"
    if pool.asleep_pages:
        idle += f", {pool.asleep_pages} asleep"
    return (
        f"    {pool.name}: {usage.number_allocs} slices of {format_size(usage.bytes_in_use)} in "
        f"{pool.pages} pages ({idle}) of {format_size(usage.bytes_reserved)}"
    )


def _summary(usage: MemoryUsage) -> list[str]:
    lines = [
        "  summary",
        f"    slices     {usage.number_allocs} (peak {usage.peak_number_allocs})",
        f"    in use     {_bytes(usage.bytes_in_use)} (peak {_bytes(usage.peak_bytes_in_use)})",
        f"    padding    {_bytes(usage.bytes_padding)} (overhead {usage.padding_overhead:.1%})",
        f"    reserved   {_bytes(usage.bytes_reserved)} (peak {_bytes(usage.peak_bytes_reserved)})",
        f"    efficiency {usage.efficiency:.1%}",
    ]
    if usage.bytes_hidden or usage.bytes_unbacked:
        lines.append(
            f"    asleep     {_bytes(usage.bytes_hidden)} hidden, and addresses of "
            f"{_bytes(usage.bytes_unbacked)} without memory"
        )
    return lines


def _bytes(size: int) -> str:
    return format_size(size) if size < 1024 else f"{format_size(size)} ({size} B)"
