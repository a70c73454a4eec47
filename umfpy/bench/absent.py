"""What cannot take part in a run, and why."""

from __future__ import annotations

from umfpy.errors import UmfpyError


class Absent(UmfpyError):
    """A contender, a compiler or a trace is not on this machine; the message says what to get."""
