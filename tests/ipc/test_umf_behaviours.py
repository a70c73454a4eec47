"""What UMF's own IPC tests ask for, by the numbers of the list they were collected in."""

from __future__ import annotations

import ctypes
import random
import threading

import pytest
from ipc_support import CountingHost, FakeImporter, Peer

from umfpy import CoarseProvider, HostProvider, InvalidArgument, NotSupported, Pool, ProxyPool
from umfpy.ipc import export
from umfpy.ipc.root_exports import find_export

OPEN_ALL = """
import threading
set_cache_limit(limit)
def work():
    for data in handles:
        with open_ipc(data) as mapping:
            assert bytes(mapping.copy_to_host())[:4] == b"data"
threads = [threading.Thread(target=work) for _ in range(10)]
for thread in threads: thread.start()
for thread in threads: thread.join()
clear_cache()
(side.counts(), cache_info().used, cache_info().idle)
"""


def hundred_roots(side):
    pool = ProxyPool(side.provider)
    pieces = [pool.allocate(4096) for _ in range(100)]
    for piece in pieces:
        side.write(piece.ptr, b"data")
    return pieces


def test_27_null_and_foreign_pointers_are_refused(side):
    local = ctypes.create_string_buffer(64)
    for pointer in (0, ctypes.addressof(local), (1 << 64) - 1):
        with pytest.raises(InvalidArgument):
            export(pointer)
    with pytest.raises(InvalidArgument):
        export(None)
    assert side.counts() == {}


def test_28_base_and_middle_cost_one_export_and_one_open(side, peer):
    a = ProxyPool(side.provider).allocate(1 << 16)
    side.write(a.ptr, b"base")
    side.write(a.ptr + (1 << 15), b"half")
    base, middle = export(a.ptr), export(a.ptr + (1 << 15))
    code = "b, m = open_ipc(base), open_ipc(middle)\nm.ptr - b.ptr"
    assert peer(code, base=base, middle=middle) == 1 << 15
    assert peer("b.close(), set_cache_limit(0)\nbytes(m.copy_to_host())[:4]") == b"half"
    assert peer("m.close()\nside.counts()") == {"open": 1, "close": 1}
    assert side.counts() == {"alloc": 1, "export": 1}


def test_29_exports_and_releases_opens_and_closes_are_as_many(host, peer):
    released = CountingHost.counts["release"]
    pool = ProxyPool(host.provider)
    for _ in range(5):
        a = pool.allocate(8192)
        peer("open_ipc(h).close(), clear_cache()", h=export(a))
        a.free()
    assert host.counts() == {"alloc": 5, "export": 5, "free": 5}
    assert CountingHost.counts["release"] - released == 5
    assert peer("side.counts()") == {"open": 5, "close": 5}


def test_30_two_importers_open_the_same_handle(side, peer):
    a = Pool(side.provider).allocate(4096)
    other = Peer(side.kind)
    handle = export(a)
    peer("m = open_ipc(h)\nm.copy_from_host(b'one')", h=handle)
    assert other("m = open_ipc(h)\nbytes(m.copy_to_host())[:3]", h=handle) == b"one"
    other("m.copy_from_host(b'two')")
    assert peer("bytes(m.copy_to_host())[:3]") == b"two"
    other.close()
    assert peer("bytes(m.copy_to_host())[:3]") == b"two"


def test_31_an_export_may_be_given_back_after_its_memory(host):
    released = CountingHost.counts["release"]
    a = ProxyPool(host.provider).allocate(4096)
    handle = export(a)
    given = find_export(handle.root.export_id)
    a.free()
    given.release()
    given.release()
    del handle
    assert CountingHost.counts["release"] - released == 1


def test_32_ten_threads_export_and_free_in_any_order(side):
    pool = ProxyPool(side.provider)
    done = []

    def work(seed):
        order = random.Random(seed)
        pieces = [pool.allocate(4096) for _ in range(10)]
        order.shuffle(pieces)
        handles = [export(piece) for piece in pieces]
        order.shuffle(pieces)
        for piece in pieces:
            piece.free()
        done.append({handle.root.export_id for handle in handles})

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set().union(*done)) == 100
    assert side.counts() == {"alloc": 100, "export": 100, "free": 100}


def test_33_ten_threads_open_and_close_a_hundred_handles(side, peer):
    pieces = hundred_roots(side)
    handles = [bytes(export(piece)) for piece in pieces]
    answer = peer(OPEN_ALL, handles=handles, limit=100)
    assert answer == ({"open": 100, "close": 100}, 0, 0)


def test_34_the_same_with_a_small_cache(side, peer):
    pieces = hundred_roots(side)
    handles = [bytes(export(piece)) for piece in pieces]
    counts, used, idle = peer(OPEN_ALL, handles=handles, limit=3)
    assert counts["open"] == counts["close"] >= 100
    assert (used, idle) == (0, 0)


def test_35_closing_what_was_not_opened_is_refused(side, peer):
    local = ctypes.create_string_buffer(64)
    a = Pool(side.provider).allocate(4096)
    handle = export(a)
    with pytest.raises(InvalidArgument):
        side.provider.ipc_close(ctypes.addressof(local), 64)
    code = "m = open_ipc(h)\nm.provider.ipc_close(m.ptr + 64, m.size)"
    with pytest.raises(InvalidArgument):
        peer(code, h=handle)
    assert peer("m.copy_from_host(b'open'), m.close(), m.close()\nside.counts()") == {"open": 1}
    assert side.read(a.ptr, 4) == b"open"


def test_36_a_provider_without_ipc_says_so():
    class Plain(HostProvider):
        name = "plain"

    a = Pool(Plain()).allocate(64)
    with pytest.raises(NotSupported):
        export(a)
    # And so do the layers above it.
    b = Pool(CoarseProvider(Plain())).allocate(64)
    with pytest.raises(NotSupported):
        export(b)
    with pytest.raises(NotSupported):
        FakeImporter().ipc_export(a.ptr, 64)


def test_37_producer_and_consumer_exchange_data(side, peer):
    a = Pool(side.provider).allocate(1 << 20)
    pattern = random.Random(1).randbytes(1 << 20)
    side.write(a.ptr, pattern)
    assert peer("m = open_ipc(h)\nbytes(m.copy_to_host())", h=export(a)) == pattern
    peer("m.copy_from_host(bytes(reversed(bytes(m.copy_to_host()))))")
    assert side.read(a.ptr, 1 << 20) == pattern[::-1]


def test_38_private_mappings_are_refused():
    a = Pool(HostProvider(shared=False)).allocate(4096)
    with pytest.raises(NotSupported, match="private"):
        export(a)
