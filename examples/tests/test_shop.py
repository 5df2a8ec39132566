"""The payment body on the memory double: whatever record it crashes after, it ends as if it had not."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from durable_core import Completed, Outcome, Recorded, Run, resume, start
from durable_core.contract import Pass
from durable_core.memory import Memory, MemoryCheckpointer, MemoryDurable, MemoryEffect
from examples.payments import shop
from examples.payments.bank import Declined
from examples.payments.orders import Order
from examples.payments.shop import Shop
from examples.payments.stock import MemoryStock

ORDER = Order("payment/1", "b", "ada", "banjo", 2, 500, "card")
MINUTE = timedelta(minutes=1)


class Crash(BaseException):
    """The process is gone."""


class Crashing(MemoryCheckpointer):
    """Crashes just after it has written so many records."""

    def __init__(self, memory: Memory, after: int) -> None:
        super().__init__(memory)
        self._left = after

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        recorded = await super().record(holder, key, value)
        self._wrote()
        return recorded

    async def transact(self, holder: Pass, key: str, effect: MemoryEffect, /) -> object:
        value = await super().transact(holder, key, effect)
        self._wrote()
        return value

    def _wrote(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Crash


@dataclass(slots=True)
class Payments:
    """A bank with a card that has money from its second request on, and that writes down what it is asked."""

    declines: bool
    asked: list[str] = field(default_factory=list[str])

    async def charge(self, key: str, reference: str, card: str, cents: int) -> str:
        self.asked.append(f"charge {reference} {cents}")
        if self.declines and len(self.asked) == 1:
            raise Declined("insufficient funds")
        return "receipt"

    async def refund(self, key: str, receipt: str) -> str:
        self.asked.append(f"refund {receipt}")
        return "refund"


@dataclass(frozen=True, slots=True)
class Ended:
    """All that can be seen of an order afterwards."""

    outcome: object
    records: list[str]
    asked: list[str]
    moves: object
    letters: list[object]


async def ran(decision: str, *, declines: bool, crash: int | None) -> Ended:
    """Run an order to its end, with a crash after so many records on the way."""
    memory, bank = Memory(), Payments(declines)
    durable = MemoryDurable(memory=memory)
    MemoryStock().opened("b", {"banjo": 10})(memory.data)
    await start(durable, ORDER.id, ORDER.stored())
    await durable.arrive(ORDER.id, "decision", decision)
    body = Shop(MemoryStock(), bank, durable).payment
    if crash is not None:
        with pytest.raises(Crash):
            await passed(Crashing(memory, crash), body)
    outcome = await passed(durable.checkpointer, body)
    records, letters = await durable.checkpointer.load(ORDER.id), await durable.checkpointer.load(ORDER.inbox)
    return Ended(outcome, list(records), bank.asked, memory.data, list(letters.values()))


async def passed(checkpointer: MemoryCheckpointer, body: Callable[[Run[MemoryEffect]], Awaitable[str]]) -> Outcome[str]:
    """Advance the order by one pass."""
    holder = await checkpointer.claim(ORDER.id, MINUTE, MINUTE)
    assert holder is not None
    try:
        return await resume(checkpointer, holder, body)
    finally:
        await checkpointer.release(holder)


@pytest.mark.parametrize(
    ("decision", "declines", "outcome"),
    [("approved", False, "shipped"), ("rejected", False, "rejected"), ("approved", True, "declined")],
)
async def test_a_crash_after_any_record_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, decision: str, declines: bool, outcome: str
) -> None:
    """K07: the same outcome, records, requests to the bank, moves of goods and letters, wherever it crashed."""
    monkeypatch.setattr(shop, "SETTLEMENT", timedelta(0))
    unharmed = await ran(decision, declines=declines, crash=None)
    assert unharmed.outcome == Completed(outcome)
    written = len(unharmed.records) - 2  # the input and the decision come from outside
    for crash in range(1, written + 1):
        assert await ran(decision, declines=declines, crash=crash) == unharmed
