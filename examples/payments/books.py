"""Whether the books balance: what the workflows say, against the warehouse, the gateway's ledger and the customers' letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from examples.payments.ledger import Statement
from examples.payments.orders import Plan
from examples.payments.stock import Count

MOVES: Mapping[str, list[str]] = {
    "shipped": ["free to reserved", "reserved to shipped"],
    "declined": ["free to reserved", "reserved to free"],
    "rejected": ["free to reserved", "reserved to free"],
    "expired": ["free to reserved", "reserved to free"],
}
TAKEN: Mapping[str, list[int]] = {"shipped": [0], "declined": [], "rejected": [1], "expired": [1]}
"""The charges that an outcome leaves in the ledger, each as how often it was given back."""


@dataclass(frozen=True, slots=True)
class Books:
    """Everything that was written down about a batch."""

    plans: Sequence[Plan]
    outcomes: Mapping[str, str]
    levels: Mapping[str, int]
    count: Count
    ledger: Statement
    letters: Sequence[str]


def finished(books: Books) -> Iterator[str]:
    for plan in books.plans:
        outcome = books.outcomes.get(plan.order.id, "unfinished")
        if outcome not in MOVES:
            yield f"{plan.order.id}: {outcome}"


def moved(books: Books) -> Iterator[str]:
    for order, outcome in books.outcomes.items():
        moves = books.count.moves.get(order, [])
        if moves != MOVES.get(outcome):
            yield f"{order}: {outcome}, and its goods went {', '.join(moves) or 'nowhere'}"


def charged(books: Books) -> Iterator[str]:
    times = Counter(charge.reference for charge in books.ledger.charges)
    yield from (f"{order}: charged {count} times" for order, count in times.items() if count > 1)


def settled(books: Books) -> Iterator[str]:
    for order, outcome in books.outcomes.items():
        refunds = [charge.refunds for charge in books.ledger.charges if charge.reference == order]
        if refunds != TAKEN.get(outcome):
            yield f"{order}: {outcome}, with {len(refunds)} charges and {sum(refunds)} refunds"


def shelved(books: Books) -> Iterator[str]:
    for sku, level in books.levels.items():
        gone = sum(
            plan.order.quantity
            for plan in books.plans
            if plan.order.sku == sku and books.outcomes.get(plan.order.id) == "shipped"
        )
        if books.count.shelves.get(sku) != (expected := {"free": level - gone, "reserved": 0, "shipped": gone}):
            yield f"{sku}: {books.count.shelves.get(sku)} and not {expected}"


def paid(books: Books) -> Iterator[str]:
    for plan in books.plans:
        kept = plan.order.cents if books.outcomes.get(plan.order.id) == "shipped" else 0
        if books.ledger.cards.get(plan.order.card) != plan.funds - kept:
            yield f"{plan.order.card}: {books.ledger.cards.get(plan.order.card)} cents are left of {plan.funds}"


def told(books: Books) -> Iterator[str]:
    expected = Counter(f"{order} {outcome}" for order, outcome in books.outcomes.items())
    read = Counter(books.letters)
    for letter in sorted(expected | read):
        if expected[letter] != read[letter]:
            yield f"{letter!r}: read {read[letter]} times"


CHECKS: Mapping[str, Callable[[Books], Iterator[str]]] = {
    "every order finished, once": finished,
    "every reservation moved on, once": moved,
    "no card was charged twice, by the gateway's own ledger": charged,
    "every charge is kept for what shipped, and given back once for what did not": settled,
    "every card holds what it should": paid,
    "every shelf holds what it should": shelved,
    "every customer read of each order, once": told,
}


def faults(books: Books) -> dict[str, list[str]]:
    """Give what is wrong, by the promise that is broken; an empty list for one that is kept."""
    return {promise: list(check(books)) for promise, check in CHECKS.items()}
