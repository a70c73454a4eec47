"""Two pieces of one allocation, open in another process at the cost of one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import umfpy
import umfpy.ipc
from umfpy.cli.demonstration.act import Facts, Promise, keep
from umfpy.cli.demonstration.device import CountedCuda, Device

_SIZE = 2048
_TIMEOUT_S = 60


def run(device: Device) -> Facts:
    """Share two pieces that a coarse provider cut out of one CUDA allocation, which CUDA itself
    cannot split."""
    provider = device.open()
    coarse = umfpy.CoarseProvider(provider)
    pool = umfpy.ProxyPool(coarse)
    pool.allocate(2 * _SIZE).free()
    pieces = [pool.allocate(_SIZE), pool.allocate(_SIZE)]
    for number, piece in enumerate(pieces):
        provider.copy(piece.ptr, _pattern(number), _SIZE)

    there = _other_process([bytes(umfpy.ipc.export(piece)) for piece in pieces])

    answers = [_read(provider, piece.ptr) for piece in pieces]
    facts: Facts = {
        "other_process": there["pid"],
        "native_allocs": provider.allocs,
        "native_exports": provider.exports,
        "native_opens": there["opens"],
        "distance_bytes": there["distance_bytes"],
        "read_there": there["read"] == [_pattern(n).hex() for n in range(2)],
        "answered_here": answers == [_pattern(n)[::-1] for n in range(2)],
    }
    for piece in pieces:
        piece.free()
    pool.close()
    coarse.close()
    facts["native_frees"] = provider.frees
    provider.close()
    calls = [facts[f"native_{what}"] for what in ("allocs", "exports", "opens", "frees")]
    keep(calls == [1, 1, 1, 1], "one native allocation, export, open and free", facts)
    keep(facts["distance_bytes"] == _SIZE, "the pieces lie side by side there too", facts)
    keep(facts["read_there"] and facts["answered_here"], "the data is right both ways", facts)
    return facts


def tell(facts: Facts) -> Iterator[str]:
    """Yield the lines for people."""
    yield (
        f"two pieces of 2 KiB, opened by process {facts['other_process']}, "
        f"{facts['distance_bytes']} bytes apart there as here"
    )
    yield "it read what this process wrote, and this one read its answer"
    yield (
        f"native calls: {facts['native_allocs']} allocation, {facts['native_exports']} export, "
        f"{facts['native_opens']} open, {facts['native_frees']} free"
    )


def _other_process(handles: list[bytes]) -> dict[str, Any]:
    """Run the importer on the handles, and return what it reports."""
    done = subprocess.run(
        [sys.executable, "-m", "umfpy.cli.demonstration.importer"],
        input=json.dumps([handle.hex() for handle in handles]),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise Promise(f"the other process failed: {done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _pattern(number: int) -> bytes:
    """Return bytes that differ by piece and by position."""
    return bytes((7 * position + 101 * number) % 251 for position in range(_SIZE))


def _read(provider: CountedCuda, ptr: int) -> bytes:
    buffer = bytearray(_SIZE)
    provider.copy(buffer, ptr, _SIZE)
    return bytes(buffer)
