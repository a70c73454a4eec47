"""What other processes, forks and deaths do to the driver, and the driver to the system."""

import os
import signal
from pathlib import Path


def leftovers():
    return sorted(
        p.name for folder in ("/dev/shm", "/tmp") for p in Path(folder).glob("*umfpy-device*")
    )


def test_device_memory_cannot_be_touched_by_the_host(run):
    code = "import ctypes\nctypes.string_at(cu.alloc(4096), 1)"
    assert run(code).returncode == -signal.SIGSEGV
    code = """
import ctypes
at = int(cu("cuMemAddressReserve", 2 << 20, 0, 0, 0))
handle = cu("cuMemCreate", 2 << 20, cu.properties(), 0)
cu("cuMemMap", at, 2 << 20, 0, handle, 0)
cu("cuMemSetAccess", at, 2 << 20, [cu.access()], 1)
print("mapped", flush=True)
ctypes.memset(at, 1, 1)
"""
    result = run(code)
    assert result.returncode == -signal.SIGSEGV
    assert result.stdout == "mapped\n"


def test_opened_memory_cannot_be_touched_by_the_host_either(cu, peer):
    address = cu.alloc(4096)
    data = cu.bytes_of(cu("cuIpcGetMemHandle", address))
    peer('at = int(cu("cuIpcOpenMemHandle", cu.opaque("CUipcMemHandle", data), 1))\n0', data=data)
    assert peer(
        """
import ctypes
child = os.fork()
if child == 0:
    ctypes.string_at(at, 1)
    os._exit(0)
os.WTERMSIG(os.waitpid(child, 0)[1])
"""
    ) == int(signal.SIGSEGV)
    cu("cuMemFree", address)


def test_a_forked_child_is_told_and_touches_nothing(run):
    result = run(
        """
import os
at = cu.alloc(4096)
cu.write(at, b"parent")
child = os.fork()
if child == 0:
    answers = {
        cu.error("cuMemAlloc", 64),
        cu.error("cuMemFree", at),
        cu.error("cuMemcpyDtoH", bytearray(1), at, 1),
        cu.error("cuInit", 0),
    }
    os._exit(0 if answers == {3} else 1)
assert os.waitpid(child, 0)[1] == 0
assert cu.read(at, 6) == b"parent"
cu("cuMemFree", at)
"""
    )
    assert result.returncode == 0, result.stderr


def test_a_fork_before_init_is_free_to_start(run):
    result = run(
        """
import os, umfpy
emu = umfpy.emulate("cuda", memory="1GiB", children=False)
child = os.fork()
from support import Cuda
cu = Cuda()
cu.begin()
cu("cuMemFree", cu.alloc(64))
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
        preload=False,
    )
    assert result.returncode == 0, result.stderr


def test_nothing_is_left_behind(run):
    before = leftovers()
    result = run("cu.write(cu.alloc(1 << 20), bytes(1 << 20))\nimport os\nos.kill(os.getpid(), 9)")
    assert result.returncode == -signal.SIGKILL
    assert leftovers() == before


def test_exit_with_everything_alive_is_quiet(run):
    result = run(
        """
cu.alloc(4096)
cu("cuMemHostAlloc", 4096, 0)
cu("cuStreamCreate", 0)
cu("cuMemAllocAsync", 4096, 0)
cu("cuMemCreate", 2 << 20, cu.properties(shareable=True), 0)
import threading
def work():
    while True:
        cu.error("cuMemAlloc", 64)
threading.Thread(target=work, daemon=True).start()
"""
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_large_devices_cost_nothing_untouched(run):
    result = run(
        """
cu.alloc(61 << 30)
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(peak)
""",
        UMFPY_EMULATE_CUDA="memory=68719476736;devices=8",
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 400_000


def test_descriptors_do_not_pile_up(cu):
    handles = []
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        handle = cu("cuMemCreate", 2 << 20, cu.properties(shareable=True), 0)
        os.close(int(cu("cuMemExportToShareableHandle", handle, cu.posix, 0)))
        cu("cuMemRelease", handle)
        pool = cu("cuMemPoolCreate", cu.pool_properties(shareable=True))
        os.close(int(cu("cuMemPoolExportToShareableHandle", pool, cu.posix, 0)))
        cu("cuMemPoolDestroy", pool)
        handles.append(cu("cuMemCreate", 2 << 20, cu.properties(), 0))
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the device's own file, made once
    for handle in handles:
        cu("cuMemRelease", handle)
