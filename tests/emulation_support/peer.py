"""A second process to make calls in; started as a program, this file is that process."""

from __future__ import annotations

import importlib
import json
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Peer:
    """A second process that runs code for us, with the names of a module's `peer_names` at hand.

    ``peer("cu.read(address, 3)", address=5)`` gives the value; bytes travel as latin-1 text with
    a mark, descriptors as ``fds``, and those that the code puts into ``send`` come back behind the
    value.  Statements before the last line, which must be an expression, are run first.
    """

    def __init__(self, module: Path, environment: dict[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(module), str(theirs.fileno())],
                env=environment,
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours

    def __call__(self, code: str, fds: tuple[int, ...] = (), **values: Any) -> Any:
        message = json.dumps([code, {k: _pack(v) for k, v in values.items()}]).encode()
        socket.send_fds(self._socket, [message], list(fds))
        received, got, _, _ = socket.recv_fds(self._socket, 1 << 16, 8)
        answer = json.loads(received)
        assert "error" not in answer, answer["error"]
        value = _unpack(answer["value"])
        return (value, *got) if got else value

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self._socket.close()
        if self.process.poll() is None:
            assert self.process.wait(timeout=30) == 0


def _pack(value: Any) -> Any:
    return {"bytes": value.decode("latin-1")} if isinstance(value, bytes) else value


def _unpack(value: Any) -> Any:
    return value["bytes"].encode("latin-1") if isinstance(value, dict) else value


def _evaluate(code: str, names: dict[str, Any]) -> Any:
    *before, last = code.strip().splitlines()
    exec("\n".join(before), names)
    return eval(last, names)


def _requests(channel: socket.socket) -> Iterator[tuple[str, dict[str, Any], list[int]]]:
    while True:
        message, fds, _, _ = socket.recv_fds(channel, 1 << 16, 8)
        if not message:
            return
        code, values = json.loads(message)
        yield code, values, list(fds)


def _serve(channel: socket.socket, names: dict[str, Any]) -> None:
    for code, values, fds in _requests(channel):
        names.update({k: _unpack(v) for k, v in values.items()}, fds=fds, send=[])
        try:
            answer = {"value": _pack(_evaluate(code, names))}
        except Exception:  # noqa: BLE001 - the other side raises it
            answer = {"error": traceback.format_exc()}
        socket.send_fds(channel, [json.dumps(answer).encode()], names["send"])


def _main(module: Path, descriptor: int) -> None:
    sys.path[0] = str(module.parent)
    names = importlib.import_module(module.stem).peer_names()
    _serve(socket.socket(fileno=descriptor), names)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
