"""Every scenario runs, small, and reports itself completely."""

from __future__ import annotations

import json

import pytest

from umfpy.bench import report, traces
from umfpy.bench.absent import Absent
from umfpy.bench.machine import describe_machine
from umfpy.bench.native import loop
from umfpy.bench.report import as_json, number, print_report
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Settings
from umfpy.bench.scenarios.registry import SCENARIOS
from umfpy.cli.output import console

TRACE = """\
# torch_peak_reserved: 4194304
op,id,size,stream
a,1,4096,0
a,2,3145728,0
f,1,,
a,3,512,0
"""


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "tiny.csv").write_text(TRACE)
    return Settings(runs=2, quick=True, traces=tmp_path)


@pytest.fixture
def no_compiler(monkeypatch):
    loop.load.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")
    yield
    loop.load.cache_clear()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_measures_umfpy(name, settings):
    cases = list(SCENARIOS[name].run(settings))
    if name == "arrays" and cases[0].absent:
        pytest.skip(cases[0].absent["pyopencl"])

    measured = [sample for case in cases for sample in case.samples]
    assert any(sample.startswith("umfpy") for sample in measured)
    for case in cases:
        assert case.scenario == name
        assert "umfpy" not in case.absent
        for samples in case.samples.values():
            assert samples
            assert min(samples) > 0
        assert all(case.absent.values())


@pytest.mark.parametrize(
    "name", sorted(set(SCENARIOS) - {"hit", "mixed", "ipc", "arrays", "manager", "virtual"})
)
def test_without_a_compiler_a_scenario_says_so(name, settings, no_compiler):
    cases = list(SCENARIOS[name].run(settings))

    assert any("no-such-compiler" in case.absent.get("umfpy", "") for case in cases)
    assert all(verdict.value is None for case in cases for verdict in case.verdicts)


def test_fragmentation_is_measured_against_the_operations_and_not_the_pool(settings):
    (case,) = SCENARIOS["fragmentation"].run(settings)

    for name, facts in case.facts.items():
        peak = facts["second_half_peak_reserved_bytes"]
        assert peak >= facts["first_half_peak_reserved_bytes"]
        assert case.samples[name] == [peak / facts["peak_live_bytes"]]


def test_utilization_is_that_of_the_trace(settings):
    tiny, total = SCENARIOS["utilization"].run(settings)

    reserved = tiny.facts["umfpy"]["peak_reserved_bytes"]
    assert tiny.samples["umfpy"] == [(4096 + 3145728) / reserved]
    assert tiny.samples["torch, as recorded"] == [(4096 + 3145728) / 4194304]
    assert [verdict.value for verdict in total.verdicts][1] == tiny.median("umfpy")


def test_the_json_has_everything_exact(settings):
    cases = list(SCENARIOS["replay"].run(settings))

    everything = json.loads(json.dumps(as_json(cases)))

    assert set(everything) == {"machine", "cases"}
    described = {"umfpy", "python", "cpu", "cpus", "versions", "umf_disjoint"}
    assert described <= set(everything["machine"])
    first = everything["cases"][0]
    assert first["name"] == "tiny"
    assert first["samples"]["umfpy"] == cases[0].samples["umfpy"]
    assert len(first["samples"]["umfpy"]) == 2
    assert set(first["medians"]) == set(first["samples"])
    verdict = everything["cases"][-1]["verdicts"][0]
    assert {"title", "bar", "aim", "at_most", "value", "low", "high", "passed"} <= set(verdict)


def test_the_table_shows_samples_verdicts_and_who_was_absent(capsys):
    case = Case("hit", "one size", "ns/op", samples={"umfpy": [1.0, 2.0], "umf": [4.0, 4.0]})
    case.absent["rmm"] = "RMM is not installed"
    case.judge(Goal("shorter", bar=1.0, aim=0.5), case.ratio("umfpy", "umf"))
    case.judge(Goal("longer", bar=5.0, at_most=False), 2.0)
    case.judge(Goal("unknown", bar=1.0), None)

    print_report([case], console())

    out = capsys.readouterr().out
    lines = {line.split()[1]: line for line in out.splitlines() if "│" in line}
    assert "aim" in lines["shorter"]
    assert "missed" in lines["longer"]
    assert "not measured" in lines["unknown"]
    assert "absent: rmm: RMM is not installed" in out


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0, "0"), (0.12345, "0.123"), (12.345, "12.3"), (1234.5, "1,234"), (40, "40")],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_a_folder_without_traces_is_an_error(tmp_path):
    with pytest.raises(Absent, match=r"no \.csv"):
        traces.load_traces(tmp_path)


def names_of_traces(folder=None):
    return [traces.short_name(trace) for trace in traces.load_traces(folder)]


def test_the_traces_come_from_the_environment_or_with_the_package(monkeypatch, settings):
    monkeypatch.delenv("UMFPY_TRACES", raising=False)
    assert names_of_traces() == ["training"]

    monkeypatch.setenv("UMFPY_TRACES", "")
    assert names_of_traces() == ["training"]

    monkeypatch.setenv("UMFPY_TRACES", str(settings.traces))
    assert names_of_traces() == ["tiny"]


def test_the_traces_are_the_same_in_every_folder(monkeypatch, tmp_path):
    """Whatever lies beside it: a measurement that hangs on the folder cannot be repeated."""
    monkeypatch.delenv("UMFPY_TRACES", raising=False)
    beside, here = tmp_path / "shared" / "traces", tmp_path / "here"
    beside.mkdir(parents=True)
    here.mkdir()
    (beside / "tiny.csv").write_text(TRACE)
    monkeypatch.chdir(here)

    assert names_of_traces() == ["training"]


@pytest.mark.parametrize("name", ["utilization", "replay", "virtual"])
def test_the_trace_that_is_shipped_is_not_judged_by_bars_for_many(name, monkeypatch):
    monkeypatch.delenv("UMFPY_TRACES", raising=False)

    cases = list(SCENARIOS[name].run(Settings(runs=1, quick=True, contenders=frozenset())))

    assert [case.name for case in cases] == ["training"]
    assert cases[0].median("umfpy" if name != "virtual" else "umfpy, virtual memory") > 0


def test_who_is_not_installed_is_not_described(capsys, monkeypatch):
    versions = {"umfpy": "1", "umf": "1.2.0"}
    machine = {**describe_machine(), "versions": versions}
    monkeypatch.setattr(report, "describe_machine", lambda: machine)
    print_report([], console())
    assert "umf 1.2.0, disjoint pool {" in " ".join(capsys.readouterr().out.split())

    versions["umf"] = None
    print_report([], console())

    out = capsys.readouterr().out
    assert "umf" not in out
    assert machine["python"] in out
