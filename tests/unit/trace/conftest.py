from __future__ import annotations

import pytest

from umfpy.trace import Trace


@pytest.fixture
def trace_file(tmp_path):
    """Writes lines into a trace file, and returns its path."""

    def write(text, name="trace.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def load(trace_file):
    """Loads a trace from its text."""
    return lambda text: Trace.load(trace_file(text))
