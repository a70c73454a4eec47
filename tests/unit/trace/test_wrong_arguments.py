"""What traces refuse at once, naming it: no file is made then, and no pool asked."""

from __future__ import annotations

from typing import Any

import pytest

from umfpy import HostProvider, InvalidArgument, Pool
from umfpy.trace import Recorder, Trace, TraceReader, TraceWriter, replay


def refuses(words: str, wrong: object, make: Any, *args: Any, **keywords: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make(*args, **keywords)
    assert words in str(caught.value)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("wrong", [None, 5, True, b"trace.csv", ["trace.csv"], "a\0b"])
@pytest.mark.parametrize("make", [Trace.load, TraceReader, TraceWriter])
def test_a_trace_has_a_path(make: Any, wrong: object) -> None:
    refuses("path must be a path", wrong, make, wrong)


@pytest.mark.parametrize("wrong", ["no", 0, 1, None])
def test_overwrite_is_a_flag(tmp_path, wrong: object) -> None:
    path = tmp_path / "trace.csv"
    refuses("overwrite must be True or False", wrong, TraceWriter, path, overwrite=wrong)
    assert not path.exists()


@pytest.mark.parametrize("wrong", [None, "trace.csv", [], 5])
def test_a_trace_is_loaded_before_it_is_replayed(wrong: Any) -> None:
    with Pool(HostProvider()) as pool:
        refuses("as Trace.load makes it of a file", wrong, replay, wrong, pool)


@pytest.mark.parametrize("wrong", [None, "pool", 5])
def test_what_a_recorder_stands_between(tmp_path, wrong: Any) -> None:
    with TraceWriter(tmp_path / "trace.csv") as writer, Pool(HostProvider()) as pool:
        refuses("pool must be a pool of umfpy", wrong, Recorder, wrong, writer)
        refuses("writer must be a TraceWriter", wrong, Recorder, pool, wrong)
