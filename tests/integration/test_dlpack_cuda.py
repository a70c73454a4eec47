"""Views of CUDA memory, on an emulated driver: devices, streams, and what the host may see."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import umfpy
from umfpy import CudaProvider, FixedProvider, InvalidArgument, NotSupported, Pool
from umfpy.integrations.dlpack import fixed_provider
from umfpy.providers.emulated import EmulatedCuda

DEVICES = {"device": 2, "host": 3, "managed": 13}


@pytest.fixture
def emu() -> Iterator[EmulatedCuda]:
    """Two GPUs; a test that leaves something behind on them fails."""
    emulated = umfpy.emulate("cuda", memory="16GiB", devices=2)
    before = emulated.leaks()
    yield emulated
    assert emulated.leaks() == before


@pytest.fixture(params=DEVICES)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def new_stream(emu: EmulatedCuda) -> int:
    """A stream of the first device, by the driver's own binding."""
    from cuda.bindings import driver

    from umfpy.providers.cuda.context import PrimaryContext, find_device
    from umfpy.providers.cuda.driver import CudaDriver

    calls = CudaDriver()
    context = PrimaryContext(calls, find_device(calls, 0))
    with context:
        error, stream = driver.cuStreamCreate(0)
    assert not int(error)
    streams.append((context, stream))
    return int(stream)


streams: list[tuple[object, object]] = []


@pytest.fixture
def stream(emu: EmulatedCuda) -> Iterator[int]:
    from cuda.bindings import driver

    yield new_stream(emu)
    while streams:
        context, made = streams.pop()
        with context:
            driver.cuStreamDestroy(made)
        context.release()


def ordering(emu: EmulatedCuda) -> tuple[int, int]:
    """How often an event was recorded, and waited for by a stream."""
    return emu.calls["cuEventRecord"], emu.calls["cuStreamWaitEvent"]


def test_the_device_of_each_memory_type(emu: EmulatedCuda, kind: str) -> None:
    for ordinal in (0, 1):
        with Pool(CudaProvider(ordinal, kind)) as pool:
            view = umfpy.view(pool.allocate(4096), dtype="f8")
            expected = 0 if kind == "host" else ordinal
            assert view.__dlpack_device__() == (DEVICES[kind], expected)
            interface = view.__cuda_array_interface__
            assert interface["data"] == (view.ptr, False)
            assert (interface["shape"], interface["typestr"]) == ((512,), "<f8")
            assert (interface["version"], interface["strides"]) == (3, None)
            del view


def test_numpy_takes_what_the_host_may_touch(emu: EmulatedCuda, kind: str) -> None:
    with Pool(CudaProvider(0, kind)) as pool:
        view = umfpy.view(pool.allocate(4096, zero=True), dtype="f8")
        if kind == "device":
            assert not hasattr(view, "__array_interface__")
            with pytest.raises(NotSupported, match="the host may not touch"):
                view.as_buffer()
            with pytest.raises(BufferError, match="without a copy"):
                view.__dlpack__(dl_device=(1, 0))
        else:
            emu.reset_calls()
            arrays = [np.from_dlpack(view), np.asarray(view), np.from_dlpack(view, device="cpu")]
            # The host was about to look each time, and it waits for no stream.
            assert emu.calls["cuCtxSynchronize"] >= 3
            arrays[0][:] = 5
            assert [array.sum() for array in arrays] == [5 * 512] * 3
            del arrays
        del view


def test_consumers_are_ordered_behind_the_allocations_stream(
    emu: EmulatedCuda, stream: int
) -> None:
    other = new_stream(emu)
    with Pool(CudaProvider(0)) as pool:
        view = umfpy.view(pool.allocate(4096, stream=stream))
        for consumer, events in (
            (None, 1),  # means the legacy default stream
            (1, 1),
            (2, 1),
            (other, 1),
            (stream, 0),  # the very same: ordered already
            (-1, 0),  # wants no ordering
        ):
            emu.reset_calls()
            view.__dlpack__(stream=consumer)
            assert ordering(emu) == (events, events), consumer
            assert emu.calls["cuCtxSynchronize"] == 0, "the host must not wait"
        del view


def test_memory_of_the_default_stream_needs_no_event_there(emu: EmulatedCuda) -> None:
    with Pool(CudaProvider(0)) as pool:
        view = umfpy.view(pool.allocate(4096))
        emu.reset_calls()
        view.__dlpack__()
        view.__dlpack__(stream=1)
        assert ordering(emu) == (0, 0)
        view.__dlpack__(stream=2)
        assert ordering(emu) == (1, 1)
        del view


@pytest.mark.parametrize(("wrong", "words"), [(0, "ambiguous"), (-2, "handle"), ("1", "handle")])
def test_streams_that_dlpack_forbids(emu: EmulatedCuda, wrong: object, words: str) -> None:
    with Pool(CudaProvider(0)) as pool:
        view = umfpy.view(pool.allocate(64))
        with pytest.raises(InvalidArgument, match=words):
            view.__dlpack__(stream=wrong)
        del view


def test_the_array_interface_names_the_stream(emu: EmulatedCuda, stream: int) -> None:
    with Pool(CudaProvider(0)) as pool:
        # 0 is forbidden there: the legacy default stream is 1.
        assert umfpy.view(pool.allocate(64)).__cuda_array_interface__["stream"] == 1
        ordered = umfpy.view(pool.allocate(64, stream=stream))
        assert ordered.__cuda_array_interface__["stream"] == stream
        empty = umfpy.view(pool.allocate(64), 0).__cuda_array_interface__
        assert empty["data"] == (0, False)
        del ordered


def test_a_provider_over_a_view(emu: EmulatedCuda, kind: str) -> None:
    with Pool(CudaProvider(1, kind)) as pool:
        provider = fixed_provider(umfpy.view(pool.allocate(1 << 16)))
        assert isinstance(provider, FixedProvider)
        assert pool.stats().live_allocations == 1
        inner = Pool(provider)
        view = umfpy.view(inner.allocate(512))
        if kind == "host":
            # The host's view of it, and no more: the fixed provider knows a buffer.
            assert view.__dlpack_device__() == (1, 0)
        else:
            assert view.__dlpack_device__() == (DEVICES[kind], 1)
            assert (provider.device, provider.memory_type) == (1, kind)
        del view
        inner.close()
        del inner, provider
        assert pool.stats().live_allocations == 0
