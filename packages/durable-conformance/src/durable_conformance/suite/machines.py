"""The store and the reference machine, driven by the same random calls."""

from __future__ import annotations

from durable_conformance.bench import Bench
from durable_conformance.case import shows
from durable_conformance.suite._common import co_commits


@shows("CKP-RECORD-ONCE", apart="Ledgers")
async def any_records_in_turn_are_as_the_reference_has_them(_bench: Bench) -> None:
    """Random programs of all checkpointer methods, on two workflows, with time passing: each answer is the reference's."""


@shows("SCH-READY-EVENTUALLY", apart="Wakeups")
async def any_wakeups_in_turn_are_as_the_reference_has_them(_bench: Bench) -> None:
    """Random programs of every scheduler method, on two workflows, with time passing: each answer is the reference machine's."""


@shows("DUR-TURN-FENCED", apart="Turns", when=co_commits)
async def any_turns_in_turn_are_as_the_reference_has_them(_bench: Bench) -> None:
    """Random programs of every transition, on two workflows, with time passing: each answer is the reference machine's."""
