"""The application's pool, as the store uses it: one statement in autocommit, on a connection that is kept for a moment."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

import psycopg
from psycopg import AsyncConnection, AsyncCursor, IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from durable_core.errors import Misconfigured
from durable_postgres import sql

Connection: TypeAlias = AsyncConnection[TupleRow]
Pool: TypeAlias = AsyncConnectionPool[Connection]
Params: TypeAlias = Sequence[object] | Mapping[str, object]
Rows: TypeAlias = list[tuple[object, ...]]

NOT_READ_COMMITTED = "DU001"
UNREACHABLE = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)
_KEPT = 0.03  # seconds that connections nobody waits for are kept, once or twice, before they go back to the pool
_MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True)
class Lent:
    """A connection in our hands, with a cursor of ours, whatever cursors and rows the application's connections are set to."""

    connection: Connection
    cursor: AsyncCursor[TupleRow]
    socket: select.poll | None
    loop: asyncio.AbstractEventLoop
    used: float = 0.0

    @classmethod
    def of(cls, connection: Connection) -> Lent:
        """Take a connection in hand."""
        cursor = AsyncCursor(connection, row_factory=tuple_row)
        return cls(connection, cursor, _listening_to(connection), asyncio.get_running_loop())

    async def fetched(self, statement: bytes, params: Params) -> Rows:
        """Execute a statement and give its rows."""
        await self.cursor.execute(statement, params, binary=True)
        return await self.cursor.fetchall()

    def sound(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Say whether it can be used in this loop, as far as is known without asking the server."""
        usable = self.loop is loop and idle(self.connection) and self.connection.autocommit
        return usable and (self.socket is None or not self.socket.poll(0))


class Connections:
    """Borrows from a pool. Half of its connections at most are held beyond a call, for a moment: none where it has only one.

    What is borrowed is in autocommit, and what goes back is as it was. Statements are plain ones: no session state is made.
    """

    def __init__(self, pool: Pool, schema: str | None) -> None:
        if not isinstance(pool, AsyncConnectionPool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misconfigured(f"the store takes a psycopg_pool.AsyncConnectionPool, and not {type(pool).__name__}")
        self.pool: Pool = pool
        self.schema: str | None = schema
        self._statements: dict[str, bytes] = {}
        self._kept: list[Lent] = []
        self._timer: asyncio.TimerHandle | None = None
        self._wanted = False
        self._switched: set[Connection] = set()
        self._putting: set[asyncio.Task[None]] = set()
        self._wrapped = False

    def __repr__(self) -> str:
        return f"<Connections of {self.pool.name!r}{'' if self.schema is None else f', schema {self.schema!r}'}>"

    def check_loop(self) -> None:
        """Refuse a loop that the driver cannot use, which would be heard of only when the pool's patience is over."""
        loop = asyncio.get_running_loop()
        if type(loop).__name__ == "ProactorEventLoop":
            raise Misconfigured(
                "psycopg cannot use a ProactorEventLoop, the default on Windows: "
                "run with `asyncio.run(main(), loop_factory=asyncio.SelectorEventLoop)`"
            )

    def statement(self, text: str) -> bytes:
        """Give a statement of `sql` with the schema's name in its place, to be executed with parameters."""
        found = self._statements.get(text)
        if found is None:
            name = "" if self.schema is None else quoted(self.schema).replace("%", "%%") + "."
            found = self._statements[text] = text.replace("{schema}", name).encode()
        return found

    async def call(self, text: str, params: Params = ()) -> Rows:
        """Make one statement, in a commit of its own, and give its rows.

        A function that refuses the default isolation is called again inside READ COMMITTED in one flight, and so from then on.
        """
        lent = await self._borrow()
        try:
            if not self._wrapped:
                try:
                    return await lent.fetched(self.statement(text), params)
                except psycopg.Error as error:
                    if error.sqlstate != NOT_READ_COMMITTED:
                        raise
                    self._wrapped = True
            return await self._in_read_committed(lent, self.statement(text), params)
        finally:
            if not self._keep(lent):
                await self._give_back(lent.connection)

    async def _in_read_committed(self, lent: Lent, statement: bytes, params: Params) -> Rows:
        connection = lent.connection
        try:
            async with connection.pipeline():
                await connection.execute(sql.READ_COMMITTED)
                await lent.cursor.execute(statement, params, binary=True)
                await connection.execute(sql.COMMIT)
            return await lent.cursor.fetchall()  # only now: within the pipeline it would be a flight of its own
        except BaseException:
            await undone(connection)
            raise

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """Lend a connection in autocommit; one that is broken or in a transaction afterwards does not come back into use."""
        lent = await self._borrow()
        try:
            yield lent.connection
        finally:
            if not self._keep(lent):
                await self._give_back(lent.connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """Lend a connection that begins a transaction at READ COMMITTED by itself, and again should somebody end it.

        The block commits; whatever it leaves open is rolled back.
        """
        async with self.connection() as connection:
            level = connection.isolation_level
            await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
            await connection.set_autocommit(False)
            try:
                yield connection
            finally:
                restored = False
                try:
                    await undone(connection)
                    if idle(connection):
                        await connection.set_autocommit(True)
                        await connection.set_isolation_level(level)
                        restored = True
                finally:
                    if not restored:  # cancelled twice, or lost: a connection outside autocommit would keep what it acknowledges
                        await connection.close()

    async def _borrow(self) -> Lent:
        while self._kept:
            kept = self._kept.pop()
            if kept.sound(asyncio.get_running_loop()):
                return kept
            await self._give_back(kept.connection)
        connection = await self._sound()
        try:
            if not connection.autocommit:
                await connection.set_autocommit(True)
                self._switched.add(connection)
            return Lent.of(connection)
        except BaseException:
            await self._give_back(connection)
            raise

    async def _sound(self) -> Connection:
        """Take a connection that the server has not closed while it lay there: to see that takes no round trip."""
        for _ in range(max(self.pool.max_size, 1)):
            connection = await self._taken()
            if not _heard_from(connection):
                return connection
            try:
                await self.pool.check_connection(connection)
            except psycopg.Error:
                await self._give_back(connection)
            except BaseException:
                await self._give_back(connection)
                raise
            else:
                return connection
        return await self._taken()

    async def _taken(self) -> Connection:
        # Python 3.11 may lose a cancellation that comes in the tick in which the pool hands a connection over.
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        connection = await self.pool.getconn()
        if task is not None and task.cancelling() > before:
            await self._give_back(connection)
            raise asyncio.CancelledError
        return connection

    def _keep(self, lent: Lent) -> bool:
        """Hold the connection for the next call, unless it is wanted elsewhere."""
        if len(self._kept) >= self.pool.max_size // 2 or self._wanted or self.pool.closed:
            return False
        if not idle(lent.connection) or not lent.connection.autocommit:
            return False
        lent.used = lent.loop.time()
        self._kept.append(lent)
        if self._timer is None:
            self._timer = lent.loop.call_later(_KEPT, self._look)
        return True

    def _look(self) -> None:
        """Let go of connections that were not used for a moment, or of all when somebody waits for one."""
        self._timer, kept = None, self._kept
        self._wanted = bool(self.pool.get_stats().get("requests_waiting"))
        loop = asyncio.get_running_loop()
        since = loop.time() - _KEPT
        self._kept = [] if self._wanted else [lent for lent in kept if lent.used > since]
        for lent in kept:
            if self._wanted or lent.used <= since:
                _ = self._started(lent.connection)
        if self._wanted or self._kept:
            self._timer = loop.call_later(_KEPT, self._look)

    def _started(self, connection: Connection) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._put(connection))
        self._putting.add(task)
        task.add_done_callback(self._putting.discard)
        return task

    async def _give_back(self, connection: Connection) -> None:
        """Put the connection into the pool, though the caller be cancelled: else the pool would be one short for ever."""
        await asyncio.shield(self._started(connection))

    async def _put(self, connection: Connection) -> None:
        switched = connection in self._switched
        self._switched.discard(connection)
        if not idle(connection):
            await connection.close()
        elif switched:
            await connection.set_autocommit(False)
        await self.pool.putconn(connection)

    async def aclose(self) -> None:
        """Give back what is kept."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._kept:
            await self._give_back(self._kept.pop().connection)
        if self._putting:
            await asyncio.wait(tuple(self._putting))


async def fetched(connection: Connection, statement: bytes, params: Params) -> Rows:
    """Execute a statement and give its rows, whatever cursors and rows the application's connections are set to."""
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(statement, params, binary=True)
        return await cursor.fetchall()


async def undone(connection: Connection) -> None:
    """Leave no transaction open, unless the connection is gone."""
    if not connection.closed and not idle(connection):
        try:
            await connection.rollback()
        except psycopg.Error:
            await connection.close()


def idle(connection: Connection) -> bool:
    """Say whether a connection is open and outside a transaction."""
    return connection.pgconn.transaction_status == TransactionStatus.IDLE  # it is unknown once the connection is closed


def _listening_to(connection: Connection) -> select.poll | None:
    """Give what says whether there is something to read, or `None` on a system that has no such thing."""
    if not hasattr(select, "poll"):
        return None
    socket = select.poll()
    socket.register(connection.fileno(), select.POLLIN)
    return socket


def _heard_from(connection: Connection) -> bool:
    """Say whether there is something to read on a connection that nobody uses: mostly that the server has closed it."""
    try:
        socket = _listening_to(connection)
    except psycopg.Error:
        return True
    return bool(socket.poll(0)) if socket is not None else connection.closed


def quoted(schema: str) -> str:
    """Give a schema's name as an identifier."""
    return '"' + schema.replace('"', '""') + '"'


def span(duration: timedelta) -> str:
    """Give a duration as an interval without days, which would not be 24 hours when a session's clock is changed."""
    return f"{duration // _MICROSECOND} microseconds"
