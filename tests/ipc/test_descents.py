"""Shared memory beside memory that goes down a rung: who has it open keeps it."""

from __future__ import annotations

import hashlib

import pytest
from ipc_support import Peer

from umfpy import Growth, IpcError, Pool
from umfpy.core.extents import innermost
from umfpy.ipc import IpcHandle
from umfpy.ipc.root_exports import find_export

MIB = 1 << 20
OPEN = "opened = [open_ipc(h) for h in handles]\nlen(opened)"
READ = "[bytes(m.copy_to_host()) for m in opened]"
WRITE = "[m.copy_from_host(data) for m, data in zip(opened, replies)]"


def pattern(size: int, *salt: object) -> bytes:
    return hashlib.shake_128(repr(salt).encode()).digest(size)


class Shared:
    """Two allocations of one root that another process has open, with free memory between."""

    def __init__(self, host, peer):
        self.host = host
        self.peer = peer
        self.pool = Pool(host.provider, growth=Growth(8 * MIB, 8 * MIB))
        low, middle, high = (self.pool.allocate(size) for size in (MIB + 100, 3 * MIB, MIB))
        self.pieces = [low, high]
        self.handles = [bytes(piece.ipc_handle()) for piece in self.pieces]
        assert peer(OPEN, handles=self.handles) == 2
        middle.free()

    @property
    def export(self):
        """The native export of the handles, as long as it is good."""
        return find_export(IpcHandle.from_bytes(self.handles[0]).root.export_id)

    def check(self, *salt):
        """What is written on one side is read on the other, to the last byte."""
        mine = [pattern(piece.size, "mine", piece.ptr, *salt) for piece in self.pieces]
        for piece, data in zip(self.pieces, mine, strict=True):
            self.host.write(piece.ptr, data)
        assert self.peer(READ) == mine
        theirs = [pattern(piece.size, "theirs", piece.ptr, *salt) for piece in self.pieces]
        self.peer(WRITE, replies=theirs)
        assert [self.host.read(piece.ptr, piece.size) for piece in self.pieces] == theirs

    def end(self):
        self.peer("[m.close() for m in opened]")
        for piece in self.pieces:
            piece.free()
        self.pool.close()


@pytest.fixture
def shared(host, peer):
    made = Shared(host, peer)
    yield made
    made.end()


@pytest.mark.parametrize("rung", ["dalloc", "decommit", "purge_force", "free"])
def test_what_is_open_stays_open(shared, rung):
    shared.check("before")
    for again in (False, True):
        went = shared.pool.trim(rung=rung)
        assert (went > 0) == (rung == "purge_force" or (rung != "free" and not again))
        shared.check(rung, again)
    shared.pool.trim(rung="decommit")
    shared.check("after")


@pytest.mark.parametrize("rung", ["dalloc", "purge_force"])
def test_an_export_stays_where_its_memory_does(shared, rung):
    export = shared.export
    assert export is not None

    assert shared.pool.trim(rung=rung) > 0

    assert shared.export is export
    heir = Peer(shared.host.kind)
    sizes = heir("[open_ipc(h).size for h in handles]", handles=shared.handles)
    heir.close()
    assert sizes == [piece.size for piece in shared.pieces]


def test_an_export_goes_before_its_memory(shared):
    """Handles that were not opened by then lead nowhere."""
    assert shared.pool.trim(rung="decommit") > 0

    assert shared.export is None
    assert not innermost(shared.pieces[0].ptr).export
    heir = Peer(shared.host.kind)
    with pytest.raises(IpcError):
        heir("open_ipc(h)", h=shared.handles[0])
    heir.close()


def test_an_export_that_cannot_go_keeps_the_memory(shared, monkeypatch):
    def refuse(payload):
        raise IpcError("as told")

    before = shared.pool.map.blocks(), shared.pool.stats().reserved_bytes
    with monkeypatch.context() as patch:
        patch.setattr(shared.host.provider, "ipc_release", refuse)
        with pytest.raises(IpcError, match="as told"):
            shared.pool.trim(rung="decommit")

    assert (shared.pool.map.blocks(), shared.pool.stats().reserved_bytes) == before
    assert shared.export is not None
    shared.check("refused")
    assert shared.pool.trim(rung="decommit") > 0
    shared.check("gone")


@pytest.mark.parametrize("rung", ["dalloc", "decommit"])
def test_what_lies_beside_memory_that_went_down_can_be_shared_anew(host, peer, rung):
    pool = Pool(host.provider, growth=Growth(8 * MIB, 8 * MIB))
    first, hole, last = (pool.allocate(size) for size in (MIB + 100, 300 << 10, 4000))
    hole.free()
    assert pool.trim(rung=rung).rung == rung
    pieces = [first, last]
    for piece in pieces:
        host.write(piece.ptr, pattern(piece.size, rung, piece.ptr))
    assert peer(OPEN, handles=[bytes(piece.ipc_handle()) for piece in pieces]) == 2
    assert peer(READ) == [pattern(piece.size, rung, piece.ptr) for piece in pieces]
    again = pool.allocate(300 << 10)
    host.write(again.ptr, pattern(again.size, rung))
    handle = bytes(again.ipc_handle())
    assert peer("bytes(open_ipc(handle).copy_to_host())", handle=handle) == pattern(
        again.size, rung
    )
    peer("[m.close() for m in opened]")
    for piece in (*pieces, again):
        piece.free()
    pool.close()
