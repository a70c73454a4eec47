"""Processes that end, are killed, or fork, in the middle of sharing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from cuda.bindings.driver import CUresult
from ipc_support import Peer, Side, descriptors

from umfpy import CoarseProvider, IpcError, Pool, ProxyPool
from umfpy.ipc import cache_info, clear_cache, export, open_ipc

EXPORT = """
pool = umfpy.ProxyPool(side.provider)
a = pool.allocate(8192)
side.write(a.ptr, b"from there")
bytes(export(a))
"""


def test_an_importer_that_is_killed_costs_the_exporter_nothing(side, peer):
    pool = ProxyPool(CoarseProvider(side.provider))
    a = pool.allocate(4096)
    handle = export(a)
    peer("m = open_ipc(h)\nm.copy_from_host(b'last words')", h=handle)
    peer.kill()
    assert side.read(a.ptr, 10) == b"last words"
    heir = Peer(side.kind)
    assert heir("bytes(open_ipc(h).copy_to_host())[:10]", h=handle) == b"last words"
    heir.close()
    a.free()
    pool.provider.close()
    assert side.counts() == {"alloc": 1, "export": 1, "free": 1}


def test_an_exporter_that_is_killed_is_named(side, peer):
    data = peer(EXPORT)
    mapping = open_ipc(data)
    assert bytes(mapping.copy_to_host())[:10] == b"from there"
    pid = peer.process.pid
    peer.kill()
    # Neither a new open nor one more piece of a root that is still mapped.
    with pytest.raises(IpcError, match=f"process {pid}.*has ended"):
        open_ipc(data)
    mapping.close()
    clear_cache()
    with pytest.raises(IpcError, match=f"process {pid}.*has ended"):
        open_ipc(data)
    assert side.counts() == {"open": 1, "close": 1}
    assert (cache_info().used, cache_info().idle) == (0, 0)


def test_an_exporter_that_is_a_zombie_is_gone_too(host):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    # Of a process nobody has waited for yet: the kernel keeps its number, and nothing else.
    from umfpy.ipc import ProcessId
    from umfpy.ipc.process import _read_stat

    here = ProcessId.current()
    identity = ProcessId(here.host, here.namespace, child.pid, _read_stat(child.pid)[1])
    assert not identity.ended()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identity.ended()
    child.wait()
    assert child.stdin
    child.stdin.close()
    assert identity.ended()
    assert ProcessId(here.host, here.namespace, here.pid, here.started + 1).ended()
    assert not ProcessId(here.host, here.namespace + 1, 1 << 30, 0).ended()


def test_memory_that_was_freed_before_it_is_opened(side, peer, request):
    if side.kind == "cuda":  # only the driver knows
        invalid = CUresult.CUDA_ERROR_INVALID_VALUE
        request.applymarker(pytest.mark.refuses("cuIpcOpenMemHandle", invalid))
    data = peer(EXPORT)
    peer("a.free()")
    before = 0
    for _ in range(2):  # what the first one sets up for importing stays
        before = descriptors()
        with pytest.raises(IpcError, match=r"freed|ended"):
            open_ipc(data)
    assert descriptors() == before
    assert cache_info().used == 0
    assert side.counts().keys() <= {"open"}


def test_host_memory_stays_readable_after_its_process_died(host, peer):
    """What is mapped keeps its pages; only the process that fills them is gone."""
    mapping = open_ipc(peer(EXPORT))
    peer.kill()
    assert bytes(mapping.copy_to_host())[:10] == b"from there"
    mapping.close()


def test_opening_and_closing_leaks_no_descriptors(side, peer):
    data = peer(EXPORT)
    open_ipc(data).close()
    clear_cache()
    before = descriptors()
    for _ in range(20):
        open_ipc(data).close()
        clear_cache()
        with pytest.raises(IpcError):
            open_ipc(data[:-1])
    assert descriptors() == before


def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(source), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_exit_with_live_mappings_and_exports_is_silent(side: Side):
    a = Pool(side.provider).allocate(4096)
    program = """
        import sys, umfpy
        from multiprocessing.reduction import ForkingPickler
        from umfpy.ipc import export, open_ipc
        if sys.argv[2] == "cuda":
            umfpy.emulate("cuda")
            provider = umfpy.CudaProvider()
        else:
            provider = umfpy.HostProvider(shared=True)
        mapping = open_ipc(bytes.fromhex(sys.argv[1]))
        open_ipc(bytes.fromhex(sys.argv[1])).close()
        pool = umfpy.Pool(provider)
        mine = pool.allocate(4096)
        own = open_ipc(export(mine))
        ForkingPickler.dumps(export(mine))  # starts handing out descriptors
        class Cycle: pass
        cycle = Cycle()
        cycle.itself, cycle.mapping = cycle, mapping
    """
    ended = run(program, bytes(export(a)).hex(), side.kind)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


# Fork.

FORKED = """
    import gc, os, sys, umfpy
    from umfpy.ipc import cache_info, clear_cache, export, open_ipc, set_cache_limit
    calls = []
    class Host(umfpy.HostProvider):
        def ipc_open(self, payload, descriptors=()):
            calls.append("open")
            return super().ipc_open(payload, descriptors)
        def ipc_close(self, ptr, size):
            calls.append("close")
            super().ipc_close(ptr, size)
        def ipc_release(self, payload):
            calls.append("release")
            super().ipc_release(payload)
    umfpy.ipc.register_provider("host", Host)
    data = bytes.fromhex(sys.argv[1])
    mapping, other = open_ipc(data), open_ipc(data)
    coarse = umfpy.CoarseProvider(Host(shared=True))
    pool = umfpy.ProxyPool(coarse)
    mine = pool.allocate(64)
    own = export(mine)
    calls.clear()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            mapping.close()
            del other
            gc.collect()
            clear_cache()
            assert (cache_info().used, cache_info().opens) == (0, 0)
            set_cache_limit(0)
            try:
                export(mine)
            except umfpy.IpcError as error:
                assert "forked" in str(error)
            else:
                raise AssertionError("a child shared its parent's memory")
            assert calls == [], calls
            # It can open for itself: the parent's handles too.
            fresh = open_ipc(own)
            with open_ipc(data):
                assert calls == ["open", "open"], calls
            fresh.close()
            assert calls[2:] == ["close", "close"], calls
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bytes(mapping.copy_to_host())[:10] == b"from there"
    mapping.close()
    del other
    gc.collect()
    clear_cache()
    assert calls == ["close"], calls
