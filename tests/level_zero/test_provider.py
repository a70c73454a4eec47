"""LevelZeroProvider on emulated devices: devices, calls, alignment, policies, out of memory."""

from __future__ import annotations

import gc
import threading

import pytest

import umfpy
from tests.fakes.programs import run_python
from umfpy.errors import DriverError, InvalidArgument, NotSupported, OutOfMemoryError
from umfpy.providers.level_zero import LevelZeroProvider, LevelZeroVmmProvider, library
from umfpy.providers.level_zero import base as base_module
from umfpy.providers.level_zero.constants import Result
from umfpy.providers.level_zero.context import Context
from umfpy.providers.level_zero.devices import all_devices
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.kinds import Source

KINDS = ["device", "host", "shared"]
TAKE = {"device": "zeMemAllocDevice", "host": "zeMemAllocHost", "shared": "zeMemAllocShared"}
MIB = 1 << 20


@pytest.fixture(params=KINDS)
def provider(emu, request):
    provider = LevelZeroProvider(0, request.param)
    yield provider
    provider.close()


@pytest.fixture
def device(emu):
    provider = LevelZeroProvider()
    yield provider
    provider.close()


def test_a_device_by_index_name_and_uuid(emu):
    devices = all_devices(LevelZeroDriver())
    assert [each.index for each in devices] == [0, 1, 2]
    assert len({each.uuid for each in devices}) == 3
    for each in devices:
        dashed = f"{each.uuid[:8]}-{each.uuid[8:12]}-{each.uuid[12:]}".upper()
        for wanted in (each.index, each.uuid, dashed):
            provider = LevelZeroProvider(wanted)
            assert provider.device == each.index
            assert provider.ipc_scope() == each.uuid
            provider.close()


def test_a_device_by_its_name_if_only_one_has_it(emu, monkeypatch):
    found = all_devices(LevelZeroDriver())
    one = found[1]
    named = [*found[:1], type(one)(1, one.driver, one.handle, "Second", one.uuid, MIB), *found[2:]]
    monkeypatch.setattr(base_module, "all_devices", lambda driver: named)
    provider = LevelZeroProvider("Second")
    assert provider.device == 1
    provider.close()
    with pytest.raises(InvalidArgument, match=r"2 Level Zero devices are .*; there are 0: .*2: "):
        LevelZeroProvider(found[0].name)


@pytest.mark.parametrize("wanted", [3, -1, "no such device", "00" * 16])
def test_a_wrong_device_is_told_what_there_is(emu, wanted):
    uuid = all_devices(LevelZeroDriver())[2].uuid
    for make in (LevelZeroProvider, LevelZeroVmmProvider):
        with pytest.raises(InvalidArgument, match=f"no Level Zero device is {wanted!r}.*{uuid}"):
            make(wanted)


def test_53_what_is_missing_twice_or_superfluous_is_refused(emu):
    with pytest.raises(InvalidArgument, match="no ze_context_handle_t"):
        LevelZeroProvider(context=0)
    for kind in ("device", "shared"):
        with pytest.raises(InvalidArgument, match=f"{kind} memory needs a device"):
            LevelZeroProvider(None, kind)
        with pytest.raises(InvalidArgument, match=r"is on Level Zero device 0 .* itself"):
            LevelZeroProvider(0, kind, resident_devices=[0])
    with pytest.raises(InvalidArgument, match=r"device 1 .* is a resident device already"):
        LevelZeroProvider(0, resident_devices=[1, 2, 1])
    with pytest.raises(InvalidArgument, match="no ordinal"):
        LevelZeroProvider(0, "host", ordinal=1)
    with pytest.raises(InvalidArgument, match="none of ordinal 7"):
        LevelZeroProvider(0, ordinal=7)
    with pytest.raises(InvalidArgument, match="one of 'device', 'host', 'shared'"):
        LevelZeroProvider(0, "managed")
    with pytest.raises(InvalidArgument, match="'default', 'blocking', 'deferred'"):
        LevelZeroProvider(0, free_policy="never")
    host = LevelZeroProvider(None, "host", resident_devices=[0])
    assert (host.device, host.resident_devices) == (-1, (0,))
    host.close()


