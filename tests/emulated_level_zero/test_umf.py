"""Unified Memory Framework itself, unmodified, on the emulated drivers.

Its compiled Level Zero and CUDA providers allocate, free and exchange IPC handles: they know
the real drivers, and so vouch for the emulated ones.
"""

import sys
from pathlib import Path

import pytest

LIBRARY = Path(sys.prefix) / "lib" / "libumf.so.1"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the umf package is not installed")

#: Two processes of one program: the first exports, the second opens.  The first lets the second
#: take its descriptors, as UMF's users must where the kernel restricts ptrace.
PROVIDER = """
import ctypes, subprocess, sys
from ctypes import byref, c_char, c_size_t, c_void_p
umf = ctypes.CDLL({library!r})
PR_SET_PTRACER, ANYBODY = 0x59616D61, ctypes.c_ulong(-1)
ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANYBODY, 0, 0, 0)

def ok(result):
    assert result == 0, result

class Provider:
    def __init__(self, name, *settings):
        ops = getattr(umf, f"umf{{name}}MemoryProviderOps")
        ops.restype = c_void_p
        parameters, self.handle = c_void_p(), c_void_p()
        ok(getattr(umf, f"umf{{name}}MemoryProviderParamsCreate")(byref(parameters)))
        for setting, value in settings:
            ok(getattr(umf, f"umf{{name}}MemoryProviderParamsSet{{setting}}")(parameters, value))
        ok(umf.umfMemoryProviderCreate(c_void_p(ops()), parameters, byref(self.handle)))
        ok(getattr(umf, f"umf{{name}}MemoryProviderParamsDestroy")(parameters))
        size = c_size_t()
        ok(umf.umfMemoryProviderGetIPCHandleSize(self.handle, byref(size)))
        self.handle_size = size.value

    def alloc(self, size, alignment=0):
        at = c_void_p()
        ok(umf.umfMemoryProviderAlloc(self.handle, c_size_t(size), c_size_t(alignment), byref(at)))
        return at.value

    def free(self, at, size):
        ok(umf.umfMemoryProviderFree(self.handle, c_void_p(at), c_size_t(size)))

    def export(self, at, size):
        data = (c_char * self.handle_size)()
        ok(umf.umfMemoryProviderGetIPCHandle(self.handle, c_void_p(at), c_size_t(size), data))
        return data

    def put(self, data):
        ok(umf.umfMemoryProviderPutIPCHandle(self.handle, data))

    def open(self, data):
        at = c_void_p()
        ok(umf.umfMemoryProviderOpenIPCHandle(self.handle, data, byref(at)))
        return at.value

    def close(self, at, size):
        ok(umf.umfMemoryProviderCloseIPCHandle(self.handle, c_void_p(at), c_size_t(size)))

    def destroy(self):
        umf.umfMemoryProviderDestroy(self.handle)
"""

EXCHANGE = """
SIZE = 4 << 20
if sys.argv[1:]:
    data = (c_char * provider.handle_size).from_buffer_copy(bytes.fromhex(sys.argv[1]))
    at = provider.open(data)
    assert read(at, 6) == b"theirs", read(at, 6)
    write(at + SIZE - 4, b"mine")
    provider.close(at, SIZE)
    provider.destroy()
    sys.exit()
at = provider.alloc(SIZE, 1 << 16)
assert at % (1 << 16) == 0
write(at, b"theirs")
data = provider.export(at, SIZE)
done = subprocess.run([sys.executable, "-c", PROGRAM, bytes(data).hex()])
assert done.returncode == 0, done.returncode
assert read(at + SIZE - 4, 4) == b"mine"
provider.put(data)
provider.free(at, SIZE)
provider.destroy()
"""

LEVEL_ZERO = """
def settings(kind):
    chosen = [("Context", c_void_p(ze.context)), ("MemoryType", kind)]
    return chosen if kind == HOST else [*chosen, ("Device", c_void_p(ze.devices[0]))]

provider, read, write = Provider("LevelZero", *settings(2)), ze.read, ze.write
"""

