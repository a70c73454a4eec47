"""What the driver refuses umfpy, in this process and in every process that it starts.

Whatever a driver answers to a call of umfpy's, other than success, is a refusal: umfpy broke one
of the driver's rules.  Three kinds of answers are none: that memory is short, what a test ordered
with ``emu.fail``, and the answer to a question (`ANSWERS`).

This file imports nothing but the standard library: processes that tests start load it before
anything else (``sitecustomize.py``), and it waits there for the classes that make the calls.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import json
import os
import re
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

#: Names the file in which other processes note refusals.
VARIABLE = "UMFPY_TEST_REFUSALS"

#: A device or the host is full: CUDA_ERROR_OUT_OF_MEMORY, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY and
#: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY.
OUT_OF_MEMORY = {"cu": {2}, "ze": {0x70000002, 0x70000003}}


#: Calls that ask a question, with the code that is an answer to it, and why umfpy has to ask.
ANSWERS = {
    ("cuMemRetainAllocationHandle", 1): (
        "CUDA_ERROR_INVALID_VALUE: other threads may free what is being exported, for which they "
        "wait for nobody; only the driver knows whether the memory is there at that moment"
    ),
}


class Refusal(NamedTuple):
    """A call of umfpy's to which the driver said no."""

    call: str
    code: int
    words: str  #: the message of the error that umfpy made of it
    stack: str  #: where the call came from, as a traceback has it


class Faults:
    """The answers that a test has ordered of an emulated driver, and that have not come yet.

    An order covers exactly as many answers as it has ``times``: a refusal with the same call and
    code beside them is one too many, whichever of them came first.
    """

    def __init__(self) -> None:
        self._left: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def watch(self, cls: Any) -> None:
        """Keep account of what is ordered of emulated drivers, from now on."""
        fail = _unwatched(cls.fail)

        @functools.wraps(fail)
        def ordering(
            emu: Any, name: str, nth: int = 1, error: int | None = None, *, times: int = 1
        ) -> None:
            with self._lock:  # an answer that comes at once waits in `take`
                fail(emu, name, nth, error, times=times)
                call = _PREFIXES[emu.title] + "*" if name == "*" else _base(name)
                self._left[call, emu.out_of_memory if error is None else int(error)] += times

        def dropping(watched: Callable[..., None]) -> Callable[..., None]:
            action = _unwatched(watched)

            @functools.wraps(action)
            def drop(emu: Any, *arguments: Any) -> None:
                with self._lock:
                    action(emu, *arguments)
                    prefix = _PREFIXES[emu.title]
                    for key in [key for key in self._left if key[0].startswith(prefix)]:
                        del self._left[key]

            return drop

        cls.fail = ordering
        cls.clear_faults, cls.configure = dropping(cls.clear_faults), dropping(cls.configure)

    def take(self, call: str, code: int) -> bool:
        """Return whether this answer was ordered; it is not expected any more."""
        with self._lock:
            for name in (_base(call), call[:2] + "*"):
                if self._left[name, code] > 0:
                    self._left[name, code] -= 1
                    return True
        return False


#: What the names of a driver's functions begin with, by the driver's title.
_PREFIXES = {"CUDA": "cu", "Level Zero": "ze"}

#: Exported names for which headers, and with them cuda-python, have another one (cuda.h).
_SHORTER = {"cuGraphInstantiateWithFlags": "cuGraphInstantiate"}


def _unwatched(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as it was before it was watched.

    A test may start pytest: that watches for itself what the new process watched for the test.
    """
    return getattr(method, "__wrapped__", method)


def _base(name: str) -> str:
    """Return the name of a function as cuda-python has it: ``cuMemFree`` for ``cuMemFree_v2``."""
    return _SHORTER.get(name) or re.sub(r"_v\d+$", "", name)


class Log:
    """A file in which processes note what the driver refused them.

    It stays open: a process may have no descriptor left when it is refused something.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_APPEND)
        self._faults = Faults()

    def install(self) -> None:
        """Watch the classes that make driver calls: those that are here, and those to come."""
        watch, faults = self._watch, self._faults
        watchers: dict[str, Callable[[Any], None]] = {
            "umfpy.providers.cuda.driver": lambda module: watch(module.CudaDriver),
            "umfpy.providers.level_zero.driver": lambda module: watch(module.LevelZeroDriver),
            "umfpy.manager.cuda_calls": lambda module: watch(module.CudaCalls),
            "umfpy.providers.emulated.control": lambda module: faults.watch(module.EmulatedDriver),
        }
        for name in [name for name in watchers if name in sys.modules]:
            watchers.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, AfterImport(watchers))

    def _watch(self, cls: Any) -> None:
        original = _unwatched(cls._failed)

        @functools.wraps(original)
        def failed(driver: Any, call: str, result: int) -> Exception:
            error = original(driver, call, result)
            self._note(call, int(result), str(error))
            return error

        cls._failed = failed

    def _note(self, call: str, code: int, words: str) -> None:
        if (
            code in OUT_OF_MEMORY[call[:2]]
            or (call, code) in ANSWERS
            or self._faults.take(call, code)
        ):
            return
        stack = "".join(traceback.format_stack(limit=10)[:-2])
        line = json.dumps(Refusal(call, code, words, stack)) + "\n"
        os.write(self._file, line.encode())  # in one piece: other processes write too

    def collect(self) -> list[Refusal]:
        """Return what was refused since the last time."""
        size = os.fstat(self._file).st_size
        lines = os.pread(self._file, size, 0).splitlines()
        os.ftruncate(self._file, 0)
        return [Refusal(*json.loads(line)) for line in lines]


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module as soon as that was imported."""

    def __init__(self, watchers: dict[str, Callable[[Any], None]]) -> None:
        self._watchers = watchers

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        watcher = self._watchers.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path) if watcher else None
        if watcher and spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                watcher(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
