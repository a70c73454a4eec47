"""The exporter's side: which memory can be shared, and what the provider is asked for."""

from __future__ import annotations

import threading

import pytest
from ipc_support import CountingHost

from umfpy import (
    CoarseProvider,
    DriverError,
    Growth,
    HostProvider,
    InvalidArgument,
    IpcError,
    NotSupported,
    Pool,
    ProxyPool,
    StaleHandle,
)
from umfpy.core.extents import innermost
from umfpy.ipc import export, open_ipc
from umfpy.providers.host import FixedProvider


def test_an_allocation_and_its_addresses(host):
    pool = Pool(host.provider)
    a = pool.allocate(1000)
    whole, middle, last = export(a), export(a.ptr + 100), export(a.ptr + 999)
    assert (whole.size, middle.size, last.size) == (1000, 900, 1)
    assert middle.offset == whole.offset + 100
    assert whole.root is middle.root is last.root
    assert whole == export(a.ptr)
    with pytest.raises(InvalidArgument, match="no live allocation"):
        export(a.ptr + 1000)
    assert host.counts() == {"alloc": 1, "export": 1}


@pytest.mark.parametrize("foreign", [0, -1, 1 << 64, 4096])
def test_null_and_foreign_addresses_are_refused(foreign):
    with pytest.raises(InvalidArgument):
        export(foreign)


def test_what_cannot_be_shared(host):
    pool = Pool(host.provider)
    with pytest.raises(InvalidArgument, match="not str"):
        export("memory")
    with pytest.raises(InvalidArgument, match="no bytes"):
        export(pool.allocate(0))
    freed = pool.allocate(64)
    freed.free()
    with pytest.raises(StaleHandle, match="freed"):
        export(freed)
    assert host.counts() == {"alloc": 1}


def test_private_memory_says_what_to_use_instead():
    pool = Pool(HostProvider())
    with pytest.raises(NotSupported, match="shared=True"):
        export(pool.allocate(64))


def test_ten_threads_export_one_root_once(host):
    pool = Pool(host.provider)
    pieces = [pool.allocate(4096) for _ in range(100)]
    handles = [[] for _ in range(10)]
    start = threading.Barrier(10)

    def work(mine):
        start.wait()
        mine.extend(export(piece) for piece in pieces)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == handles[0] for mine in handles)
    assert len({handle.root for handle in handles[0]}) == 1
    assert host.counts() == {"alloc": 1, "export": 1}


def test_pools_nested_three_deep_share_the_physical_root(host, peer):
    outer = Pool(host.provider, growth=Growth(minimum=8 << 20))
    coarse = CoarseProvider(outer)
    middle = Pool(coarse)
    inner = ProxyPool(middle)
    deep = inner.allocate(777)
    beside = outer.allocate(64)
    handle = export(deep)
    host.write(deep.ptr, b"three deep")
    assert handle.root == export(beside).root
    assert host.counts() == {"alloc": 1, "export": 1}
    assert peer("bytes(open_ipc(h).copy_to_host())[:10]", h=handle) == b"three deep"
    for part in (deep, beside):
        part.free()
    for level in (inner, middle, coarse, outer):
        level.close()
    assert host.counts() == {"alloc": 1, "export": 1, "free": 1}


def test_a_buffer_of_somebody_else_s_pool_is_the_owner_s_to_share(host, peer):
    owner = Pool(host.provider).allocate(1 << 20)
    pool = Pool(FixedProvider(owner.ptr, owner.size))
    piece = pool.allocate(100)
    host.write(piece.ptr, b"not mine")
    handle = export(piece)
    assert handle.root.provider == "host"
    assert peer("bytes(open_ipc(h).copy_to_host())[:8]", h=handle) == b"not mine"
    # The one that hosts the pool can be shared as well, whatever is free in that pool.
    assert export(owner).size == 1 << 20
    assert host.counts() == {"alloc": 1, "export": 1}
    piece.free()
    pool.close()


