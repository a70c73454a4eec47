"""HostProvider: what the contract's checks do not say."""

from __future__ import annotations

import errno
import os
import resource
import threading
from pathlib import Path

import pytest

from tests.fakes.programs import run_python
from tests.fakes.resident import resident
from umfpy.errors import (
    InvalidArgument,
    IpcError,
    NotSupported,
    OutOfMemoryError,
)
from umfpy.provider import Capability
from umfpy.providers.host import HostProvider
from umfpy.providers.host.pages import online_nodes

PAGE = os.sysconf("SC_PAGE_SIZE")
#: Named objects are seen by every process of the machine, other runs of these tests too.
TAG = f"umfpy-test-{os.getpid()}"

IMPORTER = """
import ctypes, sys
from umfpy import HostProvider, IpcError
provider = HostProvider.for_ipc("")
try:
    ptr = provider.ipc_open(bytes.fromhex(sys.argv[1]), [int(fd) for fd in sys.argv[2:]])
except IpcError as error:
    print("IpcError:", error)
else:
    print(ctypes.string_at(ptr, 5).decode())
    ctypes.memmove(ptr, b"world", 5)
"""


@pytest.fixture(params=[{}, {"shared": True}, {"shared": True, "name": f"{TAG}-host"}])
def provider(request):
    provider = HostProvider(**request.param)
    yield provider
    provider.close()
    assert provider.live_count() == 0


@pytest.fixture
def shared():
    provider = HostProvider(shared=True)
    yield provider
    provider.close()


def test_thousands_of_shared_allocations_cost_one_descriptor(shared):
    before = len(os.listdir("/proc/self/fd"))
    pointers = [shared.alloc(PAGE) for _ in range(3000)]
    assert len(os.listdir("/proc/self/fd")) == before
    for ptr in pointers:
        shared.free(ptr, PAGE)


def test_offsets_are_used_again_so_that_the_file_does_not_grow(shared):
    for _ in range(50):
        pointers = [shared.alloc(PAGE * (1 + i)) for i in range(4)]
        offsets = [shared.properties(ptr)["offset"] for ptr in pointers]
        assert max(offsets) < 10 * PAGE
        for i, ptr in enumerate(pointers):
            shared.free(ptr, PAGE * (1 + i))


def test_freed_and_decommitted_memory_goes_back_to_the_system(shared):
    fd = shared.ipc_descriptors(b"")[0]
    size = 256 * PAGE
    kept, dropped = shared.alloc(size), shared.alloc(size)
    for ptr in (kept, dropped):
        shared.copy(ptr, b"\1" * size, size)
    assert os.fstat(fd).st_blocks * 512 == 2 * size
    shared.decommit(kept, size)
    assert os.fstat(fd).st_blocks * 512 == size
    shared.free(dropped, size)
    assert os.fstat(fd).st_blocks == 0
    shared.commit(kept, size)
    shared.free(kept, size)


def test_private_decommit_gives_pages_back():
    provider = HostProvider()
    size = 512 * PAGE
    ptr = provider.alloc(size)
    provider.copy(ptr, b"\1" * size, size)
    provider.decommit(ptr, size)
    assert resident(ptr, size) == 0
    provider.free(ptr, size)


def test_access_to_decommitted_memory_is_an_error_not_a_crash(provider):
    ptr = provider.alloc(PAGE)
    for gone in (provider.decommit, provider.dalloc):
        gone(ptr, PAGE)
        with pytest.raises(InvalidArgument, match="commit them first"):
            provider.zero(ptr + 8, 8)
        with pytest.raises(InvalidArgument, match="commit them first"):
            provider.copy(bytearray(8), ptr, 8)
        with pytest.raises(InvalidArgument, match="commit it first"):
            provider.purge_force(ptr, PAGE)
        provider.commit(ptr, PAGE)
        provider.zero(ptr, PAGE)
    provider.free(ptr, PAGE)


def test_dalloc_keeps_contents(provider, peek):
    ptr = provider.alloc(PAGE)
    provider.copy(ptr, b"kept", 4)
    provider.dalloc(ptr, PAGE)
    provider.commit(ptr, PAGE)
    assert peek(ptr, 4) == b"kept"
    provider.commit(ptr, PAGE)
    assert peek(ptr, 4) == b"kept"
    provider.free(ptr, PAGE)


