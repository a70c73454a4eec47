"""Handles come from outside: whatever is wrong with them is an error with a name."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pickle
import struct

import pytest
from ipc_support import fake_handle

from umfpy import InvalidArgument, IpcError
from umfpy.ipc import IpcHandle, ProcessId, cache_info, open_ipc
from umfpy.ipc.wire import VERSION, seal, unseal


@pytest.fixture
def handle():
    return fake_handle(b"what the provider needs", offset=512, size=1000, scope="GPU-1")


def test_a_handle_is_its_bytes(handle):
    again = IpcHandle.from_bytes(bytes(handle))
    assert again == handle
    assert hash(again) == hash(handle)
    assert bytes(again) == bytes(handle)
    assert IpcHandle.from_bytes(memoryview(bytearray(bytes(handle)))) == handle
    assert pickle.loads(pickle.dumps(handle)) == handle


def test_a_handle_cannot_be_changed(handle):
    with pytest.raises(dataclasses.FrozenInstanceError):
        handle.offset = 0


def test_every_flipped_byte_is_seen(handle):
    data = bytes(handle)
    for position, mask in itertools.product(range(len(data)), (0x01, 0x80, 0xFF)):
        changed = bytearray(data)
        changed[position] ^= mask
        with pytest.raises(IpcError):
            IpcHandle.from_bytes(changed)


def test_every_truncation_is_seen(handle):
    data = bytes(handle)
    for length in range(len(data)):
        with pytest.raises(IpcError, match="cut short"):
            IpcHandle.from_bytes(data[:length])


def test_trailing_bytes_are_seen(handle):
    with pytest.raises(IpcError, match="something follows"):
        IpcHandle.from_bytes(bytes(handle) + b"\0")


@pytest.mark.parametrize("what", [None, 5, "text", [1, 2]])
def test_what_is_no_bytes_is_no_handle(what):
    with pytest.raises(InvalidArgument, match="bytes"):
        IpcHandle.from_bytes(what)
    with pytest.raises(InvalidArgument, match="bytes"):
        open_ipc(what)


def _with(data: bytes, position: int, value: bytes) -> bytes:
    """The frame with other bytes in its head, and a digest that fits."""
    changed = data[:position] + value + data[position + len(value) :]
    digest = hashlib.blake2b(changed[:16] + changed[48:], digest_size=32).digest()
    return changed[:16] + digest + changed[48:]


def test_another_version_byte_order_or_format_says_so(handle):
    data = bytes(handle)
    assert _with(data, 0, b"umfpyIPC") == data
    with pytest.raises(IpcError, match=f"version {VERSION + 1}"):
        IpcHandle.from_bytes(_with(data, 8, struct.pack("<H", VERSION + 1)))
    with pytest.raises(IpcError, match="byte order"):
        IpcHandle.from_bytes(_with(data, 10, b"b"))
    with pytest.raises(IpcError, match="no IPC handle"):
        IpcHandle.from_bytes(_with(data, 0, b"PK\3\4"))
    with pytest.raises(IpcError, match="changed"):
        IpcHandle.from_bytes(_with(data, 11, b"\1"))
    with pytest.raises(IpcError, match="says that it has"):
        IpcHandle.from_bytes(_with(data, 12, b"\xff\xff\xff\xff"))


# A sender can compute a digest: everything inside is looked at as well.


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (24, struct.pack("<Q", 0)),  # process 0
        (24, struct.pack("<Q", 1 << 31)),
        (56, struct.pack("<Q", 0)),  # a root of no bytes
        (56, struct.pack("<Q", 1 << 63)),
        (64, struct.pack("<Q", (1 << 20) - 999)),  # beyond the root by a byte
        (64, struct.pack("<Q", (1 << 64) - 1)),  # would wrap
        (72, struct.pack("<Q", 0)),  # no bytes
        (72, struct.pack("<Q", 1 << 63)),
        (80, struct.pack("<H", 0)),  # lengths that do not add up
        (82, struct.pack("<H", 0xFFFF)),
        (84, struct.pack("<I", 0xFFFFFFFF)),
        (80, struct.pack("<HHI", 0, 9, 23)),  # no name
        (88, b"\0\xff\n\x1b"),  # a name that is no text
    ],
)
def test_impossible_values_are_refused_behind_a_good_digest(handle, position, value):
    content = unseal(bytes(handle))
    forged = seal(content[:position] + value + content[position + len(value) :])
    with pytest.raises(IpcError, match="no umfpy made it"):
        IpcHandle.from_bytes(forged)


@pytest.mark.parametrize("length", [0, 1, 87])
def test_a_frame_with_too_little_in_it(handle, length):
    with pytest.raises(IpcError, match="only"):
        IpcHandle.from_bytes(seal(unseal(bytes(handle))[:length]))


def test_lengths_are_bounded():
    fake_handle(b"p" * (1 << 16), scope="s" * 8192, provider="n" * 64)
    for values in ({"payload": b"p" * 65537}, {"scope": "s" * 8193}, {"provider": "n" * 65}):
        with pytest.raises(IpcError, match="endless"):
            fake_handle(**values)
    with pytest.raises(IpcError, match="has no export id"):
        fake_handle(export_id=b"short")
    with pytest.raises(IpcError, match="names no host"):
        fake_handle(exporter=dataclasses.replace(ProcessId.current(), host=b""))


def test_scopes_may_be_paths_of_any_bytes():
    handle = fake_handle(scope=b"/data/\xff\xfe".decode("utf-8", "surrogateescape"))
    assert IpcHandle.from_bytes(bytes(handle)) == handle


def test_another_machine_is_named_as_the_reason(handle):
    elsewhere = dataclasses.replace(handle.root.exporter, host=bytes(16))
    root = dataclasses.replace(handle.root, exporter=elsewhere)
    with pytest.raises(IpcError, match="another machine"):
        open_ipc(bytes(IpcHandle(root, 0, 1)))


def test_a_handle_says_what_it_is_of(handle):
    assert str(handle).startswith("1000 B at 0x200 of fake memory of process ")
    assert "export_id" in repr(handle)
    assert "payload" not in repr(handle)


def test_nothing_that_a_handle_names_is_imported():
    for name in ("os", "umfpy.providers.host", "host.HostProvider", "../evil", "Host"):
        with pytest.raises(IpcError, match="does not know"):
            open_ipc(fake_handle(provider=name))


def test_the_root_that_a_handle_claims_is_its_payload_s(host, peer):
    """A forged one must not lead to addresses beyond what is mapped."""
    code = """
