"""Captures: what becomes of work, how streams join, what a graph replays."""

import threading

import pytest

from tests.emulated.support import SIZE, pattern

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
NONE, ACTIVE, INVALIDATED = 0, 1, 2


@pytest.fixture
def streams(cu):
    made = [cu("cuStreamCreate", 1) for _ in range(3)]
    yield made
    for stream in made:
        cu("cuStreamDestroy", stream)


@pytest.fixture
def events(cu):
    made = [cu("cuEventCreate", 2) for _ in range(3)]
    yield made
    for event in made:
        cu("cuEventDestroy", event)


@pytest.fixture
def begin(cu):
    def begin(stream, mode=RELAXED):
        cu("cuStreamBeginCapture", stream, cu.driver.CUstreamCaptureMode(mode))

    return begin


@pytest.fixture
def finish(cu):
    """End a capture, and give an executable graph of it and how many nodes it has."""
    made = []

    def finish(stream):
        graph = cu("cuStreamEndCapture", stream)
        count = cu("cuGraphGetNodes", graph)[1]
        made.append(cu("cuGraphInstantiate", graph, 0))
        cu("cuGraphDestroy", graph)
        return made[-1], count

    yield finish
    for executable in made:
        cu("cuGraphExecDestroy", executable)


def status(cu, stream):
    return int(cu("cuStreamIsCapturing", stream))


def test_replays_read_what_is_there_then(cu, emu, streams, blocks, begin, finish):
    stream, (source, middle, target, other, another) = streams[0], blocks
    for address, seed in zip(blocks, range(5), strict=True):
        cu.write(address, pattern(seed))
    begin(stream)
    cu("cuMemcpyDtoDAsync", middle, source, SIZE, stream)
    cu("cuMemcpyAsync", target + 512, middle + 512, SIZE - 512, stream)
    cu("cuMemsetD32Async", target, 0xDEADBEEF, 128, stream)
    executable, nodes = finish(stream)
    assert nodes == 3
    assert [cu.read(address, SIZE) for address in blocks] == [pattern(n) for n in range(5)]
    for seed in (11, 12):
        cu.write(source, pattern(seed))
        cu("cuGraphLaunch", executable, stream)
        cu("cuStreamSynchronize", stream)
        assert cu.read(middle, SIZE) == pattern(seed)
        assert cu.read(target, SIZE) == b"\xef\xbe\xad\xde" * 128 + pattern(seed)[512:]
        assert cu.read(other, SIZE) == pattern(3)
        assert cu.read(another, SIZE) == pattern(4)
    assert emu.illegal_accesses == 0
    assert emu.calls["cuGraphLaunch"] == 2


def test_host_memory_and_rectangles_are_captured(cu, streams, blocks, begin, finish):
    stream, address = streams[0], blocks[0]
    host, back = bytearray(pattern(5)), bytearray(SIZE)
    begin(stream)
    cu("cuMemcpyHtoDAsync", address, host, SIZE, stream)
    cu("cuMemsetD2D8Async", address, 64, 0xAA, 8, 4, stream)
    cu("cuMemcpyDtoHAsync", back, address, SIZE, stream)
    executable, nodes = finish(stream)
    assert nodes == 3
    assert back == bytes(SIZE)
    host[:] = pattern(6)
    cu("cuGraphLaunch", executable, stream)
    expected = bytearray(pattern(6))
    for row in range(4):
        expected[row * 64 : row * 64 + 8] = b"\xaa" * 8
    assert back == expected


def test_a_capture_takes_no_time_of_the_stream(cu, emu, streams, begin, finish):
    stream, size = streams[0], 64 << 20
    address = cu.alloc(size)
    begin(stream)
    cu("cuMemsetD8Async", address, 1, size, stream)
    executable, _ = finish(stream)
    emu.reset_clock()
    cu("cuStreamSynchronize", stream)
    assert emu.clock_us < 10
    cu("cuGraphLaunch", executable, stream)
    cu("cuStreamSynchronize", stream)
    assert emu.clock_us > size / 1.5e6
    cu("cuMemFree", address)


def test_what_a_stream_says_of_its_capture(cu, streams, blocks, begin):
    stream, other = streams[:2]
    assert status(cu, stream) == NONE
    begin(stream)
    assert status(cu, stream) == ACTIVE
    assert status(cu, other) == NONE
    state, number, graph, last, *_, count = cu("cuStreamGetCaptureInfo", stream)
    assert (int(state), last, count) == (ACTIVE, [], 0)
    cu("cuMemsetD8Async", blocks[0], 1, 1, stream)
    info = cu("cuStreamGetCaptureInfo", stream)
    assert int(info[1]) == int(number) > 0
    assert info[-1] == 1
    assert int(info[3][0]) == int(cu("cuGraphGetNodes", graph, 1)[0][0])
    assert cu.error("cuGraphDestroy", graph) == 1
    assert cu.error("cuGraphInstantiate", graph, 0) == 1
    assert int(cu("cuStreamEndCapture", stream)) == int(graph)
    assert status(cu, stream) == NONE
    cu("cuGraphDestroy", graph)


