"""The sizes of chunks."""

from __future__ import annotations

import pytest

from umfpy.errors import InvalidArgument
from umfpy.providers.vmm.units import LARGEST, Units, check_chunk_size

UNIT = 1 << 21


@pytest.mark.parametrize("size", [1, 3, 4, 7, 8, 15, 100, 511, 512, 5000])
def test_a_layout_fills_exactly_with_few_chunks(size):
    sizes = list(Units(UNIT).layout(size * UNIT))
    assert sum(sizes) == size * UNIT
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) <= 16 + size * UNIT // LARGEST
    assert all(one >= UNIT and one & (one - 1) == 0 for one in sizes)


def test_a_layout_of_wanted_chunks():
    units = Units(UNIT)
    assert list(units.layout(8 * UNIT, 3 * UNIT)) == [3 * UNIT, 3 * UNIT, 2 * UNIT]
    assert list(units.layout(7 * UNIT, 12 * UNIT)) == [4 * UNIT, 2 * UNIT, UNIT]
    assert list(units.layout(3 * LARGEST, 2 * LARGEST)) == [LARGEST] * 3
    assert list(units.layout(0, UNIT)) == []


def test_no_chunk_is_larger_than_the_device_takes():
    units = Units(UNIT, None, 8 * UNIT)
    assert units.usual(1 << 40) == 8 * UNIT
    assert set(units.layout(64 * UNIT, 32 * UNIT)) == {8 * UNIT}


def test_fixed_chunks():
    units = Units(UNIT, 4 * UNIT)
    assert units.unit == units.usual(1) == units.usual(1 << 40) == 4 * UNIT
    assert units.length(5 * UNIT) == 8 * UNIT
    assert list(units.layout(8 * UNIT, UNIT)) == [4 * UNIT] * 2


def test_a_chunk_size_is_a_power_of_two_that_the_device_can_have():
    most = 6 * UNIT
    assert check_chunk_size(None, UNIT, most) is None
    assert check_chunk_size("8MiB", UNIT, most) == 4 * UNIT
    for wanted in (3 * UNIT, UNIT // 2, 0):
        with pytest.raises(InvalidArgument, match=rf"chunk_size is {wanted}; .*\({UNIT} bytes\)"):
            check_chunk_size(wanted, UNIT, most)
    for wanted in (8 * UNIT, 1 << 63):
        with pytest.raises(InvalidArgument, match=rf"chunk_size is {wanted}; .*\({most} bytes\)"):
            check_chunk_size(wanted, UNIT, most)
