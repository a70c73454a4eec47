"""The control interface: counts, faults, the clock, leaks, setting up anew."""

import ctypes
import os

import pytest

import umfpy
from umfpy.errors import CapacityExceeded, DriverUnavailable, InvalidArgument, NotSupported
from umfpy.providers.emulated import level_zero_library


def test_calls_are_counted_by_name(ze, emu):
    ptr = ze.alloc(100)
    ze.free(ptr)
    assert dict(emu.calls) == {"zeMemAllocDevice": 1, "zeMemFree": 1}
    assert emu.calls["zeMemFreeExt"] == 0
    assert "zeModuleCreate" in emu.calls.known
    emu.reset_calls()
    assert dict(emu.calls) == {}
    with pytest.raises(KeyError):
        emu.calls["zeMemAllocate"]


def test_the_nth_call_fails_and_changes_nothing(ze, z, emu):
    emu.fail("zeMemAllocDevice", nth=2)
    emu.fail("zeMemFree", error=z.DEVICE_LOST, times=2)
    first = ze.alloc(100)
    arguments = z.DeviceAllocDesc(), 100, 0, ze.devices[0], ctypes.byref(z.Handle())
    error = ze.error("zeMemAllocDevice", ze.context, *arguments)
    assert error == z.OUT_OF_DEVICE_MEMORY
    assert len(emu.leaks()["allocations"]) == 1
    for _ in range(2):
        assert ze.error("zeMemFree", ze.context, first) == z.DEVICE_LOST
    ze.free(first)


@pytest.mark.parametrize("nth", range(1, 6))
def test_any_call_may_fail(ze, z, emu, nth):
    emu.fail("*", nth=nth, error=z.OUT_OF_HOST_MEMORY)
    failed = []
    for _ in range(6):
        failed.append(ze.error("zeDeviceGetStatus", ze.devices[0]))
    assert failed == [z.OUT_OF_HOST_MEMORY if i == nth - 1 else 0 for i in range(6)]


def test_mistakes_in_faults(emu):
    with pytest.raises(InvalidArgument, match="did you mean zeMemFree"):
        emu.fail("zeMemFre")
    with pytest.raises(InvalidArgument, match="nth must be a whole number from 1"):
        emu.fail("zeMemFree", nth=0)
    for _ in range(64):
        emu.fail("zeMemFree", nth=1000)
    with pytest.raises(CapacityExceeded):
        emu.fail("zeMemFree")


def test_the_clock_is_the_models(ze, emu):
    emu.reset_clock()
    ze.free(ze.alloc(1 << 20))
    assert 100 < emu.clock_us < 130
    emu.reset_clock()
    assert emu.clock_us == 0


def test_leaks_are_named(ze, z, emu):
    ptr, host, shared = ze.alloc(100), ze.alloc_host(50), ze.alloc_shared(25, device=1)
    opened = ze.open(ze.export(ptr))
    list_ = ze.immediate()
    queue = ze.get("zeCommandQueueCreate", ze.context, ze.devices[1], z.QueueDesc())
    fence = ze.get("zeFenceCreate", queue, z.FenceDesc())
    pool = ze.get("zeEventPoolCreate", ze.context, z.PoolDesc(count=1), 0, None)
    event = ze.get("zeEventCreate", pool, z.EventDesc())
    leaks = emu.leaks()
    assert {kind: (items[0].size, items[0].device) for kind, items in leaks.items()} == {
        "allocations": (100, 0),
        "host": (50, 0),
        "shared": (25, 1),
        "exports": (100, -1),
        "opens": (100, 0),
        "contexts": (0, -1),
        "queues": (0, 1),
        "lists": (0, 0),
        "fences": (0, 1),
        "event_pools": (0, -1),
        "events": (0, -1),
    }
    assert leaks["allocations"][0].address == ptr
    assert leaks["lists"][0].address == list_
    assert ze.error("zeContextDestroy", ze.context) == z.IN_USE
    for name, handle in [
        ("zeEventDestroy", event),
        ("zeEventPoolDestroy", pool),
        ("zeFenceDestroy", fence),
        ("zeCommandQueueDestroy", queue),
        ("zeCommandListDestroy", list_),
    ]:
        ze(name, handle)
    ze.close(opened)
    ze.free(ptr, host, shared)


def test_setting_up_anew(ze, z, emu):
    ptr = ze.alloc(100)
    with pytest.raises(InvalidArgument, match="alive are 1 allocations"):
        umfpy.emulate("level_zero", memory="2GiB", force=True, children=False)
    ze.free(ptr)
    again = umfpy.emulate("level_zero", memory="2GiB", devices=3, force=True, children=False)
    assert again is emu
    assert (emu.devices, emu.memory) == (3, 2 << 30)
    assert len(ze.all("zeDeviceGet", ze.handle)) == 3
    umfpy.emulate("level_zero", memory="1GiB", devices=2, force=True, children=False)


