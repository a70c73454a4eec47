"""Memory of a pool whose addresses have memory only here and there: what is shared are chunks."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing

import ipc_children
import pytest
from ipc_support import Peer, descriptors

import umfpy
from umfpy import (
    CoarseProvider,
    Growth,
    HostProvider,
    IpcError,
    MemoryManager,
    NotSupported,
    Pool,
    ProxyPool,
    SlabPool,
)
from umfpy.core.extents import innermost
from umfpy.ipc import clear_cache, export, open_ipc
from umfpy.ipc.root_exports import find_export

MIB = 1 << 20
CHUNK = 2 * MIB

OPEN = "opened = [open_ipc(h) for h in handles]\n[m.size for m in opened]"
READ = "[bytes(m.copy_to_host()) for m in opened]"
WRITE = "[m.copy_from_host(data) for m, data in zip(opened, replies)]"
CLOSE = "[m.close() for m in opened], clear_cache()\nside.counts()"

pytestmark = pytest.mark.parametrize("side", ["cuda_vmm"], indirect=True)


@pytest.fixture
def pool(side):
    made = Pool(side.provider)
    assert made.virtual
    yield made
    gc.collect()  # what a test's exceptions refer to
    made.close()


def pattern(size, *salt):
    return hashlib.shake_128(repr(salt).encode()).digest(size)


def cover(piece):
    """Return (address, bytes) of the chunks that a piece lies in, as its provider has them."""
    root = innermost(piece.ptr).root
    touched = [
        chunk
        for chunk in root.provider.chunks(root.base, root.size)
        if chunk.ptr < piece.ptr + piece.size and piece.ptr < chunk.ptr + chunk.size
    ]
    return touched[0].ptr, sum(chunk.size for chunk in touched)


def check_both_ways(side, peer, pieces, *salt):
    """What is written on one side is read on the other, to the last byte."""
    mine = [pattern(piece.size, "mine", piece.ptr, *salt) for piece in pieces]
    for piece, data in zip(pieces, mine, strict=True):
        side.write(piece.ptr, data)
    assert peer(READ) == mine
    theirs = [pattern(piece.size, "theirs", piece.ptr, *salt) for piece in pieces]
    peer(WRITE, replies=theirs)
    assert [side.read(piece.ptr, piece.size) for piece in pieces] == theirs


def refuse_remap_of(monkeypatch, provider, moved):
    """Note in `moved` what is taken elsewhere."""
    original = provider.remap

    def remap(sources, to, size):
        moved.extend(sources)
        original(sources, to, size)

    monkeypatch.setattr(provider, "remap", remap)


def test_neighbours_in_a_chunk_and_pieces_across_several(side, peer, pool):
    """3 MiB take a chunk of 4; 5 MiB its end and what follows; the small ones what is left."""
    sizes = [3 * MIB, 5 * MIB, 100, 4096, 1, 9 * MIB, 777]
    pieces = [pool.allocate(size) for size in sizes]
    handles = [export(piece) for piece in pieces]
    for piece, handle in zip(pieces, handles, strict=True):
        start, size = cover(piece)
        assert (handle.root.size, handle.offset, handle.size) == (
            size,
            piece.ptr - start,
            piece.size,
        )
    assert len(side.provider.chunks(*cover(pieces[1]))) > 1
    ranges = {cover(piece) for piece in pieces}
    assert len({handle.root.export_id for handle in handles}) == len(ranges) > 2
    assert side.counts()["export"] == len(ranges)

    assert peer(OPEN, handles=[bytes(handle) for handle in handles]) == sizes
    check_both_ways(side, peer, pieces)
    assert peer(CLOSE) == {"open": len(ranges), "close": len(ranges)}


def test_a_thousand_handles_are_one_export_and_one_open(side, peer, pool):
    pieces = [pool.allocate(1024) for _ in range(1000)]
    for number, piece in enumerate(pieces):
        side.write(piece.ptr, number.to_bytes(4, "little"))
    handles = [export(pieces[0])]
    before = descriptors()
    handles += [export(piece) for piece in pieces[1:]]
    assert descriptors() == before
    code = """
opened = [open_ipc(h) for h in handles]
[int.from_bytes(bytes(m.copy_to_host())[:4], "little") for m in opened]
"""
    assert peer(code, handles=[bytes(handle) for handle in handles]) == list(range(1000))
    assert peer(CLOSE) == {"open": 1, "close": 1}
    assert side.counts() == {"export": 1}


def test_memory_of_the_other_process_while_it_has_ours(side, peer, pool):
    """Both have a pool over virtual memory, and share with each other."""
    code = """