def test_53_every_ordinal_allocates(emu):
    provider = LevelZeroProvider()
    ordinals = len(provider._memory_sizes)
    provider.close()
    assert ordinals >= 1
    for ordinal in range(ordinals):
        provider = LevelZeroProvider(ordinal=ordinal)
        ptr = provider.alloc(MIB)
        provider.zero(ptr, MIB)
        provider.free(ptr, MIB)
        provider.close()


@pytest.mark.parametrize("kind", KINDS)
def test_which_calls_and_what_the_driver_says_then(emu, kind):
    provider = LevelZeroProvider(1, kind)
    page = provider.granularity()
    emu.reset_calls()
    ptr = provider.alloc(MIB)
    found = provider.properties(ptr + 1000)
    assert (found["base"], found["memory_type"], found["page_size"]) == (ptr, kind, page)
    assert found["size"] >= MIB
    assert found["device"] == provider.device == (-1 if kind == "host" else 1)
    other = provider.alloc(MIB)
    assert provider.properties(other)["buffer_id"] != found["buffer_id"]
    assert provider.properties(id(provider)) == provider.properties(0) == {}
    provider.free(other, MIB)
    provider.free(ptr, MIB)
    assert (emu.calls[TAKE[kind]], emu.calls["zeMemFree"]) == (2, 2)
    provider.close()


def test_granularity_is_asked_once_and_leaves_nothing(provider, emu):
    emu.reset_calls()
    assert provider.granularity() == provider.granularity(1 << 30)
    take = TAKE[provider.memory_type]
    assert (emu.calls[take], emu.calls["zeMemFree"]) == (1, 1)
    best = provider.granularity() if provider.memory_type == "host" else 2 * MIB
    assert provider.recommended_granularity() == best
    assert provider.recommended_granularity(64 * MIB) == best
    assert provider.recommended_granularity(4096) == provider.granularity()


def test_a_page_that_is_none_is_a_driver_error(device, emu, monkeypatch):
    name = "umfpy.providers.level_zero.provider.allocation_properties"
    monkeypatch.setattr(name, lambda *arguments: None)
    with pytest.raises(DriverError, match="a page cannot have 0 bytes"):
        device.granularity()


def test_alignment_is_the_drivers(provider, emu):
    emu.reset_calls()
    ptrs = [provider.alloc(1000, alignment) for alignment in (1, 64, 4096, 4 * MIB, 64 * MIB)]
    assert emu.calls[TAKE[provider.memory_type]] == len(ptrs)
    assert ptrs[0] % provider.granule == 0
    assert ptrs[-1] % (64 * MIB) == 0
    for ptr in ptrs:
        assert provider.properties(ptr)["base"] == ptr
        provider.free(ptr, 1000)


def test_an_alignment_that_the_driver_does_not_know(provider, emu):
    emu.fail(TAKE[provider.memory_type], error=Result.ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT)
    emu.reset_calls()
    ptr = provider.alloc(1000, 16 * MIB)
    assert ptr % (16 * MIB) == 0
    found = provider.properties(ptr)
    assert found["base"] <= ptr
    assert found["base"] + found["size"] >= ptr + 1000
    assert found["size"] >= 1000 + 16 * MIB
    provider.free(ptr, 1000)
    assert emu.calls["zeMemFree"] == 1


def test_an_address_that_is_not_aligned_is_given_back(device, emu, monkeypatch):
    original = Source.take
    monkeypatch.setattr(
        Source, "take", lambda source, size, alignment: original(source, size, min(alignment, 4096))
    )
    blocker = device.alloc(4096)
    emu.reset_calls()
    ptr = device.alloc(1000, 512 * MIB)
    assert ptr % (512 * MIB) == 0
    given_back = emu.calls["zeMemFree"]
    assert emu.calls["zeMemAllocDevice"] == given_back + 1
    device.free(ptr, 1000)
    device.free(blocker, 4096)


