"""What mutants do to a workflow's state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from durable_core._reference_records import Record
from durable_core.reference import Claim, Ledger, State, Wakeup

__all__ = ["Record", "listed", "with_claim", "with_records", "with_wakeup"]


def listed(state: State) -> list[Record]:
    """Give the records."""
    return list(state.ledger.records.since(0))


def with_records(state: State, records: Iterable[Record]) -> State:
    """Give the state with other records."""
    built = Ledger().records
    for record in records:
        built = built.with_record(record)
    return replace(state, ledger=replace(state.ledger, records=built))


def with_claim(state: State, claim: Claim | None) -> State:
    """Give the state with another claim."""
    return replace(state, ledger=replace(state.ledger, claim=claim))


def with_wakeup(state: State, wakeup: Wakeup | None) -> State:
    """Give the state with another wakeup."""
    return replace(state, wakeup=wakeup)
