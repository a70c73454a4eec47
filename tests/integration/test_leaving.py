"""The report of an emulated driver tells what a program leaked, not what umfpy keeps for reuse."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.fakes.programs import ROOT

#: The provider of each kind, by what makes it.
PROVIDERS = {
    "cuda": "umfpy.CudaProvider()",
    "cuda host": "umfpy.CudaProvider(memory_type='host')",
    "cuda managed": "umfpy.CudaProvider(memory_type='managed')",
    "cuda_vmm": "umfpy.CudaVmmProvider()",
    "cuda_async": "umfpy.CudaAsyncProvider()",
    "level_zero": "umfpy.LevelZeroProvider()",
    "level_zero shared": "umfpy.LevelZeroProvider(memory_type='shared')",
    "level_zero_vmm": "umfpy.LevelZeroVmmProvider()",
}

#: Everything that keeps memory, each over a provider of its own, all of it alive to the end.
EVERYTHING = """
import umfpy

def provider():
    return {provider}

coarse = umfpy.CoarseProvider(provider())
slabs = umfpy.SlabPool(provider())
manager = umfpy.MemoryManager(provider())
pools = [
    umfpy.Pool(provider()),
    slabs,
    umfpy.ProxyPool(provider()),
    umfpy.ProxyPool(umfpy.CoarseProvider(provider(), reserve="8MiB")),
    umfpy.Pool(coarse),
    umfpy.Pool(umfpy.Pool(provider())),
    umfpy.Pool(slabs),
    umfpy.Pool(manager),
    manager,
]
for pool in pools:
    kept = [pool.allocate(size) for size in (100, 5000, 3 << 20)]
    while kept:
        kept.pop().free()