KINDS = """
for kind in (1, 2, 3):
    for policy in (0, 1, 2):
        one = Provider("LevelZero", *settings(kind), ("FreePolicy", policy))
        ptrs = [one.alloc(1 << 20) for _ in range(3)]
        assert {{ze.properties(ptr)[0] for ptr in ptrs}} == {{kind}}
        for ptr in ptrs:
            one.free(ptr, 1 << 20)
        one.destroy()
wide = Provider("LevelZero", *settings(2))
out = c_void_p()
far = c_size_t(1 << 40)
assert umf.umfMemoryProviderAlloc(wide.handle, far, c_size_t(0), byref(out)) != 0
large = wide.alloc(600 << 20)  # above the device's limit: UMF lifts it
wide.free(large, 600 << 20)
wide.destroy()
"""

CUDA = """
import umfpy
from cuda.bindings import driver as d
emulated = umfpy.emulate("cuda", memory="1GiB", force=True)

def cu(name, *arguments):
    code, *answers = getattr(d, name)(*arguments)
    assert int(code) == 0, (name, code)
    return answers[0] if answers else None

cu("cuInit", 0)
context = cu("cuDevicePrimaryCtxRetain", 0)
cu("cuCtxSetCurrent", context)

def write(at, data):
    cu("cuMemcpyHtoD", at, data, len(data))

def read(at, size):
    data = bytearray(size)
    cu("cuMemcpyDtoH", data, at, size)
    return bytes(data)

provider = Provider("CUDA", ("Context", c_void_p(int(context))), ("Device", 0), ("MemoryType", 2))
"""


def _program(*parts):
    text = "".join(parts).format(library=str(LIBRARY))
    return f"PROGRAM = {text!r}\nPROGRAM = 'PROGRAM = ' + repr(PROGRAM) + chr(10) + PROGRAM\n{text}"


def test_its_level_zero_provider_exchanges_memory(run):
    begin = "from support import *\nze = Ze().begin()\n"
    result = run(_program(begin, PROVIDER, LEVEL_ZERO, EXCHANGE), begin=False)
    assert result.returncode == 0, result.stderr


def test_its_level_zero_provider_allocates_every_kind(run):
    result = run(PROVIDER.format(library=str(LIBRARY)) + LEVEL_ZERO + KINDS.format())
    assert result.returncode == 0, result.stderr


def test_its_residency_changes(run):
    code = """
import umfpy
emulated = umfpy.emulate("level_zero", memory="1GiB", devices=2, force=True)
ze = Ze().begin()
others = (c_void_p * 1)(ze.devices[1])
parameters = c_void_p()
ok(umf.umfLevelZeroMemoryProviderParamsCreate(byref(parameters)))
ok(umf.umfLevelZeroMemoryProviderParamsSetContext(parameters, c_void_p(ze.context)))
ok(umf.umfLevelZeroMemoryProviderParamsSetDevice(parameters, c_void_p(ze.devices[0])))
ok(umf.umfLevelZeroMemoryProviderParamsSetMemoryType(parameters, 2))
ok(umf.umfLevelZeroMemoryProviderParamsSetResidentDevices(parameters, others, 1))
umf.umfLevelZeroMemoryProviderOps.restype = c_void_p
provider = c_void_p()
ops = c_void_p(umf.umfLevelZeroMemoryProviderOps())
ok(umf.umfMemoryProviderCreate(ops, parameters, byref(provider)))
at = c_void_p()
ok(umf.umfMemoryProviderAlloc(provider, c_size_t(4096), c_size_t(0), byref(at)))
print(emulated.residency(at.value))
ok(umf.umfMemoryProviderFree(provider, at, c_size_t(4096)))
umf.umfMemoryProviderDestroy(provider)
"""
    result = run(PROVIDER.format(library=str(LIBRARY)) + code, begin=False)
    assert result.stdout == "{1: 1}\n", result.stderr


def test_its_cuda_provider_exchanges_memory(run):
    pytest.importorskip("cuda.bindings.driver", reason="the cuda-bindings package is not installed")
    result = run(_program(PROVIDER, CUDA, EXCHANGE), begin=False, emulated=False)
    assert result.returncode == 0, result.stderr
