"""Random programs against a small model: memory, exports, opens and residency, all together."""

from __future__ import annotations

import ctypes
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

import umfpy

PAGE, BIG = 64 << 10, 2 << 20
CAPACITY = 64 << 20


class Model(RuleBasedStateMachine):
    """What each address must hold, and how much of the device is used."""

    ze: Any
    z: Any

    live = Bundle("live")
    handles = Bundle("handles")
    opens = Bundle("opens")

    @initialize()
    def begin(self) -> None:
        self.emu = umfpy.emulate("level_zero", memory=CAPACITY, force=True, children=False)
        self.contents: dict[int, bytearray] = {}
        self.exported: dict[int, bytes] = {}
        self.mirrors: dict[int, tuple[int, bytes]] = {}
        self.resident: dict[int, int] = {}
        self.used = self.serial = 0

    def teardown(self) -> None:
        for ptr in list(self.mirrors):
            self.ze.close(ptr)
        for ptr in list(self.contents):
            self.ze.free(ptr)
        leaks = self.emu.leaks()
        assert set(leaks) == {"contexts"}

    @staticmethod
    def charge(size: int) -> int:
        page = PAGE if size < BIG else BIG
        return -(-size // page) * page

    @rule(target=live, size=st.sampled_from([1, PAGE, PAGE + 1, BIG - 1, BIG, 9 << 20]))
    def alloc(self, size: int) -> Any:
        out = self.z.Handle()
        arguments = self.z.DeviceAllocDesc(), size, 0, self.ze.devices[0], ctypes.byref(out)
        error = self.ze.error("zeMemAllocDevice", self.ze.context, *arguments)
        if self.used + self.charge(size) > CAPACITY:
            assert error == self.z.OUT_OF_DEVICE_MEMORY
            return multiple()
        assert error == 0
        assert out.value not in self.contents
        self.contents[out.value] = bytearray(size)
        self.used += self.charge(size)
        self.serial += 1
        mark = f"number {self.serial}".encode()[-min(size, 8) :]
        self.ze.write(out.value + size - len(mark), mark)
        self.contents[out.value][size - len(mark) :] = mark
        return out.value

    @rule(ptr=consumes(live))
    def free(self, ptr: int) -> None:
        self.ze.free(ptr)
        self.used -= self.charge(len(self.contents.pop(ptr)))
        self.exported.pop(ptr, None)
        self.resident.pop(ptr, None)

    @rule(ptr=live, at=st.floats(0, 1), data=st.binary(min_size=1, max_size=8))
    def write(self, ptr: int, at: float, data: bytes) -> None:
        size = len(self.contents[ptr])
        start = min(int(at * size), size - 1)
        data = data[: size - start]
        self.ze.write(ptr + start, data)
        self.contents[ptr][start : start + len(data)] = data

    @rule(target=handles, ptr=live)
    def keep_handle(self, ptr: int) -> Any:
        return self.export(ptr)

    def export(self, ptr: int) -> tuple[int, bytes]:
        handle = bytes(self.ze.export(ptr))
        assert self.exported.setdefault(ptr, handle) == handle
        return ptr, handle

    @rule(target=opens, pair=handles)
    def open_kept(self, pair: tuple[int, bytes]) -> Any:
        return self.open(pair)

    def open(self, pair: tuple[int, bytes]) -> Any:
        ptr, handle = pair
        out = self.z.Handle()
        ipc = self.z.IpcHandle.of(handle)
        arguments = self.ze.devices[0], ipc, 0, ctypes.byref(out)
        error = self.ze.error("zeMemOpenIpcHandle", self.ze.context, *arguments)
        if self.exported.get(ptr) != handle:
            assert error == self.z.INVALID_ARGUMENT
            return multiple()
        assert error == 0
        assert out.value not in self.mirrors
        self.mirrors[out.value] = pair
        return out.value

    @rule(ptr=consumes(opens))
    def close(self, ptr: int) -> None:
        self.ze.close(ptr)
        del self.mirrors[ptr]

    @rule(target=opens, ptr=live)
    def export_and_open(self, ptr: int) -> Any:
        return self.open((ptr, self.export(ptr)[1]))

    @rule(ptr=live)
    def make_resident(self, ptr: int) -> None:
        self.ze("zeContextMakeMemoryResident", self.ze.context, self.ze.devices[0], ptr, 1)
        self.resident[ptr] = self.resident.get(ptr, 0) + 1

    @rule(ptr=live)
    def evict(self, ptr: int) -> None:
        arguments = self.ze.context, self.ze.devices[0], ptr, 1
        error = self.ze.error("zeContextEvictMemory", *arguments)
        count = self.resident.get(ptr, 0)
        assert error == (0 if count else self.z.INVALID_ARGUMENT)
        self.resident[ptr] = max(count - 1, 0)

    @invariant()
    def agrees(self) -> None:
        for ptr, expected in self.contents.items():
            assert self.ze.read(ptr, min(len(expected), 64)) == expected[:64]
            assert self.emu.residency(ptr).get(0, 0) == self.resident.get(ptr, 0)
        for ptr, (source, handle) in self.mirrors.items():
            if self.exported.get(source) == handle:
                expected = self.contents[source]
                end = len(expected) - min(len(expected), 64)
                assert self.ze.read(ptr + end, len(expected) - end) == expected[end:]
        assert len(self.emu.leaks().get("allocations", [])) == len(self.contents)
        assert len(self.emu.leaks().get("exports", [])) == len(self.exported)


def test_random_programs(ze: Any, z: Any, emu: Any) -> None:
    machine = type("Machine", (Model,), {"ze": ze, "z": z})
    case = machine.TestCase
    case.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
    case("runTest").runTest()
    umfpy.emulate("level_zero", memory="1GiB", devices=2, force=True, children=False)
