"""The client half in a transaction of the application's. [DUR-JOINED]"""

from __future__ import annotations

import psycopg
from psycopg.pq import TransactionStatus

from durable_core.contract import Client, Entry, Recorded
from durable_core.errors import Misconfigured
from durable_core.keys import INBOX, check_once, check_open_key, check_workflow
from durable_postgres import sql
from durable_postgres._pool import NOT_READ_COMMITTED, Connection, Connections, Params, Rows, fetched
from durable_postgres.checkpointer import PostgresCheckpointer, filling, number

_MOST = 1_000  # workflows in one transaction: their position locks live in the server's shared memory


class JoinedClient:
    """A `Client` bound to an open transaction: its commit decides about all the calls."""

    def __init__(self, connection: Connection, connections: Connections, queue: str, checkpointer: PostgresCheckpointer) -> None:
        self._connection, self._connections, self._queue = connection, connections, queue
        self._checkpointer = checkpointer
        self._touched: set[str] = set()

    def __repr__(self) -> str:
        return f"JoinedClient({self._connections!r}, queue={self._queue!r})"

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record a value and let the workflow run. Raises: `ReservedKey`, `NotEncodable`, `Misconfigured`. [DUR-JOINED]"""
        check_open_key(workflow, key, allow_input=True)
        stored = self._checkpointer.coding.encode(workflow, key, value)
        rows = await self._call(workflow, sql.ARRIVE, (workflow, self._queue, key, stored))
        other = rows[0][1]
        return self._checkpointer.recorded(workflow, key, stored, other if isinstance(other, str) else None)

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox and let the workflow run. Raises: `NotEncodable`, `Misconfigured`. [DUR-JOINED]"""
        check_workflow(workflow)
        check_once(once)
        stored = self._checkpointer.coding.encode(workflow, INBOX, value)
        return self._checkpointer.entry(workflow, await self._call(workflow, sql.DELIVER, (workflow, self._queue, stored, once)))

    async def delete(self, workflow: str, /) -> int:
        """Forget the workflow, and say how many records it had. Raises: `Misconfigured`. [DUR-DELETE] [DUR-JOINED]"""
        check_workflow(workflow)
        return number((await self._call(workflow, sql.DISCARD, (workflow, self._queue)))[0][0])

    async def _call(self, workflow: str, statement: str, params: Params) -> Rows:
        if self._connection.autocommit and self._connection.info.transaction_status is TransactionStatus.IDLE:
            raise Misconfigured("joined() takes a connection with a transaction open: use `async with connection.transaction()`")
        if len(self._touched | {workflow}) > _MOST:
            raise Misconfigured(f"one transaction joins at most {_MOST} workflows, and {workflow!r} is one more")
        self._touched.add(workflow)
        try:
            with filling(workflow):
                return await fetched(self._connection, self._connections.statement(statement), params)
        except psycopg.Error as error:
            if error.sqlstate != NOT_READ_COMMITTED:
                raise
            raise Misconfigured(
                "joined() needs a transaction at READ COMMITTED, whose statements see what was committed while they waited: "
                "begin it with `await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)`"
            ) from error


_: type[Client] = JoinedClient
