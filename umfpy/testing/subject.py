"""The provider under test, with what the checks need around it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from umfpy.errors import UmfpyError
from umfpy.provider import Capability, Provider

#: What makes a provider, in this process or in another.
Factory = Callable[[], Provider]
Importer = Callable[[str], Provider]


class Broken(Exception):
    """The contract is broken: what was expected, and what was seen."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(expected, seen)
        self.expected = expected
        self.seen = seen


class Skipped(Exception):
    """The check says nothing about this provider, and why."""


@dataclass(frozen=True)
class Options:
    """How to check: see `check_provider`."""

    live_count: Callable[[Provider], int] | None = None
    importer: Importer | None = None
    process_setup: Callable[[], object] | None = None
    largest_alignment: int = 64 << 20
    threads: int = 8


def expect(condition: bool, expected: str, seen: object) -> None:
    """Raise Broken unless `condition` holds."""
    if not condition:
        raise Broken(expected, str(seen))


def pattern(seed: object, size: int) -> bytes:
    """Return `size` bytes that differ by seed and by position, the same in every process."""
    return hashlib.shake_128(repr(seed).encode()).digest(size)


def first_difference(seen: bytes, expected: bytes) -> str:
    """Say where two byte strings of one length differ."""
    at = next(i for i, (a, b) in enumerate(zip(seen, expected, strict=True)) if a != b)
    return f"byte {at} of {len(seen)} is {seen[at]:#04x}, not {expected[at]:#04x}"


def expect_equal(seen: bytes, expected: bytes, what: str) -> None:
    """Raise Broken unless two byte strings of one length are the same."""
    if seen != expected:
        raise Broken(what, first_difference(seen, expected))


class Subject:
    """A fresh provider, and the memory that a check takes from it; freed at the end."""

    def __init__(self, provider: Provider, options: Options) -> None:
        self.provider = provider
        self.options = options
        self.unit = provider.granularity()
        self._live: dict[int, int] = {}

    def has(self, capability: Capability) -> bool:
        """Return whether the provider announces all of `capability`."""
        return capability in self.provider.capabilities

    def abilities(self) -> Capability:
        """Return what decides which checks apply: all that the provider announces."""
        return self.provider.capabilities

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Allocate; what is left at the end of the check is freed."""
        ptr = self.provider.alloc(size, alignment)
        expect(
            isinstance(ptr, int) and ptr > 0, "alloc returns an address above 0, an int", repr(ptr)
        )
        self.adopt(ptr, size)
        return ptr

    def reserve(self, size: int, alignment: int = 0) -> int:
        """Reserve addresses; they are freed as those of `alloc`."""
        ptr = self.provider.reserve(size, alignment)
        expect(isinstance(ptr, int) and ptr > 0, "reserve returns an address above 0", repr(ptr))
        self.adopt(ptr, size)
        return ptr

    def split(self, ptr: int, size: int, first: int) -> int:
        """Make two pieces of one; return the address of the second."""
        self.provider.split(ptr, size, first)
        self.disown(ptr)
        self.adopt(ptr, first)
        self.adopt(ptr + first, size - first)
        return ptr + first

    def merge(self, low: int, high: int) -> None:
        """Make one piece of two neighbours."""
        size = self._live[low] + self._live[high]
        self.provider.merge(low, high, size)
        self.disown(high)
        self.adopt(low, size)

    def adopt(self, ptr: int, size: int) -> None:
        """Take on a piece, to be freed at the end."""
        self._live[ptr] = size

    def disown(self, ptr: int) -> int:
        """Forget a piece and return its size."""
        return self._live.pop(ptr)

    def free(self, ptr: int) -> None:
        """Free what `alloc` returned."""
        self.provider.free(ptr, self.disown(ptr))

    def write(self, ptr: int, data: bytes) -> None:
        """Store bytes, by the host itself where it can, so that `copy` is not trusted."""
        if self.has(Capability.HOST_ACCESS):
            ctypes.memmove(ptr, data, len(data))
        elif self.has(Capability.COPY):
            self.provider.copy(ptr, data, len(data))
        else:
            raise Skipped("nothing reaches the contents: neither HOST_ACCESS nor COPY")

    def write_if_possible(self, ptr: int, data: bytes) -> None:
        """Store bytes where something can."""
        if self.has(Capability.HOST_ACCESS) or self.has(Capability.COPY):
            self.write(ptr, data)

    def read(self, ptr: int, size: int) -> bytes:
        """Load bytes, by the host itself where it can."""
        if self.has(Capability.HOST_ACCESS):
            return ctypes.string_at(ptr, size)
        if not self.has(Capability.COPY):
            raise Skipped("nothing reaches the contents: neither HOST_ACCESS nor COPY")
        data = bytearray(size)
        self.provider.copy(data, ptr, size)
        return bytes(data)

    def fill(self, ptr: int, size: int, seed: object) -> None:
        """Store the pattern of `seed`."""
        self.write(ptr, pattern(seed, size))

    def expect_bytes(self, ptr: int, expected: bytes, what: str) -> None:
        """Raise Broken unless the memory holds these bytes."""
        expect_equal(self.read(ptr, len(expected)), expected, what)

    def expect_pattern(self, ptr: int, size: int, seed: object, what: str) -> None:
        """Raise Broken unless the memory holds the pattern of `seed`."""
        self.expect_bytes(ptr, pattern(seed, size), what)

    def refused(
        self,
        what: str,
        errors: tuple[type[UmfpyError], ...],
        call: Callable[..., object],
        *args: object,
    ) -> UmfpyError:
        """Raise Broken unless ``call(*args)`` raises one of `errors`; return what it raised."""
        names = " or ".join(error.__name__ for error in errors)
        try:
            result = call(*args)
        except errors as error:
            expect(bool(str(error)), f"{what}: a message that says why", repr(error))
            return error
        except UmfpyError as error:
            raise Broken(f"{what}: {names}", f"{type(error).__name__}: {error}") from error
        raise Broken(f"{what}: {names}", f"it returned {result!r}")

    def live_count(self) -> int | None:
        """Return how many allocations the provider says it has, if anything says so."""
        if self.options.live_count is not None:
            return self.options.live_count(self.provider)
        count = getattr(self.provider, "live_count", None)
        return int(count()) if callable(count) else None

    def finish(self) -> None:
        """Free what is left and close the provider; a check has failed already if that cannot."""
        for ptr, size in list(self._live.items()):
            with contextlib.suppress(UmfpyError):
                self.provider.free(ptr, size)
        with contextlib.suppress(UmfpyError):
            self.provider.close()
