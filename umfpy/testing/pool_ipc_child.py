"""The second process of the checks of pools' IPC."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass

from umfpy.errors import UmfpyError


@dataclass(frozen=True)
class PoolTask:
    """Which handles to open, and what to leave in the memory of each."""

    handles: tuple[bytes, ...]
    replies: tuple[bytes, ...]
    setup: Callable[[], object] | None = None


@dataclass(frozen=True)
class PoolAnswer:
    """What was read, or what went wrong, in words."""

    seen: tuple[bytes, ...] = ()
    error: str = ""


def perform(task: PoolTask) -> PoolAnswer:
    """Open all, read all, write all, close all."""
    from umfpy.ipc import IpcHandle, open_ipc

    mappings = [open_ipc(IpcHandle.from_bytes(handle)) for handle in task.handles]
    seen = tuple(bytes(mapping.copy_to_host()) for mapping in mappings)
    for mapping, reply in zip(mappings, task.replies, strict=True):
        mapping.copy_from_host(reply)
    for mapping in mappings:
        mapping.close()
    return PoolAnswer(seen)


def main() -> None:
    """Do one task, told on standard input and answered on standard output."""
    try:
        task = pickle.load(sys.stdin.buffer)
        if task.setup is not None:
            task.setup()
        answer = perform(task)
    except (UmfpyError, ImportError, AttributeError, OSError, RuntimeError) as error:
        answer = PoolAnswer(error=f"{type(error).__name__}: {error}")
    sys.stdout.buffer.write(pickle.dumps(answer))
