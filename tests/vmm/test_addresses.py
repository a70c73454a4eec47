"""The space of addresses: ranges never overlap, and join again when they are given back."""

from __future__ import annotations

import random

import pytest

from umfpy.errors import OutOfMemoryError
from umfpy.providers.vmm.addresses import AddressSpace

UNIT = 1 << 21


class Driver:
    """Reserves addresses one behind the other, so that reservations touch."""

    def __init__(self):
        self.next = 1 << 40
        self.live = {}
        self.most = 1 << 46

    def reserve(self, size):
        if size > self.most:
            raise OutOfMemoryError("no addresses")
        base, self.next = self.next, self.next + size
        self.live[base] = size
        return base, size

    def unreserve(self, base, size):
        assert self.live.pop(base) == size


@pytest.mark.parametrize("seed", range(8))
def test_random_ranges(seed):
    rng = random.Random(seed)
    driver = Driver()
    space = AddressSpace(driver, UNIT, 64 * UNIT)
    taken = {}

    def check(start, size):
        assert any(b <= start and start + size <= b + n for b, n in driver.live.items())
        assert all(start + size <= s or s + n <= start for s, n in taken.items())
        taken[start] = size

    for _ in range(600):
        if taken and rng.random() < 0.45:
            start = rng.choice(list(taken))
            space.give(start, taken.pop(start))
        elif taken and rng.random() < 0.3:
            start = rng.choice(list(taken))
            size = UNIT * rng.randint(1, 8)
            end = start + taken[start]
            free = all(end + size <= s or s + n <= end for s, n in taken.items())
            inside = any(b <= start and end + size <= b + n for b, n in driver.live.items())
            assert space.take_at(end, size) == (free and inside)
            if free and inside:
                taken[start] += size
        else:
            size = UNIT * rng.choice([1, 1, 2, 5, 30, 90])
            alignment = UNIT << rng.randint(0, 6)
            start = space.take(size, alignment)
            assert start % alignment == 0
            check(start, size)
            base = space.reservation(start)
            assert base <= start < base + driver.live[base]
    for start, size in taken.items():
        space.give(start, size)
    space.trim()
    assert not driver.live
    assert not space._free


def test_a_range_has_room_to_grow():
    space = AddressSpace(Driver(), UNIT, 64 * UNIT)
    low, high = space.take(UNIT, UNIT), space.take(UNIT, UNIT)
    assert space.take_at(low + UNIT, 30 * UNIT)
    assert not space.take_at(low + 31 * UNIT, 2 * UNIT)
    assert space.take_at(high + UNIT, 31 * UNIT)


def test_nothing_joins_over_the_end_of_a_reservation():
    driver = Driver()
    space = AddressSpace(driver, UNIT, 4 * UNIT)
    first = space.take(4 * UNIT, UNIT)
    second = space.take(4 * UNIT, UNIT)
    assert second == first + 4 * UNIT
    space.give(second, 4 * UNIT)
    assert not space.take_at(second, UNIT)
    space.give(first, 4 * UNIT)
    assert sorted(space._free) == [first, second]


def test_short_of_addresses_only_what_is_needed_is_reserved():
    driver = Driver()
    driver.most = 8 * UNIT
    space = AddressSpace(driver, UNIT, 64 * UNIT)
    start = space.take(6 * UNIT, UNIT)
    assert driver.live == {start: 6 * UNIT}
    with pytest.raises(OutOfMemoryError):
        space.take(9 * UNIT, UNIT)


def test_many_ranges_cost_little_bookkeeping():
    space = AddressSpace(Driver(), UNIT, 1 << 40)
    for _ in range(300):
        starts = [space.take(UNIT, UNIT) for _ in range(10)]
        for start in starts:
            space.give(start, UNIT)
    assert len(space._largest) < 200
