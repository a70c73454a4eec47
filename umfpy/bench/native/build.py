"""Compiles the C sources beside this file when they are needed."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from umfpy.bench.absent import Absent

SOURCES = Path(__file__).parent
FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread")


def compiler() -> str:
    """Return the C compiler: ``$CC``, or the first of the usual ones."""
    wanted = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    for name in wanted:
        path = shutil.which(name)
        if path is not None:
            return path
    raise Absent(f"no C compiler: none of {', '.join(wanted)} is on PATH; install gcc or clang")


def build(sources: Sequence[str], arguments: Sequence[str] = ()) -> ctypes.CDLL:
    """Compile `sources` to a shared library and load it.

    Raises Absent with the compiler's first complaint if that does not work.
    """
    with tempfile.TemporaryDirectory(prefix="umfpy-bench-") as folder:
        library = os.path.join(folder, "loop.so")
        command = [compiler(), *FLAGS, *(str(SOURCES / name) for name in sources)]
        command += ["-o", library, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            complaint = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
            raise Absent(f"{' and '.join(sources)} did not compile: {complaint}")
        # Loaded, it needs its file no longer.
        return ctypes.CDLL(library)
