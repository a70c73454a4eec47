"""The checks of pools themselves: each finds the defect planted for it, and no other check does.

Every class keeps the whole contract but for one sentence.  The conditions look contrived, because
they have to keep the defect out of the way of all other checks.
"""

from __future__ import annotations

import ctypes
import doctest
import pickle
import threading
import warnings
from dataclasses import replace

import pytest

import umfpy.pools.slab_limit
import umfpy.testing.pool_runner
from umfpy import Capability, HostProvider, InvalidArgument, OutOfMemoryError, Pool, find
from umfpy.pools.base import ProviderPool
from umfpy.pools.rungs import RUNGS, Trimmed
from umfpy.testing import POOL_CHECKS, ConformanceError, Outcome, check_pool

#: check: the pool that breaks it.
PLANTED: dict[str, type[Pool]] = {}

#: As HostProvider has them in these checks.
GRANULE, PAGE = HostProvider.granule, HostProvider().granularity()


def plant(check):
    """Enter a class under the name of the check that it must fail."""

    def enter(cls):
        assert check not in PLANTED
        PLANTED[check] = cls
        return cls

    return enter


class Planted(Pool):
    """A pool on private host memory."""

    def __init__(self, provider: HostProvider | None = None) -> None:
        super().__init__(provider or HostProvider())

    def forgive(self, why, call, *arguments, **options):
        """Accept silently what the pool refuses for this reason."""
        try:
            call(*arguments, **options)
        except InvalidArgument as error:
            if why not in str(error):
                raise


