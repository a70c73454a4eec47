"""Checks of the end of allocations and pools, and of pools that stand on the pool."""

from __future__ import annotations

import gc
import warnings

from umfpy.errors import InvalidArgument
from umfpy.find import find
from umfpy.pools.growth import Growth
from umfpy.pools.pool import Pool
from umfpy.testing.pool_registry import pool_check
from umfpy.testing.pool_subject import PoolSubject
from umfpy.testing.subject import expect


@pool_check("an Allocation that is dropped is freed, and so is one whose `with` ends")
def drop_frees(subject: PoolSubject) -> None:
    before = subject.pool.stats().live_allocations
    subject.allocate(subject.unit)
    subject.forget()
    gc.collect()
    live = subject.pool.stats().live_allocations
    expect(live == before, f"{before} live allocations after the drop", live)
    with subject.allocate(subject.unit) as allocation:
        live = subject.pool.stats().live_allocations
        expect(live == before + 1, f"{before + 1} live allocations inside `with`", live)
    expect(allocation.freed, "freed at the end of `with`", allocation.freed)


@pool_check("close with live allocations warns, and they can be used and freed afterwards")
def close_with_live(subject: PoolSubject) -> None:
    ptr, allocation = subject.alloc(subject.unit), subject.allocate(subject.unit)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        subject.pool.close()
    told = [str(one.message) for one in caught if issubclass(one.category, ResourceWarning)]
    expect(len(told) == 1, "one ResourceWarning from close with live allocations", told)
    expect("2" in told[0], "a warning that says how many: 2", told[0])
    subject.free(ptr)
    allocation.free()
    live = subject.pool.stats().live_allocations
    expect(live == 0, "0 live allocations after they were freed", live)


@pool_check("a closed pool gives nothing out; closing twice is fine, and silent without live ones")
def close_refuses(subject: PoolSubject) -> None:
    subject.free(subject.alloc(subject.unit))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        subject.pool.close()
        subject.pool.close()
    told = [str(one.message) for one in caught if issubclass(one.category, ResourceWarning)]
    expect(not told, "no warning from close with nothing live", told)
    expect(subject.pool.closed, "closed after close()", subject.pool.closed)
    left = subject.pool.stats().reserved_bytes
    expect(left == 0, "0 bytes held after close", left)
    for call in (subject.pool.malloc, subject.pool.allocate):
        what = f"{call.__name__} of a closed pool"
        subject.refused(what, (InvalidArgument,), call, subject.unit)


@pool_check("pools stand on the pool, to any depth, and hold their memory there")
def nested(subject: PoolSubject) -> None:
    before = subject.pool.stats().live_allocations
    growth = Growth(subject.unit, 16 * subject.unit)
    low = Pool(subject.pool, growth=growth)
    high = Pool(low, growth=growth)
    allocation = high.allocate(subject.granule)
    info = find(allocation.ptr)
    expect(info is not None and info.pool is high, "find tells the innermost pool", info)
    expect(subject.pool.owns(allocation.ptr), "the lowest pool owns the address too", False)
    for extent in list(low.map.extents.values()):
        what = "free of memory that another pool lives in"
        subject.refused(what, (InvalidArgument,), subject.pool.free, extent.base)
    allocation.free()
    high.close()
    low.close()
    live = subject.pool.stats().live_allocations
    expect(live == before, f"{before} live allocations after the pools above are closed", live)
