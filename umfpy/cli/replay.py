"""``umfpy replay``: what a program asked of its allocator, asked of a pool of umfpy."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from umfpy.cli.output import note, print_json
from umfpy.cli.parameters import UNITS, read_size
from umfpy.cli.progress import progress_bar
from umfpy.cli.replay_table import print_table
from umfpy.cli.tables import DEFAULT_PROVIDERS, POOLS, PROVIDERS, VIRTUAL_POOLS
from umfpy.cli.target import EMULATED_MEMORY, open_target
from umfpy.trace.measure import Measurement
from umfpy.trace.replay import ReplayResult
from umfpy.trace.trace import Trace
from umfpy.units import format_size


@click.command("replay")
@click.argument(
    "traces",
    metavar="TRACE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False),
)
@click.option(
    "--provider",
    "provider_name",
    type=click.Choice(list(PROVIDERS)),
    default=None,
    help="Where the pool takes memory from; cuda if not given, and cuda_vmm for --pool vmm.",
)
@click.option(
    "--emulate", is_flag=True, help="Use an emulated GPU, also where there is a real one."
)
@click.option(
    "--pool",
    "pool_name",
    type=click.Choice(list(POOLS)),
    default="default",
    show_default=True,
    help="default: umfpy.Pool; vmm: the same with addresses and memory managed apart; proxy: "
    "every request goes to the provider; coarse: ProxyPool over CoarseProvider; slab: SlabPool; "
    "manager: MemoryManager, with the preset sub_slices or another layout; single_arena: one "
    "whose pages take the trace's largest request.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=read_size,
    help=f"What the emulated GPU has ({EMULATED_MEMORY} if not given), or, of other providers, "
    f"the most to take. {UNITS}",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How many replays the time is the median of; one more takes the counts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a list, sizes in exact bytes.")
@click.pass_context
def command(
    ctx: click.Context,
    traces: tuple[str, ...],
    provider_name: str | None,
    emulate: bool,
    pool_name: str,
    memory: int | None,
    repeat: int,
    as_json: bool,
) -> None:
    """Replay allocation traces (.csv or .csv.gz) on a pool, and report what it took.

    Counts are those at the end of the trace.  utilization is the peak of live bytes over the peak
    of what the provider had handed out; ns_per_op is the time in the pool, driver calls included.
    Exit code 1 if memory ran out on the way.
    """
    provider_name = provider_name or DEFAULT_PROVIDERS.get(pool_name, "cuda")
    _check_fits(pool_name, provider_name)
    make_pool, name = POOLS[pool_name], f"{pool_name} over {provider_name}"
    loaded = [Trace.load(path) for path in traces]
    with (
        open_target(provider_name, emulate=emulate, memory=memory) as make_target,
        progress_bar("Replaying", len(loaded) * (repeat + 1)) as advance,
    ):
        results = [
            make_target(partial(make_pool, trace, name)).measure(
                trace, repeat=repeat, advance=advance
            )
            for trace in loaded
        ]
    rows = [
        _row(trace, provider_name, pool_name, measured)
        for trace, measured in zip(loaded, results, strict=True)
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, loaded)
    if _report_failures([measured.result for measured in results], loaded):
        ctx.exit(1)


def _check_fits(pool: str, provider: str) -> None:
    """Raise UsageError for a pool that cannot be had over this provider."""
    if pool in VIRTUAL_POOLS and not PROVIDERS[provider].virtual:
        *others, last = (name for name, choice in PROVIDERS.items() if choice.virtual)
        raise click.UsageError(
            f"--pool {pool} needs virtual memory, which --provider {provider} has not; choose "
            f"{', '.join(others)} or {last}"
        )


def _row(trace: Trace, provider: str, pool: str, measured: Measurement) -> dict[str, Any]:
    """Return the result as ``--json`` prints it."""
    return {
        "trace": trace.name,
        "provider": provider,
        "pool": pool,
        "allocations": measured.result.allocations,
        "frees": measured.result.frees,
        "peak_live_bytes": measured.result.peak_live_bytes,
        "peak_reserved_bytes": measured.peak_reserved_bytes,
        "utilization": measured.utilization,
        "provider_allocs": measured.provider_allocs,
        "provider_frees": measured.provider_frees,
        "ns_per_op": measured.ns_per_op,
        "modelled_driver_us": measured.modelled_driver_us,
        "failed": measured.result.failed,
    }


def _report_failures(results: list[ReplayResult], traces: list[Trace]) -> bool:
    """Say which traces did not fit, why, and what they need at least; whether there were any."""
    failed = [(done, trace) for done, trace in zip(results, traces, strict=True) if done.failed]
    for done, trace in failed:
        note(
            f"{trace.name}: {done.failed} of {trace.allocations} allocations found no memory; "
            f"its peak of live memory is {format_size(trace.peak_live_bytes)} "
            f"({trace.peak_live_bytes} bytes), of which --memory has to be more; the first was "
            f"told: {done.refusal}"
        )
    return bool(failed)
