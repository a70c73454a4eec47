"""Functions by name, errors by name, and the binary interface against NVIDIA's header."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CUDA_ROOT = Path("/usr/local")
ABI = Path(__file__).parents[2] / "providers" / "emulated" / "cuda" / "abi.h"


@pytest.fixture
def look_up(cu, emu):
    library = ctypes.CDLL(str(emu.library))

    def find(name, version, flags=0):
        function, found = ctypes.c_void_p(), ctypes.c_int(-1)
        code = library.cuGetProcAddress_v2(
            name.encode(),
            ctypes.byref(function),
            version,
            ctypes.c_uint64(flags),
            ctypes.byref(found),
        )
        return code, function.value, found.value

    find.symbol = lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    return find


def test_the_newest_variant_that_the_version_allows(look_up):
    for version, name in (
        (3020, "cuCtxCreate_v2"),
        (11040, "cuCtxCreate_v3"),
        (13000, "cuCtxCreate_v4"),
    ):
        assert look_up("cuCtxCreate", version) == (0, look_up.symbol(name), 0)
    assert look_up("cuMemAlloc", 13000) == (0, look_up.symbol("cuMemAlloc_v2"), 0)
    assert look_up("cuMemAlloc_v2", 3020) == (0, look_up.symbol("cuMemAlloc_v2"), 0)
    flags = look_up.symbol("cuGraphInstantiateWithFlags")
    assert look_up("cuGraphInstantiate", 12000) == (0, flags, 0)
    assert look_up("cuGraphInstantiateWithFlags", 11040) == (0, flags, 0)
    assert look_up("cuGraphInstantiate", 11040) == (0, None, 2)  # another signature


def test_per_thread_variants(look_up):
    assert look_up("cuMemcpyHtoDAsync", 13000, 2)[1] == look_up.symbol("cuMemcpyHtoDAsync_v2_ptsz")
    assert look_up("cuMemcpyHtoD", 13000, 2)[1] == look_up.symbol("cuMemcpyHtoD_v2_ptds")
    assert look_up("cuMemAlloc", 13000, 2)[1] == look_up.symbol("cuMemAlloc_v2")


def test_what_is_not_there(look_up):
    assert look_up("cuFlyToTheMoon", 13000) == (0, None, 1)
    assert look_up("cuMemAllocAsync", 11010) == (0, None, 2)
    assert look_up("cuMemAlloc", 13010)[0] == 1  # newer than the driver


def test_bindings_say_by_name_what_is_not_built(cu):
    with pytest.raises(RuntimeError, match="cuGraphAddHostNode"):
        cu.driver.cuGraphAddHostNode(0, [], 0, cu.driver.CUDA_HOST_NODE_PARAMS())


def test_direct_calls_of_what_is_not_built_say_so_once(run):
    result = run(
        """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
assert [cuda.cuLaunchKernel(), cuda.cuLaunchKernel()] == [801, 801]
"""
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == "umfpy emulated CUDA: cuLaunchKernel is not built\n"


def test_errors_have_names_and_words(cu):
    for code in cu.driver.CUresult:
        if code.value <= 999 and cu.error("cuGetErrorName", code) == 0:
            assert cu("cuGetErrorName", code).decode() == code.name
    assert cu("cuGetErrorString", cu.driver.CUresult(2)) == b"out of memory"
    library = ctypes.CDLL("libcuda.so.1")
    words = ctypes.c_char_p(b"?")
    assert library.cuGetErrorName(12345, ctypes.byref(words)) == 1
    assert words.value is None


def test_every_function_is_counted_under_a_name_of_its_own(emu):
    names = emu.calls.known
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"cu[A-Z]\w+", name) for name in names)


def headers():
    return sorted(CUDA_ROOT.glob("cuda*/include/cuda.h"))


def answers(tmp_path, include, lines):
    """Compile a program that prints each line's expression, and run it."""
    source = tmp_path / "ask.c"
    prints = "".join(f'printf("%lld\\n", (long long)({line}));\n' for line in lines)
    source.write_text(
        f"#include <stdio.h>\n#include <stddef.h>\n{include}\n"
        f"int main(void) {{\n{prints}return 0;}}\n"
    )
    program = tmp_path / "ask"
    subprocess.run(["cc", "-w", str(source), "-o", str(program)], check=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.skipif(not headers() or not shutil.which("cc"), reason="NVIDIA's cuda.h is not here")
def test_the_binary_interface_is_nvidias(tmp_path):
    text = ABI.read_text()
    constants = re.findall(r"^ {4}(CU\w+?)(?: = \w+)?,$", text, re.M)
    constants += re.findall(r"^#define (CU(?:DA)?_[A-Z_]+) \w+$", text, re.M)
    structs = {
        "CUDA_MEMCPY2D": "srcMemoryType srcHost srcPitch dstMemoryType dstDevice Height",
        "CUDA_MEMCPY3D": "srcLOD srcHost srcArray srcPitch dstXInBytes dstDevice dstHeight Depth",
        "CUDA_MEMSET_NODE_PARAMS": "pitch value elementSize width height",
        "CUDA_GRAPH_INSTANTIATE_PARAMS": "hUploadStream hErrNode_out result_out",
        "CUgraphEdgeData": "to_port reserved",
        "CUmemLocation": "type id",
        "CUmemAllocationProp": "requestedHandleTypes location allocFlags",
        "CUmemAccessDesc": "location flags",
        "CUmemPoolProps": "handleTypes location maxSize usage",
        "CUdevprop": "maxThreadsDim memPitch textureAlign",
        "CUuuid": "bytes",
        "CUipcMemHandle": "reserved",
        "CUmemPoolPtrExportData": "reserved",
    }
    lines = [*constants, *(f"sizeof({name})" for name in structs)]
    lines += [
        f"offsetof({s}, {field})" for s, fields in structs.items() for field in fields.split()
    ]
    assert len(lines) > 90
    ours = answers(tmp_path, f'#include "{ABI}"', lines)
    assert answers(tmp_path, f'#include "{headers()[-1]}"', lines) == ours
