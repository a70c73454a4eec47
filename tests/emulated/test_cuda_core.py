"""cuda.core, unmodified, on the emulated driver: in processes of its own, as it keeps state.

Device.sync and Device.pci_bus_id go through the CUDA runtime, which does not start here.
"""

import pytest

pytest.importorskip("cuda.core")


def check(result):
    assert result.returncode == 0, result.stderr


def test_devices_streams_events_and_buffers(run):
    check(
        run(
            """
from cuda.core import Device
device = Device(1)
device.set_current()
assert device.name == "umfpy emulated GPU"
assert tuple(device.compute_capability) == (9, 0)
assert device.properties.multiprocessor_count == 132
assert device.uuid
stream = device.create_stream()
first = stream.record()
buffer = device.allocate(1 << 20, stream=stream)
assert buffer.size == 1 << 20 and buffer.is_device_accessible and not buffer.is_host_accessible
other = device.allocate(1 << 20, stream=stream)
buffer.fill(7, stream=stream)
buffer.copy_to(other, stream=stream)
last = stream.record()
stream.wait(last)
stream.sync()
assert cu.read(int(other.handle), 3) == bytes([7] * 3)
assert first.is_done and last.is_done
buffer.close(stream)
other.close(stream)
stream.close()
"""
        )
    )


def test_memory_resources(run):
    check(
        run(
            """
from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions
from cuda.core import LegacyPinnedMemoryResource
device = Device()
device.set_current()
stream = device.default_stream
pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=8 << 20))
a = pool.allocate(4096, stream=stream)
assert pool.attributes.used_mem_current == 4096
b = LegacyPinnedMemoryResource().allocate(4096)
assert b.is_host_accessible and b.is_device_accessible
a.fill(9, stream=stream)
a.copy_to(b, stream=stream)
stream.sync()
import ctypes
assert ctypes.string_at(int(b.handle), 2) == bytes([9, 9])
a.close(stream)
b.close()
assert pool.attributes.used_mem_current == 0
pool.close()
"""
        )
    )


def test_virtual_memory_resource(run):
    check(
        run(
            """
from cuda.core import Device, VirtualMemoryResource, VirtualMemoryResourceOptions
device = Device()
device.set_current()
options = VirtualMemoryResourceOptions(handle_type="posix_fd", gpu_direct_rdma=False)
resource = VirtualMemoryResource(device, config=options)
buffer = resource.allocate(2 << 20, stream=device.default_stream)
assert buffer.size == 2 << 20
cu.write(int(buffer.handle), b"virtual")
buffer = resource.modify_allocation(buffer, 4 << 20)
assert cu.read(int(buffer.handle), 7) == b"virtual"
cu("cuMemsetD8", int(buffer.handle), 1, 4 << 20)
buffer.close()
"""
        )
    )


def test_pools_with_ipc(run):
    check(
        run(
            """
from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions
device = Device()
device.set_current()
options = DeviceMemoryResourceOptions(ipc_enabled=True, max_size=8 << 20)
pool = DeviceMemoryResource(device, options)
assert pool.is_ipc_enabled
buffer = pool.allocate(4096, stream=device.default_stream)
assert buffer.ipc_descriptor.size == 4096
buffer.close(device.default_stream)
pool.close()
"""
        )
    )


def test_a_buffer_crosses_processes(run, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
import multiprocessing

def read(buffers, answers):
    from cuda.bindings import driver
    from cuda.core import Device
    Device().set_current()
    buffer, data = buffers.get(), bytearray(5)
    driver.cuMemcpyDtoH(data, int(buffer.handle), 5)
    answers.put((bytes(data), buffer.size))
    buffer.close()

if __name__ == "__main__":
    from cuda.bindings import driver
    from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions
    spawn = multiprocessing.get_context("spawn")
    multiprocessing.set_start_method("spawn")
    device = Device()
    device.set_current()
    options = DeviceMemoryResourceOptions(ipc_enabled=True, max_size=8 << 20)
    pool = DeviceMemoryResource(device, options)
    buffer = pool.allocate(4096, stream=device.default_stream)
    driver.cuMemcpyHtoD(int(buffer.handle), b"hello", 5)
    buffers, answers = spawn.Queue(), spawn.Queue()
    child = spawn.Process(target=read, args=(buffers, answers))
    child.start()
    buffers.put(buffer)
    assert answers.get(timeout=60) == (b"hello", 4096)
    child.join()
    assert child.exitcode == 0
"""
    )
    check(run(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"))


def test_graph_builder(run):
    check(
        run(
            """
from cuda.core import Device
device = Device()
device.set_current()
stream = device.create_stream()
a, b, c = (device.allocate(4096, stream=stream) for _ in range(3))
builder = stream.create_graph_builder().begin_building(mode="relaxed")
assert builder.is_building
a.copy_to(b, stream=builder)
one, two = builder.split(2)
b.copy_to(c, stream=one)
a.fill(0, stream=type(one).join(one, two))
graph = builder.end_building().complete()
graph.upload(stream)
for value in (3, 4):
    a.fill(value, stream=stream)
    graph.launch(stream)
    stream.sync()
    assert [cu.read(int(x.handle), 4096) for x in (a, b, c)] == [
        bytes([n]) * 4096 for n in (0, value, value)
    ]
graph.close()
builder.close()
for buffer in (a, b, c):
    buffer.close(stream)
stream.close()
"""
        )
    )
