"""Writing and recording traces."""

from __future__ import annotations

import threading

import pytest

import umfpy
from umfpy.trace import Recorder, Trace, TraceReader, TraceWriter
from umfpy.trace.shipped import load_shipped
from umfpy.trace.workload import SHIPPED, training


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz"])
def test_what_is_written_is_read(tmp_path, name):
    events = list(training(steps=1, layers=2))
    with TraceWriter(tmp_path / name, {"source": "here", "steps": 1}) as writer:
        writer.write(events)
    with TraceReader(tmp_path / name) as reader:
        assert reader.header == {"source": "here", "steps": "1"}
        assert list(reader) == events


def test_equal_traces_are_equal_files(tmp_path):
    for name in ("one.csv.gz", "two.csv.gz"):
        with TraceWriter(tmp_path / name) as writer:
            writer.write(training(steps=1, layers=1))
    assert (tmp_path / "one.csv.gz").read_bytes() == (tmp_path / "two.csv.gz").read_bytes()


def test_no_file_is_overwritten_unless_allowed(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("precious\n", encoding="utf-8")
    with pytest.raises(umfpy.InvalidArgument, match="exists already"):
        TraceWriter(path)
    assert path.read_text(encoding="utf-8") == "precious\n"
    with TraceWriter(path, overwrite=True) as writer:
        writer.allocate(1, 8)
        writer.free(1, stream=5)
    assert Trace.load(path).allocations == 1


@pytest.mark.parametrize("header", [{"two\nlines": "x"}, {"key": "two\nlines"}, {"a: b": "c"}])
def test_a_fact_that_does_not_fit_on_a_line(tmp_path, header):
    with pytest.raises(umfpy.InvalidArgument, match="does not fit"):
        TraceWriter(tmp_path / "out.csv", header)
    assert not (tmp_path / "out.csv").exists()


def test_recording_a_pool(tmp_path):
    path = tmp_path / "recorded.csv"
    with umfpy.Pool(umfpy.HostProvider()) as pool, TraceWriter(path) as writer:
        recorder = Recorder(pool, writer)
        first = recorder.malloc(1000)
        second = recorder.malloc(2000, alignment=4096, stream=3)
        recorder.free(first)
        recorder.free(0)
        third = recorder.malloc(1000, zero=True)
        recorder.free(second, 2000, 4)
        recorder.free(third)
        assert pool.stats().live_allocations == 0
    text = path.read_text(encoding="utf-8").splitlines()
    assert text[1:] == ["a,0,1000,0", "a,1,2000,3", "f,0,,", "a,2,1000,0", "f,1,,4", "f,2,,"]


def test_recording_allocations(tmp_path):
    path = tmp_path / "recorded.csv"
    with umfpy.Pool(umfpy.HostProvider()) as pool, TraceWriter(path) as writer:
        recorder = Recorder(pool, writer)
        first = recorder.allocate(1000)
        with recorder.allocate(2000, alignment=4096, stream=3) as second:
            assert second.ptr % 4096 == 0
            assert (second.size, second.stream, second.pool) == (2000, 3, pool)
            assert umfpy.find(second.ptr).size == 2000
        del first
        third = recorder.allocate(0, zero=True)
        third.free(7)
        with pytest.raises(umfpy.StaleHandle):
            third.free()
        del third
        assert pool.stats().live_allocations == 0
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[1:] == ["a,0,1000,0", "a,1,2000,3", "f,1,,", "f,0,,", "a,2,0,0", "f,2,,7"]


def test_after_the_recording_the_pool_serves_on(tmp_path):
    path = tmp_path / "recorded.csv"
    with umfpy.Pool(umfpy.HostProvider()) as pool:
        before = pool.malloc(64)
        with TraceWriter(path) as writer:
            recorder = Recorder(pool, writer)
            recorder.free(before)  # which no line of the trace speaks of
            kept, ptr = recorder.allocate(64), recorder.malloc(64)
        kept.free()
        recorder.free(ptr)
        del kept
        recorder.allocate(64).free()
        assert pool.stats().live_allocations == 0
    trace = Trace.load(path)
    assert (trace.allocations, trace.frees) == (2, 0)


def test_an_allocation_dropped_in_the_middle_of_writing(tmp_path):
    """As the garbage collector does with what lies in a cycle."""
    path = tmp_path / "recorded.csv"
    dropped = []

    class Interrupted(TraceWriter):
        def allocate(self, id, size, stream=0):
            dropped.clear()
            super().allocate(id, size, stream)

    with umfpy.Pool(umfpy.HostProvider()) as pool, Interrupted(path) as writer:
        recorder = Recorder(pool, writer)
        dropped.append(recorder.allocate(8))
        recorder.allocate(16).free()
    assert path.read_text(encoding="utf-8").splitlines()[1:] == [
        *("a,0,8,0", "a,1,16,0", "f,0,,", "f,1,,"),
    ]


def test_several_threads_are_recorded(tmp_path):
    path = tmp_path / "recorded.csv"

    def work():
        for size in range(1, 200):
            recorder.allocate(size).free()
            recorder.free(recorder.malloc(size))

    with umfpy.Pool(umfpy.HostProvider()) as pool, TraceWriter(path) as writer:
        recorder = Recorder(pool, writer)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = Trace.load(path)  # which refuses a free of what was not allocated
    assert trace.allocations == trace.frees == 4 * 2 * 199


def test_a_refused_call_is_not_recorded(tmp_path):
    path = tmp_path / "recorded.csv"
    provider = umfpy.HostProvider()
    with umfpy.Pool(provider, limit_bytes="4MiB") as pool, TraceWriter(path) as writer:
        recorder = Recorder(pool, writer)
        with pytest.raises(umfpy.OutOfMemoryError):
            recorder.malloc(8 << 20)
        with pytest.raises(umfpy.OutOfMemoryError):
            recorder.allocate(8 << 20)
        with pytest.raises(umfpy.InvalidArgument):
            recorder.free(12345)
    assert len(Trace.load(path)) == 0


def test_the_shipped_trace_is_what_the_workload_makes(tmp_path):
    shipped = load_shipped()
    assert shipped.name.endswith(SHIPPED)
    made = Trace.from_events(training(), name="made here")
    assert (shipped.codes, shipped.sizes) == (made.codes, made.sizes)
    assert shipped.peak_live_bytes == made.peak_live_bytes
