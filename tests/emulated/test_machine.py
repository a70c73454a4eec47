"""Random programs of virtual memory calls, against a model of a few lines that knows the rules."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

GRANULE = 2 << 20
SLOTS = 6  # granules of reserved addresses

step = st.one_of(
    st.tuples(st.just("create"), st.integers(1, 3)),
    st.tuples(st.just("release"), st.integers(0, 5)),
    st.tuples(st.just("map"), st.integers(0, 5), st.integers(0, SLOTS - 1), st.integers(1, 3)),
    st.tuples(st.just("unmap"), st.integers(0, SLOTS - 1), st.integers(1, SLOTS)),
    st.tuples(st.just("access"), st.integers(0, SLOTS - 1), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("write"), st.integers(0, SLOTS - 1), st.integers(1, 3)),
)


class Shadow:
    """What the rules say: handles, and mappings as start -> (length, handle, accessible)."""

    def __init__(self):
        self.handles: dict[int, int] = {}
        self.sizes: dict[int, int] = {}
        self.mappings: dict[int, tuple[int, int, bool]] = {}

    def whole(self, start, length):
        """The mappings that tile the range exactly, or None."""
        found = []
        while length > 0:
            if start not in self.mappings:
                return None
            found.append(start)
            length -= self.mappings[start][0]
            start += self.mappings[start][0]
        return found if length == 0 else None

    def free_at(self, start, length):
        taken = {s + i for s, (n, _, _) in self.mappings.items() for i in range(n)}
        return start + length <= SLOTS and not taken & set(range(start, start + length))

    def writable(self, start, length):
        accessible = {s + i for s, (n, _, on) in self.mappings.items() if on for i in range(n)}
        return set(range(start, start + length)) <= accessible

    def used(self):
        """Granules that something still holds."""
        held = set(self.handles) | {handle for _, handle, _ in self.mappings.values()}
        return sum(self.sizes[handle] for handle in held)


class Program:
    """Does each step for real and in the shadow, and compares what is answered."""

    def __init__(self, cu, base):
        self.cu, self.base = cu, base
        self.shadow = Shadow()
        self.real = {}
        self.order = []

    def succeeds(self, name, *arguments):
        return self.cu.error(name, *arguments) == 0

    def at(self, start, length):
        return self.base + start * GRANULE, length * GRANULE

    def create(self, granules):
        number = len(self.real)
        self.real[number] = self.cu("cuMemCreate", granules * GRANULE, self.cu.properties(), 0)
        self.shadow.handles[number] = 1
        self.shadow.sizes[number] = granules
        self.order.append(number)

    def release(self, which):
        if self.order:
            chosen = self.order.pop(which % len(self.order))
            self.cu("cuMemRelease", self.real[chosen])
            del self.shadow.handles[chosen]

    def map(self, which, start, length):
        if not self.order:
            return
        chosen = self.order[which % len(self.order)]
        good = length <= self.shadow.sizes[chosen] and self.shadow.free_at(start, length)
        assert self.succeeds("cuMemMap", *self.at(start, length), 0, self.real[chosen], 0) == good
        if good:
            self.shadow.mappings[start] = (length, chosen, False)

    def unmap(self, start, length):
        tiles = self.shadow.whole(start, length)
        assert self.succeeds("cuMemUnmap", *self.at(start, length)) == (tiles is not None)
        for tile in tiles or ():
            del self.shadow.mappings[tile]

    def access(self, start, length, on):
        tiles = self.shadow.whole(start, length)
        wanted = [self.cu.access(flags=3 if on else 0)]
        answer = self.succeeds("cuMemSetAccess", *self.at(start, length), wanted, 1)
        assert answer == (tiles is not None)
        for tile in tiles or ():
            self.shadow.mappings[tile] = (*self.shadow.mappings[tile][:2], on)

    def write(self, start, length):
        """All of the range but its edges, over itself: cheap, as nothing was ever written."""
        first, size = self.at(start, length)
        answer = self.succeeds("cuMemcpyDtoD", first + 100, first + 100, size - 200)
        assert answer == self.shadow.writable(start, length)

    def check(self):
        free, total = self.cu("cuMemGetInfo")
        assert total - free == self.shadow.used() * GRANULE

    def close(self):
        for start, (length, _, _) in self.shadow.mappings.items():
            self.cu("cuMemUnmap", *self.at(start, length))
        for handle in self.order:
            self.cu("cuMemRelease", self.real[handle])


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(program=st.lists(step, max_size=30))
def test_any_program_keeps_the_rules(cu, program):
    base = int(cu("cuMemAddressReserve", SLOTS * GRANULE, 0, 0, 0))
    running = Program(cu, base)
    for what, *arguments in program:
        getattr(running, what)(*arguments)
        running.check()
    running.close()
    cu("cuMemAddressFree", base, SLOTS * GRANULE)
