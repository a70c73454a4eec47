"""The importer's side: one native open a root, counted; idle roots kept, and closed in order."""

from __future__ import annotations

import dataclasses
import gc
import os
import secrets
import threading
import warnings

import pytest
from cuda.bindings.driver import CUresult
from ipc_support import CountingHost, FakeImporter, Peer, fake_handle

import umfpy.ipc
from umfpy import (
    DriverError,
    InvalidArgument,
    IpcError,
    NotSupported,
    OutOfMemoryError,
    Pool,
    StaleHandle,
)
from umfpy.ipc import (
    IpcHandle,
    cache_info,
    clear_cache,
    export,
    open_ipc,
    register_provider,
    set_cache_limit,
)


@pytest.fixture
def fake():
    return FakeImporter()


def pieces_of(handle: IpcHandle, count: int) -> list[IpcHandle]:
    return [IpcHandle(handle.root, 512 * number, 512) for number in range(count)]


def test_pieces_of_a_root_share_one_open(fake):
    handles = pieces_of(fake_handle(), 1000)
    mappings = [open_ipc(handle, provider=fake) for handle in handles]
    assert fake.count("open") == 1
    assert [m.ptr - mappings[0].ptr for m in mappings] == [512 * n for n in range(1000)]
    for mapping in mappings:
        mapping.close()
    clear_cache()
    assert [what for what, _ in fake.log] == ["open", "close"]


def test_a_mapping_is_closed_once_however_it_goes(fake):
    set_cache_limit(0)
    handle = fake_handle()
    with open_ipc(handle, provider=fake) as mapping:
        assert not mapping.closed
        assert cache_info().used == 1
    assert mapping.closed
    mapping.close()
    del mapping
    gc.collect()
    assert fake.count("close") == 1
    dropped = open_ipc(handle, provider=fake)
    del dropped
    gc.collect()
    assert (fake.count("open"), fake.count("close")) == (2, 2)
    assert cache_info().used == 0


def test_an_idle_root_is_used_again(fake):
    handle = fake_handle()
    for _ in range(10):
        open_ipc(handle, provider=fake).close()
    assert [what for what, _ in fake.log] == ["open"]
    assert cache_info().idle == 1


def test_beyond_the_limit_the_longest_idle_is_closed(fake):
    set_cache_limit(2)
    a, b, c, d = (fake_handle(name) for name in (b"a", b"b", b"c", b"d"))
    held = open_ipc(d, provider=fake)
    for handle in (a, b, a, c):  # `a` is used again: `b` is the longest idle
        open_ipc(handle, provider=fake).close()
    assert [entry for entry in fake.log if entry[0] == "close"] == [("close", b"b")]
    assert (cache_info().used, cache_info().idle) == (1, 2)
    set_cache_limit(1)
    set_cache_limit(0)
    assert [payload for what, payload in fake.log if what == "close"] == [b"b", b"a", b"c"]
    held.close()
    assert fake.log[-1] == ("close", b"d")


def test_each_root_is_closed_by_the_provider_that_opened_it():
    one, other = FakeImporter(), FakeImporter()
    handle = fake_handle(b"same")
    set_cache_limit(1)
    open_ipc(handle, provider=one).close()
    open_ipc(handle, provider=other).close()  # evicts the other's
    assert one.log == [("open", b"same"), ("close", b"same")]
    assert other.log == [("open", b"same")]
    clear_cache()
    assert other.log[-1] == ("close", b"same")


def test_a_repeated_export_id_with_another_payload_is_another_root(fake):
    export_id = secrets.token_bytes(16)
    first = open_ipc(fake_handle(b"first", export_id=export_id), provider=fake)
    second = open_ipc(fake_handle(b"second", export_id=export_id), provider=fake)
    assert fake.open_at[first.ptr] == b"first"
    assert fake.open_at[second.ptr] == b"second"
    for mapping in (first, second):
        mapping.close()


def test_an_address_used_again_is_not_mistaken(host, peer):
    """Keys hold the export id; the old mapping stays what it was."""
    code = """
pool = umfpy.ProxyPool(side.provider)
a = pool.allocate(4096)
side.write(a.ptr, text)
(a.ptr, bytes(export(a)))
"""
    addresses = set()
    for number in range(4):
        text = b"number %d" % number
        ptr, data = peer(code, text=text)
        addresses.add(ptr)
        mapping = open_ipc(data)
        assert bytes(mapping.copy_to_host())[: len(text)] == text
        mapping.close()
        peer("a.free()")
        clear_cache()
        with pytest.raises(IpcError):
            open_ipc(data)
    assert len(addresses) < 4


def test_a_failed_open_leaves_nothing_and_is_tried_again(fake):
    handle = fake_handle()
    fake.fail = DriverError("openMemory", 1, "BAD_HANDLE", "no such memory")
    for _ in range(3):
        with pytest.raises(IpcError, match=r"BAD_HANDLE.*no such memory.*most likely") as caught:
            open_ipc(handle, provider=fake)
        assert caught.value.__cause__ is fake.fail
    assert (cache_info().used, cache_info().idle) == (0, 0)
    fake.fail = None
    with open_ipc(handle, provider=fake):
        assert fake.count("open") == 1


