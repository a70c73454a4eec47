"""Streams and events on the virtual clock."""

import ctypes

import pytest


def test_what_a_stream_says(cu):
    stream = cu("cuStreamCreateWithPriority", 1, -3)
    assert cu("cuStreamGetFlags", stream) == 1
    assert cu("cuStreamGetPriority", stream) == -3
    assert int(cu("cuStreamGetCtx", stream)) == int(cu("cuCtxGetCurrent"))
    assert int(cu("cuStreamGetDevice", stream)) == 0
    cu("cuStreamQuery", stream)
    cu("cuStreamDestroy", stream)
    assert cu.error("cuStreamQuery", stream) == 400
    assert cu.error("cuStreamDestroy", stream) == 400


def test_default_streams(cu):
    ids = {cu("cuStreamGetId", handle) for handle in (0, 1)}
    assert len(ids) == 1
    assert cu("cuStreamGetId", 2) not in ids
    assert cu.error("cuStreamQuery", 12345) == 400


def test_host_functions_and_callbacks_run_in_order(cu):
    seen = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda data: seen.append((data, int(cu("cuDeviceGetCount"))))
    )
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        lambda stream, status, data: seen.append((stream, status, data))
    )
    stream = cu("cuStreamCreate", 0)
    address = ctypes.cast(function, ctypes.c_void_p).value
    cu("cuLaunchHostFunc", stream, cu.driver.CUhostFn(address), 5)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    cu("cuStreamAddCallback", stream, cu.driver.CUstreamCallback(address), 6, 0)
    assert seen == [(5, 2), (int(stream), 0, 6)]
    cu("cuStreamDestroy", stream)


def test_elapsed_time_is_the_modelled_time(cu):
    start, end = cu("cuEventCreate", 0), cu("cuEventCreate", 0)
    address = cu.alloc(1 << 20)
    assert cu.error("cuEventElapsedTime", start, end) == 400
    cu("cuEventRecord", start, 0)
    cu("cuMemcpyHtoDAsync", address, bytes(1 << 20), 1 << 20, 0)
    cu("cuEventRecord", end, 0)
    cu("cuEventSynchronize", end)
    assert cu("cuEventElapsedTime", start, end) == pytest.approx((1 << 20) / 25e6, abs=0.01)
    cu("cuEventDestroy", start)
    assert cu.error("cuEventDestroy", start) == 400
    assert cu.error("cuEventElapsedTime", start, end) == 400
    cu("cuEventDestroy", end)
    cu("cuMemFree", address)


def test_an_event_makes_another_stream_wait(cu, emu):
    a, b = cu("cuStreamCreate", 1), cu("cuStreamCreate", 1)
    event = cu("cuEventCreate", 0)
    address = cu.alloc(64 << 20)
    emu.reset_clock()
    cu("cuMemcpyHtoDAsync", address, bytes(64 << 20), 64 << 20, a)
    cu("cuEventRecord", event, a)
    assert emu.clock_us < 100
    cu("cuStreamSynchronize", b)
    assert emu.clock_us < 100
    cu("cuStreamWaitEvent", b, event, 0)
    cu("cuStreamSynchronize", b)
    assert emu.clock_us >= (64 << 20) / 25e3
    for destroy, handle in (
        ("cuEventDestroy", event),
        ("cuStreamDestroy", a),
        ("cuStreamDestroy", b),
        ("cuMemFree", address),
    ):
        cu(destroy, handle)


def test_events_without_timing_have_none(cu):
    event = cu("cuEventCreate", 2)
    cu("cuEventRecordWithFlags", event, 0, 0)
    cu("cuEventQuery", event)
    assert cu.error("cuEventElapsedTime", event, event) == 400
    cu("cuEventDestroy", event)
    assert cu.error("cuEventCreate", 4) == 1


def test_no_stream_captures(cu):
    assert int(cu("cuStreamIsCapturing", 0)) == 0
    assert int(cu("cuStreamGetCaptureInfo", 0)[0]) == 0
