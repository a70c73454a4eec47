"""What the CUDA driver knows of an address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from umfpy.providers.cuda.driver import CudaDriver

#: umfpy's name for each attribute of CUpointer_attribute (cuda.h).
_ATTRIBUTES: Mapping[str, str] = {
    "memory_type": "CU_POINTER_ATTRIBUTE_MEMORY_TYPE",
    "context": "CU_POINTER_ATTRIBUTE_CONTEXT",
    "device": "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL",
    "base": "CU_POINTER_ATTRIBUTE_RANGE_START_ADDR",
    "size": "CU_POINTER_ATTRIBUTE_RANGE_SIZE",
    "buffer_id": "CU_POINTER_ATTRIBUTE_BUFFER_ID",
    "managed": "CU_POINTER_ATTRIBUTE_IS_MANAGED",
}

#: CUmemorytype (cuda.h); 0 stands for memory that the driver does not know.
_MEMORY_TYPES = {1: "host", 2: "device", 3: "array", 4: "unified"}


def pointer_properties(driver: CudaDriver, ptr: int) -> dict[str, Any]:
    """Return the attributes of an address, {} for foreign ones: cuPointerGetAttributes."""
    names = driver.bindings.CUpointer_attribute
    attributes = [getattr(names, name) for name in _ATTRIBUTES.values()]
    values = driver.call("cuPointerGetAttributes", len(attributes), attributes, ptr)
    found = {key: int(value) for key, value in zip(_ATTRIBUTES, values, strict=True)}
    kind = found["memory_type"]
    if not kind:
        return {}
    managed = bool(found["managed"])
    name = "managed" if managed else _MEMORY_TYPES.get(kind, str(kind))
    return found | {"memory_type": name, "managed": managed}
