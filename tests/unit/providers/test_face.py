"""What every provider shows of itself, and how a `with` block ends it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fakes.ladders import BASIC, COARSE, KINDS, device_of
from tests.fakes.provider import FakeProvider
from umfpy import CoarseProvider, FixedProvider, InvalidArgument, NotSupported, Pool, Provider

SHOWN = {
    "host private": "HostProvider()",
    "host shared": "HostProvider(shared=True)",
    "file": "FileProvider('{folder}/memory')",
    "fixed": "FixedProvider(32.00 MiB of host memory)",
    "cuda device": "CudaProvider(0, 'device')",
    "cuda host": "CudaProvider('host')",
    "cuda managed": "CudaProvider(0, 'managed')",
    "cuda async": "CudaAsyncProvider(0, 'device')",
    "cuda vmm": "CudaVmmProvider(0, 'device')",
    "level_zero device": "LevelZeroProvider(0, 'device')",
    "level_zero vmm": "LevelZeroVmmProvider(0, 'device')",
}


@pytest.mark.parametrize("name", BASIC)
def test_a_provider_says_what_memory_it_is(name: str, tmp_path: Path) -> None:
    with device_of(name), KINDS[name].make(tmp_path) as provider:
        assert repr(provider) == SHOWN[name].format(folder=tmp_path)
        with CoarseProvider(provider) as coarse, Pool(coarse, name="mine") as pool:
            assert repr(coarse) == f"CoarseProvider({provider!r})"
            assert repr(pool) == f"<Pool 'mine' over {coarse!r}>"


class Plain(FakeProvider):
    """A provider of somebody's own, who does not say how it is shown."""

    __repr__ = Provider.__repr__


def test_one_of_your_own_is_shown_by_the_contract() -> None:
    assert repr(Plain(device=3)) == "Plain(3, 'device')"
    assert repr(Plain(device=-1, memory_type="host")) == "Plain('host')"


def test_a_buffer_of_a_device_says_so() -> None:
    provider = FixedProvider(1 << 20, 1 << 20, memory_type="device", device=1)
    assert repr(provider) == "FixedProvider(1.00 MiB of device memory of device 1)"


def test_messages_say_which_provider_it_is() -> None:
    message = re.escape("memory; Plain(2, 'device') cannot")
    with pytest.raises(InvalidArgument, match=message):
        Pool(Plain(device=2), zero=True)


@pytest.mark.parametrize("name", [*BASIC, *COARSE, *(name for name in KINDS if "opencl" in name)])
def test_a_with_block_closes_a_provider(name: str, tmp_path: Path) -> None:
    with device_of(name):  # nothing may be left on the device
        with KINDS[name].make(tmp_path) as provider:
            provider.free(provider.alloc(1 << 20), 1 << 20)
        if isinstance(provider, CoarseProvider):
            provider.upstream.close()
        if name != "fixed":  # which has nothing to let go of
            with pytest.raises(InvalidArgument, match="closed"):
                provider.alloc(1 << 20)


def test_a_with_block_that_fails_closes_as_well() -> None:
    class Closable(FakeProvider):
        closed = False

        def close(self) -> None:
            self.closed = True

    provider = Closable()
    with pytest.raises(NotSupported), provider as entered:
        entered.commit(4096, 4096)
    assert (entered, provider.closed) == (provider, True)
