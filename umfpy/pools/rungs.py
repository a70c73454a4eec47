"""The ladder: the ways in which memory that nobody uses can go down, and which one was taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from umfpy.errors import InvalidArgument
from umfpy.provider import Capability

#: What each rung needs, the gentlest first; every provider can free.
_NEEDS: Mapping[str, Capability] = {
    "dalloc": Capability.DALLOC,
    "purge_lazy": Capability.PURGE_LAZY,
    "decommit": Capability.COMMIT,
    "purge_force": Capability.PURGE_FORCE,
    "free": Capability.NONE,
}

#: The rungs, the gentlest first: memory becomes unusable; its contents may go; its backing goes;
#: its contents go at once; it goes back to the provider, addresses and all.
RUNGS: tuple[str, ...] = tuple(_NEEDS)


def check_rung(rung: object) -> str:
    """Return `rung` if it is one; InvalidArgument, naming it and the rungs, if not."""
    if isinstance(rung, str) and rung in _NEEDS:
        return rung
    raise InvalidArgument(f"a rung is one of {', '.join(map(repr, RUNGS))}, not {rung!r}")


def choose(rung: str, capabilities: Capability) -> str:
    """Return `rung`, or the next more aggressive one that these capabilities have.

    Raises InvalidArgument for what is no rung.
    """
    start = RUNGS.index(check_rung(rung))
    return next(taken for taken in RUNGS[start:] if _NEEDS[taken] in capabilities)


class Trimmed(int):
    """How many bytes went down, and by which rung.

    It is a number, and compares, adds and prints as one.

    Attributes
    ----------
    rung
        The rung that was taken: the one that was asked for, or a more aggressive one where the
        provider lacks it.  None if nothing changed.

    Examples
    --------
    >>> from umfpy.pools.rungs import Trimmed
    >>> went = Trimmed(4096, "decommit")
    >>> went, went == 4096, went.rung
    (Trimmed(4096, rung='decommit'), True, 'decommit')
    """

    rung: str | None

    def __new__(cls, size: int = 0, rung: str | None = None) -> Trimmed:
        trimmed = super().__new__(cls, size)
        trimmed.rung = rung
        return trimmed

    def __repr__(self) -> str:
        return f"Trimmed({int(self)}, rung={self.rung!r})"

    def __str__(self) -> str:
        return int.__repr__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Trimmed, (int(self), self.rung)


def brought_back(trimmed: int) -> bool:
    """Whether a trim gave anything back; also what only the provider had kept, which is 0 bytes."""
    return trimmed > 0 or (isinstance(trimmed, Trimmed) and trimmed.rung is not None)


def together(parts: Iterable[Trimmed]) -> Trimmed:
    """Return the sum of what went in several pools, by the most aggressive of their rungs."""
    size, taken = 0, -1
    for part in parts:
        size += part
        taken = max(taken, -1 if part.rung is None else RUNGS.index(part.rung))
    return Trimmed(size, None if taken < 0 else RUNGS[taken])