def test_pieces_of_unlike_state_do_not_merge(provider):
    ptr = provider.alloc(2 * PAGE)
    provider.split(ptr, 2 * PAGE, PAGE)
    provider.decommit(ptr, PAGE)
    with pytest.raises(InvalidArgument, match="commit it"):
        provider.merge(ptr, ptr + PAGE, 2 * PAGE)
    provider.commit(ptr, PAGE)
    provider.merge(ptr, ptr + PAGE, 2 * PAGE)
    provider.free(ptr, 2 * PAGE)


def test_copy_refuses_what_would_overrun(provider):
    ptr = provider.alloc(PAGE)
    with pytest.raises(InvalidArgument, match="too small to copy 9"):
        provider.copy(ptr, b"12345678", 9)
    with pytest.raises(InvalidArgument, match="writable"):
        provider.copy(b"12345678", ptr, 8)
    with pytest.raises(InvalidArgument, match="contiguous"):
        provider.copy(ptr, memoryview(bytes(16))[::2], 8)
    with pytest.raises(InvalidArgument, match="negative"):
        provider.zero(ptr, -1)
    provider.free(ptr, PAGE)


def test_close_waits_for_the_last_piece():
    provider = HostProvider(shared=True)
    fd = provider.ipc_descriptors(b"")[0]
    ptr = provider.alloc(2 * PAGE)
    provider.split(ptr, 2 * PAGE, PAGE)
    provider.close()
    with pytest.raises(InvalidArgument, match="closed"):
        provider.alloc(PAGE)
    provider.free(ptr, PAGE)
    os.fstat(fd)
    provider.free(ptr + PAGE, PAGE)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(fd)
    with pytest.raises(InvalidArgument, match="closed"):
        provider.ipc_descriptors(b"")


