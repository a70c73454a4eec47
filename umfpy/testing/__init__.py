"""Tests of the contracts, for anyone's provider and pool, without any test framework.

>>> from umfpy.providers.host import HostProvider
>>> from umfpy.testing import check_provider
>>> report = check_provider(HostProvider, checks=["alloc_free", "alignments"])
>>> print(report)
HostProvider: 2 passed, 0 failed, 0 skipped
  passed  alloc_free
  passed  alignments
>>> report.raise_if_failed()

>>> import umfpy
>>> from umfpy.testing import check_pool
>>> check_pool(lambda: umfpy.Pool(umfpy.HostProvider()), checks=["counts"]).raise_if_failed()
"""

from umfpy.testing.pool_registry import POOL_CHECKS, PoolCheck
from umfpy.testing.pool_runner import check_pool
from umfpy.testing.registry import CHECKS, Check
from umfpy.testing.report import CheckResult, ConformanceError, Outcome, Report
from umfpy.testing.runner import check_provider

__all__ = [
    "CHECKS",
    "POOL_CHECKS",
    "Check",
    "CheckResult",
    "ConformanceError",
    "Outcome",
    "PoolCheck",
    "Report",
    "check_pool",
    "check_provider",
]
