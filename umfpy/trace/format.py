"""The trace format, one event a line.

::

    # source: where the trace comes from
    # torch_peak_reserved: 134217728
    op,id,size,stream
    a,1,17408,0
    f,1,,

``a`` allocates `size` bytes as `id` on `stream`; ``f`` frees `id`, whose size and stream may be
left out.  An `id` may be used again after it was freed.  Lines that start with ``#`` and come
before the first event hold facts, ``key: value``; later ones are comments.
"""

from __future__ import annotations

from typing import NamedTuple

#: The line that names the columns; it may be left out.
COLUMNS = "op,id,size,stream"

ALLOCATE = "a"
FREE = "f"

#: The largest number that a trace may hold: sizes and streams are 64 bits wide.
LARGEST = (1 << 64) - 1


class Event(NamedTuple):
    """One line of a trace."""

    op: str  #: `ALLOCATE` or `FREE`
    id: int
    size: int  #: bytes; 0 for a free that does not say
    stream: int | None  #: None for a free on the stream of the allocation
