"""The approver: a process that says yes or no to orders, and to some of them nothing.

python -m examples.payments.approver URL BATCH ORDERS SEED
"""

from __future__ import annotations

import asyncio
import sys

import durable_core
from durable_core import Client
from examples.payments.orders import Plan, planned
from examples.payments.stores import insisted, options


async def main(store: str, batch: str, orders: int, seed: int) -> None:
    """Answer for each order when its time has come."""
    async with durable_core.open(store, **options(store)) as durable, asyncio.TaskGroup() as group:
        for plan in planned(batch, orders, seed):
            group.create_task(answer(durable, plan))


async def answer(client: Client, plan: Plan) -> None:
    """Say what the plan has for the order; the first answer counts, and silence is one once the time is over."""
    if plan.answer is not None:
        await asyncio.sleep(plan.after)
        await insisted(lambda: client.arrive(plan.order.id, "decision", plan.answer))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
