"""No test breaks the rules of a driver: what the driver refuses fails the test.

Calls that umfpy makes are watched in every test, and in the processes that tests start
(``refusals/driver_watch.py``).  A test that has the driver refuse something on purpose says which
call, and with what answer::

    @pytest.mark.refuses("cuMemMap", CUresult.CUDA_ERROR_INVALID_VALUE)

and fails, too, if that does not happen; ``request.applymarker`` says it inside a test.  What tests
ask of an emulated driver themselves, to try it, is their own business.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.refusals import driver_watch
from tests.refusals.driver_watch import Log

_log = pytest.StashKey[Log]()
_passed = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Watch this process, and tell those that it starts to watch themselves."""
    descriptor, path = tempfile.mkstemp(prefix="umfpy-refusals-")
    os.close(descriptor)
    config.add_cleanup(lambda: os.unlink(path))
    log = config.stash[_log] = Log(Path(path))
    log.install()
    os.environ[driver_watch.VARIABLE] = path
    here = str(Path(driver_watch.__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:  # the report is sent in
    report = yield
    if call.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Judge when everything is taken down, fixtures of modules and sessions among it."""
    try:
        result = yield
    except BaseException:
        item.add_report_section("teardown", "rules of the driver", _judge(item))
        raise
    complaint = _judge(item)
    if complaint:
        pytest.fail(complaint, pytrace=False)
    return result


def _judge(item: pytest.Item) -> str:
    """Return what is wrong with what the driver refused, or nothing."""
    refused = item.config.stash[_log].collect()
    announced = {_announcement(*mark.args) for mark in item.iter_markers("refuses")}
    happened = Counter((refusal.call, refusal.code) for refusal in refused)
    first = {(refusal.call, refusal.code): refusal for refusal in reversed(refused)}
    lines = [
        f"{happened[key]} x {first[key].words}; the first one came from\n{first[key].stack}"
        for key in happened
        if key not in announced
    ]
    if lines:
        lines.insert(0, "the driver refused what umfpy asked of it, and no mark `refuses` says so:")
    elif item.stash.get(_passed, False):
        lines = [
            f"{call} was not refused with {code}, as a mark `refuses` says"
            for call, code in announced - happened.keys()
        ]
    return "\n".join(lines)


def _announcement(call: str, code: int) -> tuple[str, int]:
    return call, int(code)
