"""What of other processes' memory is open: counted, and open as before where a close fails."""

import pytest

from umfpy import InvalidArgument, OutOfMemoryError
from umfpy.providers.host.opened import Opened

MIB = 1 << 20


def test_a_range_is_open_as_often_as_it_was_opened():
    opened = Opened()
    opened.enter(3 * MIB, MIB, 2 * MIB)
    opened.enter(3 * MIB, MIB, 2 * MIB)
    assert len(opened) == 1
    for _ in range(2):
        with opened.leaving(3 * MIB, MIB) as base:
            assert base == 2 * MIB
    assert len(opened) == 0
    with (
        pytest.raises(InvalidArgument, match="no imported memory of 1048576 bytes at 0x300000"),
        opened.leaving(3 * MIB, MIB),
    ):
        pytest.fail("nothing is open")


def test_a_range_of_another_size_is_another_range():
    opened = Opened()
    opened.enter(MIB, MIB, MIB)
    with (
        pytest.raises(InvalidArgument, match="no imported memory of 1 bytes"),
        opened.leaving(MIB, 1),
    ):
        pytest.fail("nothing is open")
    assert len(opened) == 1


@pytest.mark.parametrize("opens", [1, 2])
@pytest.mark.parametrize("error", [OutOfMemoryError("the driver is short"), KeyboardInterrupt()])
def test_what_the_driver_does_not_close_is_open_as_before(opens, error):
    opened = Opened()
    for _ in range(opens):
        opened.enter(MIB, MIB, MIB)
    with pytest.raises(type(error)), opened.leaving(MIB, MIB):
        raise error
    for _ in range(opens):
        with opened.leaving(MIB, MIB):
            pass
    assert len(opened) == 0
