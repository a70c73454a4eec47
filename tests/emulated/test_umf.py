"""Unified Memory Framework itself, unmodified, on the emulated driver: its CUDA provider."""

import sys
from pathlib import Path

import pytest

LIBRARY = Path(sys.prefix) / "lib" / "libumf.so.1"

CODE = """
import ctypes
umf = ctypes.CDLL(LIBRARY)
umf.umfCUDAMemoryProviderOps.restype = ctypes.c_void_p
context = cu("cuCtxGetCurrent")
parameters, provider = ctypes.c_void_p(), ctypes.c_void_p()
assert umf.umfCUDAMemoryProviderParamsCreate(ctypes.byref(parameters)) == 0
assert umf.umfCUDAMemoryProviderParamsSetContext(parameters, ctypes.c_void_p(int(context))) == 0
assert umf.umfCUDAMemoryProviderParamsSetDevice(parameters, 0) == 0
DEVICE = 2
assert umf.umfCUDAMemoryProviderParamsSetMemoryType(parameters, DEVICE) == 0
ops = ctypes.c_void_p(umf.umfCUDAMemoryProviderOps())
assert umf.umfMemoryProviderCreate(ops, parameters, ctypes.byref(provider)) == 0
at = ctypes.c_void_p()
size = ctypes.c_size_t(4 << 20)
assert umf.umfMemoryProviderAlloc(provider, size, ctypes.c_size_t(0), ctypes.byref(at)) == 0
cu("cuMemsetD8", at.value, 1, 4 << 20)
free, total = cu("cuMemGetInfo")
assert total - free == 4 << 20
assert umf.umfMemoryProviderFree(provider, at, size) == 0
assert cu("cuMemGetInfo")[0] == total
huge = ctypes.c_size_t(1 << 40)
assert umf.umfMemoryProviderAlloc(provider, huge, ctypes.c_size_t(0), ctypes.byref(at)) != 0
umf.umfMemoryProviderDestroy(provider)
umf.umfCUDAMemoryProviderParamsDestroy(parameters)
"""


@pytest.mark.skipif(not LIBRARY.exists(), reason="the umf package is not installed")
def test_its_cuda_provider(run):
    result = run(CODE.replace("LIBRARY", repr(str(LIBRARY))))
    assert result.returncode == 0, result.stderr
