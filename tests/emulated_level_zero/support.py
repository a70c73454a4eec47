"""Calls through whatever is ``libze_loader.so.1`` here."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

LOADER = "libze_loader.so.1"
DRIVER = "umfpy.providers.emulated._libze_emulated"

SUCCESS, NOT_READY = 0, 1
DEVICE_LOST = 0x70000001
OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY = 0x70000002, 0x70000003
UNINITIALIZED, UNSUPPORTED_VERSION, UNSUPPORTED_FEATURE = 0x78000001, 0x78000002, 0x78000003
INVALID_ARGUMENT, INVALID_NULL_HANDLE, IN_USE = 0x78000004, 0x78000005, 0x78000006
INVALID_NULL_POINTER, INVALID_SIZE, UNSUPPORTED_SIZE = 0x78000007, 0x78000008, 0x78000009
UNSUPPORTED_ALIGNMENT, INVALID_SYNCHRONIZATION_OBJECT = 0x7800000A, 0x7800000B
INVALID_ENUMERATION, INVALID_COMMAND_LIST_TYPE = 0x7800000C, 0x78000019

HOST, DEVICE, SHARED = 1, 2, 3
NONE, READ_WRITE, READ_ONLY = 0, 1, 2
FOREVER = (1 << 64) - 1

Handle = ctypes.c_void_p


class Structure(ctypes.Structure):
    """Knows its own ``stype``; ``chain`` puts another one behind it."""

    stype_ = 0

    def __init__(self, chain: Structure | None = None, **values: Any) -> None:
        values.setdefault("stype", self.stype_)
        super().__init__(**values)
        self.chain = chain
        if chain is not None:
            self.pNext = ctypes.addressof(chain)


def _structure(name: str, stype: int, *fields: tuple[str, Any]) -> Any:
    head = (("stype", ctypes.c_uint32), ("pNext", ctypes.c_void_p))
    return type(name, (Structure,), {"stype_": stype, "_fields_": [*head, *fields]})


u32, u64, size_t = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
Uuid, Name = ctypes.c_uint8 * 16, ctypes.c_char * 256

DriverProperties = _structure("DriverProperties", 0x1, ("uuid", Uuid), ("driverVersion", u32))
IpcProperties = _structure("IpcProperties", 0x2, ("flags", u32))
FreePolicies = _structure("FreePolicies", 0x10009, ("freePolicies", u32))
DeviceProperties = _structure(
    "DeviceProperties",
    0x3,
    ("type", u32),
    ("vendorId", u32),
    ("deviceId", u32),
    ("flags", u32),
    ("subdeviceId", u32),
    ("coreClockRate", u32),
    ("maxMemAllocSize", u64),
    ("maxHardwareContexts", u32),
    ("maxCommandQueuePriority", u32),
    ("numThreadsPerEU", u32),
    ("physicalEUSimdWidth", u32),
    ("numEUsPerSubslice", u32),
    ("numSubslicesPerSlice", u32),
    ("numSlices", u32),
    ("timerResolution", u64),
    ("timestampValidBits", u32),
    ("kernelTimestampValidBits", u32),
    ("uuid", Uuid),
    ("name", Name),
)
ComputeProperties = _structure(
    "ComputeProperties", 0x4, ("maxTotalGroupSize", u32), ("rest", u32 * 16)
)
GroupProperties = _structure(
    "GroupProperties", 0x6, ("flags", u32), ("maxMemoryFillPatternSize", size_t), ("numQueues", u32)
)
MemoryProperties = _structure(
    "MemoryProperties",
    0x7,
    ("flags", u32),
    ("maxClockRate", u32),
    ("maxBusWidth", u32),
    ("totalSize", u64),
    ("name", Name),
)
AccessProperties = _structure(
    "AccessProperties",
    0x8,
    ("host", u32),
    ("device", u32),
    ("sharedSingle", u32),
    ("sharedCross", u32),
    ("system", u32),
)
CacheProperties = _structure("CacheProperties", 0x9, ("flags", u32), ("cacheSize", size_t))
P2pProperties = _structure("P2pProperties", 0xB, ("flags", u32))
ExternalProperties = _structure("ExternalProperties", 0xC, ("types", u32 * 4))
PciProperties = _structure("PciProperties", 0x10008, ("address", u32 * 4), ("rest", u64 * 2))
ContextDesc = _structure("ContextDesc", 0xD, ("flags", u32))
QueueDesc = _structure(
    "QueueDesc",
    0xE,
    ("ordinal", u32),
    ("index", u32),
    ("flags", u32),
    ("mode", u32),
    ("priority", u32),
)
ListDesc = _structure("ListDesc", 0xF, ("ordinal", u32), ("flags", u32))
PoolDesc = _structure("PoolDesc", 0x10, ("flags", u32), ("count", u32))
EventDesc = _structure("EventDesc", 0x11, ("index", u32), ("signal", u32), ("wait", u32))
FenceDesc = _structure("FenceDesc", 0x12, ("flags", u32))
DeviceAllocDesc = _structure("DeviceAllocDesc", 0x15, ("flags", u32), ("ordinal", u32))
HostAllocDesc = _structure("HostAllocDesc", 0x16, ("flags", u32))
AllocProperties = _structure("AllocProperties", 0x17, ("type", u32), ("id", u64), ("pageSize", u64))
PhysicalDesc = _structure("PhysicalDesc", 0x20, ("flags", u32), ("size", size_t))
FreeDesc = _structure("FreeDesc", 0x1000A, ("freePolicy", u32))
RelaxedLimits = _structure("RelaxedLimits", 0x20001, ("flags", u32))
InitTypes = _structure("InitTypes", 0x20021, ("flags", u32))


class Extension(ctypes.Structure):
    _fields_ = (("name", Name), ("version", u32))


class IpcHandle(ctypes.Structure):
    """64 bytes by value; the first four are a file descriptor's number."""

    _fields_ = (("data", ctypes.c_uint8 * 64),)

    @classmethod
    def of(cls, data: bytes, descriptor: int | None = None) -> IpcHandle:
        if descriptor is not None:
            data = descriptor.to_bytes(4, "little", signed=True) + data[4:]
        return cls.from_buffer_copy(data)

    @property
    def descriptor(self) -> int:
        return int.from_bytes(bytes(self)[:4], "little", signed=True)


