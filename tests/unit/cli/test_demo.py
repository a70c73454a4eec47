"""``umfpy demo``."""

from __future__ import annotations

import pytest

from umfpy.cli.demonstration import ACTS
from umfpy.cli.demonstration.act import Promise, keep
from umfpy.cli.demonstration.arrays import tell


@pytest.fixture(scope="module")
def report(umfpy_command):
    import json

    return json.loads(umfpy_command("demo", "--json").stdout)


def test_every_act_is_reported(report):
    assert list(report) == ["umfpy", "device", *(act.key for act in ACTS)]


def test_a_thousand_allocations_cost_few_calls(report):
    facts = report["allocate"]
    assert facts["allocations"] == 1000
    assert facts["requested_bytes"] == 10_000_000
    assert facts["driver_allocs"] == facts["driver_frees"] < 100


def test_a_pool_spares_time_in_the_driver(report):
    pooled, bare = report["replay"]["pool"], report["replay"]["proxy"]
    assert pooled["driver_calls"] * 10 < bare["driver_calls"]
    assert 0 < pooled["utilization"] <= 1
    if report["leaks"]["emulated"]:
        assert pooled["modelled_driver_us"] < bare["modelled_driver_us"] / 10


def test_sharing_takes_one_call_of_each(report):
    facts = report["share"]
    calls = [facts[f"native_{what}"] for what in ("allocs", "exports", "opens", "frees")]
    assert calls == [1, 1, 1, 1]
    assert facts["distance_bytes"] == 2048
    assert facts["read_there"]
    assert facts["answered_here"]


def test_nothing_leaks_and_what_does_is_seen(report):
    if report["leaks"]["emulated"]:
        assert report["leaks"]["leaks"] == {}
        assert report["leaks"]["when_forgotten"] == {"allocations": [4 << 20]}


def test_it_is_told_in_words(umfpy_command):
    done = umfpy_command("demo")
    for number, act in enumerate(ACTS, 1):
        assert f"{number}. {act.title}" in done.stdout
    assert done.stdout.rstrip().endswith("umfpy replay --help")
    assert done.stderr == ""


def test_under_umfpy_emulate_it_uses_that_driver(json_of):
    import sys

    report = json_of(
        *("emulate", "cuda", "--memory", "4GiB", "--force", "--"),
        *(sys.executable, "-m", "umfpy", "demo", "--json"),
    )
    assert report["device"] == "an emulated GPU with 4.00 GiB"
    assert report["share"]["native_opens"] == 1


def test_a_broken_promise_is_an_error():
    keep(True, "all is well", {})
    with pytest.raises(Promise, match="all is well"):
        keep(False, "all is well", {"count": 2})


def test_without_cupy_the_act_says_so():
    (line,) = tell({"installed": False})
    assert "pip install" in line
