"""Every clause that a store can break has a case, and every clause has mutants."""

from collections import Counter

from durable_conformance.case import cases
from durable_conformance.clauses import clause, clauses
from durable_conformance.mutants.registry import mutants


def test_clauses_are_read_from_the_docstrings_that_state_them() -> None:
    """An id, its words and the method that owes it."""
    found = clause("CKP-LOAD-EMPTY")
    assert found.text == "Without records it MUST be an empty dict, and reading MUST create nothing."
    assert (found.where, found.anchor, found.by_engine) == ("Checkpointer.load", "ckp-load-empty", False)


def test_a_clause_of_several_lines_is_one_text() -> None:
    """What is wrapped in the source is one sentence here, without the next clause."""
    text = clause("CKP-LOAD-PREFIX").text
    assert text.startswith("Until a discard")
    assert text.endswith("the writers of one workflow commit one after the other.")


def test_every_clause_of_a_store_has_a_case() -> None:
    """What no case looks at is not held by anybody."""
    covered = {case.clause.id for case in cases()}
    assert {name for name, one in clauses().items() if not one.by_engine} - covered == set()


def test_every_clause_of_a_store_has_a_mutant() -> None:
    """A case that no mutant fails shows nothing."""
    broken = {one.clause.id for one in mutants()}
    assert {name for name, one in clauses().items() if not one.by_engine} - broken == set()


def test_names_are_tests_names_and_begin_with_the_clause() -> None:
    """pytest and people find a case by its clause."""
    for case in cases():
        assert case.name.isidentifier()
        assert case.name.startswith(f"test_{case.clause.id.replace('-', '_')}_")
        assert case.promise.endswith("."), case.name
    assert max(Counter(case.name for case in cases()).values()) == 1


def test_there_are_hundreds_of_mutants_each_with_a_name_of_its_own() -> None:
    """Ids and texts are what a report tells."""
    assert len(mutants()) > 300
    assert max(Counter(one.id for one in mutants()).values()) == 1
    assert all(one.text for one in mutants())
