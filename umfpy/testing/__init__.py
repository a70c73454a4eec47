"""Tests of the contract for anyone's provider, without any test framework.

>>> from umfpy.providers.host import HostProvider
>>> from umfpy.testing import check_provider
>>> report = check_provider(HostProvider, checks=["alloc_free", "alignments"])
>>> print(report)
HostProvider: 2 passed, 0 failed, 0 skipped
  passed  alloc_free
  passed  alignments
>>> report.raise_if_failed()
"""

from umfpy.testing.registry import CHECKS, Check
from umfpy.testing.report import CheckResult, ConformanceError, Outcome, Report
from umfpy.testing.runner import check_provider

__all__ = [
    "CHECKS",
    "Check",
    "CheckResult",
    "ConformanceError",
    "Outcome",
    "Report",
    "check_provider",
]
