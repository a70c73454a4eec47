"""CudaProvider on emulated GPUs: contexts, faults, IPC, and what is missing."""

from __future__ import annotations

import gc
import os
import threading
from dataclasses import replace

import numpy as np
import pytest
from cuda.bindings import driver

from tests.fakes.programs import run_python
from umfpy.errors import (
    DriverError,
    InvalidArgument,
    IpcError,
    NotSupported,
    OutOfMemoryError,
    UmfpyError,
)
from umfpy.provider import Capability
from umfpy.providers.cuda import CudaProvider, native
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.cuda.ipc import CudaPayload

KINDS = ["device", "host", "managed"]
MIB = 1 << 20


@pytest.fixture(params=KINDS)
def provider(emu, request):
    provider = CudaProvider(0, request.param)
    yield provider
    provider.close()


@pytest.fixture
def device(emu):
    provider = CudaProvider()
    yield provider
    provider.close()


def context_stack():
    """Take the thread's whole stack of contexts apart, and put it together again."""
    stack = []
    while True:
        result, current = driver.cuCtxGetCurrent()
        assert not result
        if not int(current):
            break
        stack.append(driver.cuCtxPopCurrent()[1])
    for context in reversed(stack):
        assert not driver.cuCtxPushCurrent(context)[0]
    return [int(context) for context in stack]


@pytest.fixture(params=["none", "other", "own and other"])
def callers_contexts(emu, request):
    """The contexts that the caller has current: none, another device's, or two."""
    assert not driver.cuInit(0)[0]
    ordinals = {"none": [], "other": [1], "own and other": [0, 1]}[request.param]
    for ordinal in ordinals:
        context = driver.cuDevicePrimaryCtxRetain(ordinal)[1]
        assert not driver.cuCtxPushCurrent(context)[0]
    stack = context_stack()
    assert len(stack) == len(ordinals)
    yield stack
    assert context_stack() == stack
    for ordinal in ordinals:
        driver.cuCtxPopCurrent()
        driver.cuDevicePrimaryCtxRelease(ordinal)


def script(provider):
    """Use everything; a call that fails has changed nothing, and works the second time."""
    failures = 0

    def step(function, *args):
        nonlocal failures
        live, stack = provider.live_count(), context_stack()
        try:
            result = function(*args)
        except UmfpyError:
            failures += 1
            assert provider.live_count() == live
            result = function(*args)
        assert context_stack() == stack
        return result

    size = 4 * MIB
    step(provider.granularity)
    ptr = step(provider.alloc, size)
    aligned = step(provider.alloc, 1000, 4 * MIB)
    step(provider.zero, ptr, size)
    step(provider.zero, ptr, size, 0)
    step(provider.copy, ptr, b"umfpy", 5)
    step(provider.copy, aligned, ptr, 5)
    seen = bytearray(5)
    step(provider.copy, seen, aligned, 5)
    assert seen == b"umfpy"
    step(provider.synchronize)
    step(provider.properties, ptr)
    step(provider.memory_info)
    if Capability.IPC in provider.capabilities:
        step(provider.ipc_export, ptr, size)
    step(provider.free, ptr, size)
    step(provider.free, aligned, 1000)
    return failures


class Faults:
    """Lets the nth driver call of umfpy's from now fail; the test's own calls do not count."""

    def __init__(self, emu, monkeypatch):
        self.calls = self.nth = 0
        original = CudaDriver.call

        def call(cuda, name, *args):
            self.calls += 1
            if self.calls == self.nth:
                emu.fail("*", error=999)
            return original(cuda, name, *args)

        monkeypatch.setattr(CudaDriver, "call", call)


@pytest.mark.parametrize("kind", KINDS)
def test_nth_driver_call_fails(kind, emu, callers_contexts, monkeypatch):
    faults = Faults(emu, monkeypatch)
    provider = CudaProvider(0, kind)
    made = faults.calls
    assert script(provider) == 0
    total = faults.calls - made
    provider.close()
    failures, clean = 0, emu.leaks()
    for nth in range(1, total + 1):
        provider = CudaProvider(0, kind)
        faults.nth = faults.calls + nth
        failures += script(provider)
        assert faults.calls >= faults.nth
        provider.close()
        assert emu.leaks() == clean
    # A failure to pop the context is mended, every other one is seen.
    assert failures > total // 2


@pytest.mark.parametrize("kind", KINDS)
def test_nth_call_of_constructor_and_close_fails(kind, emu, callers_contexts, monkeypatch):
    faults, clean = Faults(emu, monkeypatch), emu.live()
    CudaProvider(0, kind).close()
    total = faults.calls
    for nth in range(1, total + 1):
        faults.nth = faults.calls + nth
        with pytest.raises(UmfpyError):
            CudaProvider(0, kind).close()
        gc.collect()
        assert emu.live() == clean


