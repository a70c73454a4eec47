"""FileProvider: growth, holes, full disks, vanished and foreign files."""

from __future__ import annotations

import contextlib
import os
import stat

import pytest

from tests.fakes.programs import run_python
from umfpy.errors import InvalidArgument, IpcError, NotSupported, OutOfMemoryError
from umfpy.providers.host import FileProvider

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def provider(tmp_path):
    provider = FileProvider(tmp_path / "memory")
    yield provider
    provider.close()


def test_grows_and_gives_holes_back(provider, tmp_path):
    path = tmp_path / "memory"
    size = 64 * PAGE
    first, second = provider.alloc(size), provider.alloc(size)
    assert path.stat().st_size == 2 * size
    # Backed before anyone writes: that is what keeps SIGBUS away.
    assert path.stat().st_blocks * 512 >= 2 * size
    provider.free(first, size)
    assert path.stat().st_blocks * 512 <= size + 2 * PAGE
    provider.decommit(second, size)
    assert path.stat().st_blocks * 512 <= 2 * PAGE
    provider.commit(second, size)
    assert path.stat().st_blocks * 512 >= size
    third = provider.alloc(size)
    assert provider.properties(third)["offset"] == 0
    assert path.stat().st_size == 2 * size
    provider.free(second, size)
    provider.free(third, size)


def test_contents_are_in_the_file(provider, tmp_path):
    ptr = provider.alloc(PAGE)
    provider.copy(ptr, b"in the file", 11)
    offset = provider.properties(ptr)["offset"]
    assert (tmp_path / "memory").read_bytes()[offset : offset + 11] == b"in the file"
    provider.free(ptr, PAGE)


def test_keep_and_overwrite(tmp_path):
    path = tmp_path / "memory"
    provider = FileProvider(path)
    ptr = provider.alloc(PAGE)
    provider.close()
    provider.free(ptr, PAGE)
    assert path.exists()
    with pytest.raises(InvalidArgument, match="overwrite=True"):
        FileProvider(path)
    assert path.stat().st_size == PAGE
    FileProvider(path, overwrite=True, keep=False).close()
    assert not path.exists()


def test_a_file_that_is_not_kept_goes_with_its_provider(tmp_path):
    path = tmp_path / "memory"
    provider = FileProvider(path, keep=False)
    provider.free(provider.alloc(PAGE), PAGE)
    del provider
    assert not path.exists()


def test_a_file_that_took_the_place_of_one_not_kept_stays(tmp_path):
    path = tmp_path / "memory"
    provider = FileProvider(path, keep=False)
    path.unlink()
    path.touch()
    del provider
    assert path.exists()


def test_a_file_that_is_not_kept_goes_at_exit_but_not_with_a_forked_child(tmp_path):
    path = tmp_path / "memory"
    run_python(
        f"""
import os
from umfpy.providers.host import FileProvider
provider = FileProvider({str(path)!r}, keep=False)
provider.alloc({PAGE})
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert os.path.exists({str(path)!r})
"""
    )
    assert not path.exists()


def test_two_providers_on_one_file(provider, tmp_path):
    with pytest.raises(InvalidArgument, match="in use by another provider"):
        FileProvider(tmp_path / "memory")
    program = (
        "import sys; from umfpy import InvalidArgument\n"
        "from umfpy.providers.host import FileProvider\n"
        "try: FileProvider(sys.argv[1], overwrite=True)\n"
        "except InvalidArgument as error: print(error)"
    )
    ptr = provider.alloc(PAGE)
    assert "in use by another provider" in run_python(program, str(tmp_path / "memory"))
    assert (tmp_path / "memory").stat().st_size == PAGE
    provider.free(ptr, PAGE)


