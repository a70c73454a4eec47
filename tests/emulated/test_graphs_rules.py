"""What an open capture forbids, by mode and thread, and what a refusal does to it."""

import threading

import pytest

SIZE = 4096
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
MODES = [GLOBAL, THREAD_LOCAL, RELAXED]
NONE, ACTIVE, INVALIDATED = 0, 1, 2


@pytest.fixture
def address(cu):
    made = cu.alloc(SIZE)
    yield made
    cu("cuMemFree", made)


@pytest.fixture
def streams(cu):
    made = [cu("cuStreamCreate", 1) for _ in range(2)]
    yield made
    for stream in made:
        cu("cuStreamDestroy", stream)


@pytest.fixture
def begin(cu):
    def begin(stream, mode):
        cu("cuStreamBeginCapture", stream, cu.driver.CUstreamCaptureMode(mode))

    return begin


@pytest.fixture
def end(cu):
    """End a capture, give back what there is, and say what it answered."""

    def end(stream):
        code, graph = cu.driver.cuStreamEndCapture(stream)
        if not int(code):
            cu("cuGraphDestroy", graph)
        return int(code)

    return end


def status(cu, stream):
    return int(cu("cuStreamIsCapturing", stream))


def exchange(cu, mode):
    return int(cu("cuThreadExchangeStreamCaptureMode", cu.driver.CUstreamCaptureMode(mode)))


def in_thread(function, *arguments):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function(*arguments)))
    thread.start()
    thread.join()
    return answers[0]


UNSAFE = {
    "cuMemAlloc": lambda cu, address: (SIZE,),
    "cuMemAllocPitch": lambda cu, address: (64, 64, 4),
    "cuMemAllocHost": lambda cu, address: (SIZE,),
    "cuMemHostAlloc": lambda cu, address: (SIZE, 0),
    "cuMemAllocManaged": lambda cu, address: (SIZE, 1),
    "cuMemFree": lambda cu, address: (address,),
    "cuMemsetD8": lambda cu, address: (address, 0, 1),
    "cuMemcpyHtoD": lambda cu, address: (address, b"x", 1),
    "cuMemcpyDtoH": lambda cu, address: (bytearray(1), address, 1),
    "cuMemcpyDtoD": lambda cu, address: (address, address, 1),
    "cuMemcpy": lambda cu, address: (address, address, 1),
}


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL])
@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_calls_are_refused_and_invalidate(cu, address, streams, begin, end, name, mode):
    cu("cuMemsetD8", address, 0x5A, SIZE)
    begin(streams[0], mode)
    assert cu.error(name, *UNSAFE[name](cu, address)) == 900
    assert status(cu, streams[0]) == INVALIDATED
    assert end(streams[0]) == 901
    assert status(cu, streams[0]) == NONE
    assert cu.read(address, 1) == b"\x5a"


def test_a_relaxed_capture_forbids_none_of_them(cu, address, streams, begin, end):
    begin(streams[0], RELAXED)
    cu("cuMemFree", cu.alloc(SIZE))
    cu("cuMemFreeHost", cu("cuMemHostAlloc", SIZE, 0))
    cu.write(address, b"x")
    assert cu.read(address, 1) == b"x"
    cu("cuStreamSynchronize", streams[1])
    event = cu("cuEventCreate", 0)
    cu("cuEventQuery", event)
    cu("cuEventDestroy", event)
    assert end(streams[0]) == 0


def test_a_relaxed_thread_is_bound_by_nothing(cu, streams, begin, end):
    begin(streams[0], GLOBAL)
    assert exchange(cu, RELAXED) == GLOBAL
    cu("cuMemFree", cu.alloc(SIZE))
    assert exchange(cu, GLOBAL) == RELAXED
    assert end(streams[0]) == 0
    assert cu.driver.cuThreadExchangeStreamCaptureMode(cu.driver.CUstreamCaptureMode(0))[0] == 0


