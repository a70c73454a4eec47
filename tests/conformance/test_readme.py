"""The provider in providers/README.md is complete, short, and keeps the contract."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import umfpy.testing

README = Path(__file__).parents[2] / "providers" / "README.md"


def code_blocks():
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_example_is_short_and_passes():
    example, check = code_blocks()
    assert len(example.splitlines()) <= 40
    names = {"__name__": "readme"}
    exec(compile(example, str(README), "exec"), names)
    exec(compile(check, str(README), "exec"), names)
    report = names["report"]
    assert not report.failed
    assert len(report.passed) >= 20


def test_the_report_shown_is_what_the_defect_prints():
    example, _ = code_blocks()
    names = {"__name__": "readme"}
    exec(compile(example.replace("0, size)", "0, size // 2)"), str(README), "exec"), names)
    report = umfpy.testing.check_provider(
        names["HeapProvider"], live_count=lambda provider: len(provider._sizes)
    )
    printed = str(report).splitlines()
    at = next(i for i, line in enumerate(printed) if "failed  zero_range" in line)
    (shown,) = re.findall(r"```text\n(.*?)```", README.read_text(), re.DOTALL)
    assert shown.splitlines() == [printed[0], *printed[at : at + 4]]


def test_docstrings_of_the_kit():
    for module in (umfpy.testing, umfpy.testing.runner):
        failed, tried = doctest.testmod(module)
        assert tried
        assert not failed
