"""Identity: clones, bindings, and handles whose memory is gone."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable

import pytest

from tests.fakes.programs import assert_silent, run_program
from tests.manager.conftest import Make
from tests.manager.support import layout, pattern, read, sliced, write
from umfpy import Handle, HostProvider, InvalidArgument, MemoryManager, StaleHandle
from umfpy.manager import Binding


def test_the_last_hold_takes_the_memory_along(make: Make) -> None:
    manager = make(layout(sliced(1024)))
    handle = manager.reserve(100)
    clone, binding = handle.clone(), handle.clone().binding()
    assert not handle.can_mut()
    handle.release()
    assert clone.can_mut()
    assert not handle.is_free(), "somebody else holds it"
    clone.release()
    assert manager.memory_usage().number_allocs == 1
    binding.release()
    assert handle.is_free()
    assert manager.memory_usage().number_allocs == 0


def test_a_binding_blocks_reuse_but_not_changes_in_place(make: Make) -> None:
    manager = make(layout(sliced(64)))
    handle = manager.reserve(64)
    binding = handle.clone().binding()
    assert handle.can_mut()
    handle.release()
    other = manager.reserve(64)
    assert manager.storage(other).ptr != manager.storage(binding).ptr


def test_a_handle_turned_into_a_binding_is_released(make: Make) -> None:
    manager = make("sub_slices")
    handle = manager.reserve(10)
    binding = handle.binding()
    assert handle.released
    assert not handle.can_mut()
    with pytest.raises(StaleHandle, match="released"):
        handle.clone()
    del binding
    assert manager.memory_usage().number_allocs == 0


def test_a_with_block_releases(make: Make) -> None:
    manager = make("exclusive_pages")
    with manager.reserve(10) as handle:
        assert manager.memory_usage().number_allocs == 1
    assert handle.released
    handle.release()  # again is fine
    assert manager.memory_usage().number_allocs == 0


def test_every_stale_handle_says_why(make: Make) -> None:
    manager, other = make("sub_slices", name="mine"), make("sub_slices", name="other")
    released = manager.reserve(10)
    released.release()
    foreign = other.reserve(10)
    reserved, assigned = manager.reserve(10), Handle()
    manager.bind(reserved, assigned)
    for handle, words in (
        (released, "was released"),
        (Handle(), "no memory yet"),
        (foreign, "belongs to 'other', not to 'mine'"),
        (reserved, "bound to another handle"),
    ):
        for ask in (manager.storage, manager.cursor, manager.resource):
            with pytest.raises(StaleHandle, match=words):
                ask(handle)
        with pytest.raises(StaleHandle, match=words):
            manager.bind(handle, Handle())
    with pytest.raises(InvalidArgument, match="fresh Handle"):
        manager.bind(assigned, foreign)
    for nothing in (None, 5, "handle"):
        with pytest.raises(InvalidArgument, match="is needed"):
            manager.storage(nothing)


def test_a_failed_bind_changes_nothing(make: Make) -> None:
    manager = make("sub_slices")
    first, second = manager.reserve(10), manager.reserve(20)
    before = manager.storage(first), manager.storage(second)
    with pytest.raises(InvalidArgument):
        manager.bind(first, second, 3)
    assert (manager.storage(first), manager.storage(second)) == before
    assert manager.cursor(second) == 0
    manager.bind(first, first, 3)  # a new cursor and nothing else
    assert manager.cursor(first) == 3


def test_handles_can_be_copied_only_by_cloning(make: Make) -> None:
    handle = make("sub_slices").reserve(10)
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            way(handle)
    with pytest.raises(InvalidArgument, match="made by a handle"):
        Binding()
    assert "10 bytes" in repr(handle)
    assert weakref.ref(handle)() is handle


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_manager_cannot_be_copied(make: Make, duplicate: Callable[..., object]) -> None:
    manager = make("sub_slices")
    with pytest.raises(TypeError, match=r"a MemoryManager cannot be copied.*ipc_handle\(\)"):
        duplicate(manager)
    manager.reserve(10).release()


def test_part_of_a_slice(make: Make) -> None:
    manager = make(layout(sliced(1024)))
    spacer, handle = manager.reserve(32), manager.reserve(100)
    whole, part = manager.storage(handle), manager.resource(handle, 10, 60)
    assert (part.ptr, part.offset, part.size) == (whole.ptr + 10, 42, 50)
    assert manager.resource(handle, 100).size == 0
    for start, end in ((-1, 5), (5, 4), (0, 101), (101, None)):
        with pytest.raises(InvalidArgument, match="do not lie in"):
            manager.resource(handle, start, end)
    spacer.release()


class Releasing:
    """Garbage in a cycle, which releases a handle when it is collected."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.itself = self

    def __del__(self) -> None:
        self.handle.release()


def test_a_handle_that_garbage_releases_meanwhile_is_released_once(make: Make) -> None:
    handle = make("sub_slices").reserve(10)
    other = handle.clone()
    Releasing(handle)
    before = gc.get_threshold()
    gc.set_threshold(1)  # whatever is made from now on collects
    try:
        handle.release()
    finally:
        gc.set_threshold(*before)
    assert other.can_mut()
    gc.collect()
    assert other.can_mut()


@pytest.mark.parametrize("wrong", ["x", 1.5, None, True, [3]])
def test_cursors_and_ranges_are_whole_numbers(make: Make, wrong: object) -> None:
    manager = make("sub_slices")
    handle, assigned = manager.reserve(100), Handle()
    with pytest.raises(InvalidArgument, match="cursor must be a whole number, not"):
        manager.bind(handle, assigned, wrong)
    with pytest.raises(InvalidArgument, match="start must be a whole number, not"):
        manager.resource(handle, wrong)
    if wrong is not None:
        with pytest.raises(InvalidArgument, match="end must be a whole number, not"):
            manager.resource(handle, 0, wrong)
    manager.bind(handle, assigned, 3)
    assert manager.cursor(assigned) == 3


def test_a_manager_that_is_dropped_leaves_live_memory_to_its_users() -> None:
    provider = HostProvider()
    manager = MemoryManager(provider, "sub_slices")
    allocation = manager.allocate(100)
    gone = weakref.ref(manager)
    del manager
    assert gone() is None, "no cycle keeps it"
    write(allocation.ptr, pattern(1, 100))
    assert read(allocation.ptr, 100) == pattern(1, 100)


def test_closing_reports_what_lives() -> None:
    manager = MemoryManager(HostProvider(), "sub_slices", name="mine")
    handle = manager.reserve(100)
    with pytest.warns(ResourceWarning, match="'mine' was closed with 1 live slices of 100 bytes"):
        manager.close()
    manager.close()
    with pytest.raises(InvalidArgument, match="closed"):
        manager.reserve(1)
    assert manager.storage(handle).size == 100
    handle.release()
    assert manager.memory_usage().bytes_reserved == 0, "the page goes with its last slice"


def test_a_forked_child_is_told() -> None:
    program = run_program(
        """
        import os
        import umfpy

        managers = [
            umfpy.MemoryManager(umfpy.HostProvider(), preset)
            for preset in ("sub_slices", "exclusive_pages")
        ]
        held = [manager.reserve(100) for manager in managers]
        child = os.fork()
        if not child:
            told = 0
            for manager in managers:
                try:
                    manager.reserve(10)
                except umfpy.InvalidArgument as error:
                    told += "fork" in str(error)
                manager.cleanup(True)
            del held
            os._exit(told)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert_silent(program, "2")
