"""C functions called after their pool was closed, dropped, forked, or outlived."""

from __future__ import annotations

import gc
import os
import weakref

import pytest

from tests.fakes.capi import DeviceCalls, PortCalls
from tests.fakes.programs import run_program
from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import Capability, InvalidArgument, Pool, ProxyPool
from umfpy.pools.base import ProviderPool

MIB = 1 << 20
DEVICE = 210


@pytest.fixture(params=[Pool, ProxyPool])
def pool(request: pytest.FixtureRequest) -> ProviderPool:
    made: ProviderPool = request.param(FakeProvider(capabilities=Capability.STREAMS))
    return made


def test_a_closed_pool_takes_back_and_gives_nothing(pool: ProviderPool) -> None:
    # given
    provider = pool.provider
    c, on_device = PortCalls(pool), DeviceCalls(pool, DEVICE)
    first, second = c.malloc(1000), on_device.malloc(2000, stream=5)
    with pytest.warns(ResourceWarning, match="2 live allocations of 3000 bytes"):
        pool.close()

    # when
    assert c.malloc(1000) is None
    assert isinstance(c.interface.last_error, InvalidArgument)
    assert on_device.malloc(1000, stream=5) is None
    c.free(first)
    on_device.free(second, 2000, stream=6)

    # then
    assert provider.live == {}, "the extent goes back with the last allocation in it"
    c.free(first)
    assert c.refused == 1


def test_a_free_that_fails_leaves_the_memory_live(pool: ProviderPool) -> None:
    # given
    provider = pool.provider
    c = PortCalls(pool)
    ptr = c.malloc(1000)
    if isinstance(pool, Pool):
        with pytest.warns(ResourceWarning):
            pool.close()

    # when
    provider.fail()
    c.free(ptr)

    # then
    assert c.refused == 1
    assert isinstance(c.interface.last_error, FakeFailure)
    assert provider.live
    if isinstance(pool, ProxyPool):
        c.free(ptr)  # its block was never freed; the other pool's is, and waits for `close`
    pool.close()
    assert provider.live == {}


def test_the_functions_keep_their_pool(pool: ProviderPool) -> None:
    # given
    c = PortCalls(pool)
    ptr = c.malloc(1000)
    there = weakref.ref(pool)
    param, functions = c._param, (c._malloc, c._free)

    # when nobody has a reference to it any more
    del pool, c
    gc.collect()

    # then
    assert there() is not None
    malloc, free = functions
    again = malloc(param, 1000, 0)
    assert again
    free(param, ptr, 0)
    free(param, again, 0)
    assert there().stats().live_allocations == 0


def test_a_forked_child_is_refused(pool: ProviderPool) -> None:
    # given
    c, on_device = PortCalls(pool), DeviceCalls(pool, DEVICE)
    ptr = c.malloc(1000)

    # when
    child = os.fork()
    if child == 0:
        answers = [c.malloc(10), on_device.malloc(10, stream=1)]
        c.free(ptr)
        on_device.free(ptr, 1000, stream=1)
        on_device.record(ptr, stream=1)
        right = answers == [None, None] and c.refused == 2
        os._exit(0 if right and "fork" in str(c.interface.last_error) else 1)
    _, status = os.waitpid(child, 0)

    # then
    assert os.waitstatus_to_exitcode(status) == 0
    assert (c.refused, pool.stats().live_allocations) == (0, 1)
    c.free(ptr)


#: glibc's on_exit(f, argument) has f(status, argument) called when Python is gone.  That is
#: malloc(size, device, ...) in PyTorch's shape, with the exit status as the size.
AFTER_PYTHON = """
import ctypes, sys
from tests.fakes.capi import DeviceCalls, PortCalls
from tests.fakes.provider import FakeProvider
from umfpy import Pool, ProxyPool

pool = {pool}(FakeProvider())
c = DeviceCalls(pool, 3)
libc = ctypes.CDLL(None)
libc.on_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
kept = [c.malloc(100, stream=0) for _ in range(5)]
{more}
assert libc.on_exit(c.interface.device_malloc, 3) == 0
sys.exit(100)
"""


@pytest.mark.parametrize("kind", ["Pool", "ProxyPool"])
@pytest.mark.parametrize(
    "more",
    [
        "",
        "pool.free(kept.pop())",
        "import warnings; warnings.simplefilter('ignore'); pool.close()",
    ],
)
def test_a_call_after_the_interpreter_is_harmless(kind: str, more: str) -> None:
    program = run_program(AFTER_PYTHON.format(pool=kind, more=more))
    assert (program.returncode, program.stdout, program.stderr) == (100, "", "")


@pytest.mark.parametrize("kind", ["Pool", "ProxyPool"])
def test_calls_while_the_interpreter_ends_are_harmless(kind: str) -> None:
    program = run_program(
        f"""
        from tests.fakes.capi import PortCalls
        from tests.fakes.provider import FakeProvider
        from umfpy import Pool, ProxyPool

        class Late:
            def __init__(self):
                self.c = PortCalls({kind}(FakeProvider()))
                self.ptr = self.c.malloc(100)

            def __del__(self):
                self.c.free(self.ptr)
                self.c.free(self.c.malloc(3 << 20))

        late = Late()
        late.itself = late
        """
    )
    assert (program.returncode, program.stdout, program.stderr) == (0, "", "")
