"""Allocation traces: what a program asked of its allocator, and playing it back to a pool.

A trace is a text file, ``.csv`` or ``.csv.gz``; `umfpy.trace.format` describes it.
"""

from umfpy.trace.format import Event
from umfpy.trace.reader import TraceReader
from umfpy.trace.record import Recorder
from umfpy.trace.replay import ReplayResult, replay
from umfpy.trace.trace import Trace
from umfpy.trace.writer import TraceWriter

__all__ = ["Event", "Recorder", "ReplayResult", "Trace", "TraceReader", "TraceWriter", "replay"]
