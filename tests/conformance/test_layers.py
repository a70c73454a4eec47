"""The whole contract on providers that cut up another one's memory, over each kind of it."""

from __future__ import annotations

import functools
import itertools
import os
import warnings
from pathlib import Path

import pytest

from umfpy import (
    Capability,
    CoarseProvider,
    CudaProvider,
    FileProvider,
    FixedProvider,
    HostProvider,
    LevelZeroProvider,
    Pool,
    Provider,
    ProxyPool,
    emulate,
)
from umfpy.pools.nested import as_provider
from umfpy.testing import CHECKS, check_provider

_numbers = itertools.count()

KINDS = {
    "host private": lambda folder: HostProvider(),
    "host shared": lambda folder: HostProvider(shared=True),
    "file": lambda folder: FileProvider(folder / f"{os.getpid()}-{next(_numbers)}", keep=False),
    "fixed": lambda folder: FixedProvider(bytearray(1 << 20)),
    "cuda": lambda folder: CudaProvider(),
    "level_zero": lambda folder: LevelZeroProvider(),
}

LAYERS = {
    "coarse": CoarseProvider,
    "coarse over coarse": lambda provider: CoarseProvider(CoarseProvider(provider)),
    "pool over pool over pool": lambda provider: as_provider(Pool(Pool(ProxyPool(provider)))),
}

#: A driver exports the whole root, which lives on when a piece of it is freed: it cannot tell.
DRIVERS = ("cuda", "level_zero")

#: What can only be seen from below, where all that is above counts as well.
UNSEEN = {"refusals_keep_state", "no_leaks", "native_error_per_thread"}


def importer(layer: str, kind: str, folder: Path, scope: str) -> Provider:
    """Make the provider on which another process opens what this one exports."""
    if kind == "file":
        return LAYERS[layer](FileProvider.for_ipc(scope))
    return LAYERS[layer](KINDS[kind](folder))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", LAYERS)
def test_contract(layer, kind, tmp_path):
    setup = functools.partial(emulate, kind) if kind in DRIVERS else None
    if setup:
        setup()

    def factory() -> Provider:
        return LAYERS[layer](KINDS[kind](tmp_path))

    with warnings.catch_warnings():
        # One of the checks closes with memory in use, which coarse providers and pools report.
        warnings.simplefilter("ignore", ResourceWarning)
        capabilities = factory().capabilities
        report = check_provider(
            factory,
            importer=functools.partial(importer, layer, kind, tmp_path),
            process_setup=setup,
            skip={"ipc_stale"} if kind in DRIVERS else (),
        )
    report.raise_if_failed()
    for skipped in report.skipped:
        missing = CHECKS[skipped.name].needs & ~capabilities
        assert missing or skipped.name in UNSEEN | {"ipc_descriptors", "ipc_stale"}, str(skipped)
        assert Capability.SPLIT in capabilities