@pytest.mark.refuses("zeMemAllocDevice", Result.ZE_RESULT_ERROR_UNSUPPORTED_SIZE)
def test_above_the_usual_limit_with_relaxed_limits(device, emu, monkeypatch):
    """Without the descriptor the driver refuses, with it the memory is there."""
    limit = all_devices(LevelZeroDriver())[0].max_alloc_bytes
    assert limit < 4 << 30, "the emulated device has to have a limit below its memory"
    ptr = device.alloc(limit + MIB)
    device.free(ptr, limit + MIB)
    monkeypatch.setattr("umfpy.providers.level_zero.kinds._relax", lambda description: None)
    with pytest.raises(OutOfMemoryError, match="ZE_RESULT_ERROR_UNSUPPORTED_SIZE"):
        device.alloc(limit + MIB)


@pytest.mark.parametrize("kind", ["host", "shared"])
def test_relaxed_limits_for_the_other_kinds(emu, kind):
    limit = all_devices(LevelZeroDriver())[0].max_alloc_bytes
    provider = LevelZeroProvider(0, kind)
    ptr = provider.alloc(limit + MIB)
    provider.free(ptr, limit + MIB)
    provider.close()


@pytest.mark.parametrize(
    ("policy", "call"),
    [("default", "zeMemFree"), ("blocking", "zeMemFreeExt"), ("deferred", "zeMemFreeExt")],
)
def test_free_policies(emu, policy, call):
    provider = LevelZeroProvider(0, free_policy=policy)
    ptr = provider.alloc(MIB)
    emu.reset_calls()
    provider.free(ptr, MIB)
    assert emu.calls[call] == 1
    assert emu.calls["zeMemFree"] + emu.calls["zeMemFreeExt"] == 1
    with pytest.raises(InvalidArgument):
        provider.free(ptr, MIB)
    provider.close()


def test_a_policy_that_the_driver_lacks(emu, monkeypatch):
    monkeypatch.setattr("umfpy.providers.level_zero.freeing._known_policies", lambda *a: 0)
    with pytest.raises(NotSupported, match="no blocking free"):
        LevelZeroProvider(0, free_policy="blocking")


def test_out_of_memory_says_what_the_device_has(device):
    with pytest.raises(OutOfMemoryError, match=f"{4 << 30} bytes in all") as caught:
        device.alloc(5 << 30)
    assert caught.value.requested == 5 << 30
    assert caught.value.provider == "level_zero"
    error = device.native_error()
    assert error.call == "zeMemAllocDevice"
    assert error.code in (
        Result.ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        Result.ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
    )
    assert error.name.startswith("ZE_RESULT_ERROR_")


def test_a_full_device_takes_again_what_was_freed(device):
    taken = [device.alloc(512 * MIB) for _ in range(8)]
    with pytest.raises(OutOfMemoryError, match="out of device memory"):
        device.alloc(512 * MIB)
    device.free(taken.pop(), 512 * MIB)
    taken.append(device.alloc(512 * MIB))
    for ptr in taken:
        device.free(ptr, 512 * MIB)


def test_a_pool_gives_back_what_it_keeps_before_it_fails(device, emu):
    pool = umfpy.Pool(device)
    first = [pool.allocate(512 * MIB) for _ in range(6)]
    first.clear()
    large = pool.allocate(3584 * MIB)
    with pytest.raises(OutOfMemoryError) as caught:
        pool.allocate(1024 * MIB)
    assert caught.value.requested == 1024 * MIB
    assert caught.value.used == 3584 * MIB
    large.free()
    pool.allocate(1024 * MIB).free()
    pool.close()


