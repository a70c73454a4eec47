"""Forks, sudden deaths, children, and processes that were never told."""

import ctypes
import os
import signal
from pathlib import Path

import pytest


def test_a_forked_child_is_told(ze, z):
    ptr = ze.alloc(100)
    child = os.fork()
    if not child:
        answers = [
            ze.error("zeMemFree", ze.context, ptr),
            ze.error("zeInit", 0),
            ze.error("zeDeviceGetStatus", ze.devices[0]),
        ]
        os._exit(answers != [z.UNINITIALIZED] * 3 and answers[1] != 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ze.free(ptr)


def test_before_zeinit_nothing_works(run):
    result = run("print(hex(Ze().error('zeDriverGet', ctypes.byref(u32()), None)))", begin=False)
    assert result.stdout == "0x78000001\n", result.stderr


def test_broken_settings_are_an_error(run):
    code = "print(hex(Ze().error('zeInit', 0)))"
    result = run(code, begin=False, UMFPY_EMULATE_LEVEL_ZERO="memory=lots")
    assert result.stdout == "0x78000001\n"
    assert "cannot read UMFPY_EMULATE_LEVEL_ZERO=memory=lots" in result.stderr


def test_a_driver_that_is_not_there_is_the_loaders_error(run, emu):
    if not emu.has_loader:
        pytest.skip("no Level Zero loader: install Debian's libze1")
    code = "print(hex(Ze().error('zeInit', 0)))"
    result = run(code, begin=False, emulated=False, ZE_ENABLE_ALT_DRIVERS="/nowhere.so")
    assert result.stdout == "0x78000001\n", result.stderr


def test_children_are_on_one_too(run):
    code = """
import subprocess, sys
ask = "from support import *; ze = Ze().begin(); print(len(ze.devices))"
print(subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True).stdout, end="")
"""
    assert run(code).stdout == "2\n"


def _shared_memory():
    return set(os.listdir("/dev/shm")), {path for path in Path("/tmp").glob("*umfpy*")}


def test_nothing_is_left_after_a_kill(peer):
    before = _shared_memory()
    peer("ptr = ze.alloc(1 << 20)\nze.write(ptr, bytes(1 << 20))\nze.export(ptr).descriptor")
    assert _shared_memory() == before
    peer.kill()
    assert _shared_memory() == before
    assert peer.process.returncode == -signal.SIGKILL


def test_a_host_access_to_device_memory_faults(run):
    result = run("ctypes.memset(ze.alloc(100), 0, 100)")
    assert result.returncode == -signal.SIGSEGV


def test_exit_with_live_memory_is_quiet(run):
    result = run("ze.alloc(100); ze.immediate(); print('end')")
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")


def test_both_emulated_drivers_in_one_process(run):
    code = """
import umfpy
cuda = umfpy.emulate("cuda", memory="1GiB", force=True, children=False)
libcuda = ctypes.CDLL("libcuda.so.1")
ptr = ze.alloc(100)
assert libcuda.cuInit(0) == 0
print(dict(cuda.calls), cuda.leaks())
"""
    result = run(code)
    assert result.stdout == "{'cuInit': 1} {}\n", result.stderr


def test_many_threads(run):
    code = """
import threading
def work():
    for i in range(100):
        ptr = ze.alloc(1000 + i)
        ze.write(ptr, b"x" * 100)
        assert ze.read(ptr, 100) == b"x" * 100
        ze.close(ze.open(ze.export(ptr)))
        ze.free(ptr)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
ze.end()
"""
    result = run(code, UMFPY_EMULATE_LEVEL_ZERO="memory=1073741824;report=1")
    assert result.returncode == 0, result.stderr
    assert "nothing leaked" in result.stderr
    assert "called zeMemAllocDevice 400 times" in result.stderr
    assert "Error" not in result.stderr


def test_libraries_do_not_call_into_each_other(ze, emu):
    """The driver's own calls stay its own, although a loader exports the same names."""
    table = (ctypes.c_void_p * 2)()
    driver = ctypes.CDLL(str(emu.library))
    driver.zeGetGlobalProcAddrTable(1 << 16, table)
    assert table[0] == ctypes.cast(driver.zeInit, ctypes.c_void_p).value
