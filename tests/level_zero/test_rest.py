"""What Level Zero's providers give back in the end, and how they go on."""

from __future__ import annotations

import pytest

from umfpy import LevelZeroProvider, LevelZeroVmmProvider, leaving
from umfpy.providers.level_zero.constants import Result
from umfpy.providers.level_zero.context import Context
from umfpy.providers.level_zero.devices import all_devices
from umfpy.providers.level_zero.driver import LevelZeroDriver

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Nobody but the test's own providers is asked."""
    monkeypatch.setattr(leaving, "_holders", {})


def use(provider) -> None:
    """Allocate, write on the device, and free."""
    ptr = provider.alloc(2 * MIB)
    provider.zero(ptr, MIB)
    provider.copy(ptr, b"word", 4)
    seen = bytearray(4)
    provider.copy(seen, ptr, 4)
    assert seen == b"word"
    provider.free(ptr, 2 * MIB)


def test_a_context_comes_again_for_all_who_share_it(emu):
    providers = [LevelZeroProvider(0, resident_devices=[1]), LevelZeroVmmProvider(1)]
    for provider in providers:
        use(provider)
    emu.reset_calls()
    leaving.give_all_back()
    assert emu.calls["zeContextDestroy"] == 1
    assert not emu.leaks()
    for provider in providers:
        use(provider)
    assert emu.calls["zeContextCreate"] == 1
    assert providers[0].context == providers[1].context
    assert providers[0].resident_devices == (1,)
    for provider in providers:
        provider.close()
    assert not emu.leaks()


def test_live_memory_keeps_the_context_of_all(emu):
    holder, idle = LevelZeroProvider(), LevelZeroProvider()
    ptr = holder.alloc(MIB)
    use(idle)
    context = holder.context
    leaving.give_all_back()
    assert holder.context == idle.context == context
    assert set(emu.leaks()) == {"allocations", "contexts"}
    holder.free(ptr, MIB)
    leaving.give_all_back()
    assert not emu.leaks()
    for provider in (holder, idle):
        provider.close()


def test_open_memory_keeps_it_as_well(emu):
    exporter, importer = LevelZeroProvider(), LevelZeroProvider()
    ptr = exporter.alloc(4096)
    payload = exporter.ipc_export(ptr, 4096)
    opened = importer.ipc_open(payload)
    leaving.give_all_back()
    importer.copy(opened, b"word", 4)
    importer.ipc_close(opened, 4096)
    exporter.ipc_release(payload)
    exporter.free(ptr, 4096)
    leaving.give_all_back()
    assert not emu.leaks()
    for provider in (exporter, importer):
        provider.close()


def test_a_context_of_the_callers_stays(emu):
    driver = LevelZeroDriver()
    own = Context(driver, all_devices(driver)[0].driver)
    provider = LevelZeroProvider(0, context=own.handle)
    use(provider)
    emu.reset_calls()
    leaving.give_all_back()
    assert emu.calls["zeContextDestroy"] == 0
    use(provider)
    assert provider.context == own.handle
    provider.close()
    own.release()


@pytest.mark.parametrize("name", ["zeCommandListDestroy", "zeContextDestroy"])
def test_what_the_driver_refuses_is_given_back_by_close(emu, name):
    provider = LevelZeroProvider()
    use(provider)
    emu.fail(name, error=Result.ZE_RESULT_ERROR_UNKNOWN)
    leaving.give_all_back()
    assert emu.leaks()
    use(provider)
    provider.close()
    assert not emu.leaks()