def test_close_can_be_tried_again(emu, device):
    emu.fail("cuDevicePrimaryCtxRelease_v2", error=999)
    with pytest.raises(DriverError):
        device.close()
    device.close()


def test_free_from_another_thread_and_context(provider, emu):
    ptr = provider.alloc(MIB)
    errors = []

    def work():
        other = driver.cuDevicePrimaryCtxRetain(1)[1]
        driver.cuCtxPushCurrent(other)
        try:
            provider.free(ptr, MIB)
        except UmfpyError as error:
            errors.append(error)
        assert int(driver.cuCtxGetCurrent()[1]) == int(other)
        driver.cuCtxPopCurrent()
        driver.cuDevicePrimaryCtxRelease(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
    assert provider.live_count() == 0


def test_the_context_stays_for_live_memory(emu):
    provider = CudaProvider()
    ptr = provider.alloc(MIB)
    provider.close()
    with pytest.raises(InvalidArgument, match="closed"):
        provider.alloc(MIB)
    provider.zero(ptr, MIB)
    released = emu.calls["cuDevicePrimaryCtxRelease_v2"]
    provider.free(ptr, MIB)
    assert emu.calls["cuDevicePrimaryCtxRelease_v2"] == released + 1
    provider.close()
    assert emu.calls["cuDevicePrimaryCtxRelease_v2"] == released + 1


def test_a_dropped_provider_releases_its_context(emu):
    released = emu.calls["cuDevicePrimaryCtxRelease_v2"]
    CudaProvider()
    assert emu.calls["cuDevicePrimaryCtxRelease_v2"] == released + 1


def test_which_calls_and_flags(emu):
    for kind, take, give in (
        ("device", "cuMemAlloc_v2", "cuMemFree_v2"),
        ("host", "cuMemHostAlloc", "cuMemFreeHost"),
        ("managed", "cuMemAllocManaged", "cuMemFree_v2"),
    ):
        provider = CudaProvider(1, kind)
        emu.reset_calls()
        ptr = provider.alloc(MIB)
        found = provider.properties(ptr + 1000)
        assert found["memory_type"] == kind
        assert found["base"] == ptr
        assert found["size"] == MIB
        provider.free(ptr, MIB)
        assert (emu.calls[take], emu.calls[give]) == (1, 1)
        assert (provider.memory_type, provider.device) == (kind, -1 if kind == "host" else 1)
        provider.close()


def test_granularity_is_the_drivers(emu):
    names = driver.CUmemAllocationGranularity_flags
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    provider, host = CudaProvider(), CudaProvider(0, "host")
    for ask, name in (
        (provider.granularity, names.CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        (provider.recommended_granularity, names.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
    ):
        assert ask() == driver.cuMemGetAllocationGranularity(prop, name)[1]
    assert host.granularity() == os.sysconf("SC_PAGE_SIZE")
    provider.close()
    host.close()


def test_a_device_without_virtual_memory_management(emu, device):
    emu.fail("cuMemGetAllocationGranularity", error=801)
    assert device.granularity() == 2 * MIB


def test_an_aligned_address_is_not_the_native_one(device, emu):
    ptrs = [device.alloc(1000, 64 * MIB) for _ in range(3)]
    for ptr in ptrs:
        assert ptr % (64 * MIB) == 0
        assert device.properties(ptr)["size"] == 1000 + 64 * MIB
    emu.reset_calls()
    for ptr in ptrs:
        device.free(ptr, 1000)
    assert emu.calls["cuMemFree_v2"] == 3


def test_a_wrong_guess_about_alignment_costs_no_memory(device, emu, monkeypatch):
    size = alignment = 256 * MIB
    first = device.alloc(2 * MIB)
    monkeypatch.setattr(native, "LIKELY_ALIGNMENT", alignment)
    emu.reset_calls()
    ptr = device.alloc(size, alignment)
    assert ptr % alignment == 0
    assert (emu.calls["cuMemAlloc_v2"], emu.calls["cuMemFree_v2"]) in ((1, 0), (2, 1))
    emu.fail("cuMemFree_v2", error=999)
    other = device.alloc(size, alignment)
    emu.clear_faults()
    device.free(ptr, size)
    device.free(other, size)
    device.free(first, 2 * MIB)


def test_out_of_memory_says_what_the_device_has(device):
    free, total = device.memory_info()
    with pytest.raises(OutOfMemoryError, match=f"{free} of {total} bytes free") as caught:
        device.alloc(total + MIB)
    assert caught.value.requested == total + MIB
    error = device.native_error()
    assert (error.call, error.code, error.name) == ("cuMemAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY")
    assert "memory" in error.message
    assert device.memory_info() == (free, total)


def test_a_provider_that_is_closed_while_an_allocation_fails_lets_go(emu, monkeypatch):
    before = emu.leaks()
    provider = CudaProvider()
    original = CudaDriver.call

    def close_and_fail(self, name, *args):
        if name == "cuMemAlloc":
            provider.close()  # as another thread may
            emu.fail("cuMemAlloc_v2", error=2)
        return original(self, name, *args)

    monkeypatch.setattr(CudaDriver, "call", close_and_fail)
    with pytest.raises(OutOfMemoryError):
        provider.alloc(MIB)
    assert emu.leaks() == before


def test_sizes_near_the_end_of_the_address_space_reach_no_driver(provider, emu):
    emu.reset_calls()
    for size in (1 << 63, (1 << 64) - 1, (1 << 64) + MIB):
        with pytest.raises(OutOfMemoryError):
            provider.alloc(size)
    assert not {"cuMemAlloc_v2", "cuMemHostAlloc", "cuMemAllocManaged"} & set(emu.calls)


def test_other_errors_have_the_drivers_words(device, emu):
    emu.fail("cuMemAlloc_v2", error=719)
    with pytest.raises(DriverError, match="cuMemAlloc failed with CUDA_ERROR_LAUNCH_FAILED"):
        device.alloc(MIB)


def test_copies_on_a_stream_and_of_every_side(device):
    array = np.arange(1 << 12, dtype=np.uint8)
    first, second = device.alloc(1 << 12), device.alloc(1 << 12)
    device.copy(first, array, array.nbytes, stream=0)
    device.copy(second, first, array.nbytes, stream=0)
    back = np.zeros_like(array)
    device.copy(back, second, array.nbytes, stream=0)
    device.synchronize()
    assert (back == array).all()
    device.copy(second + 16, b"", 0)
    with pytest.raises(InvalidArgument, match="one has to be an address"):
        device.copy(back, array, 16)
    with pytest.raises(InvalidArgument, match="too small"):
        device.copy(first, b"x", 2)
    with pytest.raises(InvalidArgument, match="negative"):
        device.zero(first, -1)
    device.free(first, 1 << 12)
    device.free(second, 1 << 12)


def test_without_a_stream_the_work_is_waited_for(device, emu):
    ptr = device.alloc(MIB)
    for call in (
        lambda: device.zero(ptr, MIB),
        lambda: device.copy(ptr, bytes(MIB), MIB),
        lambda: device.copy(ptr + MIB // 2, ptr, MIB // 2),
    ):
        emu.reset_calls()
        call()
        assert emu.calls["cuStreamSynchronize"] == 1
    device.free(ptr, MIB)


def test_wrong_devices_and_kinds(emu):
    for ordinal in (2, -1):
        with pytest.raises(InvalidArgument, match="this process sees 2"):
            CudaProvider(ordinal)
    with pytest.raises(InvalidArgument, match="'device', 'host', 'managed'"):
        CudaProvider(0, "pinned")


def test_pinned_and_managed_memory_have_no_ipc(emu):
    for kind in ("host", "managed"):
        provider = CudaProvider(0, kind)
        ptr = provider.alloc(MIB)
        with pytest.raises(NotSupported, match=f"no IPC for {kind} memory"):
            provider.ipc_export(ptr, MIB)
        provider.free(ptr, MIB)
        provider.close()


IMPORTER = """
import sys
from umfpy import CudaProvider, IpcError
scope, payload, size = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
provider = CudaProvider.for_ipc(scope)
try:
    ptr = provider.ipc_open(payload)
except IpcError as error:
    print("IpcError:", error)
else:
    again = provider.ipc_open(payload)
    seen = bytearray(5); provider.copy(seen, ptr, 5)
    provider.copy(again, b"world", 5)
    provider.ipc_close(again, size); provider.ipc_close(ptr, size)
    try: provider.ipc_close(ptr, size)
    except ValueError: print(provider.device, ptr == again, seen.decode())
provider.close()
"""


@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize("alignment", [0, 64 * MIB])
def test_another_process_opens_by_uuid(ordinal, alignment, emu):
    provider = CudaProvider(ordinal)
    ptr = provider.alloc(MIB, alignment)
    provider.copy(ptr, b"hello", 5)
    payload = provider.ipc_export(ptr, MIB)
    answer = run_python(IMPORTER, provider.ipc_scope(), payload.hex(), str(MIB))
    assert answer == f"{ordinal} True hello"
    seen = bytearray(5)
    provider.copy(seen, ptr, 5)
    assert seen == b"world"
    provider.free(ptr, MIB)
    provider.close()


def test_only_whole_allocations_are_exported(device):
    ptr = device.alloc(2 * MIB)
    for address, size in ((ptr, MIB), (ptr + MIB, MIB), (ptr, 3 * MIB)):
        with pytest.raises(InvalidArgument, match="no CUDA allocation"):
            device.ipc_export(address, size)
    device.free(ptr, 2 * MIB)


@pytest.mark.refuses("cuIpcOpenMemHandle", driver.CUresult.CUDA_ERROR_INVALID_CONTEXT)
@pytest.mark.refuses("cuIpcOpenMemHandle", driver.CUresult.CUDA_ERROR_INVALID_VALUE)
def test_handles_that_cannot_be_opened(device, emu):
    ptr = device.alloc(MIB)
    payload, scope = device.ipc_export(ptr, MIB), device.ipc_scope()
    with pytest.raises(IpcError, match="in the process that made it"):
        device.ipc_open(payload)
    other = CudaProvider(1)
    with pytest.raises(IpcError, match="this provider is on"):
        other.ipc_open(payload)
    other.close()
    with pytest.raises(IpcError, match="sees no CUDA device"):
        CudaProvider.for_ipc("00" * 16)
    larger = replace(CudaPayload.unpack(payload), size=1 << 40).pack()
    assert "beyond what was exported" in run_python(IMPORTER, scope, larger.hex(), str(1 << 40))
    empty = replace(CudaPayload.unpack(payload), size=0).pack()
    with pytest.raises(IpcError, match="impossible range"):
        device.ipc_open(empty)
    for at in range(len(payload)):
        with pytest.raises(IpcError, match=r"changed on the way|do not describe"):
            device.ipc_open(payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :])
        with pytest.raises(IpcError):
            device.ipc_open(payload[:at])
    device.free(ptr, MIB)
    assert "IpcError" in run_python(IMPORTER, scope, payload.hex(), str(MIB))


MISSING = """
import sys
if sys.argv[1] == "binding":
    sys.modules["cuda.bindings"] = None
elif sys.argv[1] == "device":
    import os; os.environ["CUDA_VISIBLE_DEVICES"] = ""
from umfpy import CudaProvider, DriverUnavailable
try: CudaProvider()
except DriverUnavailable as error: print(error)
"""


def test_what_is_missing_is_named(emu):
    assert "umfpy[cuda13]" in run_python(MISSING, "binding")
    clean = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "UMFPY_EMULATE_CUDA")}
    answer = run_python(MISSING, "driver", env=clean)
    if answer:
        assert "libcuda.so.1" in answer or "sees no device" in answer
        assert "umfpy.emulate" in answer


def test_no_device_is_named(emu):
    emu.fail("cuDeviceGetCount", error=999)
    with pytest.raises(DriverError, match="CUDA_ERROR_UNKNOWN"):
        CudaProvider()


FORKED = """
import os, warnings
warnings.simplefilter("ignore")  # Python warns of fork() beside threads, of the driver's too.
from umfpy import CudaProvider, DriverUnavailable
p = CudaProvider(); ptr = p.alloc(1 << 20)
pid = os.fork()
if pid == 0:
    refused = 0
    for call in (lambda: p.alloc(4096), lambda: p.free(ptr, 1 << 20), lambda: p.zero(ptr, 8),
                 p.memory_info, CudaProvider, p.ipc_scope):
        try: call()
        except DriverUnavailable as error: refused += "spawn" in str(error)
    os._exit(refused)
_, status = os.waitpid(pid, 0)
p.free(ptr, 1 << 20)
p.close()
print(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_is_told_to_spawn(emu):
    assert run_python(FORKED) == "6"


def test_exit_with_live_memory_is_silent(emu):
    program = "from umfpy import CudaProvider\np = CudaProvider(); p.alloc(4096); print('done')"
    assert run_python(program) == "done"


@pytest.mark.parametrize("error", [2, 999])
def test_a_pop_that_fails_once_leaves_the_callers_contexts(emu, callers_contexts, error):
    provider = CudaProvider(0)
    emu.fail("cuCtxPopCurrent_v2", nth=1, error=error)

    ptr = provider.alloc(MIB)

    assert context_stack() == callers_contexts
    provider.free(ptr, MIB)
    provider.close()