def test_a_driver_without_devices(ze, z, emu):
    umfpy.emulate("level_zero", devices=0, force=True, children=False)
    assert (emu.devices, emu.memory) == (0, 0)
    assert ze.all("zeDeviceGet", ze.handle) == []
    assert ze.error("zeDeviceGetStatus", ze.devices[0]) == z.INVALID_ARGUMENT
    out = ctypes.byref(z.Handle())
    error = ze.error("zeMemAllocHost", ze.context, z.HostAllocDesc(), 64, 0, out)
    assert error == 0
    ze.free(ctypes.cast(out, ctypes.POINTER(z.Handle)).contents.value)
    umfpy.emulate("level_zero", memory="1GiB", devices=2, force=True, children=False)
    assert len(ze.all("zeDeviceGet", ze.handle)) == 2


def test_a_devices_memory_can_change(ze, z, emu):
    emu.set_memory("8MiB", device=1)
    wanted, out = z.DeviceAllocDesc(), ctypes.byref(z.Handle())
    arguments = wanted, 16 << 20, 0, ze.devices[1], out
    assert ze.error("zeMemAllocDevice", ze.context, *arguments) == z.OUT_OF_DEVICE_MEMORY
    (memory,) = ze.all("zeDeviceGetMemoryProperties", ze.devices[1], kind=z.MemoryProperties)
    assert memory.totalSize == 8 << 20
    emu.set_memory("1GiB", device=1)
    with pytest.raises(InvalidArgument):
        emu.set_memory("1GiB", device=2)


def test_settings_that_make_no_sense(emu):
    for wrong in ({"memory": "1KiB"}, {"devices": -1}, {"devices": 17}):
        with pytest.raises(InvalidArgument):
            umfpy.emulate("level_zero", force=True, **wrong)
    with pytest.raises(NotSupported, match="cuda, level_zero"):
        umfpy.emulate("metal")
    assert "level" in repr(emu).lower()


def test_a_restored_environment_is_told_again(emu, monkeypatch):
    monkeypatch.delenv("ZE_ENABLE_ALT_DRIVERS", raising=False)

    umfpy.emulate("level_zero", memory="1GiB", devices=2, children=False, force=True)

    assert os.environ["ZE_ENABLE_ALT_DRIVERS"] == str(emu.library)


def test_the_loader_and_children_are_told_through_the_environment(emu, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "")
    assert os.environ["ZE_ENABLE_ALT_DRIVERS"] == str(emu.library)
    made = emu.preload_environment({"KEPT": "1"})
    assert made["KEPT"] == "1"
    assert made["ZE_ENABLE_ALT_DRIVERS"] == str(emu.library)
    assert "memory=1073741824;devices=2" in made["UMFPY_EMULATE_LEVEL_ZERO"]
    assert ("LD_PRELOAD" in made) is not emu.has_loader
    without = level_zero_library.environment(emu.library, "", False, {"LD_PRELOAD": "/other.so"})
    assert without["LD_PRELOAD"] == f"{emu.library}:/other.so"
    with pytest.raises(InvalidArgument, match="install umfpy elsewhere"):
        level_zero_library.environment(emu.library.parent / "a b.so", "", True, {})


def test_a_real_gpu_is_not_hidden_unless_asked(tmp_path):
    level_zero_library.refuse_beside_real_gpu(False, tmp_path)
    card = tmp_path / "renderD128" / "device"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x10de\n")
    level_zero_library.refuse_beside_real_gpu(False, tmp_path)
    (card / "vendor").write_text("0x8086\n")
    with pytest.raises(DriverUnavailable, match="renderD128"):
        level_zero_library.refuse_beside_real_gpu(False, tmp_path)
    level_zero_library.refuse_beside_real_gpu(True, tmp_path)


def test_system_management_is_refused_by_name(run):
    """Newer loaders call this entry without asking whether it is there."""
    code = """
driver = ze._driver_itself()
table = (Handle * 2)()
assert driver.zesGetGlobalProcAddrTable(1 << 16 | 10, table) == 0
init = ctypes.CFUNCTYPE(u32, u32)(table[0])
print(hex(init(0)), table[1])
"""
    result = run(code)
    assert result.stdout == "0x78000003 None\n", result.stderr
    assert "zesInit is not built" in result.stderr


def test_what_is_not_built_fails_by_name_once(run):
    code = """
results = [ze.error(name, *[None] * 5) for name in ["zeModuleCreate", "zeImageCreate"] * 2]
external = DeviceAllocDesc(_structure("Export", 0x18, ("flags", u32))(flags=2))
out = ctypes.byref(Handle())
results.append(ze.error("zeMemAllocDevice", ze.context, external, 64, 0, ze.devices[0], out))
print(set(results) <= {UNSUPPORTED_FEATURE, INVALID_NULL_HANDLE})
from ctypes import c_void_p
print(ze._driver_itself().zeKernelCreate(None, None, None) & 0xFFFFFFFF == UNSUPPORTED_FEATURE)
"""
    result = run("from support import _structure\n" + code)
    assert result.stdout == "True\nTrue\n", result.stderr
    assert result.stderr.count("zeKernelCreate is not built") == 1
    assert result.stderr.count("external memory") == 1
