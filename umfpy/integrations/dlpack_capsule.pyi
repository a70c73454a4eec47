"""DLPack's structures, and the capsules that carry them from one library to another."""

from typing import Any, final

VERSION: tuple[int, int]

def live_count() -> int: ...
def make_capsule(
    data: int,
    *,
    device: tuple[int, int],
    dtype: tuple[int, int, int],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    read_only: bool,
    versioned: bool,
    keep: Any,
) -> Any: ...

@final
class Taken:
    def __init__(self, capsule: Any) -> None: ...
    @property
    def data(self) -> int: ...
    @property
    def device(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> tuple[int, int, int]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...] | None: ...
    @property
    def read_only(self) -> bool: ...
