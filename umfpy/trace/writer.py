"""Writing a trace."""

from __future__ import annotations

import contextlib
import gzip
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from umfpy.arguments import check_flag, check_path
from umfpy.closing import Closing
from umfpy.errors import InvalidArgument
from umfpy.trace.format import ALLOCATE, COLUMNS, FREE, Event


class TraceWriter(Closing):
    """Writes a ``.csv`` or ``.csv.gz`` file; the same events always give the same bytes.

    Parameters
    ----------
    path
        The file; compressed if its name ends in ``.gz``.
    header
        Facts for the head: text or numbers, each on one line.
    overwrite
        Whether a file that is there already may go.

    Raises
    ------
    InvalidArgument
        `path` exists and may not go, or a fact does not fit on one line.
    """

    def __init__(
        self,
        path: str | Path,
        header: Mapping[str, str | int] | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        head = [_fact(key, value) for key, value in (header or {}).items()]
        self.path = check_path(path, "path")
        check_flag(overwrite, "overwrite")
        self._stack = contextlib.ExitStack()
        try:
            raw = self._stack.enter_context(self.path.open("wb" if overwrite else "xb"))
        except FileExistsError as error:
            raise InvalidArgument(
                f"{path} exists already; choose another name, or allow to overwrite it"
            ) from error
        binary: io.BufferedWriter | gzip.GzipFile = raw
        if self.path.suffix == ".gz":
            # Without name and time of writing in it, so that equal traces are equal files.
            binary = self._stack.enter_context(
                gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
            )
        self._text = self._stack.enter_context(
            io.TextIOWrapper(binary, encoding="utf-8", newline="\n")
        )
        self._text.writelines([*head, COLUMNS + "\n"])

    def allocate(self, id: int, size: int, stream: int = 0) -> None:
        """Write that `size` bytes were allocated as `id`."""
        self._text.write(f"{ALLOCATE},{id},{size},{stream}\n")

    def free(self, id: int, stream: int | None = None) -> None:
        """Write that `id` was freed; `stream` if on another one than it was allocated on."""
        self._text.write(f"{FREE},{id},,{'' if stream is None else stream}\n")

    def write(self, events: Iterable[Event]) -> None:
        """Write events as they come."""
        for event in events:
            if event.op == ALLOCATE:
                self.allocate(event.id, event.size, event.stream or 0)
            else:
                self.free(event.id, event.stream)

    @property
    def closed(self) -> bool:
        """Whether the file is complete: nothing more can be written."""
        return self._text.closed

    def close(self) -> None:
        """Write what is buffered, and close the file."""
        self._stack.close()


def _fact(key: str, value: str | int) -> str:
    line = f"# {key}: {value}"
    if "\n" in line or ":" in key:
        raise InvalidArgument(f"{line!r} does not fit into the head of a trace")
    return line + "\n"