@pytest.mark.parametrize("capture", MODES)
@pytest.mark.parametrize("thread", MODES)
def test_captures_of_other_threads(cu, streams, begin, end, capture, thread):
    """Only global on both sides is refused."""
    context = cu("cuCtxGetCurrent")
    begin(streams[0], capture)

    def elsewhere():
        cu("cuCtxSetCurrent", context)
        exchange(cu, thread)
        code, made = cu.driver.cuMemAlloc(SIZE)
        if not int(code):
            exchange(cu, RELAXED)
            cu("cuMemFree", made)
        return int(code)

    refused = capture == thread == GLOBAL
    assert in_thread(elsewhere) == (900 if refused else 0)
    assert end(streams[0]) == (901 if refused else 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["cuStreamQuery", "cuStreamSynchronize"])
def test_a_capturing_stream_cannot_be_waited_for(cu, streams, begin, end, mode, name):
    begin(streams[0], mode)
    assert cu.error(name, streams[0]) == 900
    assert end(streams[0]) == 901
    cu(name, streams[0])


@pytest.mark.parametrize("mode", MODES)
def test_a_context_with_a_capture_cannot_be_waited_for(cu, streams, begin, end, mode):
    begin(streams[0], mode)
    assert cu.error("cuCtxSynchronize") == 900
    assert end(streams[0]) == 901
    begin(streams[0], mode)
    context = cu.create_context(device=1)
    assert cu.error("cuCtxSynchronize") == (0 if mode == RELAXED else 900)
    cu("cuCtxDestroy", context)
    assert end(streams[0]) == (0 if mode == RELAXED else 901)


@pytest.mark.parametrize("name", ["cuEventQuery", "cuEventSynchronize"])
def test_asking_for_any_event_is_unsafe(cu, streams, begin, end, name):
    event = cu("cuEventCreate", 0)
    cu("cuEventRecord", event, streams[1])
    begin(streams[0], GLOBAL)
    assert in_thread(cu.error, name, event) == 900
    assert end(streams[0]) == 901
    begin(streams[0], THREAD_LOCAL)
    assert in_thread(cu.error, name, event) == 0
    assert cu.error(name, event) == 900
    assert end(streams[0]) == 901
    cu("cuEventDestroy", event)


@pytest.mark.parametrize("mode", MODES)
def test_the_legacy_stream_beside_a_blocking_capture(cu, address, begin, end, mode):
    blocking, event = cu("cuStreamCreate", 0), cu("cuEventCreate", 0)
    begin(blocking, mode)
    assert cu.error("cuStreamIsCapturing", 0) == 906
    assert cu.error("cuStreamGetCaptureInfo", 0) == 906
    assert status(cu, blocking) == ACTIVE
    assert end(blocking) == 0
    for call in (
        ("cuMemsetD8Async", address, 0, 1, 0),
        ("cuMemsetD8", address, 0, 1),
        ("cuMemcpyDtoD", address, address, 1),
        ("cuStreamSynchronize", 0),
        ("cuStreamQuery", 1),
        ("cuEventRecord", event, 0),
        ("cuStreamWaitEvent", 0, event, 0),
    ):
        begin(blocking, mode)
        assert cu.error(*call) == 906, call
        assert status(cu, blocking) == INVALIDATED
        assert end(blocking) == 901
        cu(*call)
    cu("cuEventDestroy", event)
    cu("cuStreamDestroy", blocking)


def test_the_legacy_stream_beside_a_capture_that_it_does_not_wait_for(
    cu, address, streams, begin, end
):
    begin(streams[0], GLOBAL)
    cu("cuMemsetD8Async", address, 9, SIZE, 0)
    assert status(cu, 0) == NONE
    assert end(streams[0]) == 0
    assert cu.read(address, 1) == b"\x09"
    event = cu("cuEventCreate", 2)
    begin(streams[0], GLOBAL)
    cu("cuEventRecord", event, streams[0])
    assert cu.error("cuStreamWaitEvent", 0, event, 0) == 906
    assert end(streams[0]) == 901
    cu("cuEventDestroy", event)


