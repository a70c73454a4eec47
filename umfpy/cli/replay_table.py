"""The results of ``umfpy replay`` for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from umfpy.cli.output import console
from umfpy.trace.trace import Trace
from umfpy.units import format_size


def print_table(rows: list[dict[str, Any]], traces: list[Trace]) -> None:
    """Write a table, a line for each trace; columns that nobody can fill are left out."""
    columns = {
        "trace": [Path(row["trace"]).name.removesuffix(".gz").removesuffix(".csv") for row in rows],
        "operations": [f"{row['allocations'] + row['frees']:,}" for row in rows],
        "peak live": [format_size(row["peak_live_bytes"]) for row in rows],
        "peak reserved": [format_size(row["peak_reserved_bytes"]) for row in rows],
        "utilization": [f"{row['utilization']:.3f}" for row in rows],
        "PyTorch's": [_ratio(trace.torch_utilization) for trace in traces],
        "provider calls": [f"{row['provider_allocs'] + row['provider_frees']:,}" for row in rows],
        "ns/operation": [_number(row["ns_per_op"]) for row in rows],
        "modelled driver ms": [_milliseconds(row["modelled_driver_us"]) for row in rows],
        "failed": [f"{row['failed']:,}" if row["failed"] else "" for row in rows],
    }
    table = Table(title=f"{rows[0]['pool']} pool, {rows[0]['provider']} memory")
    kept = {title: cells for title, cells in columns.items() if any(cells)}
    for title in kept:
        table.add_column(title, justify="left" if title == "trace" else "right", no_wrap=True)
    for cells in zip(*kept.values(), strict=True):
        table.add_row(*cells)
    console().print(table)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _milliseconds(value_us: float | None) -> str:
    return "" if value_us is None else f"{value_us / 1000:,.1f}"
