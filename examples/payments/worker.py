"""A worker: a process that advances whatever workflow may run.

python -m examples.payments.worker --store URL --gateway PORT
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from signal import SIGINT, SIGTERM
from typing import Final, TypeVar

from durable_core import Durable
from durable_core.observer import Event
from durable_core.worker import Retry, Worker
from examples.payments.bank import Bank
from examples.payments.fleet import end_with_parent
from examples.payments.shop import Shop
from examples.payments.stock import PostgresStock, RedisStock, SqliteStock, Stock
from examples.payments.stores import insisted

E = TypeVar("E")

LEASE: Final = timedelta(seconds=1.5)
"""How soon a killed worker's workflows are taken up by another one. In earnest it is a minute."""

RETRY: Final = Retry(first=timedelta(seconds=0.2), most=timedelta(seconds=1))
"""How soon a workflow comes back when the gateway has let it down."""

KILLS: Final = 50
"""How often a workflow's worker may die under it. In earnest it is three times: then the workflow is what kills it."""


AT_ONCE: Final = 4
"""How many orders a worker has in hand. All that it has lapse with it, and what lapsed three times running is only run alone."""


def say(event: Event) -> None:
    """Tell the fleet what happened, in a word."""
    print(type(event).__name__, flush=True)


async def serve(durable: Durable[E], stock: Stock[E], bank: Bank, observer: Callable[[Event], object]) -> None:
    """Work until asked to end."""
    worker = Worker(durable, limit=AT_ONCE, retry=RETRY, observer=observer, lapses_alone=KILLS)
    await worker.run(Shop(stock, bank, durable).bodies(), signals=(SIGTERM, SIGINT))


async def serve_at(store: str, bank: Bank, observer: Callable[[Event], object] = say) -> None:
    """Work on the store at a URL, with the stock that lives in it."""
    match store.partition(":")[0]:
        case "sqlite":
            import durable_sqlite

            async with durable_sqlite.open(store, lease=LEASE) as sqlite:
                await serve(sqlite, SqliteStock(), bank, observer)
        case "postgresql":
            import durable_postgres

            async with AsyncExitStack() as exits:
                postgres = await insisted(lambda: exits.enter_async_context(durable_postgres.open(store, lease=LEASE)))
                await serve(postgres, PostgresStock(), bank, observer)
        case "redis" | "rediss" | "redis+cluster" | "redis+sentinel":
            import durable_redis

            async with AsyncExitStack() as exits:
                redis = await insisted(lambda: exits.enter_async_context(durable_redis.open(store, lease=LEASE, partitions=1)))
                await serve(redis, RedisStock(redis.hash_key), bank, observer)
        case scheme:
            raise SystemExit(f"there is no stock for {scheme}://")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--gateway", required=True, type=int)
    options = parser.parse_args()
    end_with_parent()
    asyncio.run(serve_at(options.store, Bank(options.gateway)))


if __name__ == "__main__":
    main()
