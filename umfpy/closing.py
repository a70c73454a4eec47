"""What a `with` block closes."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

Self = TypeVar("Self", bound="Closing")


class Closing:
    """Has a `with` block close it at its end, whatever happened in the block."""

    def close(self) -> None:
        """Give back what it holds; closing twice is fine."""
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        """Return the object itself; `close` is called at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
