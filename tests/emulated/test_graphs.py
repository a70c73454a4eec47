"""Graphs: built by hand or captured, instantiated, launched, destroyed."""

import ctypes
import threading

import pytest

from tests.emulated.support import SIZE, pattern

MEMCPY, MEMSET, EMPTY = 1, 2, 5
ILLEGAL_ADDRESS = 700


@pytest.fixture
def stream(cu):
    made = cu("cuStreamCreate", 1)
    yield made
    cu("cuStreamDestroy", made)


@pytest.fixture
def graph(cu):
    made = cu("cuGraphCreate", 0)
    yield made
    cu("cuGraphDestroy", made)


def copy_of(cu, to, source, size=SIZE):
    d = cu.driver
    copy = d.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.dstDevice = source, to
    copy.WidthInBytes, copy.Height, copy.Depth = size, 1, 1
    return copy


def set_of(cu, to, value, count=SIZE, width=1):
    wanted = cu.driver.CUDA_MEMSET_NODE_PARAMS()
    wanted.dst, wanted.value, wanted.elementSize = to, value, width
    wanted.width, wanted.height = count, 1
    return wanted


class Drawing:
    """Nodes added to a graph by hand, in the current context."""

    def __init__(self, cu, graph):
        self.cu, self.graph, self.context = cu, graph, cu("cuCtxGetCurrent")

    def copy(self, to, source, *before):
        what = copy_of(self.cu, to, source)
        return self.cu(
            "cuGraphAddMemcpyNode", self.graph, list(before), len(before), what, self.context
        )

    def set(self, to, value, *before):
        what = set_of(self.cu, to, value)
        return self.cu(
            "cuGraphAddMemsetNode", self.graph, list(before), len(before), what, self.context
        )

    def empty(self, *before):
        return self.cu("cuGraphAddEmptyNode", self.graph, list(before), len(before))

    def executable(self):
        return self.cu("cuGraphInstantiate", self.graph, 0)


@pytest.fixture
def draw(cu, graph):
    return Drawing(cu, graph)


def test_a_graph_of_hand_made_nodes_runs_in_its_order(cu, stream, blocks, draw):
    a, b, c, other, _ = blocks
    cu.write(other, pattern(9))
    first = draw.set(a, 0x11)
    second = draw.copy(b, a, first)
    third = draw.set(a, 0x22, second)
    draw.copy(c, a, draw.empty(third))
    executable = draw.executable()
    cu("cuGraphLaunch", executable, stream)
    assert [cu.read(x, SIZE) for x in (a, b, c)] == [bytes([n]) * SIZE for n in (0x22, 0x11, 0x22)]
    assert cu.read(other, SIZE) == pattern(9)
    cu("cuGraphExecDestroy", executable)


def test_edges_count_and_not_the_order_of_adding(cu, stream, blocks, draw, graph):
    a, b, *_ = blocks
    late, early = draw.copy(b, a), draw.set(a, 0x33)
    cu("cuGraphAddDependencies", graph, [early], [late], None, 1)
    assert cu.error("cuGraphAddDependencies", graph, [early], [late], None, 1) == 1
    assert cu.error("cuGraphAddDependencies", graph, [late], [late], None, 1) == 1
    executable = draw.executable()
    cu("cuGraphLaunch", executable, stream)
    assert cu.read(b, SIZE) == b"\x33" * SIZE
    cu("cuGraphExecDestroy", executable)


def test_a_circle_cannot_be_instantiated(cu, blocks, draw, graph):
    a, *_ = blocks
    first = draw.set(a, 1)
    second = draw.set(a, 2, first)
    cu("cuGraphAddDependencies", graph, [second], [first], None, 1)
    assert cu.error("cuGraphInstantiate", graph, 0) == 1
    wanted = cu.driver.CUDA_GRAPH_INSTANTIATE_PARAMS()
    assert cu.error("cuGraphInstantiateWithParams", graph, wanted) == 1
    assert int(wanted.result_out) == 2


def test_what_a_graph_says_of_its_nodes(cu, blocks, draw, graph):
    a, b, *_ = blocks
    nodes = [draw.set(a, 1)]
    nodes.append(draw.copy(b, a, nodes[0]))
    nodes.append(draw.empty(nodes[0], nodes[1]))
    listed, count = cu("cuGraphGetNodes", graph, 5)
    assert count == 3
    assert [int(node) for node in listed] == [*map(int, nodes), 0, 0]
    assert cu("cuGraphGetNodes", graph)[1] == 3
    assert [int(cu("cuGraphNodeGetType", node)) for node in nodes] == [MEMSET, MEMCPY, EMPTY]
    before, _, count = cu("cuGraphNodeGetDependencies", nodes[2], 2)
    assert [int(node) for node in before[:count]] == [*map(int, nodes[:2])]


