"""The checks of pools, by name."""

from __future__ import annotations

from umfpy.testing.pool_subject import PoolSubject
from umfpy.testing.registry import AnyCheck, Registry


class PoolCheck(AnyCheck[PoolSubject]):
    """One sentence of the contract of pools, and the function that tries it.

    It applies to pools whose memory can do all of ``needs``, and to none whose memory can do any
    of ``unless``.  ``second_process`` says that it starts one.
    """


POOL_REGISTRY: Registry[PoolSubject, PoolCheck] = Registry(PoolCheck)
pool_check = POOL_REGISTRY.enter

#: Every check of pools, in the order in which they run.
POOL_CHECKS = POOL_REGISTRY.checks
