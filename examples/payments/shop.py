"""The workflows of the shop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from durable_core import Client, Run, StepFailed, dict_of, nothing
from examples.payments.bank import Declined
from examples.payments.orders import Order, as_order
from examples.payments.stock import Stock

E = TypeVar("E")
Decision: TypeAlias = Literal["approved", "rejected", "expired"]
Outcome: TypeAlias = Literal["shipped", "declined", "rejected", "expired"]

DECISIONS: tuple[Decision, ...] = ("approved", "rejected", "expired")
APPROVAL: Final = timedelta(seconds=5)
SETTLEMENT: Final = timedelta(seconds=1)
REQUEST: Final = timedelta(seconds=5)
CLOSING: Final = "closing"


class Payments(Protocol):
    """What takes and returns money. Both honour an idempotency key."""

    async def charge(self, key: str, reference: str, card: str, cents: int) -> str: ...

    async def refund(self, key: str, receipt: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Shop(Generic[E]):
    """What the workflows need: stock in their own database, a bank elsewhere, and a way to write to customers' inboxes."""

    stock: Stock[E]
    bank: Payments
    client: Client

    def bodies(self) -> Mapping[str, Callable[[Run[E]], Awaitable[object]]]:
        """Give the bodies by the first part of their workflows' ids."""
        return {"payment": self.payment, "customer": customer, "opening": self.opening, "stocktake": self.stocktake}

    async def payment(self, run: Run[E]) -> Outcome:
        """Take an order to its end: shipped, or everything undone."""
        order = await run.input(as_order)
        # The warehouse is in the workflows' own database: the goods move in the commit that records the step.
        await run.transact("reserved", self.stock.moved(order, "free", "reserved"), nothing)
        try:
            receipt = await self._charged(run, order)
        except StepFailed:
            # A record says so: whoever goes on after a crash comes here again, whatever is on the card by then.
            return await self._undone(run, order, "declined")
        decision = await run.awaiting("decision", as_decision, timeout=APPROVAL, default="expired")
        if decision != "approved":
            await run.step("refunded", self.bank.refund, str, run.idempotency_key("refunded"), receipt, timeout=REQUEST)
            return await self._undone(run, order, decision)
        await run.sleep("settled", SETTLEMENT)
        await run.transact("shipped", self.stock.moved(order, "reserved", "shipped"), nothing)
        return await self._told(run, order, "shipped")

    async def _charged(self, run: Run[E], order: Order) -> str:
        key = run.idempotency_key("charged")  # the same one on every pass, so that the gateway knows a repetition
        arguments = (key, order.id, order.card, order.cents)
        return await run.step("charged", self.bank.charge, str, *arguments, timeout=REQUEST, failures=(Declined,))

    async def _undone(self, run: Run[E], order: Order, outcome: Outcome) -> Outcome:
        await run.transact("released", self.stock.moved(order, "reserved", "free"), nothing)
        return await self._told(run, order, outcome)

    async def _told(self, run: Run[E], order: Order, outcome: Outcome) -> Outcome:
        await run.step("told", self._tell, nothing, order.inbox, f"{order.id} {outcome}", run.idempotency_key("told"))
        return outcome

    async def _tell(self, inbox: str, text: str, once: str) -> None:
        await self.client.deliver(inbox, text, once=once)

    async def opening(self, run: Run[E]) -> None:
        """Fill the warehouse."""
        levels = await run.input(dict_of(int))
        await run.transact("opened", self.stock.opened(_batch(run), levels), nothing)

    async def stocktake(self, run: Run[E]) -> object:
        """Count the warehouse."""
        await run.input(nothing)
        return await run.transact("counted", self.stock.counted(_batch(run)), lambda count: count)


async def customer(run: Run) -> list[str]:
    """Read the inbox, message by message, until the shop closes; give what was read."""
    letters: list[str] = []
    after: str | None = None
    while True:
        for entry in await run.receive(f"read after {after}", str, after=after):
            if entry.value == CLOSING:
                return letters
            letters.append(entry.value)
            after = entry.key


def as_decision(value: object) -> Decision:
    """Read what the approver said, or the default that stands for silence."""
    for decision in DECISIONS:
        if value == decision:
            return decision
    raise ValueError(f"not one of {', '.join(DECISIONS)}")


def _batch(run: Run[E]) -> str:
    return run.workflow.partition("/")[2]
