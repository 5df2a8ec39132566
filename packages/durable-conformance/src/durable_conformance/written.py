"""Reports as JSON, in a form with a version, and back again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Final, TypedDict

from durable_conformance.case import cases
from durable_conformance.engine import Result, Verdict
from durable_conformance.report import Power, Report
from durable_core.contract import Description, Word

FORMAT: Final = 1
"""The version of the JSON report; it rises when a field changes its meaning or goes."""


class ResultTable(TypedDict):
    """One test, as the JSON has it."""

    clause: str
    test: str
    verdict: Verdict
    promised: str
    seen: str
    seconds: float


class SaysTable(TypedDict):
    """What `describe()` said."""

    product: str
    version: str
    survives_kill: Word
    survives_power_cut: Word
    survives_failover: Word
    transacts: bool
    undoes: bool
    interleaves: bool
    co_commits: bool
    joins: bool
    lists: bool


class StoreTable(TypedDict):
    """One store."""

    store: str
    says: SaysTable
    poll: float
    held: int
    clauses: int
    exit_code: int
    seed: str
    long: bool
    seconds: float
    by_clause: dict[str, Verdict]
    results: list[ResultTable]


class PowerTable(TypedDict):
    """The kit's mutants."""

    killed: int
    total: int
    alive: list[str]


class Table(TypedDict):
    """All of it."""

    format: int
    stores: list[StoreTable]
    mutants: PowerTable | None


def to_json(reports: Sequence[Report], power: Power | None = None) -> str:
    """Give the reports as JSON, with a line for each test."""
    mutants: PowerTable | None = None
    if power is not None:
        mutants = {"killed": power.killed, "total": power.total, "alive": list(power.alive)}
    stores = ",\n".join(_store(report) for report in reports)
    return f'{{"format": {FORMAT}, "mutants": {_line(mutants)}, "stores": [\n{stores}\n]}}\n'


def _store(report: Report) -> str:
    results = ",\n".join(_line(_result(result)) for result in report.results)
    head: Mapping[str, object] = {
        "store": report.store,
        "says": _says(report.said),
        "poll": report.said.poll.total_seconds(),
        "held": report.held,
        "clauses": len(report.by_clause),
        "exit_code": report.exit_code,
        "seed": report.seed,
        "long": report.long,
        "seconds": round(report.seconds, 1),
        "by_clause": dict(report.by_clause),
    }
    return f'{_line(head)[:-1]}, "results": [\n{results}\n]}}'


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _says(said: Description) -> SaysTable:
    return {
        "product": said.product,
        "version": said.version,
        "survives_kill": said.survives_kill,
        "survives_power_cut": said.survives_power_cut,
        "survives_failover": said.survives_failover,
        "transacts": said.transacts,
        "undoes": said.undoes,
        "interleaves": said.interleaves,
        "co_commits": said.co_commits,
        "joins": said.joins,
        "lists": said.lists,
    }


def _result(result: Result) -> ResultTable:
    return {
        "clause": result.case.clause.id,
        "test": result.case.name,
        "verdict": result.verdict,
        "promised": result.promised,
        "seen": result.seen,
        "seconds": round(result.seconds, 3),
    }


def from_json(text: str) -> tuple[list[Report], Power | None]:
    """Give the reports of a JSON text, and the kit's power where it tells of it. A test that it lacks is not covered.

    Raises: `ValueError` for another form, or a test that the kit does not have.
    """
    told: Table = json.loads(text)
    if told["format"] != FORMAT:
        raise ValueError(f"a report of format {told['format']}, and not {FORMAT}")
    mutants = told["mutants"]
    power = None if mutants is None else Power(mutants["killed"], mutants["total"], mutants["alive"])
    return [_read(store) for store in told["stores"]], power


def _read(store: StoreTable) -> Report:
    ran = {result["test"]: result for result in store["results"]}
    unknown = ran.keys() - {case.name for case in cases()}
    if unknown:
        raise ValueError(f"the report of {store['store']} tells of tests that the kit does not have: {sorted(unknown)}")
    results = list[Result]()
    for case in cases():
        one = ran.get(case.name)
        if one is None:
            results.append(Result(case, "not covered", "the report does not tell of it"))
        else:
            results.append(Result(case, one["verdict"], one["seen"], one["promised"], one["seconds"], store["seed"]))
    said = Description(**store["says"], poll=timedelta(seconds=store["poll"]))
    return Report(store["store"], said, results, store["seed"], store["long"], store["seconds"])


@cache
def verdicts(path: Path) -> Mapping[str, Mapping[str, Verdict]]:
    """Give the verdict of each test, by store, as a file has them."""
    return {report.store: {one.case.name: one.verdict for one in report.results} for report in from_json(path.read_text())[0]}