"""


def test_a_forked_child_touches_nothing_of_its_parent(peer):
    ended = run(FORKED, peer(EXPORT).hex())
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_parent_s_exports_survive_a_child(peer):
    data = peer(EXPORT)
    code = """
import gc
child = os.fork()
if child == 0:
    del a, pool; gc.collect(); os._exit(0)
os.waitpid(child, 0)[1]
"""
    assert peer(code) == 0
    with open_ipc(data) as mapping:
        assert bytes(mapping.copy_to_host())[:10] == b"from there"


def test_a_forked_child_opens_what_comes_through_a_queue(host):
    program = """
        import multiprocessing, umfpy
        from umfpy.ipc import export, open_ipc
        def child(tasks, answers, argument):
            for handle in (argument, tasks.get(), tasks.get()):
                mapping = handle if hasattr(handle, "close") else open_ipc(handle)
                answers.put(bytes(mapping.copy_to_host())[:5])
                mapping.close()
        context = multiprocessing.get_context("fork")
        tasks, answers = context.SimpleQueue(), context.SimpleQueue()
        provider = umfpy.HostProvider(shared=True)
        pool = umfpy.Pool(provider)
        a = pool.allocate(64)
        provider.copy(a.ptr, b"fork!", 5)
        process = context.Process(target=child, args=(tasks, answers, export(a)))
        process.start()
        tasks.put(export(a))
        tasks.put(a)
        assert [answers.get() for _ in range(3)] == [b"fork!"] * 3
        process.join()
        assert process.exitcode == 0
        for queue in (tasks, answers):
            queue.close()
    """
    ended = run(program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_stopped_exporter_does_not_stop_who_has_its_memory(host, peer):
    mapping = open_ipc(peer(EXPORT))
    os.kill(peer.process.pid, signal.SIGSTOP)
    try:
        assert bytes(mapping.copy_to_host())[:10] == b"from there"
        mapping.close()
        open_ipc(mapping.handle).close()
    finally:
        os.kill(peer.process.pid, signal.SIGCONT)
