"""Memory that is freed, trimmed or taken elsewhere in the middle of its export."""

from __future__ import annotations

import gc
import random
import threading

import pytest
from ipc_support import descriptors

from umfpy import Growth, InvalidArgument, Pool, StaleHandle
from umfpy.core.extents import innermost
from umfpy.ipc import export, open_ipc
from umfpy.ipc.root_exports import find_export

MIB = 1 << 20
CHUNK = 2 * MIB
PATIENCE_S = 30

pytestmark = pytest.mark.parametrize("side", ["cuda_vmm"], indirect=True)


@pytest.fixture
def pool(side):
    made = Pool(side.provider)
    yield made
    gc.collect()
    made.close()


@pytest.fixture
def hook(side, monkeypatch):
    """Have something done once, before or after the next call of a provider's method."""

    def hook(method, action, *, after=False):
        original = getattr(side.provider, method)

        def called(*arguments, **options):
            monkeypatch.setattr(side.provider, method, original)
            if not after:
                action()
            result = original(*arguments, **options)
            if after:
                action()
            return result

        monkeypatch.setattr(side.provider, method, called)

    return hook


def exports_made(side):
    return side.counts().get("export", 0)


class Background:
    """A call in another thread; what it raises is raised by `join`."""

    def __init__(self, call):
        self._call = call
        self._error = None
        self._thread = threading.Thread(target=self._run)

    def start(self):
        self._thread.start()

    def join(self):
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self):
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - `join` raises it
            self._error = error


def test_freed_before_the_export_is_entered(side, pool, hook):
    """Nothing is exported, and nothing is left that would be."""
    piece = pool.allocate(CHUNK)
    hook("ipc_range", piece.free, after=True)
    with pytest.raises(StaleHandle, match="while it was being exported"):
        export(piece)
    assert exports_made(side) == 0
    again = pool.allocate(CHUNK)
    assert open_ipc(export(again)).ptr == again.ptr


def test_gone_before_the_export_is_entered(side, pool, hook):
    piece = pool.allocate(CHUNK)

    def lose():
        piece.free()
        assert pool.trim(rung="decommit") == CHUNK

    hook("ipc_range", lose)
    with pytest.raises(StaleHandle, match="while it was being exported") as caught:
        export(piece.ptr)
    assert isinstance(caught.value.__cause__, InvalidArgument)
    assert exports_made(side) == 0


@pytest.mark.parametrize("after", [False, True])
def test_trimmed_while_it_is_exported(side, pool, hook, after):
    """Who trims waits for the export, and ends it."""
    with pool.allocate(1) as piece:
        export(piece)
    pool.trim(rung="decommit")
    before = descriptors()
    piece = pool.allocate(CHUNK)
    ptr = piece.ptr

    def lose():
        piece.free()
        assert pool.trim(rung="decommit") == CHUNK

    losing = Background(lose)

    def freed():
        losing.start()
        while pool.map.describe(ptr) is not None:
            pass  # until the other thread has freed it

    hook("ipc_export", freed, after=after)
    with pytest.raises(StaleHandle, match="while it was being exported"):
        export(piece)
    losing.join()
    assert not innermost(ptr).export
    assert descriptors() == before
    again = pool.allocate(CHUNK)
    assert open_ipc(export(again)).ptr == again.ptr


def test_taken_elsewhere_before_it_is_exported(side, pool, hook):
    """The chunk is behind other addresses by then, and somebody else's."""
    piece, between = pool.allocate(CHUNK), pool.allocate(CHUNK)
    others = []

    def lose():
        piece.free()
        held = pool.stats().reserved_bytes
        others.append(pool.allocate(CHUNK + MIB))
        others.append(pool.allocate(MIB))
        assert pool.stats().reserved_bytes < held + CHUNK + MIB + CHUNK

    ptr = piece.ptr
    hook("ipc_export", lose)
    with pytest.raises(StaleHandle, match="while it was being exported"):
        export(piece)
    assert not side.provider.chunks(ptr, CHUNK)
    assert exports_made(side) == 0
    for one in (between, *others):
        assert open_ipc(export(one)).ptr == one.ptr


@pytest.mark.parametrize("by_address", [False, True])
def test_somebody_else_s_before_it_is_exported(side, peer, pool, hook, by_address):
    """The same chunk, and another allocation: who had it gets no handle, who has it does."""
    piece = pool.allocate(CHUNK)
    heirs = []

    def lose():
        piece.free()
        heirs.append(pool.allocate(CHUNK))

    hook("ipc_export", lose)
    with pytest.raises(StaleHandle, match="while it was being exported"):
        export(piece.ptr if by_address else piece)
    (heir,) = heirs
    assert heir.ptr == piece.ptr
    side.write(heir.ptr, b"the heir")
    handle = export(heir)
    assert exports_made(side) == 1
    assert peer("bytes(open_ipc(h).copy_to_host())[:8]", h=bytes(handle)) == b"the heir"
    peer("clear_cache()\nNone")


def test_made_smaller_while_it_is_exported(side, pool, hook):
    piece = pool.allocate(2 * CHUNK)
    hook("ipc_export", lambda: piece.resize(100))
    with pytest.raises(StaleHandle, match="made smaller"):
        export(piece)
    assert export(piece).size == 100


