"""Checks of what a provider says about itself and about addresses."""

from __future__ import annotations

from umfpy.provider import Capability, NativeError, check_complete
from umfpy.testing.registry import check
from umfpy.testing.requests import is_power_of_two
from umfpy.testing.subject import Subject, expect


@check("name, memory_type, device and granule say what they should")
def identity(subject: Subject) -> None:
    provider = subject.provider
    expect(bool(provider.name), "a name", repr(provider.name))
    types = ("device", "host", "managed", "shared")
    expect(provider.memory_type in types, f"memory_type one of {types}", provider.memory_type)
    expect(isinstance(provider.device, int), "device an int", repr(provider.device))
    expect(is_power_of_two(provider.granule), "granule a power of two", repr(provider.granule))


@check("every announced capability has its methods")
def complete(subject: Subject) -> None:
    provider = subject.provider
    kind = type(provider.capabilities)
    expect(kind is Capability, "capabilities a Capability", kind.__name__)
    check_complete(type(provider), provider.capabilities)


@check("properties of an address are a dict, also of a foreign one")
def properties(subject: Subject) -> None:
    ptr = subject.alloc(2 * subject.unit)
    for address in (ptr, ptr + subject.unit, ptr + 1, 64):
        found = subject.provider.properties(address)
        expect(isinstance(found, dict), f"properties({address:#x}) a dict", type(found).__name__)
        base = found.get("base", ptr) if address != 64 else ptr
        expect(base <= ptr, "the base of an interior address", f"{base:#x} beyond {ptr:#x}")


@check("memory_info is None, or free and total bytes")
def memory_info(subject: Subject) -> None:
    info = subject.provider.memory_info()
    if info is not None:
        free, total = info
        expect(0 <= free <= total, "0 <= free <= total", info)


@check("native_error is None or a NativeError")
def native_error(subject: Subject) -> None:
    error = subject.provider.native_error()
    kind = type(error).__name__
    expect(error is None or isinstance(error, NativeError), "None or a NativeError", kind)


@check("synchronize waits for all work and then returns", needs=Capability.STREAMS)
def synchronize(subject: Subject) -> None:
    subject.provider.synchronize()
    ptr = subject.alloc(subject.unit)
    if subject.has(Capability.ZERO):
        subject.provider.zero(ptr, subject.unit)
    subject.provider.synchronize()
