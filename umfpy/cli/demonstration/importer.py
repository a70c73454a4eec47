"""The other process of `umfpy.cli.demonstration.sharing`.

Reads handles as JSON from standard input, opens each, answers each piece with its bytes in the
opposite order, and reports on standard output.
"""

from __future__ import annotations

import json
import os
import sys

from umfpy.cli.demonstration.device import CountedCuda
from umfpy.ipc import clear_cache, open_ipc


def main() -> None:
    """Open two handles, and report."""
    handles = [bytes.fromhex(text) for text in json.load(sys.stdin)]
    provider = CountedCuda()
    first, second = (open_ipc(handle, provider=provider) for handle in handles)
    read = []
    for mapping in (first, second):
        data = bytes(mapping.copy_to_host())
        read.append(data.hex())
        mapping.copy_from_host(data[::-1])
    report = {
        "pid": os.getpid(),
        "opens": provider.opens,
        "distance_bytes": second.ptr - first.ptr,
        "read": read,
    }
    first.close()
    second.close()
    clear_cache()
    provider.close()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
