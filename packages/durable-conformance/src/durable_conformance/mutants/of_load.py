"""Mutants of load."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from durable_core import reference
from durable_core.contract import Entry, Pass, Recorded
from durable_core.reference import Record, State

from durable_conformance.mutants.double import DoubleCheckpointer, DoubleScheduler, Half, Machine
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.vault import Content, Vault

A = TypeVar("A")


def reordered(state: State, order: Callable[[Record], object]) -> Mapping[str, object]:
    """Give the records in another order."""
    records = sorted(state.ledger.records.since(0), key=order)  # type: ignore[arg-type] # pyright: ignore
    return {record.key: record.value for record in records}


@mutant("M200", "CKP-LOAD-EMPTY", "load of an unknown id leaves a row, which discard then counts")
class LoadCreates(Machine):
    pass
