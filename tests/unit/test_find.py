"""What `find` tells of an address, beyond where it lies."""

from __future__ import annotations

from typing import Any

import pytest

import umfpy
from tests.fakes.provider import FakeProvider
from umfpy import CoarseProvider, InvalidArgument, Pool


class Annotated(FakeProvider):
    """A provider with properties of its own, which counts how often it is asked."""

    asked = 0

    def properties(self, ptr: int) -> dict[str, Any]:
        self.asked += 1
        live = any(base <= ptr < base + size for base, size in self.live.items())
        return {"context": "the context", "bank": 7} if live else {}


def test_custom_properties_are_asked_for_when_they_are_read() -> None:
    provider = Annotated()
    lowest = Pool(provider)
    coarse = CoarseProvider(lowest)
    pool = Pool(coarse)
    allocation = pool.allocate(1000)
    found = umfpy.find(allocation.ptr + 999)
    assert (found.base, found.size, found.offset) == (allocation.ptr, 1000, 999)
    assert (found.pool, found.id) == (pool, allocation.id)
    assert provider.asked == 0, "finding costs no call of the driver"
    assert found.properties == {"context": "the context", "bank": 7}
    assert found.context == "the context"
    assert provider.asked == 2
    allocation.free()
    for layer in (pool, coarse, lowest):
        layer.close()
    assert found.properties == {}


def test_a_provider_without_contexts() -> None:
    with Pool(FakeProvider()) as pool:
        found = umfpy.find(pool.malloc(64))
        assert found.properties == {}
        assert found.context is None
        pool.free(found.base)


def test_cuda_memory_has_a_context() -> None:
    umfpy.emulate("cuda", memory="1GiB")
    with Pool(umfpy.CudaProvider(0)) as pool, pool.allocate(1000) as allocation:
        found = umfpy.find(allocation.ptr + 10)
        assert (found.memory_type, found.device) == ("device", 0)
        assert found.context == found.properties["context"] != 0
        assert found.properties["base"] <= allocation.ptr


@pytest.mark.parametrize("wrong", [None, "0", 1.5, True, b"x", []])
def test_what_is_no_address_is_not_looked_up(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^ptr must be a whole number, not ") as caught:
        umfpy.find(wrong)
    assert repr(wrong) in str(caught.value)


def test_any_number_is_an_address() -> None:
    class Index:
        def __init__(self, number: int) -> None:
            self.number = number

        def __index__(self) -> int:
            return self.number

    with Pool(FakeProvider()) as pool, pool.allocate(100) as memory:
        assert umfpy.find(Index(memory.ptr + 7)).offset == 7
    for nowhere in (-1, 0, 1 << 64):
        assert umfpy.find(nowhere) is None
