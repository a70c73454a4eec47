"""Reading traces, and the errors of files that are none."""

from __future__ import annotations

import gzip

import pytest

import umfpy
from umfpy.trace import Event, Trace, TraceReader

SMALL = """\
# source: a test
# torch_peak_reserved: 4096
op,id,size,stream
a,1,1000,0
a,2,500,7
# in between
f,1,,

f,2,500,3
"""


def test_events_in_order(trace_file):
    with TraceReader(trace_file(SMALL)) as reader:
        assert reader.header == {"source": "a test", "torch_peak_reserved": "4096"}
        assert list(reader) == [
            Event("a", 1, 1000, 0),
            Event("a", 2, 500, 7),
            Event("f", 1, 0, None),
            Event("f", 2, 500, 3),
        ]
        assert list(reader) == []


def test_compressed_is_the_same(trace_file, tmp_path):
    plain = trace_file(SMALL)
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(SMALL.encode()))
    with TraceReader(plain) as one, TraceReader(packed) as other:
        assert list(one) == list(other)
        assert one.header == other.header


def test_it_reads_no_further_than_asked(trace_file):
    """A trace may be larger than memory: an error in line 5 does not show before it is reached."""
    with TraceReader(trace_file("a,1,8,0\na,2,8,0\nnonsense\n")) as reader:
        events = iter(reader)
        assert next(events).id == 1
        assert reader.line == 1


@pytest.mark.parametrize("text", ["", "# only: a head\n", "op,id,size,stream\n", "\n\n"])
def test_a_trace_without_events(load, text):
    trace = load(text)
    assert len(trace) == trace.allocations == trace.frees == trace.peak_live_bytes == 0


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("x,1,8,0\n", 1, "unknown operation 'x'"),
        ("op,id,size,stream\nalloc,1,8,0\n", 2, "unknown operation 'alloc'"),
        ("op,id,stream,size\n", 1, "the columns are"),
        ("f,7,,\n", 1, "id 7 is freed but not allocated"),
        ("a,7,8,0\nf,7,,\nf,7,,\n", 3, "id 7 is freed but not allocated"),
        ("a,7,8,0\na,7,8,0\n", 2, "id 7 is allocated again while it is live"),
        ("a,1,-8,0\n", 1, "size -8 is negative"),
        ("a,-1,8,0\n", 1, "id -1 is negative"),
        ("a,1,8,-1\n", 1, "stream -1 is negative"),
        (f"a,1,{1 << 64},0\n", 1, "beyond 64 bits"),
        ("a,1,8KiB,0\n", 1, "size is '8KiB'"),
        ("a,1,8.0,0\n", 1, "size is '8.0'"),
        ("a,1,,0\n", 1, "size is ''"),
        ("a,1,8\n", 1, "has 3 fields"),
        ("a,1,8,0,9\n", 1, "has 5 fields"),
        ("f\n", 1, "id is ''"),
        ("# fine: yes\n\n\na,1,8,0\nb\n", 5, "unknown operation 'b'"),
    ],
)
def test_what_is_wrong_is_said_with_file_line_and_remedy(trace_file, text, line, says):
    path = trace_file(text)
    with pytest.raises(umfpy.InvalidArgument) as caught:
        Trace.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line {line}: ")
    assert says in message
    assert "; " in message  # the remedy


def test_an_id_may_be_used_again(load):
    trace = load("a,1,8,0\nf,1,,\na,1,16,0\nf,1,,\n")
    assert (trace.slots, trace.allocations, trace.peak_live_bytes) == (1, 2, 16)


def test_the_largest_size_can_be_read(load):
    assert load(f"a,1,{(1 << 64) - 1},0\n").sizes[0] == (1 << 64) - 1


@pytest.mark.parametrize("keep", [0.2, 0.9, 0.999])
def test_a_truncated_file(tmp_path, keep):
    lines = "".join(f"a,{n},{n * 7919 % 100003},0\n" for n in range(5000))
    packed = gzip.compress(lines.encode())
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(packed[: int(len(packed) * keep)])
    with pytest.raises(umfpy.InvalidArgument, match=r"cut\.csv\.gz, line \d+: .*ends early"):
        Trace.load(path)


def test_a_damaged_file(tmp_path):
    packed = bytearray(gzip.compress(SMALL.encode() * 50))
    packed[40] ^= 0xFF
    path = tmp_path / "bad.csv.gz"
    path.write_bytes(packed)
    with pytest.raises(umfpy.InvalidArgument, match=r"bad\.csv\.gz"):
        Trace.load(path)


def test_plain_text_called_gz(trace_file):
    with pytest.raises(umfpy.InvalidArgument, match=r"drop \.gz from its name"):
        Trace.load(trace_file(SMALL, "plain.csv.gz"))


def test_compressed_data_called_csv(tmp_path):
    path = tmp_path / "packed.csv"
    path.write_bytes(gzip.compress(SMALL.encode()))
    with pytest.raises(umfpy.InvalidArgument, match=r"\.csv\.gz"):
        Trace.load(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "missing.csv")


def test_facts(load):
    trace = load(SMALL)
    assert trace.torch_peak_reserved == trace.fact("torch_peak_reserved") == 4096
    assert trace.torch_utilization == 1500 / 4096
    assert trace.fact("no_such_fact") is None
    assert load("a,1,8,0\n").torch_utilization is None
    with pytest.raises(umfpy.InvalidArgument, match="'a test' for source"):
        trace.fact("source")


def test_slots_are_as_many_as_are_live_at_once(load):
    text = "".join(f"a,{n},8,0\na,{n + 100},8,0\nf,{n},,\nf,{n + 100},,\n" for n in range(50))
    trace = load(text)
    assert (trace.slots, trace.allocations, trace.frees) == (2, 100, 100)
    assert trace.peak_live_bytes == 16


@pytest.mark.parametrize(
    "events",
    [[Event("f", 1, 0, None)], [Event("a", 1, 8, 0), Event("a", 1, 8, 0)]],
)
def test_events_that_make_no_trace(events):
    with pytest.raises(umfpy.InvalidArgument, match="id 1"):
        Trace.from_events(events, name="made here")
