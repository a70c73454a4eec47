"""Which pages a mapping is made of, and on which NUMA nodes they lie."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from umfpy.arguments import check_items, check_number
from umfpy.errors import InvalidArgument, NotSupported
from umfpy.providers.host.system import HUGE_SHIFT, MADV_HUGEPAGE, System

#: The system page in bytes: sysconf(3), _SC_PAGESIZE.
SYSTEM_PAGE = os.sysconf("SC_PAGE_SIZE")

_HUGE_SIZES = {"2MiB": 2 << 20, "1GiB": 1 << 30}
_HUGE_POOLS = Path("/sys/kernel/mm/hugepages")
_TRANSPARENT = Path("/sys/kernel/mm/transparent_hugepage")
_ONLINE_NODES = Path("/sys/devices/system/node/online")

#: mbind(2) has no wrapper in the C library; its number differs by machine (syscall tables).
_SYS_MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235}
_MPOL_BIND = 2


@dataclass(frozen=True)
class Pages:
    """The pages of a mapping: ``size`` bytes each, what is ``recommended``, and of which kind."""

    size: int = SYSTEM_PAGE
    recommended: int = SYSTEM_PAGE
    huge: bool = False
    transparent: bool = False

    @property
    def flags(self) -> int:
        """The page size as MAP_HUGETLB and MFD_HUGETLB want it, or 0."""
        return (self.size.bit_length() - 1) << HUGE_SHIFT if self.huge else 0

    @property
    def can_drop(self) -> bool:
        """Whether MADV_DONTNEED works; on huge pages since Linux 5.18 (madvise(2))."""
        return not self.huge or _kernel_version() >= (5, 18)


def choose_pages(huge_pages: bool | str, *, shared: bool) -> Pages:
    """Return the pages for ``False``, ``"transparent"``, ``"2MiB"`` or ``"1GiB"``.

    Raises
    ------
    InvalidArgument
        Another word.
    NotSupported
        The kernel does not offer them; the message names the file that says so.
    """
    if huge_pages is False:
        return Pages()
    if huge_pages == "transparent":
        return _transparent_pages(shared)
    if not isinstance(huge_pages, str) or huge_pages not in _HUGE_SIZES:
        raise InvalidArgument(
            f'huge_pages is {huge_pages!r}; use False, "transparent", "2MiB" or "1GiB"'
        )
    size = _HUGE_SIZES[huge_pages]
    pool = _HUGE_POOLS / f"hugepages-{size >> 10}kB"
    if not pool.is_dir():
        raise NotSupported(f"this system has no huge pages of {huge_pages}: {pool} is missing")
    return Pages(size=size, recommended=size, huge=True)


def _transparent_pages(shared: bool) -> Pages:
    switch = _TRANSPARENT / ("shmem_enabled" if shared else "enabled")
    try:
        setting = switch.read_text()
        size = int((_TRANSPARENT / "hpage_pmd_size").read_text())
    except OSError as error:
        raise NotSupported(f"this kernel has no transparent huge pages: {error}") from None
    if "[never]" in setting or "[deny]" in setting:
        raise NotSupported(
            f"transparent huge pages are off for {'shared' if shared else 'private'} memory; "
            f"write madvise or advise to {switch}"
        )
    return Pages(recommended=size, transparent=True)


def _kernel_version() -> tuple[int, int]:
    major, minor = platform.release().split(".")[:2]
    return int(major), int(minor.split("-")[0])


def online_nodes() -> frozenset[int]:
    """Return the NUMA nodes that are online; empty where the kernel does not say."""
    try:
        text = _ONLINE_NODES.read_text().strip()
    except OSError:
        return frozenset()
    nodes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        nodes.update(range(int(first), int(last or first) + 1))
    return frozenset(nodes)


def check_nodes(nodes: Iterable[int] | None) -> tuple[int, ...]:
    """Return the NUMA nodes to bind to, sorted; () for none.

    Raises
    ------
    InvalidArgument
        A node is not online; the message lists those that are.
    NotSupported
        This machine has no mbind(2) that umfpy knows.
    """
    if nodes is None:
        return ()
    numbers = check_items(nodes, "numa_nodes", "numbers of nodes")
    wanted = frozenset(check_number(node, "a NUMA node") for node in numbers)
    online = online_nodes()
    if not wanted or not wanted <= online:
        raise InvalidArgument(f"NUMA nodes {sorted(wanted)} asked for; online: {sorted(online)}")
    if platform.machine() not in _SYS_MBIND:
        raise NotSupported(f"no NUMA binding on {platform.machine()}")
    return tuple(sorted(wanted))


def place_pages(
    system: System, ptr: int, length: int, pages: Pages, nodes: tuple[int, ...]
) -> None:
    """Tell the kernel where the fresh pages of a mapping shall come from."""
    if pages.transparent:
        system.call("madvise", ptr, length, MADV_HUGEPAGE)
    if nodes:
        bits = 8 * ctypes.sizeof(ctypes.c_ulong)
        words = nodes[-1] // bits + 1
        mask = (ctypes.c_ulong * words)()
        for node in nodes:
            mask[node // bits] |= 1 << node % bits
        number = _SYS_MBIND[platform.machine()]
        # The kernel looks at maxnode - 1 bits (mbind(2), Notes).
        address = ctypes.addressof(mask)
        system.call("syscall", number, ptr, length, _MPOL_BIND, address, words * bits + 1, 0)
