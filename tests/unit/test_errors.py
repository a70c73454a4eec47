"""The tree of errors, and that each crosses a process boundary as it is."""

from __future__ import annotations

import pickle

import pytest

import umfpy
from umfpy import errors

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.UmfpyError)
]


def example(kind: type[errors.UmfpyError]) -> errors.UmfpyError:
    if issubclass(kind, errors.DriverError):
        return kind("cuMemFree", 2, "CUDA_ERROR", "words")
    if issubclass(kind, errors.OutOfMemoryError):
        return kind("none left", requested=5, used=1, reserved=2, limit=3, largest_free=4)
    return kind("what happened")


@pytest.mark.parametrize("kind", ALL)
def test_errors_pickle(kind: type[errors.UmfpyError]) -> None:
    error = example(kind)
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is kind
    assert (str(copied), copied.args, vars(copied)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (umfpy.InvalidArgument, ValueError),
        (umfpy.AlignmentError, umfpy.InvalidArgument),
        (umfpy.NotSupported, NotImplementedError),
        (umfpy.OutOfMemoryError, MemoryError),
        (umfpy.StaleHandle, LookupError),
    ],
)
def test_errors_are_also_what_callers_expect(kind: type, builtin: type) -> None:
    assert issubclass(kind, builtin)
    assert issubclass(kind, umfpy.UmfpyError)
