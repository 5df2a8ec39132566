"""The books of the payments example: they notice what a wrong engine would do."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from examples.payments.books import MOVES, TAKEN, Books, faults
from examples.payments.ledger import Charge, Statement
from examples.payments.orders import Order, Plan
from examples.payments.stock import Count

ORDERS = {outcome: Order(f"payment/{outcome}", "b", "ada", "banjo", 2, 500, f"card-{outcome}") for outcome in MOVES}


@pytest.fixture
def books() -> Books:
    """One order of each outcome, with everything as it should be."""
    return Books(
        plans=[Plan(order, 600, "approved", 0) for order in ORDERS.values()],
        outcomes={order.id: outcome for outcome, order in ORDERS.items()},
        levels={"banjo": 10},
        count=Count(
            {"banjo": {"free": 8, "reserved": 0, "shipped": 2}}, {ORDERS[outcome].id: MOVES[outcome] for outcome in MOVES}
        ),
        ledger=Statement(
            charges=[Charge(ORDERS[outcome].id, 500, refunds) for outcome in MOVES for refunds in TAKEN[outcome]],
            cards={order.card: 100 if outcome == "shipped" else 600 for outcome, order in ORDERS.items()},
            repeats=0,
        ),
        letters=[f"{order.id} {outcome}" for outcome, order in ORDERS.items()],
    )


def broken(books: Books) -> list[str]:
    """Give the first words of the promises that the books break."""
    return [promise.partition(",")[0] for promise, wrong in faults(books).items() if wrong]


def test_balanced_books_have_no_faults(books: Books) -> None:
    """Nothing is reported where nothing is wrong."""
    assert broken(books) == []


def test_a_doubled_charge_is_found(books: Books) -> None:
    """A card that was charged twice is named, even when the second charge was given back."""
    twice = replace(books.ledger, charges=[*books.ledger.charges, Charge("payment/shipped", 500, 1)])
    found = faults(replace(books, ledger=twice))
    assert found["no card was charged twice, by the gateway's own ledger"] == ["payment/shipped: charged 2 times"]


BROKEN: list[tuple[Callable[[Books], Books], str]] = [
    (lambda books: replace(books, outcomes={**books.outcomes, "payment/shipped": "buried: why"}), "every order finished"),
    (lambda books: replace(books, count=Count(books.count.shelves, {})), "every reservation moved on"),
    (lambda books: replace(books, ledger=replace(books.ledger, charges=[])), "every charge is kept for what shipped"),
    (lambda books: replace(books, ledger=replace(books.ledger, cards={})), "every card holds what it should"),
    (lambda books: replace(books, levels={"banjo": 11}), "every shelf holds what it should"),
    (lambda books: replace(books, letters=[*books.letters, books.letters[0]]), "every customer read of each order"),
    (lambda books: replace(books, letters=books.letters[1:]), "every customer read of each order"),
]


@pytest.mark.parametrize(("broke", "promise"), BROKEN)
def test_each_promise_can_be_found_broken(books: Books, broke: Callable[[Books], Books], promise: str) -> None:
    """Each check fails for books that break what it checks."""
    assert promise in broken(broke(books))