keep = umfpy.ProxyPool(side.provider).allocate(4096)
bytes(export(keep))
"""
    handle = IpcHandle.from_bytes(peer(code))
    for size in (1 << 40, 4097, 4095):
        root = dataclasses.replace(handle.root, size=size)
        with pytest.raises(IpcError, match=f"{size} bytes, but"):
            open_ipc(IpcHandle(root, 0, 16))
    assert host.counts() == {}
    open_ipc(handle).close()


def test_a_changed_payload_behind_a_good_digest_opens_nothing(side, peer):
    """Each byte of what the provider gets, changed by a sender who knows how handles are made."""
    code = """
keep = umfpy.ProxyPool(side.provider).allocate(4096)
bytes(export(keep))
"""
    handle = IpcHandle.from_bytes(peer(code))
    payload = handle.root.payload
    for position in range(len(payload)):
        changed = bytearray(payload)
        changed[position] ^= 0x55
        for forged in (bytes(changed), payload[:position], payload + payload[:position]):
            root = dataclasses.replace(handle.root, payload=forged)
            if forged != payload:
                with pytest.raises(IpcError):
                    open_ipc(bytes(IpcHandle(root, handle.offset, handle.size)))
    assert cache_info().used == 0
    with open_ipc(handle):
        assert side.counts()["open"] == 1