def test_a_dropped_provider_closes_its_file():
    before = len(os.listdir("/proc/self/fd"))
    HostProvider(shared=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_named_object_is_there_until_close_and_taken_by_one():
    provider = HostProvider(shared=True, name=f"{TAG}-name")
    path = Path(f"/dev/shm/{TAG}-name")
    assert path.exists()
    with pytest.raises(InvalidArgument, match="in use by another provider"):
        HostProvider(shared=True, name=f"{TAG}-name")
    ptr = provider.alloc(PAGE)
    provider.close()
    assert not path.exists()
    provider.zero(ptr, PAGE)
    provider.free(ptr, PAGE)


def test_named_object_of_a_killed_process_is_taken_over(peek):
    run_python(
        "import os; from umfpy import HostProvider\n"
        f"p = HostProvider(shared=True, name='{TAG}-killed')\n"
        "p.copy(p.alloc(4096), b'old', 3); os._exit(0)"
    )
    assert Path(f"/dev/shm/{TAG}-killed").exists()
    provider = HostProvider(shared=True, name=f"{TAG}-killed")
    ptr = provider.alloc(PAGE)
    assert peek(ptr, PAGE) == bytes(PAGE)
    provider.free(ptr, PAGE)
    provider.close()
    assert not Path(f"/dev/shm/{TAG}-killed").exists()


def test_named_object_goes_when_the_interpreter_ends():
    run_python(
        "from umfpy import HostProvider\n"
        f"p = HostProvider(shared=True, name='{TAG}-exit'); p.alloc(4096)"
    )
    assert not Path(f"/dev/shm/{TAG}-exit").exists()


@pytest.mark.parametrize("name", ["", "a/b", "..", "/"])
def test_bad_names_are_refused(name):
    with pytest.raises(InvalidArgument, match="cannot name a shared object"):
        HostProvider(shared=True, name=name)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(InvalidArgument, match="needs shared=True"):
        HostProvider(name="x")
    with pytest.raises(InvalidArgument, match="transparent"):
        HostProvider(huge_pages="4MiB")
    with pytest.raises(InvalidArgument, match=r"online: \[0"):
        HostProvider(numa_nodes=[1000])
    with pytest.raises(InvalidArgument, match=r"asked for; online"):
        HostProvider(numa_nodes=[])


@pytest.mark.parametrize("size", ["2MiB", "1GiB"])
def test_huge_pages_serve_or_say_what_is_missing(size):
    folder = Path(f"/sys/kernel/mm/hugepages/hugepages-{2048 if size == '2MiB' else 1048576}kB")
    if not folder.exists():
        with pytest.raises(NotSupported, match=str(folder)):
            HostProvider(huge_pages=size)
        return
    free = int((folder / "free_hugepages").read_text())
    for shared in (False, True):
        provider = HostProvider(shared, huge_pages=size)
        unit = provider.granularity()
        assert unit == {"2MiB": 2 << 20, "1GiB": 1 << 30}[size]
        if not free:
            with pytest.raises(OutOfMemoryError, match="ENOMEM"):
                provider.alloc(unit)
        else:
            ptr = provider.alloc(unit)
            assert ptr % unit == 0
            provider.zero(ptr, unit)
            provider.free(ptr, unit)
        provider.close()


def test_transparent_huge_pages_align_what_is_large_enough():
    if "[never]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        with pytest.raises(NotSupported, match="off for private memory"):
            HostProvider(huge_pages="transparent")
        return
    provider = HostProvider(huge_pages="transparent")
    best = provider.recommended_granularity()
    ptr = provider.alloc(best)
    assert ptr % best == 0
    provider.zero(ptr, best)
    provider.free(ptr, best)


@pytest.mark.parametrize("shared", [False, True])
def test_numa_binding_reaches_the_kernel(shared):
    if not online_nodes():
        with pytest.raises(InvalidArgument, match="online"):
            HostProvider(numa_nodes=[0])
        return
    provider = HostProvider(shared, numa_nodes=[min(online_nodes())])
    ptr = provider.alloc(PAGE)
    provider.zero(ptr, PAGE)
    lines = Path("/proc/self/numa_maps").read_text().splitlines()
    mine = [line for line in lines if line.startswith(f"{ptr:08x} ")]
    assert len(mine) == 1
    assert f"bind:{min(online_nodes())}" in mine[0]
    provider.free(ptr, PAGE)


def test_more_than_the_machine_has_is_refused(provider):
    with pytest.raises(OutOfMemoryError, match=f"{1 << 45} bytes") as caught:
        provider.alloc(1 << 45)
    assert caught.value.requested == 1 << 45
    assert caught.value.provider == "host"


def test_a_limit_on_addresses_is_an_out_of_memory_error_with_advice():
    program = (
        "import resource; from umfpy import HostProvider, OutOfMemoryError\n"
        "p = HostProvider()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))\n"
        "try: p.alloc(2 << 30)\n"
        "except OutOfMemoryError as e: print(e, p.native_error().name)"
    )
    assert "ulimit -v" in run_python(program)
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 1 << 30


def test_native_error_has_errno_and_words():
    provider = HostProvider()
    assert provider.native_error() is None
    with pytest.raises(OutOfMemoryError):
        provider.alloc(1 << 45)
    error = provider.native_error()
    assert (error.call, error.code, error.name) == ("mmap", errno.ENOMEM, "ENOMEM")
    assert error.message == os.strerror(errno.ENOMEM)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(provider.native_error()))
    thread.start()
    thread.join()
    assert seen == [None]


def test_private_memory_has_no_ipc():
    provider = HostProvider()
    assert Capability.IPC not in provider.capabilities
    ptr = provider.alloc(PAGE)
    with pytest.raises(NotSupported, match="shared=True"):
        provider.ipc_export(ptr, PAGE)
    provider.free(ptr, PAGE)


@pytest.mark.parametrize("name", [None, f"{TAG}-ipc"])
@pytest.mark.parametrize("with_descriptor", [False, True])
def test_another_process_reads_and_writes(name, with_descriptor, peek):
    provider = HostProvider(shared=True, name=name)
    ptr = provider.alloc(PAGE + 5)
    provider.copy(ptr, b"hello", 5)
    payload = provider.ipc_export(ptr, PAGE + 5)
    fds = tuple(provider.ipc_descriptors(payload)) if with_descriptor else ()
    assert run_python(IMPORTER, payload.hex(), *map(str, fds), fds=fds) == "hello"
    assert peek(ptr, 5) == b"world"
    provider.free(ptr, PAGE + 5)
    provider.close()