def test_the_export_goes_back_once_before_its_memory(host):
    before = CountingHost.counts["release"]
    pool = ProxyPool(host.provider)
    a = pool.allocate(4096)
    handle = export(a)
    assert handle == export(a)
    a.free()
    assert CountingHost.counts["release"] == before + 1
    with pytest.raises(IpcError, match="freed since"):
        open_ipc(handle)
    unshared = pool.allocate(4096)
    unshared.free()
    assert CountingHost.counts["release"] == before + 1
    assert host.counts() == {"alloc": 2, "export": 1, "free": 2}


def test_an_address_used_again_is_another_export(side):
    pool = ProxyPool(side.provider)
    roots = set()
    addresses = set()
    for _ in range(10):
        a = pool.allocate(1 << 16)
        addresses.add(a.ptr)
        roots.add(export(a).root.export_id)
        a.free()
    assert len(roots) == 10
    assert len(addresses) < 10
    assert side.counts() == {"alloc": 10, "export": 10, "free": 10}


class Refusing(CountingHost):
    refuse = True

    def ipc_export(self, ptr, size):
        if self.refuse:
            raise DriverError("shareMemory", 7, "NO_LUCK", "not today")
        return super().ipc_export(ptr, size)


def test_a_driver_that_refuses_is_quoted_and_asked_again():
    provider = Refusing(shared=True)
    a = ProxyPool(provider).allocate(64)
    with pytest.raises(IpcError, match=r"NO_LUCK.*not today") as caught:
        export(a)
    assert isinstance(caught.value.__cause__, DriverError)
    provider.refuse = False
    assert export(a).size == 64
    a.free()


def test_a_name_that_no_handle_can_have_leaves_no_export():
    class Nameless(CountingHost):
        name = ""

    before = CountingHost.counts["release"]
    a = ProxyPool(Nameless(shared=True)).allocate(64)
    with pytest.raises(IpcError, match="names no provider"):
        export(a)
    assert CountingHost.counts["release"] == before + 1
    a.free()
    assert CountingHost.counts["release"] == before + 1


def test_memory_that_is_freed_while_it_is_exported(host):
    """Another thread's mistake; it costs neither an export nor a wrong handle."""
    before = CountingHost.counts["release"]

    class Slow(CountingHost):
        def ipc_export(self, ptr, size):
            payload = super().ipc_export(ptr, size)
            freeing.start()
            while innermost(ptr) is not None:
                pass  # until the other thread has taken it out, and waits for this export
            return payload

    a = ProxyPool(Slow(shared=True)).allocate(4096)
    freeing = threading.Thread(target=a.free)
    with pytest.raises(StaleHandle, match="while it was being exported"):
        export(a)
    freeing.join()
    assert CountingHost.counts["release"] == before + 1
    assert host.counts() == {"alloc": 1, "export": 1, "free": 1}


def test_the_exporter_itself_does_not_open_a_piece_that_it_freed(host):
    """The root is there still, and exported: what counts is the piece."""
    pool = Pool(host.provider)
    kept, freed = pool.allocate(64), pool.allocate(4096)
    handle, inside = export(freed), export(freed.ptr + 1024)
    for good in (handle, inside, export(kept)):
        open_ipc(good).close()
    assert freed.resize(2048)
    with pytest.raises(IpcError, match=rf"4096 bytes at {freed.ptr:#x}, which it has freed since"):
        open_ipc(handle)
    open_ipc(export(freed)).close()
    freed.free()
    for gone in (handle, inside):
        with pytest.raises(IpcError, match="freed since"):
            open_ipc(gone)
    open_ipc(export(kept)).close()
    kept.free()
    pool.close()


def test_the_exporter_itself_opens_what_other_pools_stand_on(host):
    """Most of it is free there, and all of it live where it comes from."""
    pool = Pool(host.provider)
    outer = pool.allocate(1 << 20)
    inner = Pool(FixedProvider(outer.ptr, outer.size))
    inner.allocate(64).free()
    with open_ipc(export(outer)) as mapping:
        assert (mapping.ptr, mapping.size) == (outer.ptr, outer.size)
    inner.close()
    outer.free()
    pool.close()
