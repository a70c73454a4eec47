"""Reading a trace, a line at a time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

from umfpy.arguments import check_path
from umfpy.closing import Closing
from umfpy.errors import InvalidArgument
from umfpy.trace.format import ALLOCATE, COLUMNS, FREE, LARGEST, Event


class TraceReader(Closing):
    """The events of a ``.csv`` or ``.csv.gz`` file, in order; memory grows with what is live only.

    Parameters
    ----------
    path
        The file; one whose name ends in ``.gz`` is decompressed on the way.

    Raises
    ------
    OSError
        The file cannot be opened.
    InvalidArgument
        `path` is none, or the file no trace.  The message names file, line and value, here and
        during iteration.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = check_path(path, "path")
        #: The facts of the file's head, as text.
        self.header: dict[str, str] = {}
        #: The number of the line read last, from 1.
        self.line = 0
        self._live: set[int] = set()
        self._file = _open(self.path)
        try:
            self._first = self._read_head()
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[Event]:
        """Yield the events that are left: each of them once, however often this is called."""
        text = self._first
        while text:
            if not text.startswith("#"):
                event = self._parse(text)
                self._check_lifetime(event)
                yield event
            text = self._next_line()
        self._first = ""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_head(self) -> str:
        """Collect the facts, and return the first event's line, or "" at the end."""
        text = self._next_line()
        while text.startswith("#"):
            key, colon, value = text[1:].partition(":")
            if colon:
                self.header[key.strip()] = value.strip()
            text = self._next_line()
        if text.startswith("op,"):
            if text != COLUMNS:
                raise self._wrong(f"the columns are {text!r}", f"they must be {COLUMNS!r}")
            text = self._next_line()
        return text

    def _next_line(self) -> str:
        """Return the next line that is not blank, or "" at the end."""
        while True:
            try:
                text = self._file.readline()
            except EOFError as error:
                raise self._wrong(
                    "the compressed data ends early", "copy or download the file again"
                ) from error
            except (gzip.BadGzipFile, zlib.error) as error:
                raise self._wrong(
                    f"the compressed data is damaged ({error})",
                    "copy the file again, or drop .gz from its name if it is plain text",
                ) from error
            except UnicodeDecodeError as error:
                raise self._wrong(
                    f"this is no text ({error})", "a compressed trace has a name in .csv.gz"
                ) from error
            if not text:
                return ""
            self.line += 1
            if stripped := text.strip():
                return stripped

    def _parse(self, text: str) -> Event:
        op, _, rest = text.partition(",")
        if op not in (ALLOCATE, FREE):
            raise self._wrong(
                f"unknown operation {op!r}",
                f"write {ALLOCATE!r} for an allocation, {FREE!r} for a free",
            )
        fields = rest.split(",")
        if len(fields) > 3 or (op == ALLOCATE and len(fields) < 3):
            raise self._wrong(f"{text!r} has {len(fields) + 1} fields", f"write {COLUMNS}")
        fields += [""] * (3 - len(fields))
        if op == ALLOCATE:
            return Event(
                op,
                self._number("id", fields[0]),
                self._number("size", fields[1]),
                self._number("stream", fields[2]),
            )
        size = self._number("size", fields[1]) if fields[1] else 0
        stream = self._number("stream", fields[2]) if fields[2] else None
        return Event(op, self._number("id", fields[0]), size, stream)

    def _number(self, column: str, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise self._wrong(
                f"{column} is {text!r}", "write a whole number, without unit or separators"
            ) from None
        if not 0 <= number <= LARGEST:
            what = "negative" if number < 0 else "beyond 64 bits"
            raise self._wrong(f"{column} {number} is {what}", f"it must be 0 to {LARGEST}")
        return number

    def _check_lifetime(self, event: Event) -> None:
        if event.op == FREE:
            if event.id not in self._live:
                raise self._wrong(
                    f"id {event.id} is freed but not allocated at this point",
                    "put its allocation before this line, or drop the line",
                )
            self._live.remove(event.id)
            return
        if event.id in self._live:
            raise self._wrong(
                f"id {event.id} is allocated again while it is live",
                "free it first, or give the new allocation an id of its own",
            )
        self._live.add(event.id)

    def _wrong(self, what: str, remedy: str) -> InvalidArgument:
        return InvalidArgument(f"{self.path}, line {max(self.line, 1)}: {what}; {remedy}")


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8"))
    return path.open(encoding="utf-8")
