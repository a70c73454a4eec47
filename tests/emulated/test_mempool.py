"""Stream-ordered pools: what they reserve, use, keep and share."""

import os

import pytest

GRANULE = 2 << 20


def attribute(cu, pool, name):
    number = getattr(cu.driver.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}")
    return int(cu("cuMemPoolGetAttribute", pool, number))


def set_attribute(cu, pool, name, value):
    number = getattr(cu.driver.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}")
    cu("cuMemPoolSetAttribute", pool, number, cu.driver.cuuint64_t(value))


@pytest.fixture
def pool(cu):
    made = cu("cuMemPoolCreate", cu.pool_properties())
    yield made
    cu("cuMemPoolDestroy", made)


def test_used_and_reserved(cu, pool):
    free = cu("cuMemGetInfo")[0]
    a = cu("cuMemAllocFromPoolAsync", 1000, pool, 0)
    b = cu("cuMemAllocFromPoolAsync", 3 << 20, pool, 0)
    assert attribute(cu, pool, "USED_MEM_CURRENT") == 1024 + (3 << 20)
    assert attribute(cu, pool, "RESERVED_MEM_CURRENT") == 2 * GRANULE
    assert cu("cuMemGetInfo")[0] == free - 2 * GRANULE
    cu("cuMemFreeAsync", a, 0)
    cu("cuMemFreeAsync", b, 0)
    assert attribute(cu, pool, "USED_MEM_CURRENT") == 0
    assert attribute(cu, pool, "USED_MEM_HIGH") == 1024 + (3 << 20)
    assert attribute(cu, pool, "RESERVED_MEM_CURRENT") == 2 * GRANULE
    cu("cuStreamSynchronize", 0)
    assert attribute(cu, pool, "RESERVED_MEM_CURRENT") == 0
    assert attribute(cu, pool, "RESERVED_MEM_HIGH") == 2 * GRANULE
    assert cu("cuMemGetInfo")[0] == free
    set_attribute(cu, pool, "USED_MEM_HIGH", 0)
    assert attribute(cu, pool, "USED_MEM_HIGH") == 0


def test_the_threshold_is_kept_over_a_wait(cu, pool):
    set_attribute(cu, pool, "RELEASE_THRESHOLD", 2 * GRANULE)
    cu("cuMemFreeAsync", cu("cuMemAllocFromPoolAsync", 5 * GRANULE, pool, 0), 0)
    cu("cuCtxSynchronize")
    assert attribute(cu, pool, "RESERVED_MEM_CURRENT") == 2 * GRANULE
    cu("cuMemPoolTrimTo", pool, GRANULE)
    assert attribute(cu, pool, "RESERVED_MEM_CURRENT") == GRANULE
    cu("cuMemPoolTrimTo", pool, 0)
    assert attribute(cu, pool, "RESERVED_MEM_CURRENT") == 0


def test_a_hit_is_cheap(cu, pool, emu):
    set_attribute(cu, pool, "RELEASE_THRESHOLD", 2**64 - 1)
    emu.reset_clock()
    address = cu("cuMemAllocFromPoolAsync", 4096, pool, 0)
    assert emu.clock_us > 50
    cu("cuMemFreeAsync", address, 0)
    emu.reset_clock()
    address = cu("cuMemAllocFromPoolAsync", 4096, pool, 0)
    assert emu.clock_us == pytest.approx(1.7)
    cu("cuMemFreeAsync", address, 0)


def test_capacity_and_limits(cu):
    small = cu("cuMemPoolCreate", cu.pool_properties(limit=4 * GRANULE))
    address = cu("cuMemAllocFromPoolAsync", 4 * GRANULE, small, 0)
    assert cu.error("cuMemAllocFromPoolAsync", 1, small, 0) == 2
    assert cu.error("cuMemAllocAsync", 1 << 30, 0) == 2
    for size in (2**63, 2**64 - 1):
        assert cu.error("cuMemAllocAsync", size, 0) == 2
    assert cu.error("cuMemAllocAsync", 0, 0) == 1
    cu("cuMemFreeAsync", address, 0)
    cu("cuMemPoolDestroy", small)