manager.reserve(4096).release()
unused = provider()
unused.free(unused.alloc(1 << 20), 1 << 20)
closed = umfpy.Pool(unused)
closed.allocate(1 << 20).free()
closed.close()
"""


def emulated(kind: str, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program on the driver that a kind of provider needs; it must end well."""
    driver = "cuda" if kind.startswith("cuda") else "level_zero"
    command = [sys.executable, "-m", "umfpy", "emulate", driver, "--force", *options, "--"]
    done = subprocess.run(
        [*command, sys.executable, "-W", "always", "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def told(kind: str, program: str) -> tuple[list[str], list[str]]:
    """Return what a program leaked, and what else was said on standard error."""
    leaks, others = [], []
    for line in emulated(kind, program, "--report").stderr.splitlines():
        if not line.startswith("umfpy emulated"):
            others.append(line)
        elif "leaked" in line:
            leaks.append(line.split("]: ")[1])
    return leaks, others


@pytest.mark.parametrize("kind", PROVIDERS)
def test_what_is_kept_for_reuse_is_no_leak(kind: str) -> None:
    program = EVERYTHING.format(provider=PROVIDERS[kind])
    assert told(kind, program) == (["nothing leaked"], [])


#: What the driver has of one live allocation, and what that needs to live in.
LIVE = {
    "cuda": {"allocations"},
    "cuda host": {"host"},
    "cuda managed": {"managed"},
    "cuda_vmm": {"reservations", "handles", "mappings"},
    "cuda_async": {"pooled", "pools", "streams"},
    "level_zero": {"allocations", "contexts"},
    "level_zero shared": {"shared", "contexts"},
    "level_zero_vmm": {"reservations", "handles", "mappings", "contexts"},
}


@pytest.mark.parametrize("kind", PROVIDERS)
def test_what_is_live_is_one(kind: str) -> None:
    program = EVERYTHING.format(provider=PROVIDERS[kind]) + "live = pools[0].allocate(2 << 20)\n"
    leaks, others = told(kind, program)
    assert sorted(leak.split(",")[0] for leak in leaks) == [
        f"leaked 1 {what}" for what in sorted(LIVE[kind])
    ]
    assert not others


@pytest.mark.parametrize("kind", PROVIDERS)
def test_what_code_allocates_later_still_comes(kind: str) -> None:
    program = f"""
        import atexit

        @atexit.register  # before umfpy is imported, and so called after it has given back
        def late():
            assert pool.stats().reserved_bytes == 0
            with pool.allocate(5000) as piece, pool.allocate(3 << 20) as other:
                pool.provider.zero(piece.ptr, 5000)
                data = bytearray(4)
                pool.provider.copy(other.ptr, b"late", 4)
                pool.provider.copy(data, other.ptr, 4)
            print(bytes(data), pool.stats().live_allocations)
            pool.close()
            provider.close()

        import umfpy

        provider = {PROVIDERS[kind]}
        pool = umfpy.Pool(provider)
        pool.allocate(3 << 20).free()
        pool.allocate(5000).free()
    """
    done = emulated(kind, program, "--report")
    assert done.stdout == "b'late' 0\n", done.stderr
    assert "nothing leaked" in done.stderr


def test_handlers_of_the_program_come_first() -> None:
    program = """
        import atexit
        import umfpy

        pool = umfpy.Pool(umfpy.CudaProvider())
        piece = pool.allocate(1 << 20)
        atexit.register(piece.free)
    """
    assert told("cuda", program) == (["nothing leaked"], [])


def test_what_lies_in_a_cycle_was_let_go() -> None:
    program = """
        import umfpy

        pool = umfpy.Pool(umfpy.CudaProvider())
        cycle = [pool.allocate(1 << 20)]
        cycle.append(cycle)
        del cycle
    """
    assert told("cuda", program) == (["nothing leaked"], [])


def test_without_a_report_the_end_costs_no_call() -> None:
    program = """
        import atexit

        atexit.register(lambda: print(emu.calls["cuMemFree_v2"]))
        import umfpy

        emu = umfpy.emulate("cuda", force=True)
        pool = umfpy.Pool(umfpy.CudaProvider())
        pool.allocate(1 << 20).free()
    """
    assert emulated("cuda", program).stdout == "0\n"


def test_a_report_may_be_asked_for_by_the_program() -> None:
    program = """
        import umfpy

        umfpy.emulate("cuda", report=True, children=False, force=True)
        pool = umfpy.Pool(umfpy.CudaVmmProvider())
        pool.allocate(1 << 20).free()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "nothing leaked" in done.stderr


def test_a_driver_that_refuses_is_told_of_by_its_report_alone() -> None:
    program = """
        import umfpy

        emu = umfpy.emulate("cuda", report=True, force=True)
        pools = [umfpy.ProxyPool(umfpy.CoarseProvider(umfpy.CudaProvider())) for _ in range(3)]
        for pool in pools:
            pool.allocate(1 << 20).free()
        emu.fail("cuMemFree_v2", nth=2, error=999)
    """
    assert told("cuda", program) == ([f"leaked 1 allocations, {2 << 20} bytes"], [])


def test_a_provider_that_raises_keeps_nobody_else_from_giving_back() -> None:
    program = """
        import umfpy

        class Broken(umfpy.CudaProvider):
            def free(self, ptr, size):
                raise ZeroDivisionError("broken")

        first = umfpy.Pool(umfpy.CudaProvider())
        broken = umfpy.Pool(Broken())
        last = umfpy.Pool(umfpy.CudaProvider())
        for pool in (first, broken, last):
            pool.allocate(1 << 20).free()
    """
    leaks, others = told("cuda", program)
    assert [leak.split(",")[0] for leak in leaks] == ["leaked 1 allocations"]
    assert others[-1] == "ZeroDivisionError: broken"


@pytest.mark.parametrize("kind", ["cuda", "level_zero"])
def test_a_forked_child_leaves_its_parents_memory_alone(kind: str) -> None:
    program = f"""
        import os, sys
        import umfpy

        coarse = umfpy.CoarseProvider({PROVIDERS[kind]})
        pool = umfpy.Pool(coarse)
        pool.allocate(1 << 20).free()
        if child := os.fork():
            print(os.waitpid(child, 0)[1])
            again = pool.allocate(1 << 20)
            again.free()
        else:
            sys.exit()
    """
    done = emulated(kind, program, "--report")
    assert done.stdout == "0\n"
    assert done.stderr.count("nothing leaked") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["cuda", "cuda_vmm", "cuda_async", "level_zero"])
def test_what_was_opened_and_closed_is_no_leak_of_the_importers(kind: str) -> None:
    importer = """
        import sys
        import umfpy

        with umfpy.open_ipc(bytes.fromhex(sys.stdin.read())) as mapping:
            print(bytes(mapping.copy_to_host())[:4])
    """
    program = f"""
        import subprocess, sys, textwrap
        import umfpy

        pool = umfpy.Pool({PROVIDERS[kind]})
        with pool.allocate(2048) as piece:
            pool.provider.copy(piece.ptr, b"here", 4)
            command = [sys.executable, "-c", textwrap.dedent({importer!r})]
            handle = bytes(piece.ipc_handle()).hex()
            subprocess.run(command, input=handle, text=True, check=True)
    """
    done = emulated(kind, program, "--report")
    assert done.stdout == "b'here'\n", done.stderr
    assert done.stderr.count("nothing leaked") == 2, done.stderr
