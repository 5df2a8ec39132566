"""The contract's page is what its generator writes, and misses nothing."""

from conformance.contract import PAGE, breaks, page, reasons, shows
from durable_conformance.clauses import clauses


def test_the_page_is_current() -> None:
    """It is written anew by `python -m conformance.contract`."""
    assert PAGE.read_text() == page(), "run: python -m conformance.contract"


def test_every_clause_has_a_test() -> None:
    """The engine's as well as a store's."""
    assert clauses().keys() - shows().keys() == set()


def test_every_clause_has_a_mutant() -> None:
    """A test that no mutant fails shows nothing."""
    assert clauses().keys() - breaks().keys() == set()


def test_every_clause_has_an_anchor() -> None:
    """A failure says where to read."""
    headings = {line.removeprefix("### ").lower() for line in PAGE.read_text().splitlines() if line.startswith("### ")}
    assert {clause.anchor for clause in clauses().values()} == headings


def test_every_reason_is_that_of_a_clause() -> None:
    """A heading of the page of reasons names a clause, so that the page of clauses leads there."""
    assert reasons() <= clauses().keys()