def test_streams_join_by_events(cu, streams, events, blocks, begin, finish):
    origin, left, right = streams
    a, b, c, *_ = blocks
    fork, one, two = events
    begin(origin, GLOBAL)
    cu("cuMemsetD8Async", a, 7, SIZE, origin)
    cu("cuEventRecord", fork, origin)
    for stream, target, done in ((left, b, one), (right, c, two)):
        cu("cuStreamWaitEvent", stream, fork, 0)
        assert status(cu, stream) == ACTIVE
        cu("cuMemcpyDtoDAsync", target, a, SIZE, stream)
        cu("cuEventRecord", done, stream)
    cu("cuStreamWaitEvent", origin, one, 0)
    cu("cuStreamWaitEvent", origin, two, 0)
    cu("cuMemsetD8Async", a, 9, SIZE, origin)
    graph = cu("cuStreamGetCaptureInfo", origin)[2]
    nodes = cu("cuGraphGetNodes", graph, 4)[0]
    before = [
        {int(n) for n in found[:count]}
        for found, _, count in (cu("cuGraphNodeGetDependencies", node, 4) for node in nodes)
    ]
    first, second, third, _ = map(int, nodes)
    assert before == [set(), {first}, {first}, {first, second, third}]
    executable, _ = finish(origin)
    assert [status(cu, stream) for stream in streams] == [NONE] * 3
    cu("cuGraphLaunch", executable, origin)
    assert [cu.read(x, SIZE)[-1] for x in (a, b, c)] == [9, 7, 7]


def test_work_that_nobody_waits_for_is_unjoined(cu, emu, streams, events, blocks, begin):
    origin, other, _ = streams
    begin(origin)
    cu("cuEventRecord", events[0], origin)
    cu("cuStreamWaitEvent", other, events[0], 0)
    cu("cuMemsetD8Async", blocks[0], 1, SIZE, other)
    assert cu.error("cuStreamEndCapture", other) == 903
    assert cu.error("cuStreamEndCapture", origin) == 904
    assert [status(cu, stream) for stream in streams] == [NONE] * 3
    assert "graphs" not in emu.leaks()
    cu("cuMemsetD8Async", blocks[0], 2, SIZE, other)
    assert cu.read(blocks[0], 1) == b"\2"


def test_two_captures_cannot_be_merged(cu, streams, events, begin):
    one, two, _ = streams
    begin(one)
    begin(two)
    cu("cuEventRecord", events[0], one)
    assert cu.error("cuStreamWaitEvent", two, events[0], 0) == 902
    for stream in (one, two):
        assert status(cu, stream) == INVALIDATED
        assert cu.error("cuStreamEndCapture", stream) == 901


def test_what_was_not_captured_cannot_be_waited_for(cu, streams, events, begin):
    stream, outside, _ = streams
    cu("cuEventRecord", events[0], outside)
    begin(stream)
    assert cu.error("cuStreamWaitEvent", stream, events[0], 0) == 905
    assert cu.error("cuStreamEndCapture", stream) == 901


def test_an_event_of_a_capture_stands_for_nothing(cu, streams, events, begin):
    stream, other, _ = streams
    calls = (
        ("cuEventQuery", events[0]),
        ("cuEventSynchronize", events[0]),
        ("cuEventElapsedTime", events[0], events[0]),
    )
    begin(stream)
    cu("cuEventRecord", events[0], stream)
    cu("cuGraphDestroy", cu("cuStreamEndCapture", stream))
    for call in calls:
        assert cu.error(*call) == 907
    assert cu.error("cuStreamWaitEvent", other, events[0], 0) == 907
    assert status(cu, other) == NONE
    cu("cuEventRecord", events[0], stream)
    cu("cuEventQuery", events[0])
    cu("cuStreamWaitEvent", other, events[0], 0)
    for call in calls[:2]:
        begin(stream)
        cu("cuEventRecord", events[0], stream)
        assert cu.error(*call) == 907
        assert cu.error("cuStreamEndCapture", stream) == 901


def test_beginning_and_ending_in_the_wrong_place(cu, streams, begin):
    stream = streams[0]
    mode = cu.driver.CUstreamCaptureMode(RELAXED)
    assert cu.error("cuStreamEndCapture", stream) == 401
    assert cu.error("cuStreamBeginCapture", 12345, mode) == 400
    for legacy in (0, 1):
        assert cu.error("cuStreamBeginCapture", legacy, mode) == 900
    begin(stream)
    assert cu.error("cuStreamBeginCapture", stream, mode) == 401
    cu("cuGraphDestroy", cu("cuStreamEndCapture", stream))
    begin(2)  # the per-thread default stream
    cu("cuGraphDestroy", cu("cuStreamEndCapture", 2))


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_ending_in_another_thread(cu, streams, begin, mode):
    answers = []
    begin(streams[0], mode)

    def end():
        code, graph = cu.driver.cuStreamEndCapture(streams[0])
        answers.append(int(code))
        if not answers[0]:
            cu("cuGraphDestroy", graph)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert answers == [0 if mode == RELAXED else 908]
    if mode != RELAXED:
        cu("cuGraphDestroy", cu("cuStreamEndCapture", streams[0]))