@pytest.mark.parametrize("which", ["host", "device"])
def test_out_of_host_and_of_device_memory_are_told_apart(provider, emu, which):
    code = Result[f"ZE_RESULT_ERROR_OUT_OF_{which.upper()}_MEMORY"]
    emu.fail(TAKE[provider.memory_type], error=code)
    with pytest.raises(OutOfMemoryError, match=f"{code.name} .*out of {which} memory"):
        provider.alloc(MIB)
    assert provider.native_error().code == code
    assert provider.live_count() == 0


def test_sizes_near_the_end_of_the_address_space_reach_no_driver(provider, emu):
    emu.reset_calls()
    for size in (1 << 63, (1 << 64) - 1, (1 << 64) + MIB):
        with pytest.raises(OutOfMemoryError):
            provider.alloc(size)
    assert not set(TAKE.values()) & set(emu.calls)


def test_other_errors_have_their_name(device, emu):
    emu.fail("zeMemAllocDevice", error=Result.ZE_RESULT_ERROR_DEVICE_LOST)
    with pytest.raises(DriverError, match="zeMemAllocDevice failed with ZE_RESULT_ERROR_DEVICE_LO"):
        device.alloc(MIB)
    emu.fail("zeMemAllocDevice", error=0x7ABC)
    with pytest.raises(DriverError, match="ze_result_t 0x7abc"):
        device.alloc(MIB)


def test_the_drivers_words_are_in_the_error(device, emu, monkeypatch):
    def describe(driver, text):
        assert driver == device._device.driver
        text._obj.value = b" the third bank is on fire \n"
        return 0

    monkeypatch.setitem(device._driver._functions, "zeDriverGetLastErrorDescription", describe)
    emu.fail("zeMemAllocDevice", nth=1, error=Result.ZE_RESULT_ERROR_UNKNOWN)
    with pytest.raises(DriverError, match=r": the third bank is on fire$"):
        device.alloc(MIB)
    assert device.native_error().message == "the third bank is on fire"
    emu.fail("zeMemAllocDevice", nth=1, error=Result.ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
    with pytest.raises(OutOfMemoryError, match="out of host memory: the third bank is on fire"):
        device.alloc(MIB)


def test_native_errors_are_per_thread(device, emu):
    emu.fail("zeMemAllocDevice", error=Result.ZE_RESULT_ERROR_UNKNOWN)
    with pytest.raises(DriverError):
        device.alloc(MIB)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(device.native_error()))
    thread.start()
    thread.join()
    assert seen == [None]
    assert device.native_error().code == Result.ZE_RESULT_ERROR_UNKNOWN


def test_all_providers_share_one_context(emu):
    emu.reset_calls()
    providers = [LevelZeroProvider(0, kind) for kind in KINDS] + [LevelZeroVmmProvider(1)]
    assert len({provider.context for provider in providers}) == 1
    assert emu.calls["zeContextCreate"] == 1
    for provider in providers:
        assert emu.calls["zeContextDestroy"] == 0
        provider.close()
        provider.close()
    assert emu.calls["zeContextDestroy"] == 1


def test_a_context_of_the_callers_stays_the_callers(emu):
    driver = LevelZeroDriver()
    own = Context(driver, all_devices(driver)[0].driver)
    emu.reset_calls()
    provider = LevelZeroProvider(0, context=own.handle)
    ptr = provider.alloc(MIB)
    assert provider.properties(ptr)["context"] == provider.context == own.handle
    provider.free(ptr, MIB)
    provider.close()
    assert emu.calls["zeContextCreate"] == emu.calls["zeContextDestroy"] == 0
    own.release()
    assert emu.calls["zeContextDestroy"] == 1


def test_the_context_stays_for_live_memory(emu):
    provider = LevelZeroProvider()
    ptr = provider.alloc(MIB)
    emu.reset_calls()
    provider.close()
    with pytest.raises(InvalidArgument, match="closed"):
        provider.alloc(MIB)
    assert emu.calls["zeContextDestroy"] == 0
    provider.free(ptr, MIB)
    assert emu.calls["zeContextDestroy"] == 1


