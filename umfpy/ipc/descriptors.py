"""File descriptors for handles that travel through `multiprocessing`: SCM_RIGHTS, unix(7).

A handle takes no descriptor along.  It says where its exporter hands them out, and who opens
it asks there.  So a message that is never read leaks nothing, a thousand handles in a queue hold
none, and a handle may be passed on and opened again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import AuthenticationError, current_process, reduction
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)

from umfpy.ipc.handle import EXPORT_ID_SIZE, IpcHandle
from umfpy.ipc.root_exports import find_export

#: How long to wait for the other side's next word, in seconds.  It has nothing to do but answer.
_PATIENCE_S = 10.0

#: What comes of another side that vanishes, stops, does not know the key, or talks nonsense
#: (which `multiprocessing` answers with a RuntimeError, or an AssertionError before Python 3.12).
_BROKEN = (OSError, EOFError, AuthenticationError, RuntimeError, AssertionError)


class DescriptorServer:
    """Hands out the descriptors of this process's exports, to whom has its authentication key.

    Children that `multiprocessing` starts have it (`multiprocessing.Process.authkey`), and so
    has who was given it.  The thread starts with the first handle that needs it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listener: Listener | None = None

    def address(self) -> bytes:
        """Return where to ask."""
        with self._lock:
            if self._listener is None:
                self._listener = self._start()
            address = self._listener.address
        return address if isinstance(address, bytes) else os.fsencode(address)

    def abandon(self) -> None:
        """Let go of the parent's socket, in a forked child: the thread is not here."""
        if self._listener is not None:
            self._listener.close()

    def _start(self) -> Listener:
        # An abstract name (unix(7)) is in no folder, and goes with the process however it ends.
        name = f"\0umfpy-ipc-{secrets.token_hex(16)}"
        listener = Listener(name, family="AF_UNIX", backlog=64)
        thread = threading.Thread(
            target=self._serve, args=(listener,), name="umfpy-ipc-descriptors", daemon=True
        )
        thread.start()
        return listener

    def _serve(self, listener: Listener) -> None:
        try:
            while True:
                with listener.accept() as connection, contextlib.suppress(*_BROKEN):
                    _limit_waiting(connection)
                    deliver_challenge(connection, _key())
                    answer_challenge(connection, _key())
                    _answer(connection)
        finally:
            # For instance out of descriptors: importers are refused at once, and do not wait.
            with self._lock:
                self._listener = None
            listener.close()


def _answer(connection: Connection) -> None:
    """Send how many descriptors the export that is asked for has, and then those."""
    export = find_export(connection.recv_bytes(EXPORT_ID_SIZE))
    copies = export.duplicate_descriptors() if export is not None else []
    try:
        connection.send_bytes(bytes([len(copies)]))
        for descriptor in copies:
            reduction.send_handle(connection, descriptor, None)
    finally:
        for descriptor in copies:
            os.close(descriptor)


def _key() -> bytes:
    return bytes(current_process().authkey)


def _limit_waiting(connection: Connection) -> None:
    """Let a read fail that the other side does not answer: SO_RCVTIMEO, socket(7)."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        seconds, microseconds = divmod(round(_PATIENCE_S * 1e6), 1_000_000)
        limit = struct.pack("@ll", seconds, microseconds)  # struct timeval
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


@contextmanager
def fetched(handle: IpcHandle) -> Iterator[Sequence[int]]:
    """Yield the descriptors for a handle, and close them afterwards.

    None if it did not come through `multiprocessing`, or its exporter does not answer: then the
    provider finds its own way to them, or says what is wrong.
    """
    descriptors: list[int] = []
    try:
        if handle.sender is not None:
            _fetch(handle, handle.sender, descriptors)
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _fetch(handle: IpcHandle, sender: bytes, descriptors: list[int]) -> None:
    try:
        with Client(sender, family="AF_UNIX") as server:
            _limit_waiting(server)
            answer_challenge(server, _key())
            deliver_challenge(server, _key())
            server.send_bytes(handle.root.export_id)
            for _ in range(server.recv_bytes(1)[0]):
                descriptors.append(reduction.recv_handle(server))
    except _BROKEN:
        while descriptors:
            os.close(descriptors.pop())


_server = DescriptorServer()


def server_address() -> bytes:
    """Return where this process hands out descriptors."""
    return _server.address()


def _after_fork_in_child() -> None:
    global _server
    _server.abandon()
    _server = DescriptorServer()


os.register_at_fork(after_in_child=_after_fork_in_child)
