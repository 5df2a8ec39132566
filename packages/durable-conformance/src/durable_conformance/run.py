"""`check`: hold a store to the contract, and give the report."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from durable_conformance import gaps as known
from durable_conformance.case import Case, cases
from durable_conformance.engine import Result, Session
from durable_conformance.harness import AnyHarness
from durable_conformance.report import Power, Report


def wants_long() -> bool:
    """Say whether the environment asks for the long run: DURABLE_CONFORMANCE_LONG."""
    return os.environ.get("DURABLE_CONFORMANCE_LONG", "") not in ("", "0")


def seed_of(long: bool) -> str:
    """Give the seed: DURABLE_CONFORMANCE_SEED, else always the same, else (in a long run) a new one each time."""
    return os.environ.get("DURABLE_CONFORMANCE_SEED") or (secrets.token_hex(4) if long else "0")


def check(
    harness: AnyHarness | type[AnyHarness],
    *,
    gaps: Path | None = None,
    only: str = "",
    long: bool | None = None,
    seed: str | None = None,
    told: Callable[[Result], object] | None = None,
) -> Report:
    """Hold a store to the contract, and give the report. Not to be called from a running event loop.

    `gaps` is a TOML file of what the store is known not to keep. `only` leaves out the tests whose names do not contain it;
    such a report is of those tests alone. `long` takes the time of a night. `told` is called with each result as it comes.
    """
    made = harness() if isinstance(harness, type) else harness
    long = wants_long() if long is None else long
    declared = known.read(gaps, made.title())
    began = time.perf_counter()
    results: list[Result] = []
    with Session(made, seed=seed or seed_of(long), long=long) as session:
        for case in chosen(only):
            results.append(declared.applied(session.run(case)))
            if told is not None:
                told(results[-1])
        return Report(made.title(), session.said, results, session.seed, long, time.perf_counter() - began)


def chosen(only: str) -> list[Case]:
    """Give the cases whose names, or whose clauses' ids, contain a text."""
    return [case for case in cases() if only in case.name or only in case.clause.id]


def power() -> Power:
    """Hunt the kit's own mutants, and give how many its cases see."""
    from durable_conformance.mutants.registry import score

    killings = list(score())
    alive = [f"{one.mutant.id} ({one.mutant.clause.id}: {one.mutant.text})" for one in killings if not one.killed]
    return Power(len(killings) - len(alive), len(killings), alive)
