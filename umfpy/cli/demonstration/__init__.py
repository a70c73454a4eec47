"""What ``umfpy demo`` shows: a module for each act, with one function ``run``.

An act does something with a GPU, checks that it came out as promised, and returns the facts.
"""

from umfpy.cli.demonstration import allocating, arrays, leaving, replaying, sharing
from umfpy.cli.demonstration.act import Act, Facts, Promise

#: In the order in which they are shown.
ACTS: tuple[Act, ...] = (
    Act("allocate", "Allocate from a pool", allocating.run, allocating.tell),
    Act("replay", "Replay a training run, with a pool and without", replaying.run, replaying.tell),
    Act("share", "Share two pieces with another process", sharing.run, sharing.tell),
    Act("cupy", "CuPy arrays in a pool", arrays.run, arrays.tell),
    Act("leaks", "What is left", leaving.run, leaving.tell),
)

__all__ = ["ACTS", "Act", "Facts", "Promise"]