def test_every_changed_byte_of_a_handle_is_an_ipc_error(shared):
    ptr = shared.alloc(PAGE)
    payload = shared.ipc_export(ptr, PAGE)
    importer = HostProvider.for_ipc("")
    for at in range(len(payload)):
        for flip in (0x01, 0x80):
            changed = bytearray(payload)
            changed[at] ^= flip
            with pytest.raises(IpcError):
                importer.ipc_open(bytes(changed))
    for length in range(len(payload)):
        with pytest.raises(IpcError):
            importer.ipc_open(payload[:length])
    opened = importer.ipc_open(payload)
    importer.ipc_close(opened, PAGE)
    with pytest.raises(InvalidArgument, match="no imported memory"):
        importer.ipc_close(opened, PAGE)
    shared.free(ptr, PAGE)
    importer.close()


def test_only_whole_pages_of_committed_pieces_are_exported(shared):
    ptr = shared.alloc(2 * PAGE)
    for address, size in ((ptr, PAGE), (ptr + PAGE, PAGE)):
        shared.ipc_release(shared.ipc_export(address, size))
    for address, size in ((ptr, PAGE - 1), (ptr + 1, PAGE), (ptr, 3 * PAGE), (ptr, 0)):
        with pytest.raises(InvalidArgument, match="no piece"):
            shared.ipc_export(address, size)
    shared.decommit(ptr, 2 * PAGE)
    with pytest.raises(InvalidArgument, match="decommitted"):
        shared.ipc_export(ptr, 2 * PAGE)
    shared.free(ptr, 2 * PAGE)


def test_an_export_ends_with_its_release_or_with_its_memory(shared):
    importer = HostProvider.for_ipc("")
    ptr = shared.alloc(PAGE)
    first, second = shared.ipc_export(ptr, PAGE), shared.ipc_export(ptr, PAGE)
    shared.ipc_release(first)
    with pytest.raises(IpcError, match="released"):
        importer.ipc_open(first)
    with pytest.raises(InvalidArgument, match="released already"):
        shared.ipc_release(first)
    mapped = importer.ipc_open(second)
    shared.free(ptr, PAGE)
    assert shared.alloc(PAGE) == ptr
    with pytest.raises(IpcError, match="freed"):
        importer.ipc_open(second)
    importer.ipc_close(mapped, PAGE)
    shared.free(ptr, PAGE)
    importer.close()


