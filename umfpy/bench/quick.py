"""``python -m umfpy.bench.quick``: umfpy against UMF from C in a few seconds, while optimising."""

from __future__ import annotations

from umfpy.bench.report import print_report
from umfpy.bench.results import Case
from umfpy.bench.scenarios import hit, mixed, replay
from umfpy.bench.scenarios.base import Settings
from umfpy.cli.output import console


def main() -> None:
    settings = Settings(runs=7, contenders=frozenset({"umf", "umf-pooling"}))
    cases: list[Case] = [hit.from_c(settings), mixed.from_c(settings), *replay.run(settings)]
    print_report(cases, console())


if __name__ == "__main__":
    main()
