"""The orders of a batch, and what the world outside will make of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Literal, TypeAlias

Answer: TypeAlias = Literal["approved", "rejected"]

PRICES: Mapping[str, int] = {"accordion": 99_900, "banjo": 24_900, "cello": 129_900, "drum": 19_900}
CUSTOMERS = ("ada", "blaise", "carl", "david", "emmy")


@dataclass(frozen=True, slots=True)
class Order:
    """One order; `id` is its workflow's."""

    id: str
    batch: str
    customer: str
    sku: str
    quantity: int
    cents: int
    card: str

    @property
    def inbox(self) -> str:
        """The workflow that hears what becomes of the customer's orders."""
        return f"customer/{self.batch}/{self.customer}"

    def stored(self) -> dict[str, object]:
        """Give what goes into the store."""
        return asdict(self)


def as_order(value: object) -> Order:
    """Read an order back from the store."""
    match value:
        case {
            "id": str(id_),
            "batch": str(batch),
            "customer": str(customer),
            "sku": str(sku),
            "quantity": int(quantity),
            "cents": int(cents),
            "card": str(card),
        }:
            return Order(id_, batch, customer, sku, quantity, cents, card)
        case _:
            raise ValueError("not an order")


@dataclass(frozen=True, slots=True)
class Plan:
    """An order, what is on its card, and what the approver will say to it (or nothing) after so many seconds."""

    order: Order
    funds: int
    answer: Answer | None
    after: float


def planned(batch: str, count: int, seed: int) -> list[Plan]:
    """Make a batch: the same one in every process."""
    return [_plan(batch, number, Random(f"{seed}/{number}")) for number in range(count)]


def _plan(batch: str, number: int, chance: Random) -> Plan:
    sku, quantity = chance.choice(list(PRICES)), chance.randint(1, 3)
    cents = quantity * PRICES[sku]
    order = Order(f"payment/{batch}-{number:03}", batch, chance.choice(CUSTOMERS), sku, quantity, cents, f"card-{number:03}")
    answers: tuple[Answer | None, ...] = ("approved", "rejected", None)
    (answer,) = chance.choices(answers, weights=(8, 1, 1))
    return Plan(order, 3 * cents if chance.random() < 0.85 else cents - 1, answer, chance.uniform(0, 4))


def levels(plans: list[Plan]) -> dict[str, int]:
    """Give the goods that the batch needs, and a few to spare."""
    return {sku: 10 + sum(plan.order.quantity for plan in plans if plan.order.sku == sku) for sku in PRICES}