def test_an_invalid_capture_can_only_be_ended(cu, address, streams, begin, end):
    event = cu("cuEventCreate", 2)
    begin(streams[0], RELAXED)
    cu("cuEventRecord", event, streams[0])
    assert cu.error("cuStreamQuery", streams[0]) == 900
    for call in (
        ("cuMemsetD8Async", address, 0, 1, streams[0]),
        ("cuEventRecord", event, streams[0]),
        ("cuStreamWaitEvent", streams[1], event, 0),
        ("cuStreamQuery", streams[0]),
    ):
        assert cu.error(*call) == 901, call
    assert end(streams[0]) == 901
    cu("cuMemsetD8Async", address, 0, 1, streams[0])
    cu("cuEventDestroy", event)


def test_what_is_not_captured_says_so_once_by_name(run):
    result = run(
        """
d = cu.driver
s = cu("cuStreamCreate", 1)
event, pool = cu("cuEventCreate", 2), cu("cuDeviceGetDefaultMemPool", 0)
outside = cu("cuMemAllocAsync", 64, s)
graph = cu("cuGraphCreate", 0)
executable = cu("cuGraphInstantiate", graph, 0)
for name, *arguments in [
    ("cuMemAllocAsync", 64, s),
    ("cuMemAllocFromPoolAsync", 64, pool, s),
    ("cuMemFreeAsync", outside, s),
    ("cuGraphLaunch", executable, s),
    ("cuLaunchHostFunc", s, d.CUhostFn(1), 0),
    ("cuEventRecordWithFlags", event, s, 1),
    ("cuStreamWaitEvent", s, event, 1),
] * 2:
    cu("cuStreamBeginCapture", s, d.CUstreamCaptureMode(2))
    assert cu.error(name, *arguments) == 801, name
    assert cu.error("cuStreamEndCapture", s) == 901
cu("cuMemFreeAsync", outside, s)
assert cu.error("cuEventRecordWithFlags", event, s, 1) == 1
assert cu.error("cuStreamWaitEvent", s, event, 1) == 1
"""
    )
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 7
    assert lines[0] == "umfpy emulated CUDA: cuMemAllocAsync in a capture is not built"


def test_what_graphs_cannot_hold(cu, streams, begin, end):
    managed = cu("cuMemAllocManaged", SIZE, 1)
    prefetch = cu.by_location("cuMemPrefetchAsync")
    location = cu.driver.CUmemLocation()
    location.type = cu.driver.CUmemLocationType(1)
    graph = cu("cuGraphCreate", 0)
    executable = cu("cuGraphInstantiate", graph, 0)
    for call in (
        ("cuStreamAttachMemAsync", streams[0], managed, 0, 1),
        ("cuStreamAddCallback", streams[0], cu.driver.CUstreamCallback(1), 0, 0),
        (prefetch, managed, SIZE, location, 0, streams[0]),
        ("cuGraphUpload", executable, streams[0]),
    ):
        begin(streams[0], RELAXED)
        assert cu.error(*call) == 900, call
        assert end(streams[0]) == 901
    cu("cuGraphExecDestroy", executable)
    cu("cuGraphDestroy", graph)
    cu("cuMemFree", managed)


def test_a_failed_capture_gives_everything_back(cu, emu, address, streams, begin, end):
    before = emu.live()
    for _ in range(3):
        begin(streams[0], GLOBAL)
        for _ in range(20):
            cu("cuMemsetD8Async", address, 1, SIZE, streams[0])
        assert cu.error("cuMemAlloc", SIZE) == 900
        assert len(emu.leaks()["graphs"]) == 1
        assert end(streams[0]) == 901
        assert emu.live() == before
