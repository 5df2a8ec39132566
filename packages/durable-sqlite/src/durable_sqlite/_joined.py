"""The client half in a transaction of the application's. [DUR-JOINED]"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from durable_core.contract import Client, Entry, Recorded
from durable_core.errors import Misconfigured
from durable_core.keys import INBOX, check_once, check_open_key, check_workflow
from durable_sqlite import _turns, schema, sql
from durable_sqlite._coding import Coding
from durable_sqlite._tx import Tx

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class JoinedClient:
    """A `Client` bound to an open transaction. Each call is all or nothing within it; its commit decides about all of them."""

    def __init__(self, connection: sqlite3.Connection, path: str, queue: str, coding: Coding) -> None:
        self._connection, self._path, self._queue, self._coding = connection, path, queue, coding
        self._refuse_without_transaction()
        with _plain_text(connection):
            self._refuse_other_file(Tx(connection))

    def __repr__(self) -> str:
        return f"JoinedClient({self._path!r}, queue={self._queue!r})"

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record a value and let the workflow run. Raises: `ReservedKey`, `NotEncodable`, `Misconfigured`. [DUR-JOINED]"""
        check_open_key(workflow, key, allow_input=True)
        stored = self._coding.encode(workflow, key, value)
        other = self._write(_turns.arrive, self._queue, workflow, key, stored)
        return self._coding.recorded(workflow, key, stored, other)

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox and let the workflow run. Raises: `NotEncodable`, `Misconfigured`. [DUR-JOINED]"""
        check_workflow(workflow)
        check_once(once)
        stored = self._coding.encode(workflow, INBOX, value)
        return self._coding.entry(workflow, self._write(_turns.deliver, self._queue, workflow, stored, once))

    async def delete(self, workflow: str, /) -> int:
        """Forget the workflow, and say how many records it had. Raises: `Misconfigured`. [DUR-DELETE] [DUR-JOINED]"""
        check_workflow(workflow)
        return self._write(_turns.delete, self._queue, workflow)

    def _write(self, work: Callable[[Tx, *Ts], T], *args: *Ts) -> T:
        """Write all or nothing, under the write lock, and leave the application's transaction open."""
        self._refuse_without_transaction()
        with _plain_text(self._connection):
            tx = Tx(self._connection)
            tx.execute(sql.JOINED)
            try:
                tx.execute(sql.LOCK)
                tx.tick()
                value = work(tx, *args)
            except BaseException:
                if self._connection.in_transaction:  # else SQLite has rolled back all of it
                    tx.execute(sql.JOINED_UNDONE)
                    tx.execute(sql.JOINED_KEPT)
                raise
            tx.execute(sql.JOINED_KEPT)
            return value

    def _refuse_without_transaction(self) -> None:
        if not self._connection.in_transaction:
            raise Misconfigured("joined() takes a connection with a transaction open: execute BEGIN IMMEDIATE first")

    def _refuse_other_file(self, tx: Tx) -> None:
        for _, name, path in tx.execute(sql.DATABASES).fetchall():
            if name == "main" and path and os.path.exists(path) and os.path.samefile(path, self._path):
                if not schema.verify(self._connection, self._path):
                    raise Misconfigured(f"{self._path!r} has no schema yet: prepare the store first")
                return
        raise Misconfigured(f"joined() takes a connection whose main database is {self._path!r}")


class _plain_text:
    """Has a connection of the application's give text as `str` meanwhile."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._factory = self._connection.text_factory
        self._connection.text_factory = str

    def __exit__(self, *_: object) -> None:
        self._connection.text_factory = self._factory


_: type[Client] = JoinedClient
