"""Every system call of a fixed script fails once; nothing is lost and nothing has changed."""

from __future__ import annotations

import errno
import os

import pytest

from umfpy.errors import DriverError, OutOfMemoryError, UmfpyError
from umfpy.provider import Capability
from umfpy.providers.host import FileProvider, HostProvider
from umfpy.providers.host.system import System

PAGE = os.sysconf("SC_PAGE_SIZE")


class Faults:
    """Lets the nth system call from now fail, and counts them."""

    def __init__(self, monkeypatch):
        self.calls = 0
        self.nth = 0
        self.code = errno.EIO
        call, reserve = System.call, System.reserve_blocks

        def counted_call(system, name, *args):
            self._count(system, name)
            return call(system, name, *args)

        def counted_reserve(system, fd, offset, length):
            self._count(system, "posix_fallocate")
            reserve(system, fd, offset, length)

        monkeypatch.setattr(System, "call", counted_call)
        monkeypatch.setattr(System, "reserve_blocks", counted_reserve)

    def _count(self, system, name):
        self.calls += 1
        if self.calls == self.nth:
            raise system.failed(name, self.code)


def mappings():
    with open("/proc/self/maps") as maps:
        return sum("memfd:umfpy " in line or "faults-" in line for line in maps)


def address_space():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * PAGE


def script(provider, peek):
    """Use everything; a step that fails must have changed nothing, and works the second time."""
    size = 4 * PAGE
    failures = 0

    def step(function, *args):
        nonlocal failures
        before = provider.live_count()
        try:
            return function(*args)
        except UmfpyError:
            failures += 1
            assert provider.live_count() == before
            return function(*args)

    ptr = step(provider.alloc, size)
    aligned = step(provider.alloc, PAGE, 1 << 20)
    assert aligned % (1 << 20) == 0
    provider.copy(ptr, b"\1" * size, size)
    step(provider.split, ptr, size, 2 * PAGE)
    step(provider.decommit, ptr, 2 * PAGE)
    assert peek(ptr + 2 * PAGE, 2 * PAGE) == b"\1" * 2 * PAGE
    step(provider.commit, ptr, 2 * PAGE)
    assert peek(ptr, 2 * PAGE) == bytes(2 * PAGE)
    step(provider.dalloc, ptr, 2 * PAGE)
    step(provider.commit, ptr, 2 * PAGE)
    step(provider.purge_force, ptr + 2 * PAGE, 2 * PAGE)
    assert peek(ptr, size) == bytes(size)
    step(provider.free, ptr, 2 * PAGE)
    fresh = step(provider.alloc, PAGE)
    assert peek(fresh, PAGE) == bytes(PAGE)
    for piece, length in ((ptr + 2 * PAGE, 2 * PAGE), (aligned, PAGE), (fresh, PAGE)):
        step(provider.free, piece, length)
    if Capability.RESERVE in provider.capabilities:
        reserving(provider, step, peek)
    return failures


def reserving(provider, step, peek):
    """Two sources, one of them hidden, and a target; a third piece stays as it is."""
    ptr = step(provider.reserve, 5 * PAGE, 1 << 20)
    provider.split(ptr, 5 * PAGE, PAGE)
    provider.split(ptr + PAGE, 4 * PAGE, PAGE)
    provider.split(ptr + 2 * PAGE, 3 * PAGE, PAGE)
    target = ptr + 3 * PAGE
    for at in (ptr, ptr + PAGE, ptr + 2 * PAGE):
        step(provider.commit, at, PAGE)
        provider.copy(at, b"\2" * PAGE, PAGE)
    step(provider.dalloc, ptr + 2 * PAGE, PAGE)
    backed = provider.chunks(ptr, 5 * PAGE)

    def remap():
        try:
            provider.remap([(ptr, PAGE), (ptr + 2 * PAGE, PAGE)], target, 2 * PAGE)
        except UmfpyError:
            assert provider.chunks(ptr, 5 * PAGE) == backed
            assert peek(ptr, PAGE) == b"\2" * PAGE
            raise

    step(remap)
    assert peek(target, 2 * PAGE) == bytes(2 * PAGE)
    assert peek(ptr + PAGE, PAGE) == b"\2" * PAGE
    step(provider.commit, ptr, PAGE)
    assert peek(ptr, PAGE) == bytes(PAGE)
    for at, size in ((ptr, 1), (ptr + PAGE, 1), (ptr + 2 * PAGE, 1), (target, 2)):
        step(provider.free, at, size * PAGE)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOMEM])
@pytest.mark.parametrize("kind", ["private", "shared", "named", "file"])
def test_nth_call_fails(kind, code, monkeypatch, tmp_path, peek):
    def make():
        if kind == "file":
            return FileProvider(tmp_path / "faults-file", keep=False)
        name = f"umfpy-faults-{os.getpid()}" if kind == "named" else None
        return HostProvider(kind != "private", name=name)

    faults = Faults(monkeypatch)
    faults.code = code
    provider = make()
    made = faults.calls
    assert script(provider, peek) == 0
    total = faults.calls - made
    provider.close()
    assert total > 15

    files, space, failures = len(os.listdir("/proc/self/fd")), address_space(), 0
    mapped = mappings()
    for nth in range(1, total + 1):
        provider = make()
        faults.nth = faults.calls + nth
        failures += script(provider, peek)
        faults.nth = 0
        assert provider.live_count() == 0
        provider.close()
        assert mappings() == mapped
    assert failures >= total // 2
    # One aligned allocation reserves more than 1 MiB on the way.
    assert address_space() < space + (1 << 20)
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_failure_has_its_type(monkeypatch):
    faults = Faults(monkeypatch)
    provider = HostProvider()
    ptr = provider.alloc(PAGE)
    for code, error in ((errno.EIO, DriverError), (errno.ENOMEM, OutOfMemoryError)):
        faults.code, faults.nth = code, faults.calls + 1
        with pytest.raises(error, match=errno.errorcode[code]):
            provider.free(ptr, PAGE)
    provider.free(ptr, PAGE)


def test_a_hole_that_cannot_be_made_is_made_later(monkeypatch, peek):
    faults = Faults(monkeypatch)
    provider = HostProvider(shared=True)
    fd = provider.ipc_descriptors(b"")[0]
    ptr = provider.alloc(PAGE)
    provider.copy(ptr, b"dirt", 4)
    faults.nth = faults.calls + 2
    provider.free(ptr, PAGE)
    assert os.fstat(fd).st_blocks * 512 == PAGE
    again = provider.alloc(PAGE)
    assert provider.properties(again)["offset"] == 0
    assert peek(again, PAGE) == bytes(PAGE)
    provider.free(again, PAGE)
    assert os.fstat(fd).st_blocks == 0
    provider.close()
