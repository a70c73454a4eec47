"""Slices that another process has open, in pages of which the rest goes down a rung."""

from __future__ import annotations

import hashlib

import pytest
from ipc_support import Peer

from umfpy import IpcError, MemoryManager, find
from umfpy.core.extents import innermost
from umfpy.ipc import export

MIB = 1 << 20
PAGE = 16 * MIB
OPEN = "opened = [open_ipc(h) for h in handles]\n[m.size for m in opened]"
READ = "[bytes(m.copy_to_host()) for m in opened]"
WRITE = "[m.copy_from_host(data) for m, data in zip(opened, replies)]"
CLOSE = "[m.close() for m in opened], clear_cache()\nNone"
SLICED = {"type": "sliced", "page_size": PAGE, "max_slice_size": None, "max_pool_size": None}
EXCLUSIVE = {"type": "exclusive", "max_alloc_size": PAGE}
PROPERTIES = {"max_page_size": PAGE, "alignment": 512}

on_each_side = pytest.mark.parametrize("side", ["host", "cuda_vmm"], indirect=True)


def pattern(size, *salt):
    return hashlib.shake_128(repr(salt).encode()).digest(size)


class Shared:
    """Two slices that another process has open; what lay between them, or behind, is free."""

    def __init__(self, side, peer, entry):
        self.side, self.peer = side, peer
        self.manager = MemoryManager(side.provider, [entry], PROPERTIES)
        self.slices = [self.manager.reserve(MIB + 100), None, self.manager.reserve(MIB)]
        between = self.manager.reserve(6 * MIB)
        self.slices[1] = self.manager.reserve(MIB)
        between.release()
        del between
        self.handles = [bytes(export(ptr)) for ptr in self.places()]
        assert peer(OPEN, handles=self.handles) == [MIB + 100, MIB, MIB]

    def places(self):
        return [self.manager.storage(one).ptr for one in self.slices]

    def check(self, *salt):
        """What is written on one side is read on the other, to the last byte."""
        places = [(where.ptr, where.size) for where in map(self.manager.storage, self.slices)]
        mine = [pattern(size, "mine", ptr, *salt) for ptr, size in places]
        for (ptr, _), data in zip(places, mine, strict=True):
            self.side.write(ptr, data)
        assert self.peer(READ) == mine
        theirs = [pattern(size, "theirs", ptr, *salt) for ptr, size in places]
        self.peer(WRITE, replies=theirs)
        assert [self.side.read(ptr, size) for ptr, size in places] == theirs
        for ptr, _ in places:
            assert find(ptr + 5).base == ptr
        self.manager.check("full")

    def end(self):
        self.peer(CLOSE)
        self.slices.clear()
        self.manager.close()


@pytest.fixture
def shared(request, side, peer):
    made = Shared(side, peer, SLICED if request.param == "sliced" else EXCLUSIVE)
    yield made
    made.end()


@on_each_side
@pytest.mark.parametrize("shared", ["sliced", "exclusive"], indirect=True)
@pytest.mark.parametrize("rung", ["dalloc", "decommit", "purge_force", "free"])
def test_what_is_open_stays_open(shared, rung):
    """Down, again, and back for a slice that takes what had gone."""
    shared.check("before")
    for again in (False, True):
        shared.manager.trim(rung=rung)
        shared.check(rung, again)
    with shared.manager.reserve(6 * MIB) as woken:
        ptr = shared.manager.storage(woken).ptr
        shared.side.write(ptr, pattern(6 * MIB, "woken"))
        shared.check("woken")
        assert shared.side.read(ptr, 6 * MIB) == pattern(6 * MIB, "woken")


@on_each_side
@pytest.mark.parametrize("shared", ["sliced", "exclusive"], indirect=True)
def test_live_slices_can_be_shared_beside_what_sleeps(shared):
    """With those who had them before, and with others."""
    assert shared.manager.trim(rung="decommit") > 0
    handles = [bytes(export(ptr)) for ptr in shared.places()]
    heir = Peer(shared.side.kind)
    assert heir(OPEN, handles=handles) == [MIB + 100, MIB, MIB]
    shared.check("again")
    data = [shared.side.read(ptr, 100) for ptr in shared.places()]
    assert heir("[bytes(m.copy_to_host())[:100] for m in opened]") == data
    heir(CLOSE)
    heir.close()


@on_each_side
def test_an_export_goes_before_its_memory(side, peer):
    """A handle of a slice that was freed and whose memory is gone leads nowhere."""
    manager = MemoryManager(side.provider, [EXCLUSIVE], PROPERTIES)
    slice_ = manager.reserve(8 * MIB)
    ptr = manager.storage(slice_).ptr
    handle = bytes(export(ptr))
    page = innermost(ptr)
    slice_.release()
    manager.trim(rung="dalloc")
    assert len(page.export) == 1
    assert manager.trim(rung="decommit") == 8 * MIB
    assert len(page.export) == 0
    with pytest.raises(IpcError):
        peer("open_ipc(h)", h=handle)
    with manager.reserve(8 * MIB) as again:
        assert manager.storage(again).ptr == ptr
        with pytest.raises(IpcError):
            peer("open_ipc(h)", h=handle)
        assert peer("open_ipc(h).size", h=bytes(export(ptr))) == 8 * MIB
        peer("clear_cache()\nNone")
    manager.close()
