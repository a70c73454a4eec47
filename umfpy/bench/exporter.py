"""The other process of the IPC scenario: allocates, prints handles, and waits to be told to end.

``python -m umfpy.bench.exporter SOCKET COUNT``, run by `umfpy.bench.scenarios.ipc`.
"""

from __future__ import annotations

import socket
import sys

import umfpy
from umfpy.ipc import export


def main() -> None:
    from umfpy.bench.scenarios.ipc import SIZE

    with (
        socket.socket(fileno=int(sys.argv[1])) as parent,
        umfpy.Pool(umfpy.HostProvider(shared=True)) as pool,
    ):
        buffers = [pool.allocate(SIZE) for _ in range(int(sys.argv[2]))]
        parent.sendall(b"".join(bytes(export(b)).hex().encode() + b"\n" for b in buffers))
        parent.recv(1)  # nothing comes: the parent closes its end
        buffers.clear()


if __name__ == "__main__":
    main()
