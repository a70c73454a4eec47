"""File descriptors for handles that travel through `multiprocessing`: SCM_RIGHTS, unix(7).

A handle takes no descriptor along.  It says where its exporter hands them out, and who opens
it asks there.  So a message that is never read leaks nothing, a thousand handles in a queue hold
none, and a handle may be passed on and opened again.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import AuthenticationError, current_process, reduction
from multiprocessing.connection import Client, Connection, Listener

from umfpy.errors import IpcError
from umfpy.ipc.exports import find_export
from umfpy.ipc.handle import IpcHandle

#: The most descriptors that go with one export.
_MAX_DESCRIPTORS = 64

#: What the other side of a connection can do to it: vanish, or not know the key.
_BROKEN = (ConnectionError, EOFError, AuthenticationError)


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
        key = bytes(current_process().authkey)
        listener = Listener(name, family="AF_UNIX", backlog=64, authkey=key)
        thread = threading.Thread(
            target=self._serve, args=(listener,), name="umfpy-ipc-descriptors", daemon=True
        )
        thread.start()
        return listener

    def _serve(self, listener: Listener) -> None:
        try:
            while True:
                try:
                    with listener.accept() as connection:
                        _answer(connection)
                except _BROKEN:
                    continue  # that importer's loss; it tries another way
        finally:
            # For instance out of descriptors: importers are refused at once, and do not wait.
            with self._lock:
                self._listener = None
            listener.close()


def _answer(connection: Connection) -> None:
    """Send how many descriptors the export that is asked for has, and then those."""
    export = find_export(connection.recv_bytes(64))
    copies = export.duplicate_descriptors() if export is not None else []
    try:
        connection.send_bytes(bytes([len(copies)]))
        for descriptor in copies:
            reduction.send_handle(connection, descriptor, None)
    finally:
        for descriptor in copies:
            os.close(descriptor)


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
        with Client(sender, family="AF_UNIX", authkey=bytes(current_process().authkey)) as server:
            server.send_bytes(handle.root.export_id)
            count = server.recv_bytes(1)[0]
            if count > _MAX_DESCRIPTORS:
                raise IpcError(f"{handle.root.exporter} offers {count} descriptors for one export")
            for _ in range(count):
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
