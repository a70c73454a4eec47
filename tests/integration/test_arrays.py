"""Views: which array, over which memory, with which protocols."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import umfpy
from tests.fakes.provider import FakeProvider
from umfpy import Capability, FixedProvider, HostProvider, InvalidArgument, NotSupported, Pool
from umfpy.integrations.arrays_dtype import dlpack_type, element_type

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = ["bool", *INTEGERS, "float32", "float64"]
OTHERS = ["float16", "complex64", "complex128"]


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(HostProvider())
    yield made
    gc.collect()
    assert made.stats().live_allocations == 0


@pytest.mark.parametrize("name", NUMBERS + OTHERS)
def test_every_element_type_is_numpys(pool: Pool, name: str) -> None:
    dtype = np.dtype(name)
    for said in (name, dtype, dtype.type, dtype.str, dtype.str[1:], element_type(name)):
        seen = umfpy.view(pool.allocate(960), dtype=said)
        assert seen.dtype == name
        assert seen.shape == (960 // dtype.itemsize,)
        assert seen.__array_interface__["typestr"] == dtype.str
        assert np.asarray(seen).dtype == np.from_dlpack(seen).dtype == dtype


@pytest.mark.parametrize(("said", "name"), [(int, "int64"), (float, "float64"), (bool, "bool")])
def test_pythons_number_types(said: type, name: str) -> None:
    assert element_type(said).name == name == np.dtype(said).name


@pytest.mark.parametrize("said", ["f3", ">f4", "object", np.dtype(">i4"), np.dtype("U4"), 7, list])
def test_what_is_no_element_type_is_refused(said: object) -> None:
    with pytest.raises(InvalidArgument, match="no element type here"):
        element_type(said)


def test_dlpacks_types_map_back() -> None:
    for name in [*NUMBERS, *OTHERS, "bfloat16"]:
        element = element_type(name)
        assert dlpack_type(*element.dlpack) is element
    for unknown in ((2, 32, 4), (0, 128, 1), (3, 64, 1)):
        with pytest.raises(InvalidArgument, match="DLPack's type"):
            dlpack_type(*unknown)


def test_torchs_types_are_known_by_name() -> None:
    class Torch:
        def __str__(self) -> str:
            return "torch.bfloat16"

    assert element_type(Torch()).name == "bfloat16"


def test_shapes(pool: Pool) -> None:
    memory = pool.allocate(240)
    for shape, lengths in ((None, (30,)), (7, (7,)), ((2, 3, 5), (2, 3, 5)), ((), ()), ([4], (4,))):
        seen = umfpy.view(memory, shape, "f8")
        expected = np.empty(lengths, "f8")
        assert seen.shape == expected.shape
        assert seen.strides == expected.strides
        assert seen.nbytes == expected.nbytes
        assert np.asarray(seen).strides == expected.strides
        assert np.from_dlpack(seen).shape == lengths
    assert np.asarray(umfpy.view(memory, np.int64(3), "f8")).shape == (3,)


def test_an_offset(pool: Pool) -> None:
    memory = pool.allocate(100)
    whole = np.asarray(umfpy.view(memory))
    whole[:] = np.arange(100)
    part = umfpy.view(memory, dtype="u2", offset=20)
    assert part.ptr == memory.ptr + 20
    assert part.shape == (40,)
    assert np.array_equal(np.from_dlpack(part), whole[20:].view("u2"))
    assert umfpy.view(memory, offset=100).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"shape": (26,), "dtype": "f4"}, "104 bytes; there are 100"),
        ({"shape": (2, -1)}, "a length of a shape must be a whole number from 0 on, not -1"),
        ({"shape": ("2", 3)}, "a length of a shape .* not '2'"),
        ({"shape": (2, None)}, "a length of a shape .* not None"),
        ({"shape": (True,)}, "a length of a shape .* not True"),
        ({"shape": "2"}, "shape must be a list of lengths, not '2'"),
        ({"shape": b"2"}, "shape must be a list of lengths, not b'2'"),
        ({"shape": 2.0}, "shape must be a list of lengths, not 2.0"),
        ({"shape": True}, "shape must be a list of lengths, not True"),
        ({"dtype": "f8"}, "no whole number of float64"),
        ({"offset": 101}, "offset 101"),
        ({"offset": -1}, "offset -1"),
        ({"offset": "4"}, "offset must be a whole number, not '4'"),
        ({"offset": None}, "offset must be a whole number, not None"),
        ({"offset": True}, "offset must be a whole number, not True"),
        ({"read_only": "no"}, "read_only must be True or False, not 'no'"),
        ({"read_only": 0}, "read_only must be True or False, not 0"),
        ({"shape": (1 << 40, 1 << 40)}, "there are 100"),
        ({"shape": 97, "offset": 4}, "there are 96"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(pool: Pool, arguments: dict, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        umfpy.view(pool.allocate(100), **arguments)


@pytest.mark.parametrize("wrong", [1234, b"bytes", np.zeros(3)])
def test_a_view_is_of_an_allocation_or_a_mapping(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="an Allocation or an IpcMapping"):
        umfpy.view(wrong)


PROTOCOLS = {
    "array interface": np.asarray,
    "dlpack": np.from_dlpack,
    "buffer": lambda view: np.asarray(view.as_buffer()),
}
if sys.version_info >= (3, 12):
    PROTOCOLS["memoryview"] = lambda view: np.asarray(memoryview(view))


def test_all_protocols_see_one_memory(pool: Pool) -> None:
    view = umfpy.view(pool.allocate(96), (4, 6), "i4")
    made = [take(view) for take in PROTOCOLS.values()]
    made[0][:] = np.arange(24).reshape(4, 6)
    for array in made:
        assert np.array_equal(array, np.arange(24).reshape(4, 6))
        assert array.ctypes.data == view.ptr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_keeps_the_memory_by_itself(pool: Pool, protocol: str) -> None:
    array = PROTOCOLS[protocol](umfpy.view(pool.allocate(4096), dtype="f4"))
    array[:] = 2
    part = array[5:10]
    del array
    gc.collect()
    assert pool.stats().live_allocations == 1
    others = [pool.allocate(4096, zero=True) for _ in range(4)]
    assert part.sum() == 10
    del part, others
    gc.collect()
    assert pool.stats().live_allocations == 0


def test_the_buffer_protocol(pool: Pool) -> None:
    for name in NUMBERS:
        view = umfpy.view(pool.allocate(48), (2, 3), name)
        buffer = view.as_buffer()
        assert (buffer.shape, buffer.strides) == (view.shape, view.strides)
        assert np.dtype(buffer.format) == np.dtype(name)
        assert not buffer.readonly
        assert umfpy.view(pool.allocate(48), read_only=True).as_buffer().readonly
        del buffer
    for name in [*OTHERS, "bfloat16"]:
        with pytest.raises(NotSupported, match="no format"):
            umfpy.view(pool.allocate(48), (2,), name).as_buffer()
    assert umfpy.view(pool.allocate(8), 0, "f8").as_buffer().nbytes == 0


def test_read_only(pool: Pool) -> None:
    view = umfpy.view(pool.allocate(64), read_only=True)
    for array in (np.asarray(view), np.from_dlpack(view), np.asarray(view.as_buffer())):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_bfloat16_has_no_name_in_numpy(pool: Pool) -> None:
    view = umfpy.view(pool.allocate(64), dtype="bfloat16")
    assert not hasattr(view, "__array_interface__")
    assert view.__dlpack_device__() == (1, 0)


def test_freed_memory_is_refused(pool: Pool) -> None:
    memory = pool.allocate(64)
    view = umfpy.view(memory)
    memory.free()
    for use in (
        lambda: umfpy.view(memory),
        lambda: view.__array_interface__,
        view.as_buffer,
        view.__dlpack__,
    ):
        with pytest.raises(umfpy.StaleHandle, match="freed or closed"):
            use()


def test_nothing_of_memory_that_the_host_may_not_touch() -> None:
    pool = Pool(FakeProvider())
    view = umfpy.view(pool.allocate(64))
    assert not hasattr(view, "__array_interface__")
    assert not hasattr(view, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="the host may not touch"):
        _ = view.__array_interface__
    with pytest.raises(AttributeError, match="another device than CUDA"):
        _ = view.__cuda_array_interface__
    with pytest.raises(NotSupported, match="the host may not touch"):
        view.as_buffer()
    for refused in (view.__dlpack_device__, view.__dlpack__):
        with pytest.raises(BufferError, match="no name in DLPack"):
            refused()


@pytest.mark.parametrize("ask", [np.asarray, np.array, lambda view: np.ones(64, "u1") + view])
def test_numpy_makes_no_array_of_one_object(ask: Callable[[object], object]) -> None:
    view = umfpy.view(Pool(FakeProvider()).allocate(64))
    with pytest.raises(NotSupported, match=r"the host may not touch; copy it to the host first"):
        ask(view)


def test_numpy_makes_no_array_of_what_it_has_no_name_for(pool: Pool) -> None:
    view = umfpy.view(pool.allocate(64), dtype="bfloat16")
    with pytest.raises(NotSupported, match=r"type bfloat16: give the view another dtype"):
        np.asarray(view)


def test_numpy_makes_no_array_of_memory_that_is_gone(pool: Pool) -> None:
    memory = pool.allocate(64)
    view = umfpy.view(memory)
    memory.free()
    with pytest.raises(umfpy.StaleHandle, match="freed or closed"):
        np.asarray(view)


def test_the_device_is_waited_for_before_the_host_looks() -> None:
    provider = FakeProvider(
        capabilities=Capability.HOST_ACCESS | Capability.STREAMS, memory_type="shared"
    )
    view = umfpy.view(Pool(provider).allocate(0), 0)
    looks = [lambda: view.__array_interface__, view.as_buffer, view.__dlpack__]
    for times, look in enumerate(looks, 1):
        look()
        assert provider.counts["synchronize"] == times


@pytest.mark.parametrize("depth", [1, 3])
def test_pools_over_pools(depth: int) -> None:
    pools = [Pool(umfpy.CoarseProvider(HostProvider()))]
    for _ in range(depth):
        pools.append(Pool(pools[-1]))
    array = np.asarray(umfpy.view(pools[-1].allocate(400), dtype="f4"))
    array[:] = 3
    assert array.sum() == 300
    found = umfpy.find(array.ctypes.data)
    assert (found.pool, found.size) == (pools[-1], 400)
    # By its address alone: the host provider's own properties, of the memory that it gave.
    assert found.properties["committed"]
    assert found.context is None


def test_memory_of_a_numpy_array_comes_back_as_numpy() -> None:
    theirs = np.zeros(1 << 16, "u1")
    pool = Pool(FixedProvider(theirs))
    array = np.asarray(umfpy.view(pool.allocate(1000), dtype="u1"))
    array[:] = 9
    assert (theirs == 9).sum() == 1000
    assert np.shares_memory(array, theirs)


@pytest.mark.parametrize(
    ("name", "memory_type", "device"),
    [
        ("cuda", "device", (2, 3)),
        ("cuda_vmm", "device", (2, 3)),
        ("cuda_async", "managed", (13, 3)),
        ("cuda", "host", (3, 3)),
        ("level_zero", "device", (14, 3)),
        ("level_zero_vmm", "device", (14, 3)),
        ("level_zero", "shared", (14, 3)),
        ("level_zero", "host", (1, 0)),
        ("anybodys", "host", (1, 0)),
    ],
)
def test_what_dlpack_calls_the_device(name: str, memory_type: str, device: tuple) -> None:
    kind = type("Named", (FakeProvider,), {"name": name})
    host = Capability.NONE if memory_type == "device" else Capability.HOST_ACCESS
    provider = kind(capabilities=host, memory_type=memory_type, device=3)
    for pool in (Pool(provider), Pool(umfpy.CoarseProvider(provider))):
        view = umfpy.view(pool.allocate(64))
        assert view.__dlpack_device__() == device
        assert hasattr(view, "__cuda_array_interface__") == name.startswith("cuda")