def test_more_exports_than_one_table_holds(shared):
    ptr = shared.alloc(PAGE)
    payloads = [shared.ipc_export(ptr, PAGE) for _ in range(2 * PAGE // 16)]
    importer = HostProvider.for_ipc("")
    for payload in (payloads[0], payloads[-1]):
        importer.ipc_close(importer.ipc_open(payload), PAGE)
    for payload in payloads:
        shared.ipc_release(payload)
    shared.free(ptr, PAGE)
    importer.close()


def test_an_exporter_that_is_gone_is_said_to_be():
    program = (
        "from umfpy import HostProvider\n"
        "p = HostProvider(shared=True); print(p.ipc_export(p.alloc(4096), 4096).hex())"
    )
    payload = bytes.fromhex(run_python(program))
    importer = HostProvider.for_ipc("")
    with pytest.raises(IpcError, match="is gone"):
        importer.ipc_open(payload)
    importer.close()


def test_a_named_exporter_that_is_gone_is_said_to_be():
    program = (
        "import os; from umfpy import HostProvider\n"
        f"p = HostProvider(shared=True, name='{TAG}-gone')\n"
        "print(p.ipc_export(p.alloc(4096), 4096).hex(), flush=True); os._exit(0)"
    )
    payload = bytes.fromhex(run_python(program))
    importer = HostProvider.for_ipc("")
    with pytest.raises(IpcError, match="no provider has"):
        importer.ipc_open(payload)
    os.unlink(f"/dev/shm/{TAG}-gone")
    with pytest.raises(IpcError, match="cannot open the exported file"):
        importer.ipc_open(payload)
    importer.close()


def test_other_memory_files_are_not_accepted(shared):
    ptr = shared.alloc(PAGE)
    payload = shared.ipc_export(ptr, PAGE)
    importer = HostProvider.for_ipc("")
    unsealed = os.memfd_create("other")
    read_end, write_end = os.pipe()
    with open("/etc/hostname") as on_disk:
        for fd, words in (
            (unsealed, "not sealed"),
            (on_disk.fileno(), "file on disk"),
            (read_end, "not of shared memory"),
            (importer.ipc_descriptors(b"")[0], "another file"),
            (10**6, "descriptor"),
        ):
            with pytest.raises(IpcError, match=words):
                importer.ipc_open(payload, [fd])
    for fd in (unsealed, read_end, write_end):
        os.close(fd)
    shared.free(ptr, PAGE)
    importer.close()


def test_without_pidfd_getfd_the_proc_folder_serves(shared, peek):
    program = (
        "import errno\nfrom umfpy.providers.host.system import System\n"
        "call = System.call\n"
        "def refuse(self, name, *args):\n"
        "    if name == 'syscall' and args[0] == 438: raise self.failed(name, errno.EPERM)\n"
        "    return call(self, name, *args)\n"
        "System.call = refuse\n" + IMPORTER
    )
    ptr = shared.alloc(PAGE)
    shared.copy(ptr, b"hello", 5)
    assert run_python(program, shared.ipc_export(ptr, PAGE).hex()) == "hello"
    assert peek(ptr, 5) == b"world"
    shared.free(ptr, PAGE)


def test_without_pidfds_the_proc_folder_serves(shared, peek):
    program = (
        "import errno, os\n"
        "def refuse(pid, flags=0): raise OSError(errno.ENOSYS, 'not here')\n"
        "os.pidfd_open = refuse\n" + IMPORTER
    )
    ptr = shared.alloc(PAGE)
    shared.copy(ptr, b"hello", 5)
    assert run_python(program, shared.ipc_export(ptr, PAGE).hex()) == "hello"
    assert peek(ptr, 5) == b"world"
    shared.free(ptr, PAGE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_told_what_to_allow(shared):
    ptr = shared.alloc(PAGE)
    program = IMPORTER.replace("provider =", "import os; os.setuid(65534); provider =")
    answer = run_python(program, shared.ipc_export(ptr, PAGE).hex())
    for word in ("IpcError", "same user", "PR_SET_PTRACER", "ptrace_scope"):
        assert word in answer
    shared.free(ptr, PAGE)


FORKED = """
import os, sys
from umfpy import HostProvider, UmfpyError
p = HostProvider(shared=True)
ptr = p.alloc(4096); p.copy(ptr, b"parent", 6); export = p.ipc_export(ptr, 4096)
pid = os.fork()
if pid == 0:
    refused = 0
    for call in (lambda: p.alloc(4096), lambda: p.decommit(ptr, 4096),
                 lambda: p.purge_force(ptr, 4096), lambda: p.ipc_export(ptr, 4096)):
        try: call()
        except UmfpyError as error: refused += "forked" in str(error)
    p.free(ptr, 4096); p.close()
    os._exit(refused)
_, status = os.waitpid(pid, 0)
seen = bytearray(6); p.copy(seen, ptr, 6)
q = HostProvider.for_ipc(""); q.ipc_close(q.ipc_open(export), 4096)
print(os.waitstatus_to_exitcode(status), seen.decode())
p.free(ptr, 4096)
"""


def test_a_forked_child_cannot_hurt_its_parent():
    assert run_python(FORKED) == "4 parent"


def test_two_threads_free_the_same_piece_once(provider):
    for _ in range(50):
        ptr = provider.alloc(PAGE)
        start, refused = threading.Barrier(4), []

        def free(ptr=ptr, start=start, refused=refused):
            start.wait()
            try:
                provider.free(ptr, PAGE)
            except InvalidArgument:
                refused.append(ptr)

        threads = [threading.Thread(target=free) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 3
