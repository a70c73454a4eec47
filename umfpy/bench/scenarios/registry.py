"""The scenarios, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping

from umfpy.bench.scenarios import (
    arrays,
    fragmentation,
    growth,
    hit,
    ipc,
    manager,
    mixed,
    replay,
    threads,
    umf,
    utilization,
    virtual,
)
from umfpy.bench.scenarios.base import Scenario

#: To add one, add its module.
SCENARIOS: Mapping[str, Scenario] = {
    module.SCENARIO.name: module.SCENARIO
    for module in (
        hit,
        mixed,
        umf,
        replay,
        utilization,
        virtual,
        threads,
        growth,
        fragmentation,
        ipc,
        arrays,
        manager,
    )
}
