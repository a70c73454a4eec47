"""What providers refuse at once, naming it: nothing was taken from a driver then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from umfpy import (
    CudaAsyncProvider,
    CudaProvider,
    CudaVmmProvider,
    FileProvider,
    FixedProvider,
    HostProvider,
    InvalidArgument,
    IpcError,
)

#: What is no flag, though Python takes it for one.
NO_FLAGS = ["no", 1, 0, None, []]
CUDA = [CudaProvider, CudaVmmProvider, CudaAsyncProvider]


def refuses(words: str, wrong: object, make: Any, *args: Any, **keywords: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make(*args, **keywords)
    assert words in str(caught.value)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("make", CUDA)
@pytest.mark.parametrize("wrong", ["0", None, 0.0, True, [], b"0"])
def test_a_cuda_device_is_an_ordinal(emu, make: type, wrong: object) -> None:
    refuses("device must be the ordinal of a device", wrong, make, wrong)


@pytest.mark.parametrize("make", CUDA)
def test_numbers_of_others_are_ordinals(emu, make: type) -> None:
    class Index:
        def __index__(self) -> int:
            return 1

    provider = make(Index())
    assert (provider.device, type(provider.device)) == (1, int)
    provider.close()


@pytest.mark.parametrize("wrong", ["unified", None, [], {}])
def test_a_memory_type_of_cuda(emu, wrong: object) -> None:
    refuses("one of 'device', 'host', 'managed'", wrong, CudaProvider, 0, wrong)


@pytest.mark.parametrize("wrong", ["01", 1, None])
def test_peers_are_a_list(emu, wrong: object) -> None:
    refuses("peers must be a list of ordinals", wrong, CudaVmmProvider, peers=wrong)


@pytest.mark.parametrize("wrong", ["1", 1.0, True, [1]])
def test_a_peer_is_an_ordinal(emu, wrong: object) -> None:
    refuses("a peer must be the ordinal", wrong, CudaVmmProvider, peers=[wrong])


@pytest.mark.parametrize("wrong", NO_FLAGS)
def test_shareable_is_a_flag(emu, wrong: object) -> None:
    refuses("shareable must be True or False", wrong, CudaVmmProvider, shareable=wrong)


@pytest.mark.parametrize("wrong", ["mine", 1.5, True, -1, 0, [], object()])
def test_a_pool_of_the_driver(emu, wrong: object) -> None:
    refuses('None, "default" or a CUmemoryPool', wrong, CudaAsyncProvider, pool=wrong)


def test_a_threshold_is_a_number_of_the_drivers(emu) -> None:
    for wrong in (1 << 64, 10**30):
        refuses("release_threshold must be", wrong, CudaAsyncProvider, release_threshold=wrong)
    CudaAsyncProvider(release_threshold=(1 << 64) - 1).close()


@pytest.mark.parametrize("wrong", NO_FLAGS)
def test_shared_is_a_flag(wrong: object) -> None:
    refuses("shared must be True or False", wrong, HostProvider, wrong)


@pytest.mark.parametrize("wrong", [True, None, 0, "4KiB", b"2MiB", []])
def test_huge_pages(wrong: object) -> None:
    refuses('"transparent", "2MiB" or "1GiB"', wrong, HostProvider, huge_pages=wrong)


@pytest.mark.parametrize("wrong", [0, True, 0.5, "0"])
def test_numa_nodes_are_a_list(wrong: object) -> None:
    refuses("numa_nodes must be a list", wrong, HostProvider, numa_nodes=wrong)


@pytest.mark.parametrize("wrong", ["0", None, True, [0], -1])
def test_a_numa_node_is_a_number(wrong: object) -> None:
    refuses("a NUMA node must be a whole number", wrong, HostProvider, numa_nodes=[wrong])


@pytest.mark.parametrize("wrong", [5, True, b"umfpy", "a/b", "", "a\0b"])
def test_a_name_of_shared_memory(wrong: object) -> None:
    refuses("name", wrong, HostProvider, True, name=wrong)


@pytest.mark.parametrize("wrong", [None, 5, True, b"x", []])
def test_a_file_has_a_path(wrong: object) -> None:
    refuses("path must be a path", wrong, FileProvider, wrong)


@pytest.mark.parametrize("flag", ["overwrite", "keep"])
@pytest.mark.parametrize("wrong", NO_FLAGS)
def test_flags_of_a_file(tmp_path: Path, flag: str, wrong: object) -> None:
    path = tmp_path / "memory"
    refuses(f"{flag} must be True or False", wrong, FileProvider, path, **{flag: wrong})
    assert not path.exists()


@pytest.mark.parametrize("wrong", ["4096", 1.5, [], True, 0, -1])
def test_the_size_of_a_buffer(wrong: object) -> None:
    for buffer in (bytearray(8192), 1 << 20):
        refuses("size must be a whole number from 1 on", wrong, FixedProvider, buffer, wrong)


@pytest.mark.parametrize("wrong", [True, None, 1.5, "memory", []])
def test_what_is_no_buffer(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match=type(wrong).__name__):
        FixedProvider(wrong)


@pytest.mark.parametrize("wrong", ["gpu", 5, True, [], ""])
def test_the_memory_type_of_a_buffer(wrong: object) -> None:
    refuses("memory_type must be one of", wrong, FixedProvider, bytearray(8192), memory_type=wrong)


@pytest.mark.parametrize("wrong", ["0", None, 1.5, True, -5])
def test_the_device_of_a_buffer(wrong: object) -> None:
    refuses("device must be a whole number", wrong, FixedProvider, bytearray(8192), device=wrong)


@pytest.mark.parametrize("wrong", ["64", 1.5, True, [], 0, -64])
def test_the_granule_of_a_buffer(wrong: object) -> None:
    refuses("granule must be a whole number", wrong, FixedProvider, bytearray(8192), granule=wrong)


@pytest.mark.parametrize("wrong", ["64", None, 1.5, b"64"])
def test_what_is_asked_of_a_provider_is_numbers(wrong: object) -> None:
    provider = HostProvider()
    words = "size and alignment must be whole numbers"
    refuses(words, wrong, provider.alloc, wrong)
    refuses(words, wrong, provider.alloc, 64, wrong)
    refuses("ptr must be a whole number", wrong, provider.free, wrong, 64)
    refuses("ptr must be a whole number", wrong, provider.properties, wrong)
    assert provider.live_count() == 0


@pytest.mark.parametrize("wrong", [True, "64KiB", 1.5, 0, 1000])
def test_the_chunk_size_of_a_commit(wrong: object) -> None:
    provider = HostProvider()
    ptr = provider.reserve(1 << 20)
    refuses("chunk_size is", wrong, provider.commit, ptr, 1 << 20, chunk_size=wrong)
    provider.free(ptr, 1 << 20)


@pytest.mark.parametrize("wrong", ["payload", None, 5, bytearray(8)])
def test_a_payload_is_bytes(emu, wrong: object) -> None:
    for make in (*CUDA, lambda: HostProvider(shared=True)):
        provider = make()
        with pytest.raises(IpcError, match="is bytes, not ") as caught:
            provider.ipc_open(wrong)
        assert repr(wrong) in str(caught.value)
        provider.close()


@pytest.mark.parametrize("wrong", [-1, 1 << 63, 10**30])
def test_addresses_that_are_reserved_at_once(emu, wrong: int) -> None:
    with pytest.raises(InvalidArgument, match=f"{wrong}"):
        CudaVmmProvider(reserve=wrong)