def test_nodes_that_make_no_sense(cu, blocks, draw, graph):
    a, *_ = blocks
    context, node = draw.context, draw.empty()
    foreign = cu("cuGraphCreate", 0)
    for target, before in ((graph, [node, node]), (foreign, [node]), (0, [])):
        assert cu.error("cuGraphAddEmptyNode", target, before, len(before)) == 1
    for wrong in (set_of(cu, a, 0, 1, 3), set_of(cu, a, 0, SIZE + 1), set_of(cu, a + 1, 0, 1, 4)):
        assert cu.error("cuGraphAddMemsetNode", graph, [], 0, wrong, context) == 1
    assert cu.error("cuGraphAddMemcpyNode", graph, [], 0, copy_of(cu, a, 12345), context) == 1
    assert cu.error("cuGraphAddMemsetNode", graph, [], 0, set_of(cu, a, 0), 12345) == 201
    deep = copy_of(cu, a, a)
    deep.Depth = 2
    assert cu.error("cuGraphAddMemcpyNode", graph, [], 0, deep, context) == 801
    assert cu("cuGraphGetNodes", graph)[1] == 1
    cu("cuGraphDestroy", foreign)
    assert cu.error("cuGraphDestroy", foreign) == 1
    assert cu.error("cuGraphNodeGetType", foreign) == 1
    assert cu.error("cuGraphCreate", 1) == 1


def test_executables_and_clones_outlive_their_graph(cu, stream, blocks):
    a, b, *_ = blocks
    original = cu("cuGraphCreate", 0)
    draw = Drawing(cu, original)
    draw.copy(b, a, draw.set(a, 0x44))
    executable, clone = draw.executable(), cu("cuGraphClone", original)
    draw.set(a, 0x55)
    cu("cuGraphDestroy", original)
    cu("cuGraphLaunch", executable, stream)
    assert cu.read(b, SIZE) == b"\x44" * SIZE
    assert cu("cuGraphGetNodes", clone)[1] == 2
    from_clone = cu("cuGraphInstantiate", clone, 0)
    cu("cuMemsetD8", b, 0, SIZE)
    cu("cuGraphLaunch", from_clone, stream)
    assert cu.read(b, SIZE) == b"\x44" * SIZE
    for name, handle in (
        ("cuGraphExecDestroy", executable),
        ("cuGraphExecDestroy", from_clone),
        ("cuGraphDestroy", clone),
    ):
        cu(name, handle)
        assert cu.error(name, handle) == 1
    assert cu.error("cuGraphLaunch", executable, stream) == 1


def test_flags_of_instantiation(cu, stream, graph):
    d = cu.driver
    assert cu.error("cuGraphInstantiate", graph, 16) == 1
    assert cu.error("cuGraphInstantiate", graph, 2) == 1
    assert cu.error("cuGraphInstantiate", graph, 4) == 801
    executable = cu("cuGraphInstantiate", graph, 9)
    assert int(cu("cuGraphExecGetFlags", executable)) == 9
    cu("cuGraphExecDestroy", executable)
    wanted = d.CUDA_GRAPH_INSTANTIATE_PARAMS()
    wanted.flags, wanted.hUploadStream = 2, stream
    executable = cu("cuGraphInstantiateWithParams", graph, wanted)
    assert int(wanted.result_out) == 0
    cu("cuGraphUpload", executable, stream)
    cu("cuGraphLaunch", executable, stream)
    cu("cuGraphExecDestroy", executable)


def test_memory_freed_under_a_graph_is_never_touched(cu, emu, stream, blocks, draw):
    a, b, c, *_ = blocks
    cu.write(c, pattern(1))
    draw.copy(b, a, draw.set(c, 0x66))
    executable = draw.executable()
    cu("cuMemFree", blocks.pop(0))
    assert emu.illegal_accesses == 0
    assert cu.error("cuGraphLaunch", executable, stream) == ILLEGAL_ADDRESS
    assert emu.illegal_accesses == 1
    assert cu.read(c, SIZE) == pattern(1)
    emu.reset_calls()
    assert emu.illegal_accesses == 0
    cu("cuGraphExecDestroy", executable)