theirs = umfpy.Pool(side.provider)
pieces = [theirs.allocate(size) for size in sizes]
[side.write(piece.ptr, bytes([at]) * piece.size) for at, piece in enumerate(pieces)]
[bytes(export(piece)) for piece in pieces]
"""
    sizes = [3 * MIB, 5 * MIB, 100]
    mine = [pool.allocate(size) for size in sizes]
    peer(OPEN, handles=[bytes(export(piece)) for piece in mine])
    mappings = [open_ipc(handle) for handle in peer(code, sizes=sizes)]
    for at, (mapping, size) in enumerate(zip(mappings, sizes, strict=True)):
        assert bytes(mapping.copy_to_host()) == bytes([at]) * size
        mapping.copy_from_host(b"%d" % at, offset=size - 1)
    ends = "[side.read(piece.ptr + piece.size - 1, 1) for piece in pieces]"
    assert peer(ends) == [b"0", b"1", b"2"]
    check_both_ways(side, peer, mine)
    for mapping in mappings:
        mapping.close()
    clear_cache()
    assert peer(CLOSE + ", [piece.free() for piece in pieces], theirs.close()")[1:] == (
        [None] * 3,
        None,
    )


def test_interior_addresses_share_the_export_of_their_allocation(side, pool):
    piece = pool.allocate(3 * MIB)
    more = pool.allocate(5 * MIB)
    whole, last = export(more), export(more.ptr + more.size - 1)
    assert whole.root is last.root
    assert (last.offset, last.size) == (whole.offset + more.size - 1, 1)
    assert export(piece).root != whole.root
    assert side.counts() == {"export": 2}


def test_two_halves_of_one_piece_of_the_pool(side, peer, pool):
    """The scenario of `test_scenario`, with the pool below the coarse provider."""
    coarse = CoarseProvider(pool)
    proxy = ProxyPool(coarse)
    proxy.allocate(4096).free()
    pieces = [proxy.allocate(2048), proxy.allocate(2048)]
    handles = [export(piece) for piece in pieces]
    assert peer(OPEN, handles=[bytes(handle) for handle in handles]) == [2048, 2048]
    assert peer("opened[1].ptr - opened[0].ptr") == pieces[1].ptr - pieces[0].ptr == 2048
    check_both_ways(side, peer, pieces)
    assert peer(CLOSE) == {"open": 1, "close": 1}
    for piece in pieces:
        piece.free()
    coarse.close()
    assert side.counts() == {"export": 1}


@pytest.mark.parametrize("kind", [Pool, SlabPool, MemoryManager, ProxyPool])
def test_pieces_of_pools_above(side, peer, pool, kind):
    beside = pool.allocate(MIB)
    above = kind(pool)
    pieces = [above.allocate(size) for size in (100, 4096, 3 * MIB)]
    handles = [export(piece) for piece in pieces]
    assert [handle.root.size for handle in handles] == [cover(piece)[1] for piece in pieces]
    assert peer(OPEN, handles=[bytes(handle) for handle in handles]) == [100, 4096, 3 * MIB]
    check_both_ways(side, peer, [*pieces])
    peer(CLOSE)
    for piece in (*pieces, beside):
        piece.free()
    above.close()


def test_through_a_queue(side, pool):
    context = multiprocessing.get_context("spawn")
    tasks, answers = context.Queue(), context.Queue()
    process = context.Process(target=ipc_children.answer, args=(side.kind, tasks, answers))
    process.start()
    first, second = pool.allocate(1000), pool.allocate(5 * MIB)
    side.write(first.ptr, b"handle..")
    side.write(second.ptr, b"itself..")
    tasks.put(export(first))
    tasks.put(second)
    tasks.put(open_ipc(export(first)))
    assert answers.get(timeout=30) == (b"handle..", 1000, "IpcHandle")
    assert answers.get(timeout=30) == (b"itself..", 5 * MIB, "IpcMapping")
    assert answers.get(timeout=30) == (b"answered", 1000, "IpcMapping")
    tasks.put(None)
    counts, carried = answers.get(timeout=30)
    chunks = [len(side.provider.chunks(*cover(piece))) for piece in (first, second)]
    assert counts == {"open": 2}
    assert carried == sum(chunks) + 2  # and a ticket for each export
    assert side.read(second.ptr, 8) == b"answered"
    for queue in (tasks, answers):
        queue.close()
        queue.join_thread()
    process.join(30)
    assert process.exitcode == 0
    process.close()


def descriptors_without_exports(pool):
    """How many files are open with nothing shared, what the driver sets up for that included."""
    with pool.allocate(1) as piece:
        export(piece)
    pool.trim(rung="decommit")
    return descriptors()


# What happens to others.


def test_a_handle_stays_good_while_the_pool_works(side, peer, pool, monkeypatch):
    """Growth, harvest and resizing of others leave what is shared where it is."""
    moved = []
    refuse_remap_of(monkeypatch, side.provider, moved)
    left, shared, right = (pool.allocate(CHUNK) for _ in range(3))
    peer(OPEN, handles=[bytes(export(shared))])
    check_both_ways(side, peer, [shared])
    grown = [pool.allocate(size) for size in (MIB, 7 * MIB, 300)]
    check_both_ways(side, peer, [shared], "growth")
    for piece in (left, right):
        piece.free()
    across = pool.allocate(20 * MIB)
    assert moved
    assert not any(shared.ptr in range(start, start + size) for start, size in moved)
    check_both_ways(side, peer, [shared], "harvest")
    assert across.resize(21 * MIB)
    assert across.resize(MIB)
    assert grown[1].resize(MIB)
    check_both_ways(side, peer, [shared], "resize")
    pool.trim(rung="decommit")
    check_both_ways(side, peer, [shared], "trim")
    assert peer("open_ipc(h).size", h=bytes(export(shared))) == CHUNK
    assert side.counts() == {"export": 1}
    peer(CLOSE)


def test_exported_chunks_are_not_taken_elsewhere(side, peer, pool, monkeypatch):
    moved = []
    refuse_remap_of(monkeypatch, side.provider, moved)
    left, shared, right = (pool.allocate(CHUNK) for _ in range(3))
    beyond = pool.allocate(100)
    peer(OPEN, handles=[bytes(export(shared))])
    at = shared.ptr
    for piece in (left, shared, right):
        side.write(piece.ptr, b"left")
        piece.free()
    more = pool.allocate(40 * MIB)
    assert {start for start, _ in moved} == {at - CHUNK, at + CHUNK}
    assert [chunk.exported for chunk in side.provider.chunks(at, CHUNK)] == [True]
    side.write(more.ptr, bytes(40 * MIB))
    assert peer("bytes(opened[0].copy_to_host())[:4]") == b"left"
    peer(CLOSE)
    for piece in (beyond, more):
        piece.free()


def test_a_resized_allocation_is_shared_as_it_is(side, peer, pool):
    piece = pool.allocate(CHUNK - 512)
    small = export(piece)
    assert piece.resize(3 * CHUNK)
    large = export(piece)
    assert (small.size, large.size) == (CHUNK - 512, 3 * CHUNK)
    assert (small.root.size, large.root.size) == (CHUNK, 3 * CHUNK)
    assert export(piece.ptr) == large
    assert peer(OPEN, handles=[bytes(small), bytes(large)]) == [CHUNK - 512, 3 * CHUNK]
    data = pattern(3 * CHUNK, "large")
    side.write(piece.ptr, data)
    assert peer(READ) == [data[: CHUNK - 512], data]
    assert piece.resize(100)
    assert export(piece).root == small.root
    assert side.counts() == {"export": 2}
    peer(CLOSE)


# Memory that goes.


def test_a_trim_ends_the_exports_of_what_goes(side, peer, pool):
    before = descriptors_without_exports(pool)
    kept, gone = pool.allocate(CHUNK), pool.allocate(CHUNK)
    handles = [export(kept), export(gone)]
    peer(OPEN, handles=[bytes(handle) for handle in handles])
    assert peer(CLOSE) == {"open": 2, "close": 2}
    held = side.provider.memory_info()[0]
    gone.free()
    assert pool.trim(rung="decommit") == CHUNK
    assert side.provider.memory_info()[0] == held + CHUNK
    assert [find_export(handle.root.export_id) is not None for handle in handles] == [True, False]
    with pytest.raises(IpcError, match="freed since"):
        open_ipc(handles[1])
    with pytest.raises(IpcError):
        peer("open_ipc(h)", h=bytes(handles[1]))
    assert peer("open_ipc(h).size", h=bytes(handles[0])) == CHUNK
    peer("clear_cache()\nNone")
    kept.free()
    assert pool.trim(rung="decommit") == CHUNK
    assert descriptors() == before
    assert len(innermost(pool.allocate(1).ptr).export) == 0


@pytest.mark.parametrize("rung", ["decommit", "free"])
def test_what_is_still_open_never_serves_anybody_else(side, peer, pool, rung):
    """An importer that did not close: it keeps the old memory, and sees nothing of the new one."""
    old = pool.allocate(CHUNK)
    handle = export(old)
    side.write(old.ptr, b"old")
    peer(OPEN, handles=[bytes(handle)])
    at = old.ptr
    old.free()
    pool.trim(rung=rung)
    new = pool.allocate(CHUNK)
    assert new.ptr == at
    other = export(new)
    assert other.root.export_id != handle.root.export_id
    side.write(new.ptr, b"new")
    assert peer("bytes(opened[0].copy_to_host())[:3]") == b"old"
    peer("opened[0].copy_from_host(b'xxx')")
    assert side.read(new.ptr, 3) == b"new"
    assert peer("bytes(open_ipc(h).copy_to_host())[:3]", h=bytes(other)) == b"new"
    peer(CLOSE)
    heir = Peer(side.kind)
    with pytest.raises(IpcError):
        heir("open_ipc(h)", h=bytes(handle))
    heir.close()


def test_an_export_that_cannot_go_keeps_the_memory(side, peer, pool, monkeypatch):
    """Of several, those before it have gone; nothing else has changed."""

    def refuse(payload):
        raise IpcError("as told")

    pieces = [pool.allocate(CHUNK) for _ in range(3)]
    kept = export(pieces[1])
    pieces[0].free()
    pieces[1].free()
    before = pool.map.blocks(), pool.stats().reserved_bytes
    with monkeypatch.context() as patch:
        patch.setattr(side.provider, "ipc_release", refuse)
        with pytest.raises(IpcError, match="as told"):
            pool.trim(rung="decommit")
    assert (pool.map.blocks(), pool.stats().reserved_bytes) == before
    pool.check()
    assert find_export(kept.root.export_id) is not None
    assert pool.trim(rung="decommit") == 2 * CHUNK
    assert find_export(kept.root.export_id) is None


def test_closing_the_pool_ends_all_exports(side, peer):
    pool = Pool(side.provider)
    before = descriptors_without_exports(pool)
    pieces = [pool.allocate(size) for size in (100, 3 * MIB, 5 * MIB)]
    handles = [bytes(export(piece)) for piece in pieces]
    with pytest.warns(ResourceWarning, match="3 live allocations"):
        pool.close()
    assert peer(OPEN, handles=handles) == [100, 3 * MIB, 5 * MIB]
    check_both_ways(side, peer, pieces)
    peer(CLOSE)
    while pieces:
        pieces.pop().free()
    assert descriptors() == before
    for handle in handles:
        with pytest.raises(IpcError):
            peer("open_ipc(h)", h=handle)


# Other pools over such a provider, and such pools over others.


def test_a_root_that_has_lost_a_part_is_shared_by_its_chunks(side, peer):
    """Not virtual: what was one native allocation, exported as a whole, until a part of it went."""
    pool = Pool(side.provider, growth=Growth(8 * MIB, 8 * MIB))
    low, middle, high = (pool.allocate(size) for size in (MIB + 100, 4 * MIB, MIB))
    assert export(low).root == export(high).root
    assert export(low).root.size == 8 * MIB
    middle.free()
    assert pool.trim(rung="decommit") == CHUNK
    pieces = [low, high]
    handles = [export(piece) for piece in pieces]
    assert [handle.root.size for handle in handles] == [cover(piece)[1] for piece in pieces]
    assert peer(OPEN, handles=[bytes(handle) for handle in handles]) == [MIB + 100, MIB]
    check_both_ways(side, peer, pieces)
    assert peer(CLOSE) == {"open": 2, "close": 2}
    again = pool.allocate(4 * MIB)
    assert export(again).root.size == 8 * MIB
    assert side.counts() == {"alloc": 1, "export": 4}
    for piece in (low, again, high):
        piece.free()
    pool.close()


def test_private_memory_says_what_to_use_instead(side):
    pool = Pool(HostProvider(), virtual=True)
    with pytest.raises(NotSupported, match="shared=True"):
        export(pool.allocate(64))


def test_memory_that_is_not_shareable_says_so(side):
    provider = umfpy.CudaVmmProvider(shareable=False)
    pool = Pool(provider)
    with pytest.raises(NotSupported, match="shareable=False"):
        export(pool.allocate(64))
    gc.collect()
    pool.close()
    provider.close()


def test_the_exporting_process_gets_its_own_memory(side, pool):
    beside, piece = pool.allocate(3 * MIB), pool.allocate(5 * MIB)
    mapping = open_ipc(export(piece))
    assert (mapping.ptr, mapping.size) == (piece.ptr, piece.size)
    mapping.close()
    clear_cache()
    assert beside.ptr != piece.ptr
    assert side.counts() == {"export": 1}
