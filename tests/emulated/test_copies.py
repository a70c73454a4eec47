"""Copies and sets: values, limits of allocations, rectangles, devices."""

import pytest

PATTERN = bytes(range(251)) * 16


@pytest.fixture
def pair(cu):
    a, b = cu.alloc(4096), cu.alloc(4096)
    yield a, b
    cu("cuMemFree", a)
    cu("cuMemFree", b)


def test_there_and_back(cu, pair):
    a, b = pair
    cu.write(a + 3, PATTERN[:1000])
    cu("cuMemcpyDtoD", b, a + 3, 1000)
    assert cu.read(b, 1000) == PATTERN[:1000]
    back = bytearray(10)
    stream = cu("cuStreamCreate", 1)
    cu("cuMemcpyHtoDAsync", b, b"0123456789", 10, stream)
    cu("cuMemcpyAsync", a, b, 10, stream)
    cu("cuMemcpyDtoHAsync", back, a, 10, stream)
    cu("cuStreamSynchronize", stream)
    cu("cuStreamDestroy", stream)
    assert back == b"0123456789"


@pytest.mark.parametrize(("offset", "size"), [(0, 4097), (4095, 2), (1, 2**64 - 1)])
def test_running_off_an_allocation_is_an_error_and_writes_nothing(cu, pair, offset, size):
    a, _ = pair
    cu("cuMemsetD8", a, 1, 4096)
    assert cu.error("cuMemsetD8", a + offset, 2, size) == 1
    data = bytes(min(size, 8192))
    if len(data) == size:
        assert cu.error("cuMemcpyHtoD", a + offset, data, size) == 1
    assert cu.read(a, 4096) == b"\1" * 4096


def test_a_neighbour_is_not_part_of_an_allocation(cu):
    neighbours = sorted(cu.alloc(512) for _ in range(2))
    assert neighbours[1] - neighbours[0] == 512
    assert cu.error("cuMemsetD8", neighbours[0], 0, 1024) == 1
    for address in neighbours:
        cu("cuMemFree", address)


def test_freed_memory_cannot_be_used(cu):
    address = cu.alloc(4096)
    cu("cuMemFree", address)
    assert cu.error("cuMemsetD8", address, 0, 1) == 1
    assert cu.error("cuMemcpy", address, address, 1) == 1


def test_a_plain_host_address_is_not_device_memory(cu):
    assert cu.error("cuMemsetD8", id(PATTERN), 0, 1) == 1


@pytest.mark.parametrize(("bits", "value"), [(8, 0xA5), (16, 0xBEEF), (32, 0xDEADBEEF)])
def test_sets(cu, pair, bits, value):
    a, _ = pair
    cell = value.to_bytes(bits // 8, "little")
    cu("cuMemsetD8", a, 0, 4096)
    cu(f"cuMemsetD{bits}", a + 8, value, 5)
    assert cu.read(a, 64) == (b"\0" * 8 + cell * 5).ljust(64, b"\0")
    cu(f"cuMemsetD{bits}Async", a, value, 2, 0)
    assert cu.read(a, len(cell) * 2) == cell * 2
    cu("cuMemsetD8", a, 0, 4096)
    cu(f"cuMemsetD2D{bits}", a, 64, value, 3, 2)
    row = (cell * 3).ljust(64, b"\0")
    assert cu.read(a, 192) == row * 2 + b"\0" * 64
    if bits > 8:
        assert cu.error(f"cuMemsetD{bits}", a + 1, value, 1) == 1


def rectangle(cu, source, target, width, height, pitch):
    d = cu.driver
    copy = d.CUDA_MEMCPY2D()
    if isinstance(source, int):
        copy.srcMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcDevice = source
    else:
        copy.srcMemoryType = d.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.srcHost = source
    copy.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.dstDevice = target
    copy.srcPitch, copy.dstPitch = pitch
    copy.WidthInBytes, copy.Height = width, height
    return copy


def test_rectangles(cu, pair):
    a, b = pair
    cu("cuMemsetD8", a, 0, 4096)
    cu("cuMemcpy2D", rectangle(cu, PATTERN, a, 10, 3, (20, 64)))
    rows = [PATTERN[20 * i : 20 * i + 10].ljust(64, b"\0") for i in range(3)]
    assert cu.read(a, 192) == b"".join(rows)
    cu("cuMemcpy2DAsync", rectangle(cu, a, b, 10, 3, (64, 10)), 0)
    assert cu.read(b, 30) == b"".join(row[:10] for row in rows)
    assert cu.error("cuMemcpy2D", rectangle(cu, a, b, 65, 2, (64, 64))) == 1
    assert cu.error("cuMemcpy2D", rectangle(cu, a, b, 64, 65, (64, 64))) == 1
    cu("cuMemcpy2DUnaligned", rectangle(cu, a, b, 64, 64, (64, 64)))


def test_between_devices(cu):
    here, there = cu("cuCtxGetCurrent"), cu("cuDevicePrimaryCtxRetain", 1)
    a = cu.alloc(100)
    cu.write(a, PATTERN[:100])
    cu("cuCtxPushCurrent", there)
    b = cu.alloc(100)
    cu("cuMemcpyPeer", b, there, a, here, 100)
    assert cu.read(b, 100) == PATTERN[:100]
    cu("cuMemcpyPeerAsync", b, there, a, here, 50, 0)
    cu("cuMemFree", b)
    cu("cuCtxPopCurrent")
    cu("cuMemFree", a)
    cu("cuDevicePrimaryCtxRelease", 1)


def test_new_memory_after_reuse_holds_nothing_that_was_written(cu):
    address = cu.alloc(8 << 20)
    cu("cuMemsetD8", address, 0x77, 8 << 20)
    cu("cuMemFree", address)
    again = cu.alloc(8 << 20)
    assert again == address
    assert cu.read(again, 8 << 20) == bytes(8 << 20)
    cu("cuMemFree", again)
