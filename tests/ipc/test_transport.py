"""Handles, allocations and mappings through `multiprocessing`."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from multiprocessing.reduction import ForkingPickler

import ipc_children
import pytest
from ipc_support import Peer, descriptors

from umfpy import IpcError, Pool, ProxyPool
from umfpy.ipc import descriptors as descriptors_module
from umfpy.ipc import export, open_ipc

KEY = bytes(multiprocessing.current_process().authkey)

context = multiprocessing.get_context("spawn")


@pytest.fixture
def start():
    """Start a process, which has to end well."""
    processes = []

    def starter(target, *arguments):
        process = context.Process(target=target, args=arguments)
        process.start()
        processes.append(process)
        return process

    yield starter
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
        process.close()


def test_through_queues(side, start):
    tasks, answers = context.Queue(), context.Queue()
    start(ipc_children.answer, side.kind, tasks, answers)
    pool = Pool(side.provider)
    first, second = pool.allocate(1000), pool.allocate(24)
    side.write(first.ptr, b"handle..")
    side.write(second.ptr, b"itself..")
    tasks.put(export(first))
    tasks.put(second)
    tasks.put(open_ipc(export(first)))
    assert answers.get(timeout=30) == (b"handle..", 1000, "IpcHandle")
    assert answers.get(timeout=30) == (b"itself..", 24, "IpcMapping")
    assert answers.get(timeout=30) == (b"answered", 1000, "IpcMapping")
    tasks.put(None)
    counts, carried = answers.get(timeout=30)
    assert counts == {"open": 1}
    # Host memory needs its file, and got it without any right to this process.
    assert carried == (1 if side.kind == "host" else 0)
    assert side.read(second.ptr, 8) == b"answered"
    for queue in (tasks, answers):
        queue.close()
        queue.join_thread()


def test_as_arguments_and_through_a_pipe_and_back(side, start):
    pool = Pool(side.provider)
    a = pool.allocate(64)
    side.write(a.ptr, b"argument")
    here, there = context.Pipe()
    start(ipc_children.take, there, export(a), a)
    there.close()
    assert here.recv() == b"argument"
    assert here.recv() == b"argument"
    side.write(a.ptr, b"by pipe.")
    handle = export(a)
    here.send(handle)
    assert here.recv() == b"by pipe."
    assert here.recv() == handle
    here.close()


def test_on_to_a_third_process(side, start):
    """The third asks the first for descriptors: the second has none to give."""
    a = Pool(side.provider).allocate(64)
    side.write(a.ptr, b"far away")
    to_second, second_end = context.Pipe()
    second_out, third_in = context.Pipe()
    third_out, here = context.Pipe()
    start(ipc_children.forward, second_end, second_out)
    start(ipc_children.take, third_out)
    to_second.send(export(a))
    handle = third_in.recv()
    assert handle.ptr == a.ptr  # back in the process that it came from
    here.send(handle)
    assert here.recv() == b"far away"
    assert here.recv().ptr == a.ptr
    third_in.send("done")
    for pipe in (to_second, second_end, second_out, third_in, third_out, here):
        pipe.close()


def test_a_thousand_handles_in_a_queue_hold_no_descriptors(host, start):
    pool = Pool(host.provider)
    pieces = [pool.allocate(512) for _ in range(1000)]
    handles = [export(piece) for piece in pieces]
    ForkingPickler.dumps(handles[0])  # whatever the first one sets up
    before = descriptors()
    messages = [ForkingPickler.dumps(handle) for handle in handles]
    assert descriptors() == before
    assert pickle.loads(messages[7]) == handles[7]
    tasks, answers = context.Queue(), context.Queue()
    for handle in handles:
        tasks.put(handle)
    start(ipc_children.count_received, "host", tasks, answers, 1000)
    assert answers.get(timeout=30) == ({"open": 1}, 1000)
    for queue in (tasks, answers):
        queue.close()
        queue.join_thread()


def test_plain_pickles_carry_no_descriptors(host, peer):
    a = Pool(host.provider).allocate(64)
    handle = export(a)
    assert pickle.loads(pickle.dumps(handle)).sender is None
    host.write(a.ptr, b"plain")
    assert peer("bytes(open_ipc(h).copy_to_host())[:5]", h=handle) == b"plain"
    assert peer("side.provider.counts['descriptors']") == 0


def test_descriptors_go_to_nobody_without_the_key(host, peer):
    """And who does not have it opens the memory as if the handle had come by itself."""
    a = Pool(host.provider).allocate(64)
    host.write(a.ptr, b"no key")
    message = bytes(ForkingPickler.dumps(export(a)))
    code = "import pickle\nbytes(open_ipc(pickle.loads(message)).copy_to_host())[:6]"
    assert peer(code, message=message) == b"no key"
    assert peer("side.provider.counts['descriptors']") == 0
    # The server has survived that.
    assert _descriptors_served(export(a)) == 1


def descriptors_while_serving(address):
    """How many descriptors this process has open, without those of this very question."""
    with Client(address, family="AF_UNIX", authkey=KEY):
        return descriptors() - 2


def _descriptors_served(handle):
    sent = pickle.loads(ForkingPickler.dumps(handle))
    with descriptors_module.fetched(sent) as received:
        for descriptor in received:
            assert os.fstat(descriptor).st_size > 0
        return len(received)


def test_descriptors_of_an_export_that_is_gone(host):
    pool = ProxyPool(host.provider)
    a = pool.allocate(64)
    sent = pickle.loads(ForkingPickler.dumps(export(a)))
    a.free()
    before = descriptors_while_serving(sent.sender)
    with descriptors_module.fetched(sent) as received:
        assert received == []
    assert descriptors_while_serving(sent.sender) == before
    with pytest.raises(IpcError, match="freed"):
        open_ipc(sent)


def test_clients_that_vanish_or_talk_nonsense_stop_nobody(host):
    a = Pool(host.provider).allocate(64)
    handle = export(a)
    address = pickle.loads(ForkingPickler.dumps(handle)).sender
    before = descriptors_while_serving(address)
    Client(address, family="AF_UNIX").close()  # before the challenge
    Client(address, family="AF_UNIX", authkey=KEY).close()  # before the question
    with Client(address, family="AF_UNIX") as server:
        server.send_bytes(b"no challenge taken" * 100)
    with pytest.raises(AuthenticationError):
        Client(address, family="AF_UNIX", authkey=b"not the key")
    with Client(address, family="AF_UNIX", authkey=KEY) as server:
        server.send_bytes(b"x" * 1000)
        with pytest.raises((EOFError, ConnectionError)):
            server.recv_bytes()
    with Client(address, family="AF_UNIX", authkey=KEY) as server:
        server.send_bytes(b"an unknown id")
        assert server.recv_bytes() == b"\0"
    assert _descriptors_served(handle) == 1
    assert descriptors_while_serving(address) == before


def test_a_client_that_says_nothing_is_not_waited_for(host, monkeypatch):
    monkeypatch.setattr(descriptors_module, "_PATIENCE_S", 0.05)
    a = Pool(host.provider).allocate(64)
    handle = export(a)
    address = pickle.loads(ForkingPickler.dumps(handle)).sender
    with Client(address, family="AF_UNIX"):
        assert _descriptors_served(handle) in (0, 1)  # it may be refused, but never hangs
        assert _descriptors_served(handle) == 1


def test_a_server_that_says_nothing_is_not_waited_for(host, peer, monkeypatch):
    """An exporter that is stopped: the memory can be had without it."""
    monkeypatch.setattr(descriptors_module, "_PATIENCE_S", 0.05)
    code = """
