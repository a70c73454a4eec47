"""FixedProvider: buffers of every kind, to the last byte."""

from __future__ import annotations

import ctypes
import gc
import mmap
import weakref

import numpy as np
import pytest

from tests.fakes.programs import run_python
from umfpy.errors import InvalidArgument, NotSupported, OutOfMemoryError
from umfpy.provider import Capability
from umfpy.providers.host import FixedProvider


class OnDevice:
    """Memory on a CUDA device, as its interface tells of it."""

    def __init__(self, ptr=1 << 40, shape=(1024,), typestr="<f4", read_only=False, strides=None):
        self.__cuda_array_interface__ = {
            "data": (ptr, read_only),
            "shape": shape,
            "typestr": typestr,
            "strides": strides,
            "version": 3,
        }


def test_writes_arrive_in_the_owners_buffer():
    array = np.zeros(4096, np.uint8)
    provider = FixedProvider(array)
    ptr = provider.alloc(64)
    provider.copy(ptr, b"umfpy", 5)
    at = ptr - array.ctypes.data
    assert array[at : at + 5].tobytes() == b"umfpy"
    assert provider.properties(ptr)["base"] == ptr
    assert provider.properties(array.ctypes.data - 1) == {}


@pytest.mark.parametrize("make", [bytearray, np.zeros, lambda n: mmap.mmap(-1, n)])
def test_kinds_of_buffers(make):
    provider = FixedProvider(make(8192))
    ptr = provider.alloc(4096)
    provider.zero(ptr, 4096)
    provider.free(ptr, 4096)


def test_exhausts_cleanly_and_serves_again():
    array = np.zeros(4096 + 64, np.uint8)
    provider = FixedProvider(array[-array.ctypes.data % 64 :][:4096])
    pointers = [provider.alloc(1024) for _ in range(4)]
    assert provider.memory_info() == (0, 4096)
    with pytest.raises(OutOfMemoryError, match="0 of 4096 bytes are free") as caught:
        provider.alloc(64)
    assert (caught.value.used, caught.value.reserved, caught.value.largest_free) == (4096, 4096, 0)
    provider.free(pointers[0], 1024)
    provider.free(pointers[2], 1024)
    with pytest.raises(OutOfMemoryError, match="2048 of 4096 bytes are free, 1024 in one range"):
        provider.alloc(2048)
    provider.free(pointers[1], 1024)
    assert provider.alloc(3072) == pointers[0]
    provider.free(pointers[0], 3072)
    provider.free(pointers[3], 1024)
    assert provider.alloc(4096) == pointers[0]


@pytest.mark.parametrize("start", [0, 1, 63, 64, 65])
def test_a_misaligned_buffer_serves_its_aligned_inside(start):
    array = np.zeros(1 << 14, np.uint8)
    part = array[start : start + 8192]
    provider = FixedProvider(part)
    first = part.ctypes.data
    usable = ((first + 8192) & -64) - ((first + 63) & -64)
    assert provider.memory_info() == (usable, usable)
    ptr = provider.alloc(usable)
    assert first <= ptr
    assert ptr % 64 == 0
    assert ptr + usable <= first + 8192


def test_alignment_above_the_granule():
    provider = FixedProvider(bytearray(1 << 16))
    ptr = provider.alloc(64, 4096)
    assert ptr % 4096 == 0
    # What was skipped in front is not lost.
    total = provider.memory_info()[0]
    small = []
    while provider.memory_info()[0]:
        small.append(provider.alloc(64))
    assert len(small) == total // 64
    assert len(set(small)) == len(small)


def test_buffers_that_cannot_be_used():
    read_only = np.zeros(4096, np.uint8)
    read_only.flags.writeable = False
    for buffer, size, words in (
        (b"bytes are read-only", None, "writable"),
        (read_only, None, "writable"),
        (np.zeros((64, 64), np.uint8)[:, ::2], None, "contiguous"),
        (object(), None, "gives no"),
        (bytearray(32), None, "hold no whole 64 bytes"),
        (bytearray(0), None, "hold no whole 64 bytes"),
        (bytearray(128), 129, "the buffer has 128"),
        (bytearray(128), 0, "from 1 on, not 0"),
        (4096, None, "needs a size"),
        (4096, 0, "from 1 on, not 0"),
        (0, 4096, "needs a size"),
        (OnDevice(read_only=True), None, "read-only"),
        (OnDevice(shape=(4, 64), strides=(512, 4)), None, "not contiguous"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            FixedProvider(buffer, size)
    with pytest.raises(InvalidArgument, match="power of two"):
        FixedProvider(bytearray(4096), granule=48)


def test_a_part_of_a_buffer():
    assert FixedProvider(bytearray(8192), 4096, granule=1).memory_info() == (4096, 4096)


def test_an_address():
    owner = ctypes.create_string_buffer(4096)
    provider = FixedProvider(ctypes.addressof(owner), 4096)
    ptr = provider.alloc(64)
    provider.copy(ptr, b"here", 4)
    assert b"here" in owner.raw


def test_device_memory_is_not_touched_by_the_host():
    for provider in (
        FixedProvider(OnDevice()),
        FixedProvider(1 << 40, 4096, memory_type="device", device=1),
        FixedProvider(OnDevice(shape=(8, 128), strides=(512, 4))),
    ):
        assert provider.memory_type == "device"
        assert provider.granule == 512
        assert provider.capabilities == Capability.SPLIT
        ptr = provider.alloc(4096)
        assert ptr == 1 << 40
        with pytest.raises(NotSupported):
            provider.zero(ptr, 4096)
        provider.free(ptr, 4096)


def test_the_owner_lives_as_long_as_the_provider():
    array = np.zeros(4096, np.uint8)
    alive = weakref.ref(array)
    provider = FixedProvider(array)
    del array
    gc.collect()
    assert alive() is not None
    del provider
    gc.collect()
    assert alive() is None


def test_a_buffer_in_use_cannot_be_resized():
    buffer = bytearray(4096)
    provider = FixedProvider(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    del provider
    gc.collect()
    buffer.extend(b"x")


def test_exit_with_a_live_provider_is_silent():
    program = (
        "from umfpy.providers.host import FixedProvider\n"
        "p = FixedProvider(bytearray(4096)); p.alloc(64); print('done')"
    )
    assert run_python(program) == "done"
