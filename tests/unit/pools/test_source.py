"""Which pools are asked for memory when it has run out: those with memory of the same source."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes.provider import FakeProvider
from umfpy import Capability, MemoryManager, OutOfMemoryError, Pool, Provider, SlabPool
from umfpy.pools.base import ProviderPool
from umfpy.pools.source import neighbours, source_of

MIB = 1 << 20
DEVICE = 11  # no other test's

MAKE: dict[str, Callable[[Provider], ProviderPool]] = {
    "pool": Pool,
    "slabs": lambda provider: SlabPool(provider, slab_size=MIB),
    "manager": lambda provider: MemoryManager(provider, "exclusive_pages"),
}


class Device:
    """A source whose memory several providers take: what one has the others cannot get."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.providers: list[Shared] = []

    def provider(self, driver: str = "", memory_type: str = "device") -> Shared:
        made = Shared(self, driver, memory_type)
        self.providers.append(made)
        return made


class Shared(FakeProvider):
    def __init__(self, device: Device, driver: str, memory_type: str) -> None:
        super().__init__(device=DEVICE, memory_type=memory_type, capabilities=Capability.STREAMS)
        self.driver = driver
        self._all = device

    def alloc(self, size: int, alignment: int = 0) -> int:
        held = sum(each.live_bytes for each in self._all.providers)
        if held + size > self._all.capacity:
            raise OutOfMemoryError("none left", requested=size)
        return super().alloc(size, alignment)


@pytest.mark.parametrize("asking", MAKE)
@pytest.mark.parametrize("asked", MAKE)
@pytest.mark.parametrize(
    ("driver", "memory_type", "same"),
    [("one", "device", True), ("other", "device", False), ("one", "host", False)],
)
def test_who_is_asked(asking: str, asked: str, driver: str, memory_type: str, same: bool) -> None:
    device = Device(2 * MIB)
    other = MAKE[asked](device.provider(driver, memory_type))
    other.allocate(3 * MIB // 2).free()
    held = other.stats().reserved_bytes
    assert held >= 3 * MIB // 2
    pool = MAKE[asking](device.provider("one"))

    if same:
        pool.allocate(MIB).free()
    else:
        with pytest.raises(OutOfMemoryError):
            pool.allocate(MIB)

    assert (other.stats().reserved_bytes == 0) == same
    pool.close()
    other.close()


def test_neighbours() -> None:
    device = Device(MIB)
    provider = device.provider("one")
    pools = [Pool(device.provider("one")) for _ in range(3)]
    pools[2].close()
    assert {id(pool) for pool in neighbours(provider)} == set(map(id, pools[:2]))
    assert neighbours(provider, pools[:1]) == pools[1:2]


def test_a_provider_without_a_driver_is_its_own() -> None:
    assert source_of(FakeProvider(device=3)) == ("fake", 3, "device")
    assert source_of(Device(0).provider("cuda", "managed")) == ("cuda", DEVICE, "managed")


def test_a_pool_that_is_still_being_made_is_no_neighbour() -> None:
    device = Device(8 * MIB)
    half_made = []

    class Careless(Pool):
        def __init__(self, provider: Provider) -> None:
            super().__init__(provider)
            half_made.append(self)
            raise RuntimeError("not made")

    with pytest.raises(RuntimeError):
        Careless(device.provider())
    assert neighbours(device.provider()) == []
    made = Pool(device.provider())
    assert neighbours(device.provider()) == [made]
    assert len(half_made) == 1  # it is still there, and nobody asks it
