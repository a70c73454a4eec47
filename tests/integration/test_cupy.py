"""CuPy itself on umfpy's pools; no kernel runs, and no GPU is needed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import umfpy
from tests.fakes.programs import assert_silent, run_program
from tests.fakes.provider import FakeProvider
from umfpy import Capability, InvalidArgument, OutOfMemoryError, Pool, ProxyPool
from umfpy.integrations import cupy as plugin
from umfpy.trace import Recorder, TraceWriter

cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ModuleNotFoundError)
CupyOutOfMemoryError = pytest.importorskip("umfpy.integrations.cupy_errors").CupyOutOfMemoryError

MIB = 1 << 20


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(FakeProvider(capabilities=Capability.STREAMS, device=3, capacity=64 * MIB))
    yield made
    assert made.stats().live_allocations == 0
    made.check("full")


@pytest.fixture
def installed(pool: Pool) -> Iterator[Pool]:
    plugin.install(pool)
    yield pool
    plugin.uninstall()


def owner_of_a_new_array() -> object:
    array = cupy.empty(10)
    return umfpy.find(array.data.ptr).pool


def test_arrays_come_from_the_pool_and_go_back(installed: Pool) -> None:
    # when
    array = cupy.empty(1000, dtype="float32")

    # then
    info = umfpy.find(array.data.ptr)
    assert (info.pool, info.size, info.offset) == (installed, 4000, 0)
    assert array.data.mem.device_id == 3
    del array
    assert installed.stats().live_allocations == 0


def test_what_was_there_before_comes_back(pool: Pool) -> None:
    before = cupy.cuda.get_allocator()
    plugin.uninstall()  # nothing to undo
    plugin.install(pool)
    second = ProxyPool(FakeProvider())
    plugin.install(second)
    assert owner_of_a_new_array() is second

    plugin.uninstall()
    assert owner_of_a_new_array() is pool
    plugin.uninstall()
    assert cupy.cuda.get_allocator() == before


def test_somebody_elses_allocator_is_not_thrown_away(pool: Pool) -> None:
    plugin.install(pool)
    ours = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(lambda size: None)
    with pytest.raises(InvalidArgument, match="set_allocator"):
        plugin.uninstall()
    cupy.cuda.set_allocator(ours)
    plugin.uninstall()


def test_using_is_for_one_thread(installed: Pool) -> None:
    # given
    other = Pool(FakeProvider())
    seen = []

    def elsewhere() -> None:
        seen.append(owner_of_a_new_array())

    # when
    with plugin.using(other):
        inside = owner_of_a_new_array()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with pytest.raises(InvalidArgument):
            plugin.install(other)
        with pytest.raises(InvalidArgument):
            plugin.uninstall()

    # then
    assert (inside, seen) == (other, [installed])
    assert owner_of_a_new_array() is installed


def test_a_program_is_recorded(pool: Pool, tmp_path: Path) -> None:
    path = tmp_path / "program.csv"
    with TraceWriter(path) as writer, plugin.using(Recorder(pool, writer)):
        array = cupy.empty(1000, dtype="uint8")
        owner, device = umfpy.find(array.data.ptr).pool, array.data.mem.device_id
        other = cupy.empty(0)
        del array
        later = cupy.empty(3, dtype="uint8")
        with pytest.raises(CupyOutOfMemoryError):
            cupy.empty(100 * MIB, dtype="uint8")
    assert (owner, device, other.data.ptr) == (pool, 3, 0)
    del later  # after the recording
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[1:] == ["a,0,1000,0", "f,0,,", "a,1,3,0"]


def test_zero_bytes_are_no_memory(installed: Pool) -> None:
    array = cupy.empty(0)
    assert (array.data.ptr, array.data.mem.device_id) == (0, 3)
    assert installed.stats().live_allocations == 0


def test_out_of_memory_is_cupys_error_and_umfpys(installed: Pool) -> None:
    for kind in (
        OutOfMemoryError,
        MemoryError,
        cupy.cuda.memory.OutOfMemoryError,
        cupy.cuda.runtime.CUDARuntimeError,
    ):
        with pytest.raises(kind) as caught:
            cupy.empty(100 * MIB, dtype="uint8")
        error = caught.value
        assert type(error) is CupyOutOfMemoryError
        assert (error.status, error.requested) == (2, 100 * MIB)
        assert isinstance(error.__cause__, OutOfMemoryError)
        assert str(error) == str(error.__cause__)


def test_an_error_of_cupy_pickles() -> None:
    import pickle

    error = CupyOutOfMemoryError.of(OutOfMemoryError("none left", requested=5))
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), vars(copied)) == (str(error), vars(error))


@pytest.mark.parametrize("size", [1 << 62, (1 << 63) - 1])
def test_enormous_sizes_are_refused(installed: Pool, size: int) -> None:
    with pytest.raises(CupyOutOfMemoryError):
        cupy.cuda.alloc(size)
    for beyond in (1 << 63, (1 << 64) - 1, 1 << 64):
        with pytest.raises(CupyOutOfMemoryError):
            cupy.cuda.get_allocator()(beyond)


def test_an_offset_that_cupys_own_pool_would_drop_is_never_there(installed: Pool) -> None:
    # cupy.cuda.MemoryPool keeps only `mem` of what its allocator returns.  With a GPU it is tried.
    with installed.allocate(100):
        memory = cupy.cuda.get_allocator()(1000)
        assert (memory.mem.ptr, memory.mem.size) == (memory.ptr, 1000)
        assert umfpy.find(memory.ptr).offset == 0
        del memory


def test_frees_come_from_any_thread(installed: Pool) -> None:
    arrays = [cupy.empty(100) for _ in range(64)]

    def drop() -> None:
        while arrays:
            try:
                arrays.pop()
            except IndexError:
                return

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert installed.stats().live_allocations == 0


def test_a_pool_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    pools = {0: Pool(FakeProvider(device=0)), 1: Pool(FakeProvider(device=1))}
    allocator = plugin.Allocator(pools, otherwise=lambda size: f"{size} bytes of CuPy's own")
    for device in (1, 0, 2):
        # when
        monkeypatch.setattr(allocator, "_current_device", lambda device=device: device)
        memory = allocator(100)

        # then
        if device == 2:
            assert memory == "100 bytes of CuPy's own"
        else:
            assert umfpy.find(memory.ptr).pool is pools[device]
            assert memory.mem.device_id == device
        del memory


def test_a_device_without_a_pool_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = plugin.Allocator({0: Pool(FakeProvider())})
    monkeypatch.setattr(allocator, "_current_device", lambda: 1)
    with pytest.raises(InvalidArgument, match="none for 1"):
        allocator(5)


def test_the_current_stream_orders_the_memory(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = plugin.Allocator(pool)
    monkeypatch.setattr(allocator, "_current_stream", lambda device: 77)
    memory = allocator(100)
    assert pool.map.describe(memory.ptr)["stream"] == 77
    del memory


def test_each_threads_default_stream_is_its_own() -> None:
    numbers = [plugin._own_stream(), plugin._own_stream()]
    for _ in range(5):  # threads one after the other, whose identities may be the same
        thread = threading.Thread(target=lambda: numbers.append(plugin._own_stream()))
        thread.start()
        thread.join()
    assert numbers[0] == numbers[1]
    assert len(set(numbers)) == 6


@pytest.mark.parametrize(
    ("pools", "device"),
    [
        ({}, None),
        ({0: "pool"}, None),
        ("pool", None),
        ({-1: "pool"}, None),
        ("pool", 0),
        ({True: Pool(FakeProvider(device=0))}, None),
        ({"0": Pool(FakeProvider(device=0))}, None),
        *((Pool(FakeProvider(device=0)), wrong) for wrong in ("0", 0.0, True, -1, [], {})),
    ],
)
def test_pools_that_are_none(pools: object, device: int | None) -> None:
    with pytest.raises(InvalidArgument):
        plugin.install(pools, device=device)
    with pytest.raises(InvalidArgument), plugin.using(pools, device=device):
        pass


def test_memory_without_a_device_needs_one() -> None:
    pool = Pool(FakeProvider(device=-1, memory_type="host"))
    with pytest.raises(InvalidArgument, match="device=0"):
        plugin.install(pool)
    with plugin.using(pool, device=2):
        assert cupy.empty(5).data.mem.device_id == 2


def test_arrays_outlive_the_installation(pool: Pool) -> None:
    plugin.install(pool)
    array = cupy.empty(100)
    plugin.uninstall()
    assert umfpy.find(array.data.ptr).pool is pool
    del array


def test_without_cupy_it_says_how_to_get_it() -> None:
    program = run_program(
        """
        import sys
        sys.modules["cupy"] = None
        import umfpy
        from umfpy.integrations import cupy as plugin
        try:
            plugin.uninstall()
        except umfpy.DriverUnavailable as error:
            print("cupy-cuda13x" in str(error))
        """
    )
    assert_silent(program, "True")


def test_on_the_emulated_driver_with_real_addresses() -> None:
    program = run_program(
        """
        import umfpy, cupy
        emulator = umfpy.emulate("cuda", memory="1GiB")
        pool = umfpy.Pool(umfpy.CudaProvider(0))
        umfpy.integrations.cupy.install(pool)
        arrays = [cupy.empty(n, dtype="uint8") for n in (1, 1000, 3 << 20)]
        for array in arrays:
            info = umfpy.find(array.data.ptr)
            assert info.pool is pool and array.data.mem.device_id == 0
        try:
            cupy.empty(2 << 30, dtype="uint8")
        except cupy.cuda.runtime.CUDARuntimeError as error:
            assert isinstance(error, MemoryError)
        del arrays, array
        umfpy.integrations.cupy.uninstall()
        pool.close()
        print(emulator.calls["cuMemAlloc_v2"] > 0, emulator.leaks())
        """.replace("import umfpy, cupy", "import umfpy, umfpy.integrations.cupy, cupy")
    )
    assert_silent(program, "True {}")


def test_exit_with_live_arrays_is_silent() -> None:
    assert_silent(
        run_program(
            """
            import cupy, umfpy.integrations.cupy as plugin
            from umfpy import Pool
            from tests.fakes.provider import FakeProvider
            plugin.install(Pool(FakeProvider()))
            arrays = [cupy.empty(10) for _ in range(10)]
            """
        )
    )


def test_the_module_loads_without_cupy() -> None:
    code = "import sys; sys.modules['cupy'] = None; import umfpy.integrations.cupy"
    subprocess.run([sys.executable, "-c", code], check=True)