def test_made_larger_while_it_is_exported(side, pool, hook):
    piece = pool.allocate(CHUNK)
    hook("ipc_export", lambda: piece.resize(2 * CHUNK))
    assert export(piece).size == CHUNK
    assert export(piece).size == 2 * CHUNK


def test_a_chunk_that_is_exported_before_it_is_taken_elsewhere_stays(side, pool, hook):
    """A stale export was faster than the pool: the pool takes other memory, and says nothing."""
    spare, between = pool.allocate(CHUNK), pool.allocate(CHUNK)
    at = spare.ptr
    payloads = []
    hook("remap", lambda: payloads.append(side.provider.ipc_export(at, CHUNK)))
    spare.free()
    larger = pool.allocate(2 * CHUNK)
    assert len(payloads) == 1
    assert side.provider.chunks(at, CHUNK)[0].exported
    pool.check()
    side.provider.ipc_release(payloads[0])
    pool.trim()
    assert not side.provider.chunks(at, CHUNK)
    for piece in (between, larger):
        assert open_ipc(export(piece)).ptr == piece.ptr


def test_a_remap_that_is_refused_for_another_reason_is_told(side, pool, monkeypatch):
    spare, between = pool.allocate(CHUNK), pool.allocate(CHUNK)

    def refuse(sources, to, size):
        raise InvalidArgument("as told")

    spare.free()
    with monkeypatch.context() as patch:
        patch.setattr(side.provider, "remap", refuse)
        with pytest.raises(InvalidArgument, match="as told"):
            pool.allocate(2 * CHUNK)
    pool.check()
    assert pool.allocate(2 * CHUNK).ptr != between.ptr


@pytest.mark.parametrize("stop_at", ["split", "decommit"])
def test_a_root_that_loses_a_part_while_it_is_exported(side, peer, monkeypatch, stop_at):
    """A pool that is not virtual: its root was to be exported as a whole, and is not whole."""
    pool = Pool(side.provider, growth=Growth(8 * MIB, 8 * MIB))
    low, middle, high = (pool.allocate(size) for size in (MIB, 4 * MIB, 3 * MIB))
    middle.free()
    there, go_on = threading.Event(), threading.Event()
    ipc_range, step = side.provider.ipc_range, getattr(side.provider, stop_at)

    def stop(*arguments):
        there.set()
        assert go_on.wait(PATIENCE_S)
        return step(*arguments)

    def range_before(ptr, size, root):
        monkeypatch.setattr(side.provider, "ipc_range", ipc_range)
        found = ipc_range(ptr, size, root)
        assert found == root
        trimming.start()
        assert there.wait(PATIENCE_S)
        return found

    trimming = Background(lambda: pool.trim(rung="decommit"))
    monkeypatch.setattr(side.provider, stop_at, stop)
    monkeypatch.setattr(side.provider, "ipc_range", range_before)
    early = export(low)
    go_on.set()
    trimming.join()
    # Before the cut it was the whole root's, and ended with the part; after it, it stays.
    assert (find_export(early.root.export_id) is not None) == (stop_at == "decommit")
    assert (early.root.size == CHUNK) == (stop_at == "decommit")
    side.write(low.ptr, b"all there")
    for _ in range(2):
        handle = export(low)
        assert peer("bytes(open_ipc(h).copy_to_host())[:9]", h=bytes(handle)) == b"all there"
        pool.allocate(4 * MIB).free()  # the root is whole again
    peer("clear_cache()\nNone")
    for piece in (low, high):
        piece.free()
    pool.close()


def test_threads_that_share_free_and_trim(side, peer, pool):
    """Each handle leads to the memory that it was made for, or there is none."""
    asking = threading.Lock()
    code = """
with open_ipc(h) as mapping:
    seen = bytes(mapping.copy_to_host(bytearray(16)))
clear_cache()
seen
"""

    def work(number):
        rng = random.Random(number)
        for turn in range(25):
            piece = pool.allocate(rng.choice([100, MIB, CHUNK, 5 * MIB]))
            mark = b"%8d%8d" % (number, turn)
            side.write(piece.ptr, mark)
            handle = export(piece)
            with asking:
                assert peer(code, h=bytes(handle)) == mark
            piece.free()
            if rng.random() < 0.4:
                pool.trim(rng.choice([0, 4 * MIB]), rung=rng.choice(["decommit", "free"]))

    threads = [Background(lambda number=number: work(number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.check()


def test_a_thread_that_shares_what_others_free(side, pool):
    """A good handle of the right allocation, or StaleHandle: nothing else, ever."""
    pieces = []
    stop = threading.Event()

    def share():
        while not stop.is_set():
            for piece in list(pieces):
                try:
                    handle = export(piece)
                except StaleHandle:
                    continue
                assert (handle.size, handle.root.provider) == (piece.size, "cuda_vmm")

    sharing = [Background(share) for _ in range(2)]
    for thread in sharing:
        thread.start()
    rng = random.Random(1)
    try:
        for _ in range(300):
            pieces.append(pool.allocate(rng.choice([100, MIB, CHUNK, 3 * MIB])))
            if len(pieces) > 6:
                pieces.pop(rng.randrange(6)).free()
            if rng.random() < 0.2:
                pool.trim(rung="decommit")
    finally:
        stop.set()
        for thread in sharing:
            thread.join()
    pool.check()
    before = exports_made(side)
    for piece in pieces:
        assert open_ipc(export(piece)).ptr == piece.ptr
    assert exports_made(side) >= before
    pieces.clear()
