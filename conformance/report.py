"""Writes report.json and REPORT.md, which say what each store keeps: `python -m conformance.report [--power] [STORE …]`

Named stores are run anew and the others stay as they were told of; without a name all of them are. `--power` hunts the mutants.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from conformance.contract import CORE
from conformance.memory import MemoryHarness, SplitMemoryHarness
from conformance.postgres import PostgresHarness
from conformance.redis import RedisHarness, RedisStreamHarness
from conformance.sqlite import SplitSqliteHarness, SqliteHarness
from durable_conformance import Report, check
from durable_conformance.harness import AnyHarness
from durable_conformance.report import Power, to_markdown
from durable_conformance.run import power
from durable_conformance.written import from_json, to_json

HERE: Final = Path(__file__).parent
GAPS: Final = HERE / "gaps.toml"
TOLD: Final = HERE / "report.json"
PAGE: Final = HERE / "REPORT.md"

HARNESSES: Final[Sequence[type[AnyHarness]]] = (
    MemoryHarness,
    SplitMemoryHarness,
    SqliteHarness,
    SplitSqliteHarness,
    PostgresHarness,
    RedisHarness,
    RedisStreamHarness,
)
STORES: Final[Mapping[str, type[AnyHarness]]] = {harness.title(): harness for harness in HARNESSES}

HEAD: Final = """\
<!-- Written by `python -m conformance.report`. CI fails where a test comes to another verdict than this. -->
# What the stores keep

Each store is held to [the contract](../docs/reference/contract.md) by all tests of `durable_conformance`. A clause is *held* when
each of its tests that applies ran and saw it kept. A *gap* is declared in [`gaps.toml`](gaps.toml), with a reason. "-" is what a
store has no counterpart of; the reasons stand below.

"""


def page(reports: Sequence[Report], score: Power | None) -> str:
    """Give the page."""
    engine = len(tomllib.loads((CORE / "engine_mutants.toml").read_text())["mutant"])
    tail = (
        f"\nThe engine's own tests see all {engine} of its mutants, or CI fails. Both lists stand in "
        "[the contract](../docs/reference/contract.md), under the clauses that they break.\n"
    )
    return HEAD + to_markdown(reports, score) + tail


def steady(report: Report) -> Report:
    """Give a report without what another run would change."""
    results = [replace(result, seconds=0.0) for result in report.results]
    return replace(report, said=replace(report.said, version=""), results=results, seconds=0.0)


def main() -> None:
    """Run, and write both."""
    parser = argparse.ArgumentParser(prog="python -m conformance.report", description=__doc__)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=f"one of {', '.join(map(repr, STORES))}")
    parser.add_argument("--power", action="store_true", help="hunt the mutants")
    asked = parser.parse_args()
    told, score = from_json(TOLD.read_text()) if TOLD.exists() else ([], None)
    reports = {report.store: report for report in told}
    names: Sequence[str] = asked.stores or ([] if asked.power else list(STORES))
    for name in names:
        reports[name] = steady(check(STORES[name], gaps=GAPS))
        print(reports[name], flush=True)
    if asked.power:
        score = power()
        print(score)
    chosen = [reports[name] for name in STORES if name in reports]
    TOLD.write_text(to_json(chosen, score))
    PAGE.write_text(page(chosen, score))


if __name__ == "__main__":
    main()
