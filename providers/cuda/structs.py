"""What the driver's opaque structs hold; not every version of the bindings has their fields."""

from __future__ import annotations

import ctypes
from typing import Any


def struct_bytes(struct: Any, size: int) -> bytes:
    """Return the `size` bytes of a struct of the bindings."""
    return ctypes.string_at(struct.getPtr(), size)


def filled(struct: Any, data: bytes) -> Any:
    """Return the struct, which now holds `data`."""
    ctypes.memmove(struct.getPtr(), data, len(data))
    return struct
