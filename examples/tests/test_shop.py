"""The bodies of the payments example on the memory double: whatever record they crash after, they end as if they had not."""

import pytest

from durable_core import Run, nothing
from durable_core.memory import MemoryDurable, MemoryEffect
from durable_core.testing import Messages, crash_everywhere
from examples.payments.bank import Declined
from examples.payments.orders import Order
from examples.payments.shop import CLOSING, Shop, customer
from examples.payments.stock import MemoryStock

ORDER = Order("payment/1", "b", "ada", "banjo", 2, 500, "card")


class Bank:
    """Charges whoever has enough."""

    def __init__(self, funds: int) -> None:
        self.funds = funds

    async def charge(self, key: str, reference: str, card: str, cents: int) -> str:
        if cents > self.funds:
            raise Declined("insufficient funds")
        self.funds -= cents
        return f"receipt for {reference}"

    async def refund(self, key: str, receipt: str) -> str:
        self.funds += ORDER.cents
        return f"refund of {receipt}"


UNDONE = ("refunded", "released", "told")


@pytest.mark.parametrize(
    ("decision", "funds", "outcome", "left", "last"),
    [
        ("approved", 600, "shipped", 100, ("settled", "shipped", "told")),
        ("approved", 499, "declined", 499, ("failed:charged", "released", "told")),
        ("rejected", 600, "rejected", 600, UNDONE),
        (None, 600, "expired", 600, UNDONE),
    ],
)
async def test_a_payment_survives_a_crash_after_any_record(
    decision: str | None, funds: int, outcome: str, left: int, last: tuple[str, ...]
) -> None:
    """K07, RUN-SETTLE: each outcome is reached over the same records, wherever it crashed."""
    stock, bank = MemoryStock(), Bank(funds)
    shop = Shop(stock, bank, MemoryDurable())

    async def body(run: Run[MemoryEffect]) -> str:
        await run.transact("opened", stock.opened("b", {"banjo": 10}), nothing)
        return await shop.payment(run)

    answers = {} if decision is None else {"decision": decision}
    survived = await crash_everywhere(body, answers, value=ORDER.stored(), workflow=ORDER.id)
    assert (survived.value, bank.funds, survived.keys[-3:]) == (outcome, left, last)


async def test_a_customer_survives_a_crash_after_any_record() -> None:
    """RUN-SETTLE: each letter is read once."""
    letters = {"read after None": Messages("payment/1 shipped", "payment/2 declined", CLOSING)}
    survived = await crash_everywhere(customer, letters, workflow=ORDER.inbox)
    assert survived.value == ["payment/1 shipped", "payment/2 declined"]
