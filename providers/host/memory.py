"""How much memory the machine has."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")


def _fields() -> dict[str, int]:
    fields = {}
    for line in _MEMINFO.read_text().splitlines():
        name, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        fields[name] = int(number) << 10 if unit == "kB" else int(number)
    return fields


def available_and_total() -> tuple[int, int]:
    """Return bytes available without swapping, and in all: proc_meminfo(5)."""
    fields = _fields()
    return fields["MemAvailable"], fields["MemTotal"]


def total_with_swap() -> int:
    """Return the bytes of memory and swap: more than this can never be backed."""
    fields = _fields()
    return fields["MemTotal"] + fields["SwapTotal"]
