"""The kit's power: each mutant is seen by a case of the clause that it breaks, and the double it is made of keeps them all."""

import pytest

from durable_conformance.case import cases
from durable_conformance.clauses import Clause
from durable_conformance.engine import Session
from durable_conformance.harness import AnyHarness
from durable_conformance.mutants.harness import DoubleHarness, FileHarness, SplitHarness
from durable_conformance.mutants.of_processes import ServedHarness
from durable_conformance.mutants.of_transact import NeverHarness, TearingHarness
from durable_conformance.mutants.registry import Mutant, mutants, score


@pytest.mark.parametrize("mutant", mutants(), ids=lambda one: one.id)
def test_a_case_of_its_clause_sees_the_mutant(mutant: Mutant) -> None:
    """It sees a promise broken, and not merely an error."""
    seen: list[str] = []
    with Session(mutant.harness()) as session:
        for case in cases():
            if case.clause == mutant.clause:
                result = session.run(case)
                if result.verdict == "broken":
                    return
                seen.append(f"{result.verdict}: {case.name}: {result.seen}")
    pytest.fail("\n".join([f"{mutant.id} lives: {mutant.clause.id}: {mutant.text}", *seen]), pytrace=False)


def held(harness: type[AnyHarness], chosen: list[Clause] | None = None, needing: str = "") -> None:
    """Ask that a double keeps every clause, or those chosen."""
    with Session(harness()) as session:
        for case in cases():
            if (chosen is None or case.clause in chosen) and (not needing or needing in case.needs):
                result = session.run(case)
                assert result.verdict in ("held", "not applicable", "not covered"), str(result)


@pytest.mark.parametrize("harness", [DoubleHarness, SplitHarness])
def test_the_double_keeps_every_clause(harness: type[AnyHarness]) -> None:
    """Whole and split, unmutated, nothing is seen broken."""
    held(harness)


def test_the_double_in_a_file_keeps_what_takes_processes() -> None:
    """What several processes are needed for, unmutated, is held."""
    held(FileHarness, needing="processes")


def test_the_double_behind_a_server_keeps_what_takes_a_kill() -> None:
    """What the server is killed for, unmutated, is held."""
    held(ServedHarness, needing="kill")


@pytest.mark.parametrize(("harness", "word"), [(NeverHarness, "NEVER"), (TearingHarness, "TORN"), (NeverHarness, "DESCRIBE")])
def test_the_doubles_with_other_effects_keep_their_clauses(harness: type[AnyHarness], word: str) -> None:
    """A store without effects, and one that cannot undo them, keep what is asked of such a store."""
    held(harness, [case.clause for case in cases() if word in case.clause.id or "TRANSACT" in case.clause.id])


@pytest.mark.slow
def test_every_case_is_failed_by_a_mutant() -> None:
    """A case that no mutant can fail asks for nothing."""
    failed = {name for killing in score() for name in killing.by}
    assert {case.name for case in cases()} - failed == set()
