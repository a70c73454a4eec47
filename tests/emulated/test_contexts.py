"""Contexts: the stack of each thread, primary contexts, what dies with one."""

import threading


def test_without_a_current_context_no_call(cu):
    context = cu("cuCtxPopCurrent")
    try:
        assert cu.error("cuMemAlloc", 64) == 201
        assert cu.error("cuMemGetInfo") == 201
        assert cu.error("cuStreamCreate", 0) == 201
        assert cu.error("cuStreamSynchronize", 0) == 201
        assert int(cu("cuCtxGetCurrent")) == 0
    finally:
        cu("cuCtxPushCurrent", context)


def test_each_thread_has_its_own_stack(cu):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(cu.error("cuMemAlloc", 64)))
    thread.start()
    thread.join()
    assert seen == [201]


def test_push_and_pop_nest(cu):
    outer = cu("cuCtxGetCurrent")
    inner = cu.create_context(0, 1)
    assert int(cu("cuCtxGetCurrent")) == int(inner)
    assert int(cu("cuCtxGetDevice")) == 1
    cu("cuCtxPushCurrent", outer)
    assert int(cu("cuCtxGetDevice")) == 0
    assert int(cu("cuCtxPopCurrent")) == int(outer)
    cu("cuCtxDestroy", inner)
    assert int(cu("cuCtxGetCurrent")) == int(outer)


def test_set_current_replaces_the_top(cu):
    outer = cu("cuCtxGetCurrent")
    cu("cuCtxSetCurrent", 0)
    assert int(cu("cuCtxGetCurrent")) == 0
    cu("cuCtxSetCurrent", outer)
    assert int(cu("cuCtxGetCurrent")) == int(outer)


def test_a_destroyed_context_is_no_context(cu):
    context = cu.create_context(0, 0)
    cu("cuCtxPushCurrent", context)
    cu("cuCtxDestroy", context)
    assert int(cu("cuCtxGetCurrent")) == int(context)  # its first entry is still on the stack
    assert cu.error("cuMemAlloc", 64) == 709
    assert cu.error("cuCtxPushCurrent", context) == 201
    assert cu.error("cuCtxDestroy", context) == 201
    cu("cuCtxPopCurrent")


def test_a_context_takes_its_memory_streams_and_events_along(cu, emu):
    context = cu.create_context(0, 0)
    before = cu("cuMemGetInfo")[0]
    cu.alloc(1 << 20)
    cu("cuMemHostAlloc", 4096, 0)
    stream = cu("cuStreamCreate", 0)
    cu("cuEventCreate", 0)
    assert set(emu.leaks()) == {"allocations", "host", "streams", "events", "contexts"}
    cu("cuCtxDestroy", context)
    assert emu.leaks() == {}
    assert cu("cuMemGetInfo")[0] == before
    assert cu.error("cuStreamQuery", stream) == 400


def test_primary_context_is_counted(cu):
    assert cu("cuDevicePrimaryCtxGetState", 1) == (0, 0)
    first = cu("cuDevicePrimaryCtxRetain", 1)
    assert int(cu("cuDevicePrimaryCtxRetain", 1)) == int(first)
    cu("cuDevicePrimaryCtxRelease", 1)
    assert cu("cuDevicePrimaryCtxGetState", 1)[1] == 1
    cu("cuDevicePrimaryCtxRelease", 1)
    assert cu("cuDevicePrimaryCtxGetState", 1)[1] == 0
    assert cu.error("cuDevicePrimaryCtxRelease", 1) == 201


def test_primary_contexts_cannot_be_destroyed(cu):
    assert cu.error("cuCtxDestroy", cu("cuCtxGetCurrent")) == 201


def test_reset_frees_what_the_primary_context_holds(cu, emu):
    cu("cuCtxPushCurrent", cu("cuDevicePrimaryCtxRetain", 1))
    cu.alloc(1 << 20)
    cu("cuDevicePrimaryCtxReset", 1)
    assert emu.leaks() == {}
    assert cu.error("cuMemGetInfo") == 709
    cu("cuCtxPopCurrent")


def test_what_a_context_says(cu):
    d = cu.driver
    assert cu("cuCtxGetStreamPriorityRange") == (0, -5)
    limit = d.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE
    before = cu("cuCtxGetLimit", limit)
    cu("cuCtxSetLimit", limit, before * 2)
    assert cu("cuCtxGetLimit", limit) == before * 2
    cu("cuCtxSetLimit", limit, before)
    assert cu("cuCtxGetApiVersion", cu("cuCtxGetCurrent")) == 3020
    other = cu.create_context(1, 0)
    assert cu("cuCtxGetFlags") == 1
    assert cu("cuCtxGetId", other) != cu("cuCtxGetId", cu("cuDevicePrimaryCtxRetain", 0))
    cu("cuDevicePrimaryCtxRelease", 0)
    cu("cuCtxDestroy", other)
    parameters = (None,) if cu.bindings >= 13 else ()
    assert cu.error("cuCtxCreate", *parameters, 0x1000, 0) == 1
