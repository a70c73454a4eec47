"""The second process of the IPC checks."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from umfpy.errors import UmfpyError
from umfpy.provider import Capability, Provider
from umfpy.testing.subject import Options, Subject, first_difference, pattern


@dataclass(frozen=True)
class Task:
    """What to open, which pattern to expect there, and which one to leave."""

    importer: Callable[[str], Provider]
    scope: str
    payload: bytes
    size: int
    expected: str
    reply: str
    setup: Callable[[], object] | None = None


@dataclass(frozen=True)
class Answer:
    """What went wrong, in words; nothing if nothing did."""

    error: str = ""
    difference: str = ""


def perform(task: Task, descriptors: Sequence[int]) -> Answer:
    """Open, read, write, close."""
    subject = Subject(task.importer(task.scope), Options())
    provider = subject.provider
    ptr = provider.ipc_open(task.payload, descriptors)
    expected = pattern(task.expected, task.size)
    seen = subject.read(ptr, task.size)
    subject.fill(ptr, task.size, task.reply)
    if Capability.STREAMS in provider.capabilities:
        provider.synchronize()
    provider.ipc_close(ptr, task.size)
    provider.close()
    return Answer(difference="" if seen == expected else first_difference(seen, expected))


def main() -> None:
    """Do one task, told and answered on the socket whose number is the only argument."""
    with socket.socket(fileno=int(sys.argv[1])) as there:
        _, descriptors, _, _ = socket.recv_fds(there, 1, 16)
        with there.makefile("rwb") as stream:
            try:
                task = pickle.load(stream)
                if task.setup is not None:
                    task.setup()
                answer = perform(task, descriptors)
            except (UmfpyError, ImportError, AttributeError, OSError, RuntimeError) as error:
                answer = Answer(error=f"{type(error).__name__}: {error}")
            pickle.dump(answer, stream)
    for fd in descriptors:
        os.close(fd)