def test_an_address_given_to_somebody_else_is_not_the_same_memory(cu, emu, stream, blocks, draw):
    a, *_ = blocks
    draw.set(a, 0x77)
    executable = draw.executable()
    cu("cuMemFree", blocks.pop(0))
    again = cu.alloc(SIZE)
    blocks.append(again)
    assert again == a
    cu.write(again, pattern(2))
    for launches in (1, 2):
        assert cu.error("cuGraphLaunch", executable, stream) == ILLEGAL_ADDRESS
        assert emu.illegal_accesses == launches
    assert cu.read(again, SIZE) == pattern(2)
    cu("cuGraphExecDestroy", executable)


def test_pinned_host_memory_freed_under_a_graph(cu, emu, stream, blocks):
    host = cu("cuMemHostAlloc", SIZE, 0)
    cu("cuStreamBeginCapture", stream, cu.driver.CUstreamCaptureMode(2))
    cu("cuMemcpyHtoDAsync", blocks[0], int(host), SIZE, stream)
    captured = cu("cuStreamEndCapture", stream)
    executable = cu("cuGraphInstantiate", captured, 0)
    cu("cuGraphLaunch", executable, stream)
    cu("cuMemFreeHost", host)
    assert cu.error("cuGraphLaunch", executable, stream) == ILLEGAL_ADDRESS
    cu("cuGraphExecDestroy", executable)
    cu("cuGraphDestroy", captured)


def test_other_memory_mapped_at_the_same_addresses_is_used(cu, stream, draw):
    size = 2 << 20
    space = int(cu("cuMemAddressReserve", size, 0, 0, 0))

    def map_new():
        handle = cu("cuMemCreate", size, cu.properties(), 0)
        cu("cuMemMap", space, size, 0, handle, 0)
        cu("cuMemSetAccess", space, size, [cu.access()], 1)
        cu("cuMemRelease", handle)

    map_new()
    draw.set(space, 0x12)
    executable = draw.executable()
    cu("cuMemUnmap", space, size)
    assert cu.error("cuGraphLaunch", executable, stream) == ILLEGAL_ADDRESS
    map_new()
    cu("cuGraphLaunch", executable, stream)
    assert cu.read(space, SIZE) == b"\x12" * SIZE
    cu("cuGraphExecDestroy", executable)
    cu("cuMemUnmap", space, size)
    cu("cuMemAddressFree", space, size)


def test_time_follows_the_edges(cu, emu, stream):
    size = 150 << 20  # 100 us inside the device
    a, b = cu.alloc(size), cu.alloc(size)

    def spent(chained):
        made = cu("cuGraphCreate", 0)
        context = cu("cuCtxGetCurrent")
        first = cu("cuGraphAddMemsetNode", made, [], 0, set_of(cu, a, 1, size), context)
        before = [first] if chained else []
        cu("cuGraphAddMemsetNode", made, before, len(before), set_of(cu, b, 1, size), context)
        executable = cu("cuGraphInstantiate", made, 0)
        cu("cuGraphUpload", executable, stream)
        cu("cuStreamSynchronize", stream)
        emu.reset_clock()
        cu("cuGraphLaunch", executable, stream)
        assert emu.clock_us == pytest.approx(2.5, abs=0.1)
        cu("cuStreamSynchronize", stream)
        cu("cuGraphExecDestroy", executable)
        cu("cuGraphDestroy", made)
        return emu.clock_us

    one = size / 1.5e6
    assert spent(chained=True) == pytest.approx(2 * one, rel=0.1)
    assert spent(chained=False) == pytest.approx(one, rel=0.1)
    cu("cuMemFree", a)
    cu("cuMemFree", b)


def test_launches_wait_for_the_stream_and_for_one_another(cu, emu, stream, draw):
    size = 64 << 20
    other, address = cu("cuStreamCreate", 1), cu.alloc(size)
    draw.copy(address, address + 0)
    executable = draw.executable()
    cu("cuMemcpyHtoDAsync", address, bytes(size), size, stream)
    cu("cuGraphLaunch", executable, stream)
    emu.reset_clock()
    cu("cuGraphLaunch", executable, other)
    assert emu.clock_us < 100
    cu("cuStreamSynchronize", other)
    assert emu.clock_us > size / 25e3 / 2
    cu("cuGraphExecDestroy", executable)
    cu("cuStreamDestroy", other)
    cu("cuMemFree", address)