class Ze:
    """``ze("zeMemFree", context, ptr)`` must succeed; ``ze.error`` answers the result's number.

    Integers go as 64 bits, which suits every integer parameter of these calling conventions.
    Functions that the loader is too old for are called in the driver itself.
    """

    def __init__(self) -> None:
        self.loader = ctypes.CDLL(LOADER)
        self.driver: Any = None

    def error(self, name: str, *arguments: Any) -> int:
        function = getattr(self.loader, name, None)
        if function is None:
            function = getattr(self._driver_itself(), name)
        function.restype = u32
        return int(function(*map(_pass, arguments)))

    def _driver_itself(self) -> Any:
        if self.driver is None:
            self.driver = ctypes.CDLL(os.environ["ZE_ENABLE_ALT_DRIVERS"])
        return self.driver

    def __call__(self, name: str, *arguments: Any) -> None:
        result = self.error(name, *arguments)
        assert result == SUCCESS, f"{name}{arguments} answered {result:#x}"

    def get(self, name: str, *arguments: Any, kind: Any = Handle) -> Any:
        """What a call writes through its last parameter."""
        answer = kind()
        self(name, *arguments, ctypes.byref(answer))
        return answer.value if hasattr(answer, "value") else answer

    def all(self, name: str, *arguments: Any, kind: Any = Handle) -> Any:
        """Everything that a query in two steps has."""
        count = u32()
        self(name, *arguments, ctypes.byref(count), None)
        answers = (kind * count.value)()
        if issubclass(kind, Structure):
            for answer in answers:
                answer.stype = kind.stype_
        self(name, *arguments, ctypes.byref(count), answers)
        assert count.value == len(answers)
        return list(answers)

    def begin(self) -> Ze:
        """Initialise, find the devices, make a context."""
        self("zeInit", 0)
        (self.handle,) = self.all("zeDriverGet")
        self.devices = self.all("zeDeviceGet", self.handle)
        self.context = self.get("zeContextCreate", self.handle, ContextDesc())
        return self

    def end(self) -> None:
        self("zeContextDestroy", self.context)

    # The calls that every test makes.

    def alloc(self, size: int, alignment: int = 0, device: int = 0, **desc: Any) -> int:
        where = self.devices[device]
        wanted = DeviceAllocDesc(**desc)
        return int(self.get("zeMemAllocDevice", self.context, wanted, size, alignment, where))

    def alloc_host(self, size: int, alignment: int = 0) -> int:
        return int(self.get("zeMemAllocHost", self.context, HostAllocDesc(), size, alignment))

    def alloc_shared(self, size: int, alignment: int = 0, device: int | None = 0) -> int:
        where = None if device is None else self.devices[device]
        descs = DeviceAllocDesc(), HostAllocDesc()
        return int(self.get("zeMemAllocShared", self.context, *descs, size, alignment, where))

    def free(self, *ptrs: int) -> None:
        for ptr in ptrs:
            self("zeMemFree", self.context, ptr)

    def properties(self, ptr: int) -> Any:
        """Type, id, page size, and the device's handle."""
        properties, device = AllocProperties(), Handle()
        out = properties, ctypes.byref(device)
        self("zeMemGetAllocProperties", self.context, ptr, *out)
        return properties.type, properties.id, properties.pageSize, device.value

    def immediate(self, mode: int = 1, device: int = 0, ordinal: int = 0) -> int:
        wanted = QueueDesc(mode=mode, ordinal=ordinal)
        where = self.devices[device]
        return int(self.get("zeCommandListCreateImmediate", self.context, where, wanted))

    def write(self, ptr: int, data: bytes) -> None:
        """Through a synchronous list of its own."""
        made = self.immediate()
        self("zeCommandListAppendMemoryCopy", made, ptr, data, len(data), None, 0, None)
        self("zeCommandListDestroy", made)

    def read(self, ptr: int, size: int) -> bytes:
        made, data = self.immediate(), ctypes.create_string_buffer(size)
        self("zeCommandListAppendMemoryCopy", made, data, ptr, size, None, 0, None)
        self("zeCommandListDestroy", made)
        return data.raw

    def export(self, ptr: int) -> IpcHandle:
        handle = self.get("zeMemGetIpcHandle", self.context, ptr, kind=IpcHandle)
        assert isinstance(handle, IpcHandle)
        return handle

    def open(self, handle: IpcHandle, device: int = 0) -> int:
        where = self.devices[device]
        return int(self.get("zeMemOpenIpcHandle", self.context, where, handle, 0))

    def close(self, *ptrs: int) -> None:
        for ptr in ptrs:
            self("zeMemCloseIpcHandle", self.context, ptr)

    def open_bytes(self, data: bytes, descriptor: int) -> int:
        """Open a handle that came from elsewhere, with the number its descriptor has here."""
        return self.open(IpcHandle.of(data, descriptor))


def _pass(argument: Any) -> Any:
    if isinstance(argument, int):
        return u64(argument)
    if isinstance(argument, Structure):
        return ctypes.byref(argument)
    return argument


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


def access_rights(address: int) -> str:
    """What the host may do at an address, as /proc/self/maps has it: "rw-p", "---p"."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, *_ = line.split()
        start, end = (int(part, 16) for part in where.split("-"))
        if start <= address < end:
            return rights
    return ""


def peer_names() -> dict[str, Any]:
    """What code in a second process finds: all of this module, and `ze` begun."""
    return {**globals(), "ze": Ze().begin()}
