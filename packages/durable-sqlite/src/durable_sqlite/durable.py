"""Records and wakeups of workflows in one SQLite file, with one commit for every transition."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from durable_core.contract import (
    Catalog,
    Client,
    Description,
    Durable,
    Entry,
    Failed,
    Finished,
    Listed,
    Pass,
    Recorded,
    State,
    Turn,
)
from durable_core.errors import Misconfigured
from durable_core.keys import (
    INBOX,
    OUTCOME,
    check_duration,
    check_limit,
    check_moment,
    check_once,
    check_open_key,
    check_wait,
    check_workflow,
)
from durable_sqlite import _catalog, _turns, _wakeups
from durable_sqlite._coding import SqliteCodec
from durable_sqlite._joined import JoinedClient
from durable_sqlite._tx import Tx, micros, micros_at
from durable_sqlite.checkpointer import SqliteCheckpointer
from durable_sqlite.connection import BUSY_TIMEOUT, SqliteConnection, Synchronous
from durable_sqlite.effect import SqliteEffect
from durable_sqlite.scheduler import LEASE, SqliteScheduler, number_of, storable


class SqliteDurable:
    """A `Durable[SqliteEffect]` and a `Catalog`: the clauses of `durable_core.contract` hold, and each transition is one commit.

    `async with` prepares the file and closes it. Both halves must have been given one and the same `SqliteConnection`, since two
    on one file would be two transactions. Every method may raise `sqlite3.Error` for what is wrong with the file, and
    `Misconfigured` once it is closed.

    Raises: `Misconfigured` for halves that do not share their connection. [DUR-CO-COMMIT]
    """

    def __init__(self, checkpointer: SqliteCheckpointer, scheduler: SqliteScheduler) -> None:
        if checkpointer.connection is not scheduler.connection:
            raise Misconfigured(
                f"{checkpointer!r} and {scheduler!r} do not share one SqliteConnection, so no commit can hold both: "
                "give both the same object, or compose them with durable_core.split.SplitDurable"
            )
        self._checkpointer, self._scheduler = checkpointer, scheduler
        self._connection, self._coding, self._queue = checkpointer.connection, checkpointer.coding, scheduler.queue

    @classmethod
    def at(
        cls,
        path: str | os.PathLike[str],
        *,
        queue: str = "default",
        lease: timedelta = LEASE,
        codec: SqliteCodec | None = None,
        synchronous: Synchronous = "FULL",
        busy_timeout: timedelta = BUSY_TIMEOUT,
        create: bool = True,
    ) -> Self:
        """Give a store on the file at a path; its options are those of connection, checkpointer and scheduler."""
        connection = SqliteConnection(path, synchronous=synchronous, busy_timeout=busy_timeout, create=create)
        return cls(SqliteCheckpointer(connection, codec=codec), SqliteScheduler(connection, queue=queue, lease=lease))

    def __repr__(self) -> str:
        return f"SqliteDurable({self._connection.path!r}, queue={self._queue!r})"

    async def prepare(self) -> None:
        """Open the file and create or verify the schema: see `SqliteConnection.prepare`."""
        await self._connection.prepare()

    async def aclose(self) -> None:
        """Do what was asked for, then close the file: see `SqliteConnection.aclose`."""
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        await self.prepare()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    @property
    def checkpointer(self) -> SqliteCheckpointer:
        """The half that keeps records."""
        return self._checkpointer

    @property
    def scheduler(self) -> SqliteScheduler:
        """The half that keeps wakeups."""
        return self._scheduler

    # ---------------------------------------------------------------------------------------------------------- client

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record a value and let the workflow run. Raises: `ReservedKey`, `NotEncodable`. [DUR-ARRIVE]"""
        check_open_key(workflow, key, allow_input=True)
        stored = self._coding.encode(workflow, key, value)
        other = await self._connection.write(_turns.arrive, self._queue, workflow, key, stored)
        return self._coding.recorded(workflow, key, stored, other)

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox and let the workflow run. Raises: `NotEncodable`. [DUR-DELIVER]"""
        check_workflow(workflow)
        check_once(once)
        stored = self._coding.encode(workflow, INBOX, value)
        found = await self._connection.write(_turns.deliver, self._queue, workflow, stored, once)
        return self._coding.entry(workflow, found)

    async def delete(self, workflow: str, /) -> int:
        """Forget the workflow, whatever it is doing, and say how many records it had. [DUR-DELETE]"""
        check_workflow(workflow)
        return await self._connection.write(_turns.delete, self._queue, workflow)

    def joined(self, connection: sqlite3.Connection) -> Client:
        """Give a client that writes in the application's own open transaction. [DUR-JOINED]

        `connection` is the application's, on the same file, with a transaction open. From the first call to its commit it holds
        SQLite's only writer, as its own writes do: put these calls last, and begin the transaction with `BEGIN IMMEDIATE`. The
        calls run in the thread that awaits them. Nobody is told of the commit: `nudge()` afterwards wakes the takers of this
        process.

        Raises: `Misconfigured` for a connection to another file or without the schema; its methods, without an open transaction.
        """
        return JoinedClient(connection, self._connection.path, self._queue, self._coding)

    def nudge(self) -> None:
        """Have whoever waits in this process look now: after the commit of a transaction that was `joined`."""
        self._connection.nudge()

    # ---------------------------------------------------------------------------------------------------------- worker

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        """Take up to `limit` deliveries, claim their workflows and load them. [DUR-BEGIN] [DUR-BEGIN-FRESH]"""
        wait = check_wait(wait)
        check_duration(budget, "budget")
        check_limit(limit)
        taking = _turns.Taking(self._queue, micros(self._scheduler.lease), micros(budget), limit, self._coding)

        def work(tx: Tx) -> list[Turn] | None:
            return _turns.begin(tx, taking)

        def look(tx: Tx) -> int | None:
            return _wakeups.next_due(tx, self._queue)

        return await self._connection.wait(work, look, list[Turn](), wait, self._take_back)

    def _take_back(self, tx: Tx, turns: list[Turn]) -> None:
        """Put back what was begun for a caller who was cancelled meanwhile."""
        for turn in turns:
            delivery = turn.delivery
            _turns.again(tx, *self._answer(turn), 0, delivery.attempt, delivery.lapses)

    async def renew(self, turn: Turn, /) -> Turn | None:
        """Give a sign of life for the turn; `None` when its claim is lost. [DUR-KEEP]"""
        kept = await self._connection.write(_turns.renew, *self._answer(turn), micros(self._scheduler.lease))
        return turn if kept else None

    async def finish(self, turn: Turn, value: object, /) -> Recorded:
        """End the workflow with its outcome. Raises: `Fenced`, `NotEncodable`. [DUR-FINISH] [DUR-TURN-FENCED]"""
        workflow = turn.holder.workflow
        answer = self._answer(turn)
        stored = self._coding.encode(workflow, OUTCOME, value)
        other = await self._connection.write(_turns.finish, *answer, stored)
        return self._coding.recorded(workflow, OUTCOME, stored, other)

    async def pause(self, turn: Turn, due: datetime | None, /) -> None:
        """End the pass while the workflow waits. [DUR-PAUSE] [DUR-TURN-FENCED]"""
        at = None if due is None else micros_at(check_moment(due, "due"))
        await self._connection.write(_turns.pause, *self._answer(turn), at)

    async def fail(self, turn: Turn, reason: str, again_in: timedelta | None, /) -> None:
        """End the pass as a failed attempt, to be tried again or set aside. [DUR-FAIL] [DUR-TURN-FENCED]"""
        answer = self._answer(turn)
        if again_in is None:
            await self._connection.write(_turns.bury, *answer, storable(reason))
        else:
            check_duration(again_in, "again_in")
            await self._connection.write(_turns.again, *answer, micros(again_in), turn.delivery.attempt + 1, 0)

    async def hand_back(self, turn: Turn, again_in: timedelta, /) -> None:
        """End the pass untouched; an `again_in` of zero means at once. [DUR-HAND-BACK] [DUR-TURN-FENCED]"""
        delay, delivery = micros(check_wait(again_in, "again_in")), turn.delivery
        await self._connection.write(_turns.again, *self._answer(turn), delay, delivery.attempt, delivery.lapses)

    def _answer(self, turn: Turn) -> tuple[str, Pass, str, int]:
        check_workflow(turn.holder.workflow)
        check_workflow(turn.delivery.workflow)
        return self._queue, turn.holder, turn.delivery.workflow, number_of(turn.delivery)

    # --------------------------------------------------------------------------------------------------------- results

    async def result(self, workflow: str, /) -> Finished[object] | Failed | None:
        """Give how the workflow ended, or `None`. Raises: `NotParsed`. [DUR-RESULT]"""
        check_workflow(workflow)
        outcome, reason = await self._connection.read(_turns.result, self._queue, workflow)
        if outcome is not None:
            return Finished(self._coding.decode(workflow, OUTCOME, outcome))
        return None if reason is None else Failed(reason)

    async def watch(self, workflow: str, wait: timedelta, /) -> None:
        """Return when the workflow has a result, or after `wait`. [DUR-RESULT]"""
        check_workflow(workflow)
        wait = check_wait(wait)

        def ended(tx: Tx) -> int | None:
            return None if _turns.result(tx, self._queue, workflow) == (None, None) else 0

        await self._connection.wait(ended, ended, 0, wait)

    async def describe(self, /) -> Description:
        """Say what the store is and promises now. [DUR-DESCRIBE]"""
        return await self._connection.describe()

    # --------------------------------------------------------------------------------------------------------- catalog

    async def workflows(
        self, /, *, prefix: str = "", state: State | None = None, after: str | None = None, limit: int = 100
    ) -> Sequence[Listed]:
        """Give a page of workflows in the order of their ids, by code point; of every queue. [CAT-LIST]"""
        check_limit(limit)
        page: list[Listed] = []
        seek: _catalog.Seek | None = _catalog.Seek(prefix, state, after, self._queue)
        while seek is not None and len(page) < limit:
            found, seek = await self._connection.read(_catalog.workflows, seek, limit - len(page))
            page += found
        return page

    async def sweep(self, finished_before: datetime, /) -> int:
        """Discard workflows that finished before an instant of the store's clock, a few hundred in a commit. [CAT-SWEEP]"""
        before = micros_at(check_moment(finished_before, "finished_before"))
        count, place = 0, _catalog.START
        while place is not None:
            swept, place = await self._connection.write(_catalog.sweep, before, place)
            count += swept
        return count


_: type[Durable[SqliteEffect]] = SqliteDurable
_catalog_too: type[Catalog] = SqliteDurable