def test_a_dropped_provider_releases_its_context(emu):
    emu.reset_calls()
    LevelZeroProvider()
    gc.collect()
    assert emu.calls["zeContextDestroy"] == 1


def test_a_dropped_provider_gives_back_what_it_could_not_before(emu):
    provider = LevelZeroProvider()
    emu.fail("zeMemFree", error=Result.ZE_RESULT_ERROR_UNKNOWN)
    provider.granularity()
    assert emu.leaks()["allocations"]
    del provider
    gc.collect()
    assert "allocations" not in emu.leaks()


DROPPED = """
import gc, umfpy
emu = umfpy.emulate("level_zero", memory="1GiB")
exporter, importer = umfpy.LevelZeroProvider(), umfpy.LevelZeroProvider()
ptr = exporter.alloc(4096)
opened = importer.ipc_open(exporter.ipc_export(ptr, 4096))
del importer
gc.collect()
exporter.copy(opened, b"alive", 5)
seen = bytearray(5)
exporter.copy(seen, ptr, 5)
exporter.free(ptr, 4096)
exporter.close()
print(seen.decode(), *emu.leaks())
"""


def test_a_dropped_provider_leaves_memory_open_that_nobody_has_closed():
    """And so the context, as with allocations: somebody may still have the address."""
    assert run_python(DROPPED) == "alive opens contexts"


def test_close_can_be_tried_again(emu):
    provider = LevelZeroProvider()
    ptr = provider.alloc(MIB)
    provider.zero(ptr, MIB)
    provider.free(ptr, MIB)
    for name in ("zeCommandListDestroy", "zeContextDestroy"):
        emu.fail(name, error=Result.ZE_RESULT_ERROR_UNKNOWN)
        with pytest.raises(DriverError, match=name):
            provider.close()
    provider.close()


def test_initialised_twice_is_initialised_once(emu):
    assert library.load() is library.load()
    before = emu.calls["zeInit"]
    LevelZeroProvider().close()
    assert emu.calls["zeInit"] == before


def test_umfpy_shows_both():
    assert umfpy.LevelZeroProvider is LevelZeroProvider
    assert umfpy.LevelZeroVmmProvider is LevelZeroVmmProvider


@pytest.mark.parametrize("wanted", [1.5, True, None, [], b"0", "0"])
def test_what_is_no_device_is_told_what_is(emu, wanted):
    provider = LevelZeroProvider()
    calls = (LevelZeroProvider, LevelZeroVmmProvider, provider.add_resident_device)
    for call in calls:
        with pytest.raises(InvalidArgument, match=r"an index as a number|needs a device"):
            call(wanted)
    with pytest.raises(InvalidArgument, match="an index as a number"):
        LevelZeroProvider(resident_devices=[wanted])
    provider.close()


@pytest.mark.parametrize("wrong", [1, None, "1", 1.5])
def test_resident_devices_are_a_list(emu, wrong):
    with pytest.raises(InvalidArgument, match=f"must be a list of devices, not {wrong!r}"):
        LevelZeroProvider(resident_devices=wrong)


@pytest.mark.parametrize("wrong", ["0", None, 0.5, True, [], -1])
def test_an_ordinal_is_a_number(emu, wrong):
    with pytest.raises(InvalidArgument, match="ordinal must be a whole number from 0 on"):
        LevelZeroProvider(ordinal=wrong)


@pytest.mark.parametrize("wrong", [None, [], {}, "never"])
def test_words_are_words(emu, wrong):
    for keyword in ("memory_type", "free_policy"):
        with pytest.raises(InvalidArgument, match=f"{keyword} must be one of"):
            LevelZeroProvider(0, **{keyword: wrong})


@pytest.mark.parametrize("wrong", ["x", 1.5, True, [], 0, -1])
def test_a_context_is_a_handle(emu, wrong):
    for make in (LevelZeroProvider, LevelZeroVmmProvider):
        with pytest.raises(InvalidArgument, match="is no ze_context_handle_t"):
            make(context=wrong)