def test_streams_and_contexts_that_are_destroyed_take_their_captures_along(cu, emu, begin):
    stream, other = cu("cuStreamCreate", 1), cu("cuStreamCreate", 1)
    event, address = cu("cuEventCreate", 2), cu.alloc(SIZE)
    begin(stream)
    cu("cuEventRecord", event, stream)
    cu("cuStreamWaitEvent", other, event, 0)
    cu("cuMemsetD8Async", address, 1, SIZE, other)
    cu("cuStreamDestroy", stream)
    assert "graphs" not in emu.leaks()
    assert status(cu, other) == NONE
    begin(other)
    cu("cuStreamDestroy", other)
    assert "graphs" not in emu.leaks()
    context = cu.create_context()
    begin(2)
    begin(cu("cuStreamCreate", 0))
    assert len(emu.leaks()["graphs"]) == 2
    cu("cuCtxDestroy", context)
    assert "graphs" not in emu.leaks()
    cu("cuEventDestroy", event)
    cu("cuMemFree", address)


def test_a_copy_that_makes_no_sense_is_refused_at_once(cu, streams, blocks, begin, finish):
    stream = streams[0]
    begin(stream)
    assert cu.error("cuMemsetD8Async", blocks[0], 0, SIZE + 1, stream) == 1
    assert cu.error("cuMemcpyAsync", blocks[0], 0, 1, stream) == 1
    cu("cuMemsetD8Async", blocks[0], 0, SIZE, stream)
    assert finish(stream)[1] == 1


def test_memory_of_a_relaxed_capture_may_come_and_go(cu, emu, streams, begin, finish):
    """What is taken inside belongs to the graph; once it is freed, the graph is of no use."""
    stream = streams[0]
    begin(stream)
    address = cu.alloc(SIZE)
    cu("cuMemsetD8Async", address, 5, SIZE, stream)
    executable, _ = finish(stream)
    cu("cuGraphLaunch", executable, stream)
    assert cu.read(address, SIZE) == b"\5" * SIZE
    cu("cuMemFree", address)
    assert cu.error("cuGraphLaunch", executable, stream) == 700
    assert emu.illegal_accesses == 1


@pytest.mark.parametrize("name", ["cuMemsetD8Async", "cuStreamEndCapture", "cuGraphLaunch"])
def test_an_ordered_fault_changes_nothing(cu, emu, streams, blocks, begin, finish, name):
    stream, address = streams[0], blocks[0]
    cu.write(address, pattern(1))
    emu.fail(name, nth=1, error=999)
    begin(stream)
    seen = [cu.error("cuMemsetD8Async", address, 3, SIZE, stream)]
    if seen[0]:
        cu("cuMemsetD8Async", address, 3, SIZE, stream)
    if name == "cuStreamEndCapture":
        seen.append(cu.error("cuStreamEndCapture", stream))
        assert status(cu, stream) == ACTIVE
    executable, nodes = finish(stream)
    assert nodes == 1
    if name == "cuGraphLaunch":
        seen.append(cu.error("cuGraphLaunch", executable, stream))
    assert sum(seen) == 999
    assert cu.read(address, SIZE) == pattern(1)
    cu("cuGraphLaunch", executable, stream)
    assert cu.read(address, SIZE) == b"\3" * SIZE


def test_threads_capture_at_the_same_time(cu, emu):
    context, failures = cu("cuCtxGetCurrent"), []

    def work(seed):
        cu("cuCtxSetCurrent", context)
        mode = cu.driver.CUstreamCaptureMode(RELAXED)
        stream, a, b = cu("cuStreamCreate", 1), cu.alloc(SIZE), cu.alloc(SIZE)
        for step in range(40):
            cu("cuStreamBeginCapture", stream, mode)
            cu("cuMemcpyDtoDAsync", b, a, SIZE, stream)
            graph = cu("cuStreamEndCapture", stream)
            executable = cu("cuGraphInstantiate", graph, 0)
            cu.write(a, pattern(seed + step))
            cu("cuGraphLaunch", executable, stream)
            if cu.read(b, SIZE) != pattern(seed + step):
                failures.append((seed, step))
            cu("cuGraphExecDestroy", executable)
            cu("cuGraphDestroy", graph)
        cu("cuStreamDestroy", stream)
        cu("cuMemFree", a)
        cu("cuMemFree", b)

    threads = [threading.Thread(target=work, args=(seed * 100,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert emu.calls["cuStreamBeginCapture_v2"] == emu.calls["cuStreamEndCapture"] == 240
