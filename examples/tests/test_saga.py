"""The payments' saga, with a worker that is killed inside the compensation."""

import asyncio
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

import durable_core
from durable_core import Durable, Finished, list_of, nothing, result, start
from examples.payments.bank import Bank
from examples.payments.fleet import KILLED, line_of, program
from examples.payments.ledger import Ledger, Statement
from examples.payments.orders import Order
from examples.payments.shop import CLOSING
from examples.payments.stock import Count, as_count

ORDER = Order("payment/1", "b", "ada", "banjo", 2, 500, "card")
PATIENCE = timedelta(seconds=30)


async def dies(durable: Durable, store: str, port: str, key: str) -> None:
    """Submit the order, approved beforehand, to a worker that is killed once the key is recorded."""
    async with program("examples.tests.dying_worker", store, port, key) as worker:
        await start(durable, "opening/b", {"banjo": 10})
        await result(durable, "opening/b", nothing, wait=PATIENCE)
        await durable.arrive(ORDER.id, "decision", "approved")
        await start(durable, ORDER.id, ORDER.stored())
        async with asyncio.timeout(PATIENCE.total_seconds()):
            assert await worker.wait() == KILLED


@pytest.mark.parametrize("key", ["failed:charged", "released", "told"])
async def test_a_worker_killed_inside_the_compensation_changes_no_mind(store: str, tmp_path: Path, key: str) -> None:
    """K07, RUN-STEP-FAILURES: the card has money again, and still the stock goes back once, nothing is charged, nothing ships."""
    async with (
        program("examples.payments.gateway", str(tmp_path / "gateway.db"), "1") as gateway,
        durable_core.open(store) as durable,
    ):
        port = await line_of(gateway)
        bank = Bank(int(port))
        await bank.top_up(ORDER.card, 499)
        await dies(durable, store, port, key)
        assert list(await durable.checkpointer.load(ORDER.id))[-1] == key
        await bank.top_up(ORDER.card, 499)
        async with program("examples.payments.worker", "--store", store, "--gateway", port):
            assert await result(durable, ORDER.id, str, wait=PATIENCE) == Finished("declined")
            await start(durable, "stocktake/b")
            counted = await result(durable, "stocktake/b", as_count, wait=PATIENCE)
            await durable.deliver(ORDER.inbox, CLOSING)
            letters = await result(durable, ORDER.inbox, list_of(str), wait=PATIENCE)
    shelves = {"banjo": {"free": 10, "reserved": 0, "shipped": 0}}
    assert counted == Finished(Count(shelves, {ORDER.id: ["free to reserved", "reserved to free"]}))
    assert letters == Finished([f"{ORDER.id} declined"])
    with closing(Ledger(tmp_path / "gateway.db")) as ledger:
        assert ledger.statement() == Statement([], {"card": 998}, repeats=0)
