"""The control interface: counts, faults, clock, leaks, settings."""

import pytest

import umfpy
from umfpy.errors import CapacityExceeded, DriverUnavailable, InvalidArgument, NotSupported


def test_calls_are_counted_by_exported_name(cu, emu):
    assert emu.calls["cuMemAlloc_v2"] == 0
    cu("cuMemFree", cu.alloc(64))
    cu.error("cuMemFree", 12345)
    assert emu.calls["cuMemAlloc_v2"] == 1
    assert emu.calls["cuMemFree_v2"] == 2
    assert dict(emu.calls)["cuMemFree_v2"] == 2
    assert "cuMemHostAlloc" not in dict(emu.calls)
    emu.reset_calls()
    assert emu.calls["cuMemFree_v2"] == 0
    with pytest.raises(KeyError):
        emu.calls["cuMemAlloc"]


def test_the_nth_call_fails_and_changes_nothing(cu, emu):
    emu.fail("cuMemAlloc_v2", nth=3, error=2)
    pieces = [cu.alloc(64), cu.alloc(64)]
    free = cu("cuMemGetInfo")
    assert cu.error("cuMemAlloc", 64) == 2
    assert cu("cuMemGetInfo") == free
    pieces.append(cu.alloc(64))
    assert emu.calls["cuMemAlloc_v2"] == 4
    for piece in pieces:
        cu("cuMemFree", piece)


def test_several_faults_and_runs_of_them(cu, emu):
    emu.fail("cuMemGetInfo_v2", nth=1, error=999, times=2)
    emu.fail("cuMemGetInfo_v2", nth=4, error=700)
    answers = [cu.error("cuMemGetInfo") for _ in range(5)]
    assert answers == [999, 999, 0, 700, 0]
    emu.fail("cuMemGetInfo_v2", nth=2)
    emu.clear_faults()
    assert [cu.error("cuMemGetInfo") for _ in range(3)] == [0, 0, 0]


def test_a_fault_for_any_call(cu, emu):
    emu.fail("*", nth=2, error=2)
    address = cu.alloc(64)
    cu("cuGetErrorName", cu.driver.CUresult.CUDA_SUCCESS)  # look-ups do not count
    assert cu.error("cuMemFree", address) == 2
    cu("cuMemFree", address)


def test_faults_that_make_no_sense(emu):
    with pytest.raises(InvalidArgument, match="cuMemAlloc_v2"):
        emu.fail("cuMemAloc_v2")
    for name in ("nth", "times", "error"):
        for wrong in (0, "1", 1.5, True, [], 1 << 64):
            with pytest.raises(InvalidArgument, match=name) as caught:
                emu.fail("cuMemAlloc_v2", **{name: wrong})
            assert str(wrong) in str(caught.value)
    for wrong in (None, 5, b"cuMemAlloc_v2", ["cuMemAlloc_v2"]):
        with pytest.raises(InvalidArgument, match="name must be the name of a function"):
            emu.fail(wrong)
    for _ in range(64):
        emu.fail("cuMemAlloc_v2")
    with pytest.raises(CapacityExceeded):
        emu.fail("cuMemAlloc_v2")


def test_the_clock_shows_published_costs(cu, emu):
    assert emu.clock_us == 0
    address = cu.alloc(4096)
    assert emu.clock_us == pytest.approx(59)
    emu.reset_clock()
    cu("cuMemFree", address)
    assert emu.clock_us == pytest.approx(46)
    emu.reset_clock()
    cu("cuMemGetInfo")
    assert emu.clock_us == pytest.approx(6)


def test_a_free_waits_for_the_device(cu, emu):
    address, other = cu.alloc(64 << 20), cu.alloc(64)
    emu.reset_clock()
    cu("cuMemcpyHtoDAsync", address, bytes(64 << 20), 64 << 20, 0)
    assert emu.clock_us < 10
    cu("cuMemFree", other)
    assert emu.clock_us >= (64 << 20) / 25e3
    cu("cuMemFree", address)


