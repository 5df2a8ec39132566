"""Durable workflows on Postgres."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from durable_core.contract import CheckpointCodec
from durable_postgres.checkpointer import PostgresCheckpointer
from durable_postgres.durable import PostgresDurable
from durable_postgres.effect import SqlEffect
from durable_postgres.scheduler import LEASE, PostgresScheduler

__all__ = ["PostgresCheckpointer", "PostgresDurable", "PostgresScheduler", "SqlEffect", "open"]


def open(
    url: str,
    *,
    schema: str | None = None,
    queue: str = "default",
    lease: timedelta = LEASE,
    codec: CheckpointCodec[str] | None = None,
    create: bool = True,
    connections: int = 8,
) -> AbstractAsyncContextManager[PostgresDurable]:
    """Give the store at a URL, with a pool of its own: `async with durable_postgres.open("postgresql://…") as durable: …`.

    `connections` is the size of the pool; `create=False` verifies the schema and issues no DDL. An application that has a pool
    gives it to `PostgresDurable.on(pool)` instead.
    """
    return _opened(url, schema, queue, lease, codec, create, connections)


@asynccontextmanager
async def _opened(
    url: str,
    schema: str | None,
    queue: str,
    lease: timedelta,
    codec: CheckpointCodec[str] | None,
    create: bool,
    connections: int,
) -> AsyncGenerator[PostgresDurable]:
    pool: AsyncConnectionPool[AsyncConnection[TupleRow]] = AsyncConnectionPool(
        url, min_size=1, max_size=connections, open=False, kwargs={"autocommit": True}
    )
    async with pool, PostgresDurable.on(pool, schema=schema, queue=queue, lease=lease, codec=codec, create=create) as durable:
        yield durable