def test_a_destroyed_pool_lives_for_its_allocations(cu, emu):
    free = cu("cuMemGetInfo")[0]
    pool = cu("cuMemPoolCreate", cu.pool_properties())
    address = cu("cuMemAllocFromPoolAsync", 4096, pool, 0)
    cu("cuMemPoolDestroy", pool)
    assert cu.error("cuMemPoolTrimTo", pool, 0) == 1
    cu("cuMemsetD8", address, 1, 4096)
    cu("cuMemFreeAsync", address, 0)
    assert cu("cuMemGetInfo")[0] == free
    assert cu.error("cuMemPoolDestroy", pool) == 1


def test_default_and_current_pool(cu):
    default = cu("cuDeviceGetDefaultMemPool", 0)
    assert int(cu("cuDeviceGetMemPool", 0)) == int(default) != 0
    assert cu.error("cuMemPoolDestroy", default) == 1
    other = cu("cuMemPoolCreate", cu.pool_properties())
    cu("cuDeviceSetMemPool", 0, other)
    address = cu("cuMemAllocAsync", 4096, 0)
    assert attribute(cu, other, "USED_MEM_CURRENT") == 4096
    cu("cuMemFree", address)  # legal for memory of a pool too
    cu("cuMemPoolDestroy", other)
    assert int(cu("cuDeviceGetMemPool", 0)) == int(default)
    assert cu.error("cuDeviceSetMemPool", 1, default) == 1


def test_frees_of_what_no_pool_gave(cu):
    address = cu.alloc(4096)
    assert cu.error("cuMemFreeAsync", address, 0) == 1
    assert cu.error("cuMemFreeAsync", 0, 0) == 1
    cu("cuMemFree", address)


def test_access(cu, pool):
    other = cu.access(device=1)  # kept, as its location is a part of it
    location = other.location
    assert int(cu("cuMemPoolGetAccess", pool, location)) == 0
    cu("cuMemPoolSetAccess", pool, [cu.access(device=1)], 1)
    assert int(cu("cuMemPoolGetAccess", pool, location)) == 3
    assert cu.error("cuMemPoolSetAccess", pool, [cu.access(device=0, flags=0)], 1) == 1


def test_memory_of_a_pool_has_no_classic_ipc_handle(cu):
    address = cu("cuMemAllocAsync", 4096, 0)
    assert cu.error("cuIpcGetMemHandle", address) == 1
    assert cu.error("cuMemPoolExportPointer", address) == 1
    cu("cuMemFreeAsync", address, 0)


def test_a_pool_and_its_pointers_cross_processes(cu, peer):
    pool = cu("cuMemPoolCreate", cu.pool_properties(shareable=True))
    address = int(cu("cuMemAllocFromPoolAsync", 4096, pool, 0))
    cu.write(address, b"pooled")
    data = cu.bytes_of(cu("cuMemPoolExportPointer", address))
    fd = int(cu("cuMemPoolExportToShareableHandle", pool, cu.posix, 0))
    assert peer(
        """
pool = cu("cuMemPoolImportFromShareableHandle", fds[0], cu.posix, 0)
os.close(fds[0])
def share(data):
    return cu.opaque("CUmemPoolPtrExportData", data)
at = int(cu("cuMemPoolImportPointer", pool, share(data)))
cu.write(at + 6, b" and back")
refused = [cu.error("cuMemAllocFromPoolAsync", 64, pool, 0)]
for i in range(64):
    flipped = data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :]
    refused.append(cu.error("cuMemPoolImportPointer", pool, share(flipped)))
[cu.read(at, 6).decode(), set(refused) == {1}]
""",
        fds=(fd,),
        data=data,
    ) == ["pooled", True]
    os.close(fd)
    assert cu.read(address, 15) == b"pooled and back"
    peer('cu("cuMemFreeAsync", at, 0)\n0')
    assert peer('cu.error("cuMemsetD8", at, 0, 1)') == 1
    cu("cuMemFreeAsync", address, 0)
    stale = "cu.error('cuMemPoolImportPointer', pool, share(data))"
    assert peer(stale, data=data) == 1
    assert peer('cu("cuMemPoolDestroy", pool)\n0') == 0
    cu("cuMemPoolDestroy", pool)


def test_a_pool_not_made_for_sharing_is_not_shared(cu, pool):
    assert cu.error("cuMemPoolExportToShareableHandle", pool, cu.posix, 0) == 1
