"""``umfpy bench``."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from umfpy.bench.contenders.registry import CONTENDERS
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios import registry
from umfpy.bench.scenarios.base import Scenario
from umfpy.cli.bench import command


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(command, arguments)


@pytest.fixture
def only_a_miss(monkeypatch):
    """A scenario that misses its bar."""

    def scenario(settings):
        case = Case("hit", "planted", "ns/op", samples={"umfpy": [2.0] * settings.runs})
        case.judge(Goal("planted", bar=1.0), 2.0)
        yield case

    monkeypatch.setitem(registry.SCENARIOS, "hit", Scenario("hit", "planted", scenario))


def test_list_names_scenarios_and_contenders(run):
    result = run("--list")

    assert result.exit_code == 0
    for name in (*registry.SCENARIOS, *CONTENDERS):
        assert f"  {name} " in result.stdout


def test_json_is_json(run):
    result = run("hit", "--quick", "--runs", "2", "--json", "--contender", "umf")

    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert {case["scenario"] for case in report["cases"]} == {"hit"}
    assert set(report["cases"][0]["samples"]) == {"umfpy", "empty", "umf"}
    assert len(report["cases"][0]["samples"]["umfpy"]) == 2


def test_a_missed_bar_is_a_finding_only_when_asked(run, only_a_miss):
    assert run("hit").exit_code == 0

    result = run("hit", "--check")

    assert result.exit_code == 1
    assert "1 bars missed: planted" in result.stderr


@pytest.mark.parametrize(
    "arguments", [("no-such-scenario",), ("--runs", "0"), ("--contender", "nobody")]
)
def test_what_makes_no_sense_is_refused(run, arguments):
    assert run(*arguments).exit_code == 2
