"""The harness of durable-sqlite, and of its two halves behind a `SplitDurable`."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from durable_conformance import Application, Effects, Harness, Hook, Meter, Opening, Stores
from durable_core.contract import Client, Durable
from durable_sqlite import EffectCursor, SqliteCheckpointer, SqliteConnection, SqliteDurable, SqliteEffect, SqliteScheduler
from durable_sqlite._tx import Tx

COUNTERS = "CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, times INTEGER NOT NULL) STRICT"
ADD = "INSERT INTO counter VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET times = times + 1"


def path_of(at: Opening) -> Path:
    """Give the file of a case."""
    return at.folder / "store.db"


class SqliteEffects(Effects[SqliteEffect]):
    """Effects on a table of the application's, in the same file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, counter: str, gives: object, /) -> SqliteEffect:
        def effect(cursor: EffectCursor) -> object:
            cursor.execute(ADD, (counter,))
            return gives

        return effect

    def fail(self, counter: str, /, *, first: bool) -> SqliteEffect:
        def effect(cursor: EffectCursor) -> object:
            if not first:
                cursor.execute(ADD, (counter,))
            raise ZeroDivisionError("the effect failed")

        return effect

    async def applied(self, counter: str, /) -> int:
        with closing(sqlite3.connect(self._path)) as connection:
            found = connection.execute("SELECT times FROM counter WHERE name = ?", (counter,)).fetchone()
        return 0 if found is None else int(found[0])

    def commit(self, counter: str, /) -> SqliteEffect:
        def effect(cursor: EffectCursor) -> object:
            cursor.execute(ADD, (counter,))
            cursor.execute("COMMIT")
            return "committed"

        return effect

    def swallow(self, counter: str, /) -> SqliteEffect:
        def effect(cursor: EffectCursor) -> object:
            cursor.execute(ADD, (counter,))
            try:
                cursor.execute("INSERT INTO counter VALUES (NULL, 'not a number')")
            except sqlite3.Error:
                pass
            return "swallowed"

        return effect

    def inside(self, counter: str, call: Callable[[], object], /) -> SqliteEffect:
        def effect(cursor: EffectCursor) -> object:
            cursor.execute(ADD, (counter,))
            call()
            return "inside"

        return effect


class SqliteApplication:
    """A transaction of the application's on its own connection to the file."""

    def __init__(self, durable: SqliteDurable, path: Path) -> None:
        self._durable = durable
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("BEGIN IMMEDIATE")

    @property
    def client(self) -> Client:
        return self._durable.joined(self._connection)

    async def commit(self) -> None:
        self._connection.execute("COMMIT")
        self._durable.nudge()

    async def rollback(self) -> None:
        self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()


class SqliteMeter:
    """Counts the statements of a connection, and the instructions of SQLite's machine that they took."""

    def __init__(self) -> None:
        self.asked = 0
        self.touched = 0

    def began(self, _statement: str) -> None:
        self.asked += 1

    def stepped(self) -> int:
        self.touched += 1
        return 0

    def install(self, tx: Tx) -> None:
        tx.connection.set_trace_callback(self.began)
        tx.connection.set_progress_handler(self.stepped, 1)

    def remove(self, tx: Tx) -> None:
        tx.connection.set_trace_callback(None)
        tx.connection.set_progress_handler(None, 1)


class SqliteHarness(Harness[SqliteEffect]):
    """A `SqliteDurable` on a file of the case's own."""

    offers: ClassVar[frozenset[Hook]] = frozenset(
        {"codec", "queues", "effects", "restart", "processes", "joined", "halves", "meter"}
    )
    lacks: ClassVar[Mapping[Hook, str]] = {
        "skew": "its clock is the machine's, which all its clients share",
        "wire": "its client is the store: no reply can be lost",
        "kill": "it has no server",
        "loss": "a claim's storage cannot be lost",
        "retention": "nothing expires",
        "clock": "its clock is the machine's",
    }
    window = timedelta(milliseconds=200)

    def __init__(self) -> None:
        self._opened: list[SqliteDurable] = []

    def built(self, at: Opening) -> SqliteDurable:
        """Give an instance on the case's file."""
        return SqliteDurable.at(path_of(at), queue=at.queue, lease=at.lease, codec=at.codec)

    @asynccontextmanager
    async def open(self, at: Opening, /) -> AsyncGenerator[Stores[SqliteEffect]]:
        with closing(sqlite3.connect(path_of(at))) as connection:
            connection.execute(COUNTERS)
        async with self.built(at) as durable:
            yield self.given(durable)

    def given(self, durable: SqliteDurable) -> Stores[SqliteEffect]:
        """Give what `open` gives of an instance."""
        return durable

    def effects(self, at: Opening, /) -> SqliteEffects:
        return SqliteEffects(path_of(at))

    @asynccontextmanager
    async def application(self, at: Opening, /) -> AsyncGenerator[Application]:
        async with self.built(at) as durable:
            application = SqliteApplication(durable, path_of(at))
            try:
                yield application
            finally:
                application.close()

    @asynccontextmanager
    async def mismatched(self, at: Opening, /) -> AsyncGenerator[Callable[[], object]]:
        async with SqliteConnection(path_of(at)) as one, SqliteConnection(path_of(at)) as other:
            yield lambda: SqliteDurable(SqliteCheckpointer(one), SqliteScheduler(other))

    @asynccontextmanager
    async def meter(self, at: Opening, stores: Durable[SqliteEffect], /) -> AsyncGenerator[Meter]:
        checkpointer = stores.checkpointer
        assert isinstance(checkpointer, SqliteCheckpointer)
        meter = SqliteMeter()
        await checkpointer.connection.alone(meter.install)
        yield meter
        await checkpointer.connection.alone(meter.remove)


class SplitSqliteHarness(SqliteHarness):
    """Two halves on one file, each by itself, as a stranger would give them: the kit puts them together."""

    name = "Sqlite, split"
    offers = SqliteHarness.offers - {"joined", "halves"}

    def given(self, durable: SqliteDurable) -> Stores[SqliteEffect]:
        return durable.checkpointer, durable.scheduler
