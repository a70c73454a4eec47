"""Pools over different providers of one device give way to each other."""

from __future__ import annotations

import pytest

from umfpy import CudaAsyncProvider, CudaProvider, CudaVmmProvider, Pool

MIB = 1 << 20


@pytest.mark.parametrize("provider", [CudaVmmProvider, CudaAsyncProvider])
def test_idle_memory_of_another_provider_is_asked_for(emu, provider):
    # given a pool that keeps most of the device without using it
    idle = Pool(CudaProvider())
    size = emu.memory * 3 // 4 // MIB * MIB
    idle.free(idle.malloc(size))
    assert idle.stats().reserved_bytes >= size

    # when a pool over another provider of that device needs it
    busy = Pool(provider())
    ptr = busy.malloc(size)

    # then it gets it
    assert idle.stats().reserved_bytes == 0
    busy.free(ptr)
    busy.close()
    busy.provider.close()
    idle.close()
    idle.provider.close()
