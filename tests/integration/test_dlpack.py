"""DLPack both ways, with NumPy as the other side."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import umfpy
from tests.fakes.programs import assert_silent, run_program
from umfpy import FixedProvider, HostProvider, InvalidArgument, NotSupported, Pool
from umfpy.integrations.dlpack import fixed_provider, from_dlpack
from umfpy.integrations.dlpack_capsule import Taken, live_count, make_capsule

DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.fixture
def pool() -> Iterator[Pool]:
    """A pool; a test that leaves an allocation or a tensor behind fails."""
    gc.collect()
    before = live_count()
    made = Pool(HostProvider())
    yield made
    gc.collect()
    assert made.stats().live_allocations == 0
    assert live_count() == before


def capsule_of(pool: Pool, **options: object) -> object:
    return umfpy.view(pool.allocate(64)).__dlpack__(**options)


# Export.


@given(
    st.lists(st.integers(0, 5), max_size=4).map(tuple), st.sampled_from(DTYPES), st.integers(0, 9)
)
def test_whatever_the_shape_and_type_numpy_sees_the_same(shape, dtype, offset) -> None:
    pool = Pool(HostProvider())
    expected = np.ones(shape, dtype)
    memory = pool.allocate(expected.nbytes + offset * expected.itemsize)
    view = umfpy.view(memory, shape, dtype, offset=offset * expected.itemsize)
    array = np.from_dlpack(view)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    array[...] = expected
    raw = ctypes.string_at(memory.ptr + offset * expected.itemsize, expected.nbytes)
    assert raw == expected.tobytes()


def test_both_kinds_of_capsules(pool: Pool) -> None:
    for asked, name in (
        (None, "dltensor"),
        ((0, 8), "dltensor"),
        ((1, 0), "dltensor_versioned"),
        ((2, 3), "dltensor_versioned"),
    ):
        assert f'"{name}"' in repr(capsule_of(pool, max_version=asked))


def test_a_capsule_that_nobody_takes_gives_its_memory_back(pool: Pool) -> None:
    before = live_count()
    for version in (None, (1, 0)):
        capsule = capsule_of(pool, max_version=version)
        gc.collect()
        assert pool.stats().live_allocations == 1
        assert live_count() == before + 1
        del capsule
        assert pool.stats().live_allocations == 0
        assert live_count() == before


def test_memory_lives_as_long_as_what_numpy_made_of_it(pool: Pool) -> None:
    array = np.from_dlpack(umfpy.view(pool.allocate(4096), dtype="f4"))
    array[:] = 1
    part = array[10:20]
    del array
    gc.collect()
    assert pool.stats().live_allocations == 1
    # If it had gone back, this is where it would be given out again.
    others = [pool.allocate(4096, zero=True) for _ in range(4)]
    assert part.sum() == 10
    del part, others


def test_a_tensor_may_be_dropped_by_any_thread(pool: Pool) -> None:
    arrays = [np.from_dlpack(umfpy.view(pool.allocate(512))) for _ in range(40)]

    def drop(mine: list[object]) -> None:
        mine.clear()

    threads = [threading.Thread(target=drop, args=([arrays.pop()],)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads
    gc.collect()
    assert pool.stats().live_allocations == 0


def test_an_error_in_the_consumer_is_its_own(pool: Pool) -> None:
    class Elsewhere:
        """Says that it is on a device which NumPy does not know."""

        def __init__(self, data: object) -> None:
            self.data = data

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **options: object) -> object:
            return make_capsule(
                64, device=(77, 0), dtype=(1, 8, 1), shape=(4,), strides=(1,), read_only=False,
                versioned=bool(options.get("max_version")), keep=self.data,
            )  # fmt: skip

    memory = pool.allocate(64)
    with pytest.raises((RuntimeError, BufferError), match=r"[Uu]nsupported device"):
        np.from_dlpack(Elsewhere(memory))
    del memory


def test_a_read_only_view_needs_a_consumer_that_understands(pool: Pool) -> None:
    view = umfpy.view(pool.allocate(64), read_only=True)
    with pytest.raises(BufferError, match=r"version 1\.0"):
        view.__dlpack__()
    assert not np.from_dlpack(view).flags.writeable


def test_nothing_is_copied(pool: Pool) -> None:
    view = umfpy.view(pool.allocate(64))
    with pytest.raises(BufferError, match="copies nothing"):
        view.__dlpack__(copy=True)
    assert np.from_dlpack(view, copy=False).ctypes.data == view.ptr


def test_another_device_is_refused(pool: Pool) -> None:
    view = umfpy.view(pool.allocate(64))
    assert np.from_dlpack(view, device="cpu").ctypes.data == view.ptr
    with pytest.raises(BufferError, match=r"cannot be had on \(2, 0\)"):
        view.__dlpack__(dl_device=(2, 0))
    with pytest.raises(InvalidArgument, match="stream must be None"):
        view.__dlpack__(stream=1)


def test_a_program_that_ends_with_arrays_alive_ends_well() -> None:
    assert_silent(
        run_program(
            """
            import gc
            import numpy as np
            import umfpy
            pool = umfpy.Pool(umfpy.HostProvider())
            arrays = [np.from_dlpack(umfpy.view(pool.allocate(64))) for _ in range(50)]
            capsules = [umfpy.view(pool.allocate(64)).__dlpack__() for _ in range(50)]
            cycle = [arrays, capsules]
            cycle.append(cycle)
            print("end")
            """
        ),
        "end",
    )


# Import.


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpys_arrays_come_in(dtype: str) -> None:
    array = np.ones((3, 4), dtype)
    tensor = from_dlpack(array)
    assert (tensor.ptr, tensor.shape, tensor.strides) == (
        array.ctypes.data,
        array.shape,
        array.strides,
    )
    assert (tensor.dtype, tensor.nbytes) == (array.dtype.name, array.nbytes)
    assert (tensor.device, tensor.read_only, tensor.contiguous) == ((1, 0), False, True)
    assert bytes(tensor.as_buffer()) == array.tobytes()


def test_gaps_and_orders() -> None:
    array = np.zeros((4, 6), "f4")
    for part, contiguous in (
        (array[1:3], True),
        (array[:, :3], False),
        (array.T, False),
        (array[:1, 2:4], True),
        (array[::-1], False),
        (array[2:2], True),
        (np.zeros(()), True),
    ):
        tensor = from_dlpack(part)
        assert (tensor.shape, tensor.strides) == (part.shape, part.strides)
        assert tensor.contiguous == contiguous
        if not contiguous:
            with pytest.raises(NotSupported, match="contiguous"):
                tensor.as_buffer()
            with pytest.raises(InvalidArgument, match="gaps"):
                fixed_provider(part)


def test_an_imported_array_lives_as_long_as_what_uses_it() -> None:
    class Array(np.ndarray):
        pass

    array = np.zeros(1 << 16, "u1").view(Array)
    gone = weakref.ref(array)
    tensor = from_dlpack(array)
    buffer = tensor.as_buffer()
    del array, tensor
    gc.collect()
    assert gone() is not None
    del buffer
    gc.collect()
    assert gone() is None


def test_a_provider_over_somebodys_array() -> None:
    array = np.zeros(1 << 20, "f4")
    references = sys.getrefcount(array)
    provider = fixed_provider(array)
    assert isinstance(provider, FixedProvider)
    assert sys.getrefcount(array) > references
    pool = Pool(provider)
    mine = np.from_dlpack(umfpy.view(pool.allocate(4000), dtype="f4"))
    mine[:] = 2
    assert array.sum() == 2000
    assert np.shares_memory(array, mine)
    with pytest.raises(umfpy.OutOfMemoryError):
        pool.allocate(array.nbytes)
    del mine
    pool.close()
    del pool, provider
    gc.collect()
    assert sys.getrefcount(array) == references


def test_what_cannot_be_a_provider_is_refused() -> None:
    locked = np.zeros(1 << 12, "u1")
    locked.flags.writeable = False
    assert from_dlpack(locked).read_only
    with pytest.raises(InvalidArgument, match="writable"):
        fixed_provider(locked)
    with pytest.raises(InvalidArgument, match="no whole"):
        fixed_provider(np.zeros(3, "u1"))
    for wrong in (7, b"bytes", object()):
        with pytest.raises(InvalidArgument, match="exports no array"):
            fixed_provider(wrong)


class Exporter:
    """An exporter of before DLPack 1.0, of any device."""

    def __init__(self, device: tuple[int, int], keep: object = None) -> None:
        self.device = device
        self.keep = keep
        self.streams: list[object] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: object = None) -> object:
        self.streams.append(stream)
        return make_capsule(
            1 << 40, device=self.device, dtype=(1, 8, 1), shape=(4096,), strides=(1,),
            read_only=False, versioned=False, keep=self.keep,
        )  # fmt: skip


def test_an_exporter_of_before_versions() -> None:
    old = Exporter((2, 3))
    tensor = from_dlpack(old)
    assert (tensor.device, tensor.ptr, tensor.nbytes) == ((2, 3), 1 << 40, 4096)
    # What is on CUDA has to be ready somewhere: on the legacy default stream.
    assert old.streams == [1]
    assert tensor.__cuda_array_interface__["data"] == (1 << 40, False)
    assert tensor.__cuda_array_interface__["stream"] == 1
    assert tensor.__dlpack_device__() == (2, 3)
    with pytest.raises(NotSupported, match="host"):
        tensor.as_buffer()
    del tensor


@pytest.mark.parametrize(("kind", "memory_type"), [(2, "device"), (13, "managed")])
def test_a_provider_over_an_array_on_cuda(kind: int, memory_type: str) -> None:
    provider = fixed_provider(Exporter((kind, 1)))
    assert (provider.memory_type, provider.device) == (memory_type, 1)
    view = umfpy.view(Pool(provider).allocate(512))
    assert view.__dlpack_device__() == (kind, 1)
    assert view.__cuda_array_interface__["data"] == (view.ptr, False)
    assert 1 << 40 <= view.ptr < (1 << 40) + 4096


def test_an_array_elsewhere_is_refused() -> None:
    for device in ((4, 0), (14, 0), (7, 0)):
        with pytest.raises(NotSupported, match="neither on the host nor on CUDA"):
            fixed_provider(Exporter(device))


def test_a_capsule_is_used_once(pool: Pool) -> None:
    capsule = capsule_of(pool, max_version=(1, 0))
    taken = Taken(capsule)
    assert '"used_dltensor_versioned"' in repr(capsule)
    with pytest.raises(InvalidArgument, match="used already"):
        Taken(capsule)
    with pytest.raises(InvalidArgument, match="has a tensor already"):
        taken.__init__(capsule_of(pool))
    for wrong in (None, 7, object()):
        with pytest.raises(InvalidArgument, match="no DLPack capsule"):
            Taken(wrong)
    del capsule
    assert pool.stats().live_allocations == 1
    del taken
    assert pool.stats().live_allocations == 0


def test_a_newer_dlpack_is_left_alone(pool: Pool) -> None:
    capsule = capsule_of(pool, max_version=(1, 0))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    major = ctypes.c_uint32.from_address(pointer(capsule, b"dltensor_versioned"))
    major.value = 2
    with pytest.raises(NotSupported, match=r"DLPack 2\.0 was sent"):
        Taken(capsule)
    assert '"dltensor_versioned"' in repr(capsule)
    assert pool.stats().live_allocations == 1
