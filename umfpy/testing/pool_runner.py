"""Runs the checks on a pool."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

from umfpy.arguments import check_callable, check_items, check_kind, check_number
from umfpy.errors import InvalidArgument
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
        There is no check of that name, or another argument makes no sense; `factory` is a pool,
        or makes none.

    Examples
    --------
    >>> import umfpy
    >>> check_pool(lambda: umfpy.Pool(umfpy.HostProvider()), checks=["counts"]).failed
    []
    """
    check_callable(factory, "factory", "makes a pool")
    if live_count is not None:
        check_callable(live_count, "live_count", "counts what is below a pool")
    if process_setup is not None:
        check_callable(process_setup, "process_setup", "is called first in the second process")
    options = PoolOptions(
        live_count=live_count,
        process_setup=process_setup,
        largest_alignment=parse_size(largest_alignment),
        threads=check_number(threads, "threads", least=1),
        streams=_two_streams(streams),
    )
    chosen = POOL_REGISTRY.choose(checks, skip)
    return run_checks(chosen, factory, lambda pool: PoolSubject(_made(pool), options))


def _made(pool: object) -> ProviderPool:
    return check_kind(pool, ProviderPool, "what the factory makes", "a pool, such as a umfpy.Pool")


def _two_streams(streams: tuple[int, int]) -> tuple[int, int]:
    handles = check_items(streams, "streams", "two native handles")
    if len(handles) != 2 or handles[0] == handles[1]:
        raise InvalidArgument(f"streams must be two different native handles, not {streams!r}")
    first, second = (check_number(handle, "a stream", least=1) for handle in handles)
    return first, second