def test_paths_that_cannot_be_used(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "fifo")
    for path, words in (
        (tmp_path, "is a directory"),
        (tmp_path / "no" / "such", "folder that does not exist"),
        (tmp_path / "link", "symbolic link"),
        (tmp_path / "fifo", "not a regular file"),
        ("/dev/null", "not a regular file"),
        (tmp_path / ("x" * 300), "too long"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            FileProvider(path)
    assert not (tmp_path / "target").exists()


@contextlib.contextmanager
def another_user():
    """Root may write to any file; become somebody who may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_file(tmp_path):
    path = tmp_path / "memory"
    path.touch()
    path.chmod(stat.S_IRUSR | stat.S_IROTH)
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    with another_user(), pytest.raises(InvalidArgument, match="may not be read and written"):
        FileProvider(path)


def test_a_full_disk_is_an_error_and_leaves_the_file_as_it_was():
    path = f"/dev/shm/umfpy-test-full-{os.getpid()}"
    provider = FileProvider(path, keep=False)
    kept = provider.alloc(PAGE)
    for size in (provider.memory_info()[1] + PAGE, 1 << 62):
        with pytest.raises(OutOfMemoryError, match=r"ENOSPC.*file system is full") as caught:
            provider.alloc(size)
        assert caught.value.requested == size
        assert os.stat(path).st_size == PAGE
    provider.zero(kept, PAGE)
    provider.free(kept, PAGE)
    provider.close()


def test_a_limit_on_file_size_is_an_error_not_a_signal(tmp_path):
    program = (
        "import os, resource, sys; from umfpy import OutOfMemoryError\n"
        "from umfpy.providers.host import FileProvider\n"
        "p = FileProvider(sys.argv[1]); a = p.alloc(4096)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
        "try: p.alloc(1 << 20)\n"
        "except OutOfMemoryError as e: print('EFBIG' in str(e), 'ulimit -f' in str(e))\n"
        "p.zero(a, 4096); b = p.alloc(4096); p.zero(b, 4096)\n"
        "print(os.stat(sys.argv[1]).st_size)"
    )
    assert run_python(program, str(tmp_path / "limited")) == "True True\n8192"


IMPORTER = """
import ctypes, sys
from umfpy import IpcError
from umfpy.providers.host import FileProvider
provider = FileProvider.for_ipc("")
try:
    ptr = provider.ipc_open(bytes.fromhex(sys.argv[1]))
except IpcError as error:
    print("IpcError:", error)
else:
    print(ctypes.string_at(ptr, 5).decode())
    ctypes.memmove(ptr, b"world", 5)
"""


def test_another_process_opens_by_path(provider, peek):
    ptr = provider.alloc(PAGE)
    provider.copy(ptr, b"hello", 5)
    payload = provider.ipc_export(ptr, PAGE)
    assert run_python(IMPORTER, payload.hex()) == "hello"
    assert peek(ptr, 5) == b"world"
    provider.free(ptr, PAGE)
    assert "was freed" in run_python(IMPORTER, payload.hex())


def test_a_vanished_file(provider, tmp_path):
    ptr = provider.alloc(PAGE)
    payload = provider.ipc_export(ptr, PAGE)
    (tmp_path / "memory").rename(tmp_path / "moved")
    assert "cannot open the exported file" in run_python(IMPORTER, payload.hex())
    with pytest.raises(IpcError, match="moved or removed"):
        provider.ipc_export(ptr, PAGE)
    # Another file in its place, even one in use, is not the one that was exported.
    other = FileProvider(tmp_path / "memory")
    assert "another file" in run_python(IMPORTER, payload.hex())
    other.close()
    # What is allocated stays, and more can be had.
    provider.zero(ptr, PAGE)
    provider.free(provider.alloc(PAGE), PAGE)
    provider.free(ptr, PAGE)


def test_a_foreign_handle_does_not_lead_to_other_files(provider):
    from umfpy.providers.host import HostProvider

    shared = HostProvider(shared=True)
    mine, theirs = provider.alloc(PAGE), shared.alloc(PAGE)
    with pytest.raises(IpcError, match="does not open"):
        shared.ipc_open(provider.ipc_export(mine, PAGE))
    with pytest.raises(IpcError, match="does not open"):
        provider.ipc_open(shared.ipc_export(theirs, PAGE))
    provider.free(mine, PAGE)
    shared.free(theirs, PAGE)
    shared.close()


def test_an_importer_only_imports():
    importer = FileProvider.for_ipc("")
    with pytest.raises(NotSupported, match="only opens"):
        importer.alloc(PAGE)
    with pytest.raises(NotSupported, match="only opens"):
        importer.ipc_export(PAGE, PAGE)
    with pytest.raises(InvalidArgument):
        importer.free(PAGE, PAGE)
    importer.close()
