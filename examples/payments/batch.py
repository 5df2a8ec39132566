"""One batch of orders from submission to the books, with the workers dying all the while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import durable_core
from durable_core import Durable, Failed, Finished, list_of, nothing, result, start
from examples.payments.bank import Bank
from examples.payments.books import Books
from examples.payments.fleet import Fleet, fleet, line_of, program
from examples.payments.ledger import Ledger
from examples.payments.orders import Plan, levels, planned
from examples.payments.shop import CLOSING
from examples.payments.stock import as_count
from examples.payments.stores import insisted, options

WORKERS: Final = 3
KILLS: Final = 20
STALLED: Final = 35.0
"""Seconds without one more end after which a batch is given up. How fast it goes is the machine's."""

CLOSED: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Batch:
    """What to do: so many orders on the store at a URL, with the gateway's ledger in a file. The seed names the batch."""

    store: str
    ledger: Path
    orders: int
    seed: int

    @property
    def name(self) -> str:
        """The batch's name in the store."""
        return f"{self.seed:08x}"


@dataclass(frozen=True, slots=True)
class Done:
    """The books, and what happened on the way."""

    books: Books
    kills: int
    passes: int
    seconds: float


async def ran(batch: Batch, progress: Callable[[dict[str, str], Fleet], object]) -> Done:
    """Run a batch, showing progress, and give the books. Raises: `SystemExit` when the store has seen the batch."""
    began = time.monotonic()
    plans = planned(batch.name, batch.orders, batch.seed)
    async with (
        program("examples.payments.gateway", str(batch.ledger), str(batch.seed)) as gateway,
        durable_core.open(batch.store, **options(batch.store)) as durable,
    ):
        port = await line_of(gateway)
        async with fleet(WORKERS, "--store", batch.store, "--gateway", port) as workers:
            await opened(durable, Bank(int(port)), batch.name, plans)
            outcomes = await settled(durable, batch, plans, workers, progress)
            books = await closed(durable, batch, plans, outcomes)
    return Done(books, workers.kills, workers.events["PassBegan"], time.monotonic() - began)


async def opened(durable: Durable, bank: Bank, name: str, plans: list[Plan]) -> None:
    """Fill the warehouse and the cards."""
    workflow = f"opening/{name}"
    if await durable.result(workflow) is not None:
        raise SystemExit(f"the store has seen batch {name}: take another seed")
    await start(durable, workflow, levels(plans))
    for plan in plans:
        await bank.top_up(plan.order.card, plan.funds)
    if not isinstance(await result(durable, workflow, nothing, wait=CLOSED), Finished):
        raise SystemExit("the warehouse did not open")


async def settled(
    durable: Durable, batch: Batch, plans: list[Plan], workers: Fleet, progress: Callable[[dict[str, str], Fleet], object]
) -> dict[str, str]:
    """Submit the orders and wait until all have an outcome, or no more get one; meanwhile approve some and kill workers."""
    arguments = (batch.store, batch.name, str(batch.orders), str(batch.seed))
    async with program("examples.payments.approver", *arguments), asyncio.TaskGroup() as group:
        killing = group.create_task(workers.kill(Random(batch.seed), KILLS))
        for plan in plans:
            await insisted(partial(start, durable, plan.order.id, plan.order.stored()))
        outcomes: dict[str, str] = {}
        until, most = time.monotonic() + STALLED, 0
        while len(outcomes) < len(plans) and time.monotonic() < until:
            await asyncio.sleep(0.5)
            # All of them each time: a failover may take back an end that was seen, and the workflow then ends once more.
            outcomes = await insisted(lambda: ended(durable, [plan.order.id for plan in plans]))
            if len(outcomes) > most:
                until, most = time.monotonic() + STALLED, len(outcomes)
            progress(outcomes, workers)
        killing.cancel()
    return outcomes


async def ended(durable: Durable, workflows: Iterable[str]) -> dict[str, str]:
    """Give the outcomes that are there by now."""
    outcomes: dict[str, str] = {}
    for workflow in workflows:
        match await result(durable, workflow, str):
            case Finished(outcome):
                outcomes[workflow] = outcome
            case Failed(reason):
                outcomes[workflow] = f"buried: {reason}"
            case None:
                pass
    return outcomes


async def closed(durable: Durable, batch: Batch, plans: list[Plan], outcomes: dict[str, str]) -> Books:
    """Have the customers read their last letter, count the warehouse, and put the books together."""
    inboxes = sorted({plan.order.inbox for plan in plans})
    for inbox in inboxes:
        await durable.deliver(inbox, CLOSING, once=CLOSING)
    await start(durable, f"stocktake/{batch.name}")
    async with asyncio.TaskGroup() as group:
        reading = [group.create_task(result(durable, inbox, list_of(str), wait=CLOSED)) for inbox in inboxes]
    count = await result(durable, f"stocktake/{batch.name}", as_count, wait=CLOSED)
    if not isinstance(count, Finished):
        raise SystemExit(f"the stocktake did not end: {count}")
    letters = [letter for read in reading if isinstance(found := read.result(), Finished) for letter in found.value]
    with closing(Ledger(batch.ledger)) as ledger:
        return Books(plans, outcomes, levels(plans), count.value, ledger.statement(), letters)