from multiprocessing.reduction import ForkingPickler
a = umfpy.Pool(side.provider).allocate(64)
side.write(a.ptr, b"stopped")
bytes(ForkingPickler.dumps(export(a)))
"""
    handle = pickle.loads(peer(code))
    os.kill(peer.process.pid, signal.SIGSTOP)
    try:
        mapping = open_ipc(handle)
    finally:
        os.kill(peer.process.pid, signal.SIGCONT)
    assert bytes(mapping.copy_to_host())[:7] == b"stopped"
    mapping.close()


def test_many_threads_fetch_at_once(host):
    a = Pool(host.provider).allocate(64)
    handle = export(a)
    address = pickle.loads(ForkingPickler.dumps(handle)).sender
    before = descriptors_while_serving(address)
    served = []
    threads = [
        threading.Thread(target=lambda: served.append(_descriptors_served(handle)))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served == [1] * 20
    assert descriptors_while_serving(address) == before


def test_a_dead_exporter_s_server_is_not_waited_for(host):
    """A handle that names the server of a process that is gone: refused, and at once."""
    other = Peer("host")
    code = """
from multiprocessing.reduction import ForkingPickler
a = umfpy.Pool(side.provider).allocate(64)
bytes(ForkingPickler.dumps(export(a)))
"""
    handle = pickle.loads(other(code))
    assert handle.sender
    other.kill()
    with descriptors_module.fetched(handle) as received:
        assert received == []
    with pytest.raises(IpcError, match="has ended"):
        open_ipc(handle)