@pytest.mark.parametrize(("chunk", "times"), [(2, 115), (128, 9), (512, 3)])
def test_small_chunks_cost_what_was_published(cu, emu, chunk, times):
    """2 GiB in chunks, against one allocation of 2 GiB; modelled on 1 GiB here, so half of both."""
    size, step = 1 << 30, chunk << 20
    space = int(cu("cuMemAddressReserve", size, 0, 0, 0))
    emu.reset_clock()
    for at in range(space, space + size, step):
        handle = cu("cuMemCreate", step, cu.properties(), 0)
        cu("cuMemMap", at, step, 0, handle, 0)
        cu("cuMemSetAccess", at, step, [cu.access()], 1)
        cu("cuMemRelease", handle)
    spent = emu.clock_us - size / step * 23  # without the releases
    one = 59 + 2048 * 0.27
    assert spent * 2 / one == pytest.approx(times, rel=0.15)
    cu("cuMemUnmap", space, size)
    cu("cuMemAddressFree", space, size)


def test_one_set_access_is_cheaper_than_many(cu, emu):
    size = 64 << 20
    space = int(cu("cuMemAddressReserve", size, 0, 0, 0))
    for at in range(space, space + size, 2 << 20):
        handle = cu("cuMemCreate", 2 << 20, cu.properties(), 0)
        cu("cuMemMap", at, 2 << 20, 0, handle, 0)
        cu("cuMemRelease", handle)
    emu.reset_clock()
    cu("cuMemSetAccess", space, size, [cu.access()], 1)
    once = emu.clock_us
    emu.reset_clock()
    for at in range(space, space + size, 2 << 20):
        cu("cuMemSetAccess", at, 2 << 20, [cu.access()], 1)
    assert emu.clock_us > 8 * once
    cu("cuMemUnmap", space, size)
    cu("cuMemAddressFree", space, size)


def test_leaks_say_what_where_and_how_large(cu, emu):
    assert not emu.leaks()
    address = cu.alloc(1000)
    stream = cu("cuStreamCreate", 0)
    leaks = emu.leaks()
    assert leaks["allocations"] == [umfpy.providers.emulated.LiveObject(address, 1000, 0)]
    assert leaks["streams"] == [(int(stream), 0, 0)]
    assert set(emu.live()) == {"allocations", "streams", "primary_contexts"}
    cu("cuMemFree", address)
    cu("cuStreamDestroy", stream)
    assert not emu.leaks()


def test_setting_up_anew_needs_everything_freed(cu, emu):
    address = cu.alloc(64)
    with pytest.raises(InvalidArgument, match="1 allocations"):
        umfpy.emulate("cuda", memory="2GiB", children=False)
    assert emu.memory == 1 << 30
    cu("cuMemFree", address)
    assert umfpy.emulate("cuda", memory="2GiB", devices=3, children=False) is emu
    assert (emu.memory, emu.devices) == (2 << 30, 3)
    assert cu("cuMemGetInfo") == (2 << 30, 2 << 30)


def test_a_device_with_a_context_cannot_go(cu, emu):
    cu("cuDevicePrimaryCtxRetain", 1)
    with pytest.raises(InvalidArgument, match="2 primary_contexts"):
        umfpy.emulate("cuda", devices=1, children=False)
    cu("cuDevicePrimaryCtxRelease", 1)
    umfpy.emulate("cuda", devices=1, children=False)


def test_memory_can_change_while_in_use(cu, emu):
    address = cu.alloc(1 << 20)
    emu.set_memory("4MiB")
    assert cu.error("cuMemAlloc", 4 << 20) == 2
    with pytest.raises(InvalidArgument):
        emu.set_memory(1 << 19)
    with pytest.raises(InvalidArgument):
        emu.set_memory("5GiB")
    emu.set_memory("4GiB")
    cu("cuMemFree", cu.alloc(3 << 30))
    cu("cuMemFree", address)


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": "1MiB"},
        {"memory": "17TiB"},
        {"memory": "much"},
        {"devices": 0},
        {"devices": 17},
        {"capability": "9"},
        {"capability": "9.x"},
    ],
)
def test_settings_that_make_no_sense(emu, wrong):
    with pytest.raises(InvalidArgument):
        umfpy.emulate("cuda", children=False, **wrong)


