"""Handles and allocations through `multiprocessing`: queues, pipes, arguments of a Process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

from umfpy.core.pool import Allocation
from umfpy.ipc.descriptors import server_address
from umfpy.ipc.exports import export
from umfpy.ipc.handle import IpcHandle
from umfpy.ipc.opening import open_ipc
from umfpy.ipc.root_exports import find_export

#: What `pickle` wants of a reducer: a function, and its arguments at the other end.
Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def reduce_allocation(allocation: Allocation) -> Reduced:
    """Reduce an allocation for pickling: it arrives as an `IpcMapping` of the same memory."""
    return open_ipc, (export(allocation),)


def _reduce_handle(handle: IpcHandle) -> Reduced:
    return _receive, (bytes(handle), handle.sender or _sender_of(handle))


def _sender_of(handle: IpcHandle) -> bytes | None:
    """Where an importer gets the descriptors of a handle of this process, if there are any."""
    exported = find_export(handle.root.export_id)
    if exported is None or not exported.needs_descriptors():
        return None
    return server_address()


def _receive(data: bytes, sender: bytes | None) -> IpcHandle:
    return dataclasses.replace(IpcHandle.from_bytes(data), sender=sender)


ForkingPickler.register(IpcHandle, _reduce_handle)
ForkingPickler.register(Allocation, reduce_allocation)
