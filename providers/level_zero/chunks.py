"""Physical memory behind reserved addresses, in chunks that come and go one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from umfpy.errors import UmfpyError
from umfpy.providers.level_zero.constants import Access
from umfpy.providers.level_zero.devices import Device
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.leftovers import Leftovers
from umfpy.providers.level_zero.structs import ze_physical_mem_desc_t

_READ_WRITE = Access.ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE
_NONE = Access.ZE_MEMORY_ACCESS_ATTRIBUTE_NONE


@dataclass
class Chunk:
    """A range of addresses with one physical object behind it, or none (``physical`` is 0).

    ``mapped`` says whether the object is at the addresses, ``access`` what may be done there,
    ``unclean`` that it has yet to be cleared.
    """

    ptr: int
    size: int
    physical: int = 0
    mapped: bool = False
    access: Access = _READ_WRITE
    unclean: bool = False


class ChunkMapper:
    """What is done to chunks: for each of several, or, if that fails, for none.

    Drivers unmap whole mappings only, and so the chunk is what can be dropped by itself.
    """

    def __init__(
        self, driver: LevelZeroDriver, context: int, device: Device, leftovers: Leftovers
    ) -> None:
        self._driver = driver
        self._context = context
        self._device = device
        self._leftovers = leftovers

    def back(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        """Put fresh memory behind the chunks that have none, and return those.

        zePhysicalMemCreate, zeVirtualMemMap.
        """
        bare = [chunk for chunk in chunks if not chunk.physical]
        _all_or_nothing(bare, self._back_one, self._drop_one)
        return bare

    def drop(self, chunks: Iterable[Chunk]) -> None:
        """Take the memory from behind the chunks: zeVirtualMemUnmap, zePhysicalMemDestroy."""
        backed = [chunk for chunk in chunks if chunk.physical]
        mapped = [chunk for chunk in backed if chunk.mapped]
        _all_or_nothing(mapped, self._unmap, self._map)
        for chunk in backed:
            self._leftovers.give_back("zePhysicalMemDestroy", self._context, chunk.physical)
            chunk.physical, chunk.unclean = 0, False

    def allow(self, chunks: Iterable[Chunk]) -> None:
        """Make backed chunks accessible: zeVirtualMemSetAccessAttribute."""
        hidden = [chunk for chunk in chunks if chunk.physical and chunk.access != _READ_WRITE]
        _all_or_nothing(hidden, self._allow_one, self._forbid_one)

    def forbid(self, chunks: Iterable[Chunk]) -> None:
        """Make backed chunks inaccessible; they keep their memory and what is in it."""
        open_ = [chunk for chunk in chunks if chunk.physical and chunk.access != _NONE]
        _all_or_nothing(open_, self._forbid_one, self._allow_one)

    def _back_one(self, chunk: Chunk) -> None:
        description = ze_physical_mem_desc_t(size=chunk.size)
        where = self._context, self._device.handle
        chunk.physical = self._driver.make("zePhysicalMemCreate", *where, description)
        chunk.access = _READ_WRITE
        try:
            self._map(chunk)
        except BaseException:
            self._leftovers.give_back("zePhysicalMemDestroy", self._context, chunk.physical)
            chunk.physical = 0
            raise

    def _drop_one(self, chunk: Chunk) -> None:
        self.drop([chunk])

    def _map(self, chunk: Chunk) -> None:
        place = chunk.ptr, chunk.size, chunk.physical
        self._driver.call("zeVirtualMemMap", self._context, *place, 0, chunk.access)
        chunk.mapped = True

    def _unmap(self, chunk: Chunk) -> None:
        self._driver.call("zeVirtualMemUnmap", self._context, chunk.ptr, chunk.size)
        chunk.mapped = False

    def _allow_one(self, chunk: Chunk) -> None:
        self._set_access(chunk, _READ_WRITE)

    def _forbid_one(self, chunk: Chunk) -> None:
        self._set_access(chunk, _NONE)

    def _set_access(self, chunk: Chunk, access: Access) -> None:
        if not chunk.mapped:
            self._map(chunk)
        place = chunk.ptr, chunk.size
        self._driver.call("zeVirtualMemSetAccessAttribute", self._context, *place, access)
        chunk.access = access


def _all_or_nothing(
    chunks: list[Chunk], do: Callable[[Chunk], None], undo: Callable[[Chunk], None]
) -> None:
    done: list[Chunk] = []
    try:
        for chunk in chunks:
            do(chunk)
            done.append(chunk)
    except UmfpyError:
        for chunk in reversed(done):
            # The first failure is the one to tell; what a chunk is like now, it says itself.
            with contextlib.suppress(UmfpyError):
                undo(chunk)
        raise
