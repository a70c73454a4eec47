"""The whole contract on every provider."""

from __future__ import annotations

import ctypes
import itertools
import os

import numpy as np
import pytest

from umfpy.errors import NotSupported
from umfpy.provider import Capability
from umfpy.providers.cuda import CudaProvider
from umfpy.providers.emulated import emulate
from umfpy.providers.host import FileProvider, FixedProvider, HostProvider
from umfpy.providers.host.pages import online_nodes
from umfpy.testing import CHECKS, check_provider

_numbers = itertools.count()


def _path(folder):
    return f"{folder}/umfpy-conformance-{os.getpid()}-{next(_numbers)}"


def _cuda(kind, device=0):
    def make(folder):
        return CudaProvider(device, kind)

    return make


#: What the checks run on; each takes a folder for files.
PROVIDERS = {
    "host private": lambda folder: HostProvider(),
    "host transparent": lambda folder: HostProvider(huge_pages="transparent"),
    "host bound": lambda folder: HostProvider(numa_nodes=online_nodes() or None),
    "host shared": lambda folder: HostProvider(shared=True),
    "host named": lambda folder: HostProvider(shared=True, name=_path("")[1:]),
    "file": lambda folder: FileProvider(_path(folder), keep=False),
    "file in memory": lambda folder: FileProvider(_path("/dev/shm"), keep=False),
    "fixed bytearray": lambda folder: FixedProvider(bytearray(1 << 20)),
    "fixed misaligned": lambda folder: FixedProvider(np.zeros(1 << 20, np.uint8)[13:]),
    "fixed address": lambda folder: _fixed_address(),
    "fixed device": lambda folder: FixedProvider(1 << 40, 1 << 30, memory_type="device", device=0),
    "cuda device": _cuda("device"),
    "cuda second device": _cuda("device", 1),
    "cuda host": _cuda("host"),
    "cuda managed": _cuda("managed"),
}

_buffers = [ctypes.create_string_buffer(1 << 20)]


def _fixed_address():
    return FixedProvider(ctypes.addressof(_buffers[0]), 1 << 20)


@pytest.mark.parametrize("name", list(PROVIDERS))
def test_contract(name, tmp_path):
    emu = emulate("cuda", memory="16GiB", devices=2) if name.startswith("cuda") else None
    before = emu.live() if emu else None

    def factory():
        return PROVIDERS[name](tmp_path)

    try:
        capabilities = factory().capabilities
    except NotSupported as absent:
        pytest.skip(str(absent))
    report = check_provider(factory)
    report.raise_if_failed()
    for skipped in report.skipped:
        assert _may_skip(skipped.name, capabilities), str(skipped)
    if emu:
        assert emu.live() == before


def _may_skip(check, capabilities):
    """Return whether the check says nothing about a provider that can do this and no more."""
    if CHECKS[check].needs & ~capabilities:
        return True
    if check == "ipc_descriptors":
        return Capability.HOST_ACCESS not in capabilities
    if check == "native_error_per_thread":
        # A buffer has no driver that could fail.
        return Capability.COMMIT not in capabilities and Capability.STREAMS not in capabilities
    reachable = Capability.HOST_ACCESS | Capability.COPY
    return not capabilities & reachable and check in ("keeps_contents", "split_free", "split_merge")
