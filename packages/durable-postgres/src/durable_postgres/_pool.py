"""The application's pool, as the store uses it: one statement in autocommit, on a connection that is kept for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import LiteralString, TypeAlias, cast
from weakref import WeakSet

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row
from psycopg.sql import SQL, Composed, Identifier
from psycopg_pool import AsyncConnectionPool

from durable_core.errors import Misconfigured
from durable_postgres import sql

Connection: TypeAlias = AsyncConnection[TupleRow]
Pool: TypeAlias = AsyncConnectionPool[Connection]
Params: TypeAlias = Sequence[object] | Mapping[str, object]
Rows: TypeAlias = list[tuple[object, ...]]

NOT_READ_COMMITTED = "DU001"
_KEPT = 0.05  # seconds that a connection nobody waits for is kept before it goes back to the pool


class Connections:
    """Borrows from a pool. One connection at most is held beyond a call, for a moment, and none where the pool has only one."""

    def __init__(self, pool: Pool, schema: str | None) -> None:
        if not isinstance(pool, AsyncConnectionPool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misconfigured(f"the store takes a psycopg_pool.AsyncConnectionPool, and not {type(pool).__name__}")
        self.pool, self.schema = pool, schema
        self._statements: dict[str, Composed] = {}
        self._kept: tuple[Connection, asyncio.TimerHandle] | None = None
        self._switched: WeakSet[Connection] = WeakSet()
        self._putting: asyncio.Task[None] | None = None
        self._wrapped = False

    def __repr__(self) -> str:
        return f"<Connections of {self.pool.name!r}{'' if self.schema is None else f', schema {self.schema!r}'}>"

    def statement(self, text: str) -> Composed:
        """Give a statement of `sql` with the schema's name in its place."""
        found = self._statements.get(text)
        if found is None:
            name = SQL("") if self.schema is None else SQL("{}.").format(Identifier(self.schema))
            # Only constants of `sql` and the migrations come here.
            found = self._statements[text] = SQL(cast("LiteralString", text)).format(schema=name)
        return found

    async def call(self, text: str, params: Params = ()) -> Rows:
        """Make one statement, in a commit of its own, and give its rows.

        A function that refuses the default isolation is called again inside READ COMMITTED in one flight, and so from then on.
        """
        async with self.connection() as connection:
            if not self._wrapped:
                try:
                    return await self._plain(connection, text, params)
                except psycopg.Error as error:
                    if error.sqlstate != NOT_READ_COMMITTED:
                        raise
                    self._wrapped = True
            return await self._in_read_committed(connection, text, params)

    async def _plain(self, connection: Connection, text: str, params: Params) -> Rows:
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(self.statement(text), params)
            return await cursor.fetchall() if cursor.description is not None else []

    async def _in_read_committed(self, connection: Connection, text: str, params: Params) -> Rows:
        try:
            async with connection.pipeline(), connection.cursor(row_factory=tuple_row) as cursor:
                await connection.execute(sql.READ_COMMITTED)
                await cursor.execute(self.statement(text), params)
                await connection.execute(sql.COMMIT)
                return await cursor.fetchall() if cursor.description is not None else []
        except BaseException:
            await undone(connection)
            raise

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """Lend a connection in autocommit; what is broken, or in a transaction, afterwards does not come back into use."""
        connection = await self._borrow()
        try:
            yield connection
        finally:
            await self._give_back(connection)

    async def _borrow(self) -> Connection:
        if self._kept is not None:
            connection, timer = self._kept
            self._kept = None
            timer.cancel()
            return connection
        connection = await self._taken()
        try:
            if not connection.autocommit:
                await connection.set_autocommit(True)
                self._switched.add(connection)
        except BaseException:
            await self.pool.putconn(connection)
            raise
        return connection

    async def _taken(self) -> Connection:
        # Python 3.11 may lose a cancellation that comes in the tick in which the pool hands a connection over.
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        connection = await self.pool.getconn()
        if task is not None and task.cancelling() > before:
            await self.pool.putconn(connection)
            raise asyncio.CancelledError
        return connection

    async def _give_back(self, connection: Connection) -> None:
        idle = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
        if idle and self._kept is None and self.pool.max_size > 1 and not self.pool.get_stats().get("requests_waiting"):
            loop = asyncio.get_running_loop()
            self._kept = connection, loop.call_later(_KEPT, self._let_go, connection)
            return
        await self._put(connection)

    def _let_go(self, connection: Connection) -> None:
        if self._kept is not None and self._kept[0] is connection:
            self._kept = None
            self._putting = asyncio.get_running_loop().create_task(self._put(connection))

    async def _put(self, connection: Connection) -> None:
        if connection in self._switched:
            self._switched.discard(connection)
            if not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE:
                await connection.set_autocommit(False)
        await self.pool.putconn(connection)

    async def aclose(self) -> None:
        """Give back what is kept."""
        if self._kept is not None:
            connection, timer = self._kept
            self._kept = None
            timer.cancel()
            await self._put(connection)


async def undone(connection: Connection) -> None:
    """Leave no transaction open, unless the connection is gone."""
    if not connection.closed and connection.info.transaction_status is not TransactionStatus.IDLE:
        try:
            await connection.rollback()
        except psycopg.Error:
            await connection.close()
