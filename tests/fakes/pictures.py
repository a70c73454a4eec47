"""What a refused call must leave as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from umfpy import CoarseProvider
from umfpy.pools.base import ProviderPool


def picture(source: ProviderPool | CoarseProvider) -> Any:
    """All counters and all blocks.

    Without the size of the metadata: an error message looks addresses up, and the table for that
    is made when it is first needed.
    """
    if isinstance(source, CoarseProvider):
        return {**source.stats(), "metadata": 0}, source.map.blocks()
    return replace(source.stats(), metadata_bytes=0), source.map.blocks()
