"""What UMF cannot do: a provider that cannot split, cut up by a coarse provider, and every piece
of it shared."""

from __future__ import annotations

import gc

import pytest

from umfpy import CoarseProvider, ProxyPool
from umfpy.ipc import export

pytestmark = pytest.mark.parametrize(
    "side", ["host", "cuda", "cuda_vmm", "cuda_async", "level_zero"], indirect=True
)


def test_two_halves_of_one_native_allocation(side, peer):
    coarse = CoarseProvider(side.provider)
    pool = ProxyPool(coarse)
    pool.allocate(4096).free()
    low, high = pool.allocate(2048), pool.allocate(2048)
    assert side.counts() == {"alloc": 1}
    side.write(low.ptr, b"low" * 600)
    side.write(high.ptr, b"high" * 500)

    first, second = export(low), export(high)
    there = peer(
        """
        a, b = open_ipc(first), open_ipc(second)
        seen = bytes(a.copy_to_host())[:1800], bytes(b.copy_to_host())[:2000]
        a.copy_from_host(b"from the importer")
        b.copy_from_host(b"and here", offset=2040)
        (a.ptr, b.ptr, a.size, b.size, *seen)
        """.replace("        ", ""),
        first=first,
        second=second,
    )
    assert there[1] - there[0] == high.ptr - low.ptr == 2048
    assert there[2:] == (2048, 2048, b"low" * 600, b"high" * 500)
    assert side.read(low.ptr, 17) == b"from the importer"
    assert side.read(high.ptr + 2040, 8) == b"and here"

    assert peer("a.close(), b.close(), clear_cache()\nside.counts()") == {"open": 1, "close": 1}
    low.free()
    high.free()
    coarse.close()
    assert side.counts() == {"alloc": 1, "export": 1, "free": 1}


def test_a_thousand_handles_into_one_extent(side, peer):
    coarse = CoarseProvider(side.provider, reserve="4MiB")
    pool = ProxyPool(coarse)
    pieces = [pool.allocate(4096) for _ in range(1000)]
    for number, piece in enumerate(pieces):
        side.write(piece.ptr, number.to_bytes(4, "little"))
    handles = [export(piece) for piece in pieces]
    code = """
mappings = [open_ipc(h) for h in handles]
[int.from_bytes(bytes(m.copy_to_host())[:4], "little") for m in mappings]
"""
    assert peer(code, handles=[bytes(h) for h in handles]) == list(range(1000))
    assert peer("side.counts()") == {"open": 1}
    assert (
        peer(
            "len({m.ptr - h.offset for m, h in zip(mappings, map(IpcHandle.from_bytes, handles))})"
        )
        == 1
    )
    assert peer("mappings.clear(), clear_cache()\nside.counts()") == {"open": 1, "close": 1}
    assert side.counts() == {"alloc": 1, "export": 1}
    del pieces, piece
    gc.collect()
    coarse.close()
    assert side.counts() == {"alloc": 1, "export": 1, "free": 1}
