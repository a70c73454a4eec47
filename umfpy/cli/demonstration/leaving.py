"""The emulated driver knows what a program has forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from umfpy.cli.demonstration.act import Facts, keep
from umfpy.cli.demonstration.device import Device
from umfpy.providers.emulated import LiveObject
from umfpy.units import format_size

_FORGOTTEN = 4 << 20


def run(device: Device) -> Facts:
    """See that nothing was left behind so far; then forget something, and have it reported."""
    if device.emulated is None:
        return {"emulated": False}
    leaks = device.emulated.leaks()
    facts: Facts = {"emulated": True, "leaks": _plain(leaks)}
    keep(not leaks, "nothing is left behind", facts)
    provider = device.open()
    forgotten = provider.alloc(_FORGOTTEN)
    facts["when_forgotten"] = _plain(device.emulated.leaks())
    provider.free(forgotten, _FORGOTTEN)
    provider.close()
    keep("allocations" in facts["when_forgotten"], "what is forgotten is reported", facts)
    return facts


def tell(facts: Facts) -> Iterator[str]:
    """Yield the lines for people."""
    if not facts["emulated"]:
        yield "only an emulated driver can say; this is a real one"
        return
    yield f"emu.leaks() after all of this: {facts['leaks']}"
    for kind, sizes in facts["when_forgotten"].items():
        total = format_size(sum(sizes))
        yield f"and with one allocation forgotten on purpose: {kind}: {len(sizes)} of {total}"


def _plain(leaks: Mapping[str, Sequence[LiveObject]]) -> dict[str, list[int]]:
    """Return the sizes in bytes by kind."""
    return {kind: [item.size for item in items] for kind, items in leaks.items()}
