"""Contenders take part, or say why they do not."""

from __future__ import annotations

import importlib
import importlib.metadata

import pytest

from umfpy.bench.absent import Absent
from umfpy.bench.contenders import gpu, umf
from umfpy.bench.contenders.registry import CONTENDERS, chosen, native_pools, python_pools
from umfpy.bench.native import build
from umfpy.bench.native.loop import load
from umfpy.bench.workload import Generator, Sizes, Workload


def test_those_from_python_allocate_and_free():
    absent: dict[str, str] = {}
    with python_pools(None, absent) as pools:
        for pool in pools.values():
            live = pool.fill([4096, 512])
            assert pool.time_pairs(4096, 3) > 0
            assert pool.time_replacements(live, [(0, 1024), (1, 2048)]) > 0
            pool.drain(live)
            assert live == []

    assert {"umfpy", "empty"} <= set(pools)
    assert set(pools) | set(absent) == {n for n, c in CONTENDERS.items() if c.python}
    assert all(absent.values())


def test_those_from_c_allocate_and_free():
    absent: dict[str, str] = {}
    generator = Generator(load(), 100, Sizes(512, 4 << 20))
    workload = Workload(generator.ramp(100), generator.slots, drain=generator.drain())
    with native_pools(None, absent, largest=4 << 20) as pools:
        for pool in pools.values():
            load().run(pool.functions(), workload.work)
            counters = pool.counters()
            assert counters["peak_reserved_bytes"] >= generator.peak_live_bytes
            assert counters["provider_allocs"] > 0

    assert set(pools) | set(absent) == {n for n, c in CONTENDERS.items() if c.native}


def test_a_variant_takes_part_only_where_it_differs():
    with native_pools(None, {}, largest=4096) as pools:
        assert "umf-pooling" not in pools


def test_umfpy_is_always_among_the_chosen():
    assert [contender.name for contender in chosen({"umf"})] == ["umfpy", "empty", "umf"]
    assert len(chosen(None)) == len(CONTENDERS)


@pytest.fixture
def fresh_umf():
    umf.libraries.cache_clear()
    yield
    umf.libraries.cache_clear()


def test_without_the_umf_package_it_is_absent(monkeypatch, fresh_umf):
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    absent: dict[str, str] = {}

    with native_pools({"umf"}, absent, largest=4096) as pools:
        assert "umf" not in pools
    assert "pip install umf" in absent["umf"]


def test_without_a_compiler_umf_is_absent(monkeypatch, fresh_umf):
    monkeypatch.setenv("CC", "no-such-compiler")
    absent: dict[str, str] = {}

    with python_pools({"umf"}, absent), native_pools({"umf"}, absent, largest=4096) as pools:
        assert set(pools) == {"umfpy"}
    assert "no-such-compiler" in absent["umf"]


def test_a_source_that_does_not_compile_is_reported_with_the_complaint(monkeypatch, tmp_path):
    (tmp_path / "wrong.c").write_text("this is no C\n")
    monkeypatch.setattr(build, "SOURCES", tmp_path)

    with pytest.raises(Absent, match=r"wrong\.c did not compile: .*error"):
        build.build(["wrong.c"])


@pytest.mark.parametrize(
    ("contender", "package"), [(gpu.CUPY, "CuPy"), (gpu.RMM, "RMM"), (gpu.TORCH, "PyTorch")]
)
def test_a_library_that_is_not_installed_is_reported(monkeypatch, contender, package):
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)

    with pytest.raises(Absent, match=f"{package} is not installed"):
        contender.python()


def test_on_an_emulated_driver_the_pools_of_gpu_libraries_are_absent(monkeypatch):
    monkeypatch.setattr(gpu, "is_emulated", lambda: True)

    with pytest.raises(Absent, match="emulated"):
        gpu.require_cuda()