class Crowded(FakeImporter):
    """Refuses to open anything while something is open."""

    def __init__(self, refusal):
        super().__init__()
        self.refusal = refusal

    def ipc_open(self, payload, descriptors=()):
        if self.open_at:
            raise self.refusal
        return super().ipc_open(payload, descriptors)


@pytest.mark.parametrize(
    "refusal",
    [
        DriverError("openMemory", 208, "ALREADY_MAPPED", "there is memory already"),
        IpcError("there is memory already"),
        OutOfMemoryError("no addresses are left"),
    ],
    ids=lambda refusal: type(refusal).__name__,
)
def test_idle_roots_are_closed_where_the_driver_opens_no_other(refusal):
    crowded = Crowded(refusal)
    open_ipc(fake_handle(b"old"), provider=crowded).close()
    with open_ipc(fake_handle(b"new"), provider=crowded):
        assert crowded.log == [("open", b"old"), ("close", b"old"), ("open", b"new")]
        with pytest.raises((IpcError, OutOfMemoryError), match=r"memory already|no addresses"):
            open_ipc(fake_handle(b"other"), provider=crowded)
        assert (cache_info().used, cache_info().idle) == (1, 0)


@pytest.mark.refuses("cuMemPoolImportPointer", CUresult.CUDA_ERROR_INVALID_VALUE)
@pytest.mark.parametrize("side", ["cuda_async"], indirect=True)
def test_memory_where_an_idle_root_was_can_be_opened(side, peer):
    """The driver has one place for what lies at one place of a pool."""
    code = """
pool = umfpy.ProxyPool(side.provider)
a = pool.allocate(1 << 20)
side.write(a.ptr, text)
(a.ptr, bytes(export(a)))
"""
    first, data = peer(code, text=b"first")
    open_ipc(data).close()
    peer("a.free()")
    second, data = peer(code, text=b"second")
    assert first == second
    with open_ipc(data) as mapping:
        assert bytes(mapping.copy_to_host())[:6] == b"second"
    peer("a.free()")


def test_a_driver_that_does_not_close_is_quoted_and_the_root_forgotten(fake):
    set_cache_limit(0)
    handle = fake_handle()
    mapping = open_ipc(handle, provider=fake)
    fake.fail = DriverError("closeMemory", 1, "STUCK", "cannot unmap")
    with pytest.raises(DriverError, match="STUCK"):
        mapping.close()
    assert mapping.closed
    mapping.close()
    assert (cache_info().used, cache_info().idle) == (0, 0)
    fake.fail = None
    dropped = open_ipc(handle, provider=fake)
    fake.fail = DriverError("closeMemory", 1, "STUCK", "cannot unmap")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del dropped
        gc.collect()
    assert "STUCK" in str(caught[0].message)
    fake.fail = None


def test_ten_threads_open_and_close_a_hundred_roots(fake):
    set_cache_limit(100)
    handles = [fake_handle(b"%d" % number) for number in range(100)]
    run_threads(10, lambda: [open_ipc(h, provider=fake).close() for h in handles])
    assert fake.count("open") == 100
    set_cache_limit(3)
    run_threads(10, lambda: [open_ipc(h, provider=fake).close() for h in handles])
    clear_cache()
    assert fake.count("open") == fake.count("close")
    assert fake.open_at == {}
    assert (cache_info().used, cache_info().idle) == (0, 0)


