"""The contenders, and how to open those that are here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from umfpy.bench.absent import Absent
from umfpy.bench.contenders.base import Contender, NativePool, PythonPool
from umfpy.bench.contenders.gpu import CUPY, RMM, TORCH
from umfpy.bench.contenders.opencl import BUFFERS, SVM
from umfpy.bench.contenders.own import EMPTY, UMFPY
from umfpy.bench.contenders.umf import UMF, UMF_POOLING

#: To add one, add a line.
CONTENDERS: Mapping[str, Contender] = {
    contender.name: contender
    for contender in (UMFPY, EMPTY, UMF, UMF_POOLING, BUFFERS, SVM, CUPY, RMM, TORCH)
}
#: Always taking part: what is measured, and the yardstick that any machine has.
ALWAYS = ("umfpy", "empty")


def chosen(names: Collection[str] | None) -> list[Contender]:
    """Return the contenders of these names, or all; umfpy is always one."""
    return [
        contender
        for contender in CONTENDERS.values()
        if names is None or contender.name in names or contender.name in ALWAYS
    ]


@contextmanager
def python_pools(
    names: Collection[str] | None, absent: dict[str, str]
) -> Iterator[dict[str, PythonPool]]:
    """Open the pools for Python loops; note in `absent` why others are not there."""
    pools: dict[str, PythonPool] = {}
    with ExitStack() as stack:
        for contender in chosen(names):
            if contender.python is None:
                continue
            try:
                pools[contender.name] = pool = contender.python()
            except Absent as reason:
                absent[contender.name] = str(reason)
            else:
                stack.callback(pool.close)
        yield pools


@contextmanager
def native_pools(
    names: Collection[str] | None, absent: dict[str, str], *, largest: int
) -> Iterator[dict[str, NativePool]]:
    """Open the pools for the C loop; note in `absent` why others are not there.

    `largest` is the size of the largest block to come, in bytes: variants of a contender that
    differ only above it are left out.
    """
    pools: dict[str, NativePool] = {}
    with ExitStack() as stack:
        for contender in chosen(names):
            if contender.native is None or 0 < largest <= contender.differs_above:
                continue
            try:
                pools[contender.name] = pool = contender.native()
            except Absent as reason:
                absent[contender.name] = str(reason)
            else:
                stack.callback(pool.close)
        yield pools