@pytest.mark.parametrize("wrong", ["0", None, 0.0, True, [], -1, 2, 1 << 40])
def test_memory_is_that_of_a_device(emu, wrong):
    with pytest.raises(InvalidArgument, match="device"):
        emu.set_memory("1GiB", wrong)


@pytest.mark.parametrize("driver", ["cuda", "level_zero"])
@pytest.mark.parametrize("name", ["report", "force", "children"])
@pytest.mark.parametrize("wrong", ["no", 0, 1, None, []])
def test_flags_are_flags(emu, driver, name, wrong):
    with pytest.raises(InvalidArgument) as caught:
        umfpy.emulate(driver, **{name: wrong})
    assert str(caught.value) == f"{name} must be True or False, not {wrong!r}"


@pytest.mark.parametrize("driver", ["cuda", "level_zero"])
@pytest.mark.parametrize("wrong", ["2", None, 2.0, True, [], 17, -1])
def test_devices_are_a_number(emu, driver, wrong):
    with pytest.raises(InvalidArgument, match="devices must be a whole number from ") as caught:
        umfpy.emulate(driver, devices=wrong)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("wrong", [9.0, None, 9, b"9.0", "9"])
def test_a_capability_is_text(emu, wrong):
    with pytest.raises(InvalidArgument, match=r"capability must look like 9\.0, not ") as caught:
        umfpy.emulate("cuda", capability=wrong)
    assert repr(wrong) in str(caught.value)


def test_other_drivers_are_not_built(emu):
    with pytest.raises(NotSupported, match="there is: cuda"):
        umfpy.emulate("metal")


def test_a_real_driver_in_the_process_is_not_shadowed(emu, monkeypatch, tmp_path):
    from umfpy.providers.emulated import library

    real = tmp_path / "libcuda.so.1"
    monkeypatch.setattr(library, "loaded_libraries", lambda: {emu.library, real})
    with pytest.raises(DriverUnavailable, match="already loaded"):
        library.refuse_beside_real_driver(emu.library)


def test_a_real_gpu_is_not_shadowed_unless_forced(monkeypatch, tmp_path):
    from umfpy.providers.emulated import library

    monkeypatch.setattr(library, "GPU_SIGNS", (tmp_path,))
    with pytest.raises(DriverUnavailable, match="force=True"):
        library.refuse_beside_real_gpu(force=False)
    library.refuse_beside_real_gpu(force=True)


def test_spawned_children_run_on_an_emulated_driver_too(run, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
import multiprocessing
import umfpy

def memory():
    from cuda.bindings import driver
    driver.cuInit(0)
    return int(driver.cuDeviceTotalMem(0)[1])

if __name__ == "__main__":
    umfpy.emulate("cuda", memory="3GiB")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(memory))
"""
    )
    result = run(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')", False)
    assert result.stdout.strip() == str(3 << 30), result.stderr


def test_children_can_be_left_alone(run):
    result = run(
        """
import os, umfpy
umfpy.emulate("cuda", children=False)
assert "LD_PRELOAD" not in os.environ
umfpy.emulate("cuda")
assert os.environ["UMFPY_EMULATE_CUDA"].startswith("memory=17179869184;devices=1;")
""",
        preload=False,
    )
    assert result.returncode == 0, result.stderr


def test_the_example_of_the_package(run):
    """It is the first thing that a reader of the package sees: it starts from nothing."""
    result = run(
        """
import doctest, umfpy.providers.emulated
failed, tried = doctest.testmod(umfpy.providers.emulated)
assert tried and not failed
""",
        preload=False,
    )
    assert result.returncode == 0, result.stdout