def test_what_is_not_given_back_is_reported(cu, emu, blocks):
    made = cu("cuGraphCreate", 0)
    Drawing(cu, made).set(blocks[0], 1)
    executable = cu("cuGraphInstantiate", made, 0)
    leaks = emu.leaks()
    assert leaks["graphs"] == [(int(made), 0, -1)]
    assert leaks["executable_graphs"] == [(int(executable), 0, -1)]
    assert "graph_nodes" not in leaks
    assert len(emu.live()["graph_nodes"]) == 1
    cu("cuGraphExecDestroy", executable)
    cu("cuGraphDestroy", made)
    assert not {"graphs", "executable_graphs", "graph_nodes"} & set(emu.live())


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cuGraphLaunch", "cuGraphLaunch"),
        ("cuGraphInstantiateWithFlags", "cuGraphInstantiate"),
        ("cuGraphAddMemsetNode", "cuGraphAddMemsetNode"),
        ("cuGraphClone", "cuGraphClone"),
    ],
)
def test_the_nth_call_fails_and_changes_nothing(cu, emu, stream, blocks, draw, graph, name, call):
    draw.set(blocks[0], 0x21)
    executable = draw.executable()
    cu.write(blocks[0], pattern(3))
    arguments = {
        "cuGraphLaunch": (executable, stream),
        "cuGraphInstantiate": (graph, 0),
        "cuGraphAddMemsetNode": (graph, [], 0, set_of(cu, blocks[0], 1), draw.context),
        "cuGraphClone": (graph,),
    }[call]
    before = emu.live()
    emu.reset_calls()
    emu.fail(name, nth=1, error=999)
    assert cu.error(call, *arguments) == 999
    assert emu.live() == before
    assert emu.calls[name] == 1
    assert cu.read(blocks[0], SIZE) == pattern(3)
    cu("cuGraphLaunch", executable, stream)
    assert cu.read(blocks[0], SIZE) == b"\x21" * SIZE
    cu("cuGraphExecDestroy", executable)


def test_many_threads_build_and_launch(cu, emu, blocks):
    context, failures = cu("cuCtxGetCurrent"), []

    def work(seed):
        cu("cuCtxSetCurrent", context)
        stream, mine = cu("cuStreamCreate", 1), cu.alloc(SIZE)
        for step in range(50):
            made = cu("cuGraphCreate", 0)
            value = seed * 50 % 251 + step % 4
            draw = Drawing(cu, made)
            draw.copy(mine, mine, draw.set(mine, value))
            executable = draw.executable()
            cu("cuGraphLaunch", executable, stream)
            if cu.read(mine, SIZE) != bytes([value]) * SIZE:
                failures.append((seed, step))
            cu("cuGraphExecDestroy", executable)
            cu("cuGraphDestroy", made)
        cu("cuStreamDestroy", stream)
        cu("cuMemFree", mine)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert emu.calls["cuGraphLaunch"] == 300


def test_user_objects_live_as_long_as_whoever_holds_them(cu, emu):
    buried = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda data: buried.append((data, int(cu("cuDeviceGetCount"))))
    )
    destroy = cu.driver.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)

    def create(data, count=1):
        return cu("cuUserObjectCreate", data, destroy, count, 1)

    graph = cu("cuGraphCreate", 0)
    moved, shared = create(1), create(2, 3)
    cu("cuGraphRetainUserObject", graph, moved, 1, 1)
    cu("cuGraphRetainUserObject", graph, shared, 2, 0)
    cu("cuUserObjectRetain", shared, 1)
    cu("cuUserObjectRelease", shared, 4)
    cu("cuGraphReleaseUserObject", graph, shared, 1)
    assert cu.error("cuGraphReleaseUserObject", graph, shared, 2) == 1
    clone, executable = cu("cuGraphClone", graph), cu("cuGraphInstantiate", graph, 0)
    cu("cuGraphDestroy", graph)
    cu("cuGraphDestroy", clone)
    assert not buried
    assert len(emu.leaks()["user_objects"]) == 2
    cu("cuGraphExecDestroy", executable)
    assert sorted(buried) == [(1, 2), (2, 2)]
    assert cu.error("cuUserObjectRelease", shared, 1) == 1
    for wrong in ((destroy, 1, 0), (destroy, 0, 1), (0, 1, 1)):
        assert cu.error("cuUserObjectCreate", 0, *wrong) == 1
