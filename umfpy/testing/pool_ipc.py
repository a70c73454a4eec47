"""Checks of sharing a pool's memory, with a second process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

from umfpy.errors import InvalidArgument, NotSupported, StaleHandle
from umfpy.provider import Capability
from umfpy.testing.pool_ipc_child import PoolAnswer, PoolTask
from umfpy.testing.pool_registry import pool_check
from umfpy.testing.pool_subject import PoolSubject
from umfpy.testing.subject import Broken, Skipped, expect, pattern

#: A second process that has not answered by then never will.
_SECONDS = 60


def _ask(task: PoolTask) -> PoolAnswer:
    """Let a new process do a task; return its answer."""
    try:
        message = pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Skipped(f"a second process cannot be told how to open the memory: {error}") from None
    code = "from umfpy.testing.pool_ipc_child import main; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=message,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired:
        raise Broken("an answer from the second process", "none in time") from None
    try:
        answer: Any = pickle.loads(done.stdout)
    except (EOFError, pickle.UnpicklingError):
        raise Broken("an answer from the second process", done.stderr.decode()[-500:]) from None
    if not isinstance(answer, PoolAnswer):
        raise Broken("an answer from the second process", repr(answer))
    return answer


@pool_check(
    "another process opens any piece, and both see what the other writes there",
    needs=Capability.IPC,
    second_process=True,
)
def pool_ipc(subject: PoolSubject) -> None:
    size = 2 * subject.unit + 16
    first, second = subject.allocate(size), subject.allocate(size)
    for piece in (first, second):
        subject.fill(piece.ptr, size, piece.ptr)
    if subject.has(Capability.STREAMS):
        subject.provider.synchronize()
    task = PoolTask(
        handles=(bytes(first.ipc_handle()), bytes(second.ipc_handle())),
        replies=(pattern("first", size), pattern("second", size)),
        setup=subject.pool_options.process_setup,
    )
    answer = _ask(task)
    expect(not answer.error, "the pieces open in another process", answer.error)
    for piece, seen, reply in zip((first, second), answer.seen, ("first", "second"), strict=True):
        expect(seen == pattern(piece.ptr, size), "the importer reads what was written here", "else")
        subject.expect_pattern(piece.ptr, size, reply, "what the importer wrote, read here")


@pool_check("memory that cannot be shared says so", unless=Capability.IPC)
def ipc_refused(subject: PoolSubject) -> None:
    allocation = subject.allocate(subject.unit)
    with subject.unchanged("an export"):
        subject.refused("ipc_handle", (NotSupported,), allocation.ipc_handle)


@pool_check("what was freed is not exported")
def ipc_freed(subject: PoolSubject) -> None:
    allocation = subject.allocate(subject.unit)
    allocation.free()
    errors = (StaleHandle, InvalidArgument, NotSupported)
    subject.refused("ipc_handle of what was freed", errors, allocation.ipc_handle)
