"""What the walks of millions of steps do: drawn once, and gone through again and again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

#: A prime number of choices, so that a walk does not come round in step with itself.
CHOICES = 20_011


class Choice(NamedTuple):
    kind: str
    size: int
    alignment: int
    stream: int
    pick: int


def choices(
    seed: int, streams: int, kinds: Sequence[str], weights: Sequence[int], *, largest: int
) -> list[Choice]:
    """Draw steps of these kinds; `weights` says how often each comes."""
    chance = random.Random(seed)
    return [
        Choice(
            kind,
            chance.choice((0, 1, 511, 512, 513, chance.randrange(largest))),
            chance.choice((0, 0, 0, 0, 1, 1024, 4096)),
            chance.randrange(streams),
            chance.randrange(1 << 30),
        )
        for kind in chance.choices(kinds, weights, k=CHOICES)
    ]