def test_threads_wait_for_the_one_that_opens(fake):
    fake.gate = threading.Event()
    handle = fake_handle()
    mappings = []
    threads = [
        threading.Thread(target=lambda: mappings.append(open_ipc(handle, provider=fake)))
        for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    fake.gate.set()
    for thread in threads:
        thread.join()
    assert len(mappings) == 10
    assert fake.log == [("open", b"")]
    for mapping in mappings:
        mapping.close()


def run_threads(count, work):
    failures = []

    def guarded():
        try:
            work()
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class DropsMappings:
    """Closes a mapping when the garbage collector comes by, as objects of users may."""

    def __init__(self, mapping):
        self.mapping = mapping
        self.itself = self

    def __del__(self):
        self.mapping.close()


def test_the_garbage_collector_may_close_at_any_moment(fake):
    old = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        set_cache_limit(1)
        handles = [fake_handle(b"%d" % number) for number in range(4)]

        def work():
            for _ in range(30):
                for handle in handles:
                    DropsMappings(open_ipc(handle, provider=fake))

        run_threads(3, work)
    finally:
        gc.set_threshold(*old)
    gc.collect()
    clear_cache()
    assert fake.open_at == {}
    assert fake.count("open") == fake.count("close")


def test_the_cache_can_be_limited_by_the_environment():
    for text, limit in (("0", 0), ("7", 7)):
        other = Peer("host", UMFPY_IPC_CACHE=text)
        assert other("cache_info().limit") == limit
        other.close()
    other = Peer("host", UMFPY_IPC_CACHE="many")
    with pytest.raises(umfpy.ConfigurationError, match="UMFPY_IPC_CACHE is 'many'"):
        other("cache_info()")
    other.close()


def test_a_limit_below_zero_is_refused():
    with pytest.raises(InvalidArgument):
        set_cache_limit(-1)


# Which provider.


def test_the_caller_s_provider_must_be_of_the_handle_s_kind(fake, host):
    with pytest.raises(InvalidArgument, match=r"'fake'.*'host'"):
        open_ipc(fake_handle(), provider=host.provider)
    with pytest.raises(NotSupported, match="cannot open"):
        open_ipc(fake_handle(provider="host"), provider=umfpy.HostProvider())


def test_registered_providers_are_found_by_name_and_scope():
    made = []

    class Registered(FakeImporter):
        name = "registered"

        @classmethod
        def for_ipc(cls, scope):
            made.append(scope)
            return cls()

    with pytest.raises(IpcError, match="does not know"):
        open_ipc(fake_handle(provider="registered"))
    register_provider("registered", Registered)
    mappings = [open_ipc(fake_handle(provider="registered", scope=s)) for s in ("a", "b", "a")]
    assert made == ["a", "b"]
    assert mappings[0].provider is mappings[2].provider is not mappings[1].provider
    for mapping in mappings:
        mapping.close()


def test_only_providers_are_registered():
    with pytest.raises(InvalidArgument, match="provider class"):
        register_provider("host", object)
    with pytest.raises(InvalidArgument, match="'fake'"):
        register_provider("host", FakeImporter)
    register_provider("host", CountingHost)


def test_a_provider_that_opens_nothing_says_so():
    class Unable(FakeImporter):
        name = "unable"

    register_provider("unable", Unable)
    with pytest.raises(NotSupported, match="cannot open memory of other processes"):
        open_ipc(fake_handle(provider="unable"))


# The memory behind a mapping.


def test_the_exporting_process_gets_its_own_memory(side):
    a = Pool(side.provider).allocate(1000)
    handle = export(a)
    mapping = open_ipc(bytes(handle))
    assert (mapping.ptr, mapping.size) == (a.ptr, a.size)
    mapping.copy_from_host(b"mine")
    assert side.read(a.ptr, 4) == b"mine"
    mapping.close()
    assert side.counts() == {"alloc": 1, "export": 1}
    forged = dataclasses.replace(handle.root, size=handle.root.size + 1)
    with pytest.raises(IpcError):
        open_ipc(IpcHandle(forged, handle.offset, handle.size))


def test_copies_stay_inside_the_mapping(host):
    a = Pool(host.provider).allocate(100)
    with open_ipc(export(a)) as mapping:
        mapping.copy_from_host(b"x" * 100)
        mapping.copy_from_host(memoryview(b"yy"), offset=98)
        assert mapping.copy_to_host(offset=97) == b"xyy"
        target = bytearray(2)
        assert mapping.copy_to_host(target, offset=96) is target
        assert target == b"xx"
        for offset, data in ((99, b"12"), (-1, b"1"), (101, b"")):
            with pytest.raises(InvalidArgument, match="do not lie"):
                mapping.copy_from_host(data, offset=offset)
        with pytest.raises(InvalidArgument):
            mapping.copy_to_host(bytearray(101))
    with pytest.raises(StaleHandle, match="closed"):
        mapping.copy_to_host()


def test_a_mapping_says_what_it_is(fake):
    mapping = open_ipc(fake_handle(size=12), provider=fake)
    assert repr(mapping) == (
        f"<IpcMapping 12 bytes at {mapping.ptr:#x}, fake of process {os.getppid()}>"
    )
    mapping.close()
    assert "closed" in repr(mapping)


@pytest.mark.parametrize("wrong", ["64", None, 1.5, True, -1])
def test_a_limit_of_idle_roots_is_a_number(wrong):
    with pytest.raises(
        InvalidArgument, match="idle roots to keep must be a whole number"
    ) as caught:
        set_cache_limit(wrong)
    assert repr(wrong) in str(caught.value)


def test_what_is_no_place_or_buffer_of_a_mapping(fake):
    with open_ipc(fake_handle(), provider=fake) as mapping:
        for wrong in ("4", None, 1.5, True):
            with pytest.raises(InvalidArgument, match="offset must be a whole number"):
                mapping.copy_to_host(offset=wrong)
            with pytest.raises(InvalidArgument, match="offset must be a whole number"):
                mapping.copy_from_host(b"x", offset=wrong)
        for wrong in (5, "text", None):
            with pytest.raises(InvalidArgument, match=f"a buffer is needed, .*not {wrong!r}"):
                mapping.copy_from_host(wrong)
        with pytest.raises(InvalidArgument, match=r"a buffer is needed, .*not 'text'"):
            mapping.copy_to_host("text")
