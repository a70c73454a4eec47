"""Runs the checks on a pool."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

from umfpy.pools.base import ProviderPool
from umfpy.testing.pool_registry import POOL_REGISTRY
from umfpy.testing.pool_subject import PoolFactory, PoolOptions, PoolSubject
from umfpy.testing.report import Report
from umfpy.testing.runner import run_checks
from umfpy.units import parse_size

for _name in (
    "requests",
    "refusals",
    "contents",
    "tracking",
    "limits",
    "rungs",
    "streams",
    "ends",
    "threads",
    "ipc",
):
    importlib.import_module(f"umfpy.testing.pool_{_name}")


def check_pool(
    factory: PoolFactory,
    *,
    checks: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    live_count: Callable[[ProviderPool], int] | None = None,
    process_setup: Callable[[], object] | None = None,
    largest_alignment: int | str = "4MiB",
    threads: int = 8,
    streams: tuple[int, int] = (1, 2),
) -> Report:
    """Try every sentence of the contract of pools on a pool.

    Each check gets a pool of its own from `factory`, and frees and closes it.  What the pool
    stands on is not closed.

    Parameters
    ----------
    factory
        Makes a pool; any callable.  A few MiB must be free in its provider.
    checks, skip
        Names out of `POOL_CHECKS`: only these, all but those.
    live_count
        How many native allocations there are below a pool; if not given, the ``live_count()`` of
        the provider at the bottom, if it has one.  Without either, leaks go unseen.
    process_setup
        What the second process does first, such as loading an emulated driver.  It must pickle.
    largest_alignment
        Where to stop trying alignments, in bytes or as text.
    threads
        How many threads allocate at once.
    streams
        Native handles of two streams other than the default one.  The kit queues nothing on
        them, but a pool with ``zero=True`` does: on a device with streams they must exist.

    Raises
    ------
    InvalidArgument
        There is no check of that name.

    Examples
    --------
    >>> import umfpy
    >>> check_pool(lambda: umfpy.Pool(umfpy.HostProvider()), checks=["counts"]).failed
    []
    """
    options = PoolOptions(
        live_count=live_count,
        process_setup=process_setup,
        largest_alignment=parse_size(largest_alignment),
        threads=threads,
        streams=streams,
    )
    chosen = POOL_REGISTRY.choose(checks, skip)
    return run_checks(chosen, factory, lambda pool: PoolSubject(pool, options))