class Streamed(HostProvider):
    """Host memory that says it is worked on by streams."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities |= Capability.STREAMS

    def synchronize(self) -> None: ...


class Wrapped:
    """An allocation that may lie."""

    def __init__(self, inner) -> None:
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.inner.__exit__(*exc_info)


def wrapping(kind):
    """A pool whose allocations are of this kind."""

    class Wrapping(Planted):
        def allocate(self, *arguments, **options):
            return kind(super().allocate(*arguments, **options))

    return Wrapping


# Requests.


@plant("malloc_free")
class NotAgain(Planted):
    def malloc(self, size, *rest, **options):
        now = self.stats()
        if size == 5 * PAGE and (now.allocations, now.frees) == (7, 7):
            raise OutOfMemoryError("five pages are enough")
        return super().malloc(size, *rest, **options)


@plant("allocate_free")
class OneMore(Planted):
    def allocate(self, size, *rest, **options):
        return super().allocate(size + (size == 3 * PAGE + 1), *rest, **options)


@plant("pool_odd_sizes")
class EvenSizes(Planted):
    def malloc(self, size, *rest, **options):
        if size == 65_537:
            raise InvalidArgument("an even size is needed")
        return super().malloc(size, *rest, **options)


@plant("pool_empty_sizes")
class NegativeIsNothing(Planted):
    def malloc(self, size, *rest, **options):
        return super().malloc(max(size, 0), *rest, **options)


class Shifts(Planted):
    """Gives some addresses a little too high."""

    def __init__(self) -> None:
        super().__init__()
        self.shifted: dict[int, int] = {}

    def shift(self, size, alignment, by):
        ptr = super().malloc(size + by, alignment) + by
        self.shifted[ptr] = by
        return ptr

    def free(self, ptr, size=None, stream=None):
        by = self.shifted.pop(ptr, 0)
        super().free(ptr - by if by else ptr, size + by if by else size, stream)


@plant("pool_default_alignment")
class BelowTheGranule(Shifts):
    def malloc(self, size, alignment=0, *rest, **options):
        if size == 3 * PAGE:
            return self.shift(size, alignment, 8)
        return super().malloc(size, alignment, *rest, **options)


@plant("pool_alignments")
class HalfAligned(Shifts):
    def malloc(self, size, alignment=0, *rest, **options):
        if (size, alignment) == (1, 1 << 20):
            return self.shift(size, alignment, GRANULE)
        return super().malloc(size, alignment, *rest, **options)


@plant("pool_bad_alignments")
class RoundsAlignments(Planted):
    def malloc(self, size, alignment=0, *rest, **options):
        return super().malloc(size, 16 if alignment == 12 else alignment, *rest, **options)


@plant("pool_distinct")
class Overlaps(Planted):
    first = fake = 0

    def malloc(self, size, *rest, **options):
        if size == 5 * GRANULE + 19 and threading.current_thread() is threading.main_thread():
            self.fake = self.first + 1
            return self.fake
        ptr = super().malloc(size, *rest, **options)
        if size == 2 * GRANULE + 1:
            self.first = ptr
        return ptr

    def free(self, ptr, *rest, **options):
        if ptr is None or ptr != self.fake:
            super().free(ptr, *rest, **options)


@plant("pool_huge_sizes")
class Wraps(Planted):
    def malloc(self, size, *rest, **options):
        return super().malloc(size % (1 << 64) if size > 0 else size, *rest, **options)


# Refusals.


@plant("pool_double_free")
class ForgivesDoubleFrees(Planted):
    def __init__(self) -> None:
        super().__init__()
        self.gone: set[int] = set()

    def malloc(self, *arguments, **options):
        ptr = super().malloc(*arguments, **options)
        self.gone.discard(ptr)
        return ptr

    def free(self, ptr, *rest, **options):
        if ptr in self.gone:
            return
        super().free(ptr, *rest, **options)
        if ptr:
            self.gone.add(ptr)


class FreesTwice(Wrapped):
    def free(self, stream=None):
        if not self.inner.freed:
            self.inner.free(stream)


PLANTED["stale_allocation"] = wrapping(FreesTwice)


@plant("pool_foreign_pointer")
class ForgivesOne(Planted):
    def free(self, ptr, *rest, **options):
        if ptr != 1:
            super().free(ptr, *rest, **options)


@plant("pool_interior_pointer")
class ForgivesInside(Planted):
    def free(self, *arguments, **options):
        self.forgive("lies inside", super().free, *arguments, **options)


@plant("pool_wrong_size")
class LooksAway(Planted):
    def free(self, ptr, size=None, stream=None):
        super().free(ptr, None if size == (1 << 64) - 1 else size, stream)


@plant("owned_address")
class ForgivesOwned(Planted):
    def free(self, *arguments, **options):
        self.forgive("belongs to an Allocation", super().free, *arguments, **options)


@plant("free_nothing")
class NeedsAnAddress(Planted):
    def free(self, ptr, *rest, **options):
        if ptr is None:
            raise InvalidArgument("an address is needed")
        super().free(ptr, *rest, **options)


# Contents.


@plant("pool_keeps_contents")
class Scribbles(Planted):
    first = 0

    def malloc(self, size, *rest, **options):
        ptr = super().malloc(size, *rest, **options)
        if threading.current_thread() is threading.main_thread():
            if size == GRANULE and not self.first:
                self.first = ptr
            elif size == 4 * GRANULE + 7 and self.stats().frees == 4:
                ctypes.memset(self.first, 0, 16)
        return ptr


@plant("zero_request")
class HalfZeroed(Planted):
    def malloc(self, size, alignment=0, stream=None, zero=False):
        return super().malloc(size, alignment, stream, zero and size == 4 * PAGE + 5)


class CannotClear(HostProvider):
    def __init__(self) -> None:
        super().__init__()
        self.capabilities &= ~Capability.ZERO


@plant("zero_refused")
class IgnoresZero(HalfZeroed):
    def __init__(self) -> None:
        super().__init__(CannotClear())


@plant("trim_keeps_live")
class TrimsTooMuch(Planted):
    def trim(self, keep_bytes=0, **rung):
        for start, _, used, _ in self.map.blocks():
            if used and not rung:
                ctypes.memset(start, 0, 16)
        return super().trim(keep_bytes, **rung)


# Tracking.


@plant("find_addresses")
class OwnsStarts(Planted):
    def owns(self, address):
        info = find(address)
        return super().owns(address) and info is not None and info.offset == 0


@plant("find_freed")
class OwnsForEver(Planted):
    def __init__(self) -> None:
        super().__init__()
        self.ever: set[int] = set()

    def malloc(self, *arguments, **options):
        ptr = super().malloc(*arguments, **options)
        self.ever.add(ptr)
        return ptr

    def owns(self, address):
        return address in self.ever or super().owns(address)


class Nameless(Wrapped):
    id = 7


PLANTED["unique_ids"] = wrapping(Nameless)


@plant("counts")
class CountsHalf(Planted):
    def stats(self):
        now = super().stats()
        return replace(now, frees=now.frees // 2)


@plant("sums")
class KeepsPeaks(Planted):
    def reset_peaks(self):
        return


# Limits.


@plant("limit")
class LimitForEver(Planted):
    @property
    def limit_bytes(self):
        return ProviderPool.limit_bytes.fget(self)

    @limit_bytes.setter
    def limit_bytes(self, limit):
        if limit is not None or not hasattr(self, "_limit_bytes"):
            ProviderPool.limit_bytes.fset(self, limit)


@plant("out_of_memory")
class SaysNothing(Planted):
    def malloc(self, *arguments, **options):
        try:
            return super().malloc(*arguments, **options)
        except OutOfMemoryError:
            raise OutOfMemoryError("none left") from None


@plant("usable_again")
class StaysDry(Planted):
    dry = False

    def malloc(self, size, *rest, **options):
        try:
            if self.dry and self.limit_bytes is not None:
                raise OutOfMemoryError("none left", requested=size)
            return super().malloc(size, *rest, **options)
        except OutOfMemoryError:
            self.dry = True
            raise


@plant("trim_all")
class TrimsInSilence(Planted):
    def trim(self, keep_bytes=0, **rung):
        given = super().trim(keep_bytes, **rung)
        return given if keep_bytes or rung else 0


@plant("trim_keep")
class TrimsAll(Planted):
    def trim(self, keep_bytes=0, **rung):
        return super().trim(0, **rung)


@plant("rungs_told")
class TellsTwice(Planted):
    def trim(self, keep_bytes=0, *, rung="free"):
        went = super().trim(keep_bytes, rung=rung)
        return Trimmed(2 * went, went.rung) if rung == "dalloc" else went


@plant("rungs_keep_live")
class PurgesLive(Planted):
    def trim(self, keep_bytes=0, *, rung="free"):
        for start, _, used, _ in self.map.blocks():
            if used and rung == "purge_force":
                ctypes.memset(start, 0, 16)
        return super().trim(keep_bytes, rung=rung)


@plant("rungs_come_back")
class StaysDown(Planted):
    gone = False

    def trim(self, keep_bytes=0, *, rung="free"):
        went = super().trim(keep_bytes, rung=rung)
        self.gone |= went.rung == "decommit" and not self.stats().live_allocations
        return went

    def malloc(self, *arguments, **options):
        if self.gone:
            raise OutOfMemoryError("what is gone is gone")
        return super().malloc(*arguments, **options)


@plant("rungs_refused")
class AnyRung(Planted):
    def trim(self, keep_bytes=0, *, rung="free"):
        return super().trim(keep_bytes, rung=rung if rung in RUNGS else "free")


@plant("rungs_no_leaks")
class LeaksOnTheWayDown(Planted):
    def trim(self, keep_bytes=0, *, rung="free"):
        if rung == "dalloc":
            self.provider.alloc(PAGE)
        return super().trim(keep_bytes, rung=rung)


@plant("pool_no_leaks")
class Leaks(Planted):
    def trim(self, keep_bytes=0, **rung):
        if not rung:
            self.provider.alloc(PAGE)
        return super().trim(keep_bytes, **rung)


# Streams.


class Streamless(Wrapped):
    stream = 0


PLANTED["stream_of_allocation"] = wrapping(Streamless)


@plant("stream_order")
class OneStream(Planted):
    def __init__(self) -> None:
        super().__init__(Streamed())

    def malloc(self, size, alignment=0, stream=None, zero=False):
        return super().malloc(size, alignment, 0 if stream in (1, 2) else stream, zero)


@plant("free_on_stream")
class FreesOnItsOwn(Planted):
    def __init__(self) -> None:
        super().__init__(Streamed())

    def free(self, ptr, size=None, stream=None):
        super().free(ptr, size, None if stream in (1, 2) else stream)


@plant("pool_synchronize")
class DoesNotWait(Planted):
    def __init__(self) -> None:
        super().__init__(Streamed())

    def synchronize(self):
        if self.stats().live_allocations:
            super().synchronize()


# Ends.


@plant("drop_frees")
class Hoards(Planted):
    def __init__(self) -> None:
        super().__init__()
        self.hoard: list[object] = []

    def allocate(self, *arguments, **options):
        allocation = super().allocate(*arguments, **options)
        self.hoard.append(allocation)
        return allocation

    def close(self):
        self.hoard.clear()
        super().close()


@plant("close_with_live")
class ClosesInSilence(Planted):
    def close(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().close()


@plant("close_refuses")
class NeverClosed(Planted):
    closed = False


@plant("nested")
class ForgivesParents(Planted):
    def free(self, *arguments, **options):
        self.forgive("another pool", super().free, *arguments, **options)


# Threads.


@plant("pool_threads")
class FewThreads(Planted):
    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def malloc(self, *arguments, **options):
        self.threads.add(threading.get_ident())
        if len(self.threads) > 4:
            raise RuntimeError("too many threads")
        return super().malloc(*arguments, **options)


@plant("pool_free_in_other_thread")
class OwnThreadOnly(Planted):
    def __init__(self) -> None:
        super().__init__()
        self.homes: dict[int, int] = {}

    def malloc(self, *arguments, **options):
        ptr = super().malloc(*arguments, **options)
        self.homes[ptr] = threading.get_ident()
        return ptr

    def free(self, ptr, *rest, **options):
        if self.homes.get(ptr, threading.get_ident()) != threading.get_ident():
            raise InvalidArgument("free it where it came from")
        super().free(ptr, *rest, **options)


# Sharing.


class ExportsAnother(HostProvider):
    """Exports memory of its own instead of the memory asked for."""

    def ipc_export(self, ptr, size):
        return super().ipc_export(self.alloc(size), size)


@plant("pool_ipc")
class SharesAnother(Planted):
    def __init__(self) -> None:
        super().__init__(ExportsAnother(shared=True))


class SharesPrivately(Wrapped):
    def ipc_handle(self):
        return self.inner.ipc_handle() if self.inner.freed else b"take this"


PLANTED["ipc_refused"] = wrapping(SharesPrivately)


class SharesWhatIsGone(Wrapped):
    def ipc_handle(self):
        return b"take this" if self.inner.freed else self.inner.ipc_handle()


PLANTED["ipc_freed"] = wrapping(SharesWhatIsGone)


@pytest.mark.parametrize("check", list(POOL_CHECKS))
def test_a_planted_bug_fails_its_check_and_no_other(check):
    report = check_pool(PLANTED[check])
    assert [result.name for result in report.failed] == [check], str(report)


def test_every_plant_has_a_check():
    assert set(PLANTED) == set(POOL_CHECKS)


def test_the_checks_pass_without_a_plant():
    reports = [check_pool(Planted), check_pool(lambda: Planted(Streamed()))]
    reports.append(check_pool(lambda: Planted(CannotClear())))
    reports.append(check_pool(lambda: Planted(HostProvider(shared=True))))
    passed: set[str] = set()
    for report in reports:
        report.raise_if_failed()
        passed |= {result.name for result in report.passed}
    assert passed == set(POOL_CHECKS)


def test_a_report_says_what_was_broken():
    report = check_pool(PLANTED["trim_keep"])
    (failed,) = report.failed
    assert failed.contract == POOL_CHECKS["trim_keep"].contract
    assert failed.outcome is Outcome.FAILED
    assert "nothing given back by trim(" in failed.expected
    assert str(report).startswith(f"TrimsAll: {len(report.passed)} passed, 1 failed, ")
    with pytest.raises(ConformanceError, match="trim_keep"):
        report.raise_if_failed()
    assert pickle.loads(pickle.dumps(report)) == report


def test_choosing_checks():
    assert [r.name for r in check_pool(Planted, checks=["counts"]).results] == ["counts"]
    names = [r.name for r in check_pool(Planted, skip=["counts", "sums"]).results]
    assert names == [name for name in POOL_CHECKS if name not in ("counts", "sums")]
    with pytest.raises(InvalidArgument, match="no check 'x'"):
        check_pool(Planted, skip=["x"])


def test_leaks_are_counted_by_the_callback_where_the_provider_cannot():
    class Silent(HostProvider):
        live_count = None

    def factory():
        return Pool(Silent())

    (skipped,) = check_pool(factory, checks=["pool_no_leaks"]).skipped
    assert skipped.reason == "nothing says how many native allocations are live"
    counts = iter([0, 1])
    leaking = check_pool(factory, checks=["pool_no_leaks"], live_count=lambda _: next(counts))
    (failed,) = leaking.failed
    assert failed.seen == "1"


def test_a_setup_that_does_not_pickle_is_a_skip():
    report = check_pool(
        lambda: Pool(HostProvider(shared=True)), checks=["pool_ipc"], process_setup=lambda: None
    )
    (skipped,) = report.skipped
    assert "second process cannot be told" in skipped.reason


def test_docstrings():
    for module in (umfpy.testing.pool_runner, umfpy.pools.slab_limit):
        failed, tried = doctest.testmod(module)
        assert tried
        assert not failed
