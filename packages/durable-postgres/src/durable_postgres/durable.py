"""Records and wakeups of workflows in one Postgres database, with one commit for every transition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

import psycopg

from durable_core.contract import (
    Catalog,
    CheckpointCodec,
    Client,
    Delivery,
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
from durable_core.errors import Fenced, Misconfigured
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
from durable_postgres import _catalog, schema, sql
from durable_postgres._bell import topic_of
from durable_postgres._coding import Decoded
from durable_postgres._joined import JoinedClient
from durable_postgres._pool import Connection, Pool, Rows, span
from durable_postgres.checkpointer import FENCED, PostgresCheckpointer, filling, instant, number, text
from durable_postgres.effect import SqlEffect
from durable_postgres.scheduler import LEASE, Look, PostgresScheduler, number_of, seconds_until, storable

_RECORDS = 1_000  # a turn brings so many records at most,
_SIZE = 1_000_000  # and so many bytes of values


class PostgresDurable:
    """A `Durable[SqlEffect]` and a `Catalog`: the clauses of `durable_core.contract` hold, and each transition is one commit.

    `async with` creates or verifies the schema; the pool stays the application's. Both halves must have been given one and the
    same pool and schema, since two pools with one address would be two transactions. Every method may raise `psycopg.Error` and
    `psycopg_pool.PoolTimeout`.

    Raises: `Misconfigured` for halves that do not share their pool. [DUR-CO-COMMIT]
    """

    def __init__(self, checkpointer: PostgresCheckpointer, scheduler: PostgresScheduler, *, create: bool = True) -> None:
        if checkpointer.pool is not scheduler.pool or checkpointer.schema != scheduler.schema:
            raise Misconfigured(
                f"{checkpointer!r} and {scheduler!r} do not share one pool and schema, so no commit can hold both: "
                "give both the same, or compose them with durable_core.split.SplitDurable"
            )
        self._checkpointer, self._scheduler, self._create = checkpointer, scheduler, create
        self._connections, self._coding, self._queue = checkpointer.connections, checkpointer.coding, scheduler.queue
        self._bell = checkpointer.bell
        scheduler.share(self._connections, self._bell)

    @classmethod
    def on(
        cls,
        pool: Pool,
        *,
        schema: str | None = None,
        queue: str = "default",
        lease: timedelta = LEASE,
        codec: CheckpointCodec[str] | None = None,
        create: bool = True,
    ) -> Self:
        """Give a store on the application's pool; its options are those of both halves, and `create=False` only verifies."""
        checkpointer = PostgresCheckpointer(pool, schema=schema, codec=codec)
        return cls(checkpointer, PostgresScheduler(pool, schema=schema, queue=queue, lease=lease), create=create)

    def __repr__(self) -> str:
        return f"PostgresDurable({self._connections!r}, queue={self._queue!r})"

    async def prepare(self) -> None:
        """Create the schema, or with `create=False` verify it and issue no DDL. Raises: `SchemaMismatch`."""
        await schema.prepare(self._connections, create=self._create)

    async def aclose(self) -> None:
        """Stop listening and give back what was borrowed; the pool stays open."""
        await self._checkpointer.aclose()

    async def __aenter__(self) -> Self:
        await self.prepare()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    @property
    def checkpointer(self) -> PostgresCheckpointer:
        """The half that keeps records."""
        return self._checkpointer

    @property
    def scheduler(self) -> PostgresScheduler:
        """The half that keeps wakeups."""
        return self._scheduler

    # ---------------------------------------------------------------------------------------------------------- client

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record a value and let the workflow run. Raises: `ReservedKey`, `NotEncodable`. [DUR-ARRIVE]"""
        check_open_key(workflow, key, allow_input=True)
        stored = self._coding.encode(workflow, key, value)
        rows = await self._connections.call(sql.ARRIVE, (workflow, self._queue, key, stored))
        self._bell.ready()
        return self._checkpointer.recorded(workflow, key, stored, other_of(rows))

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox and let the workflow run. Raises: `NotEncodable`. [DUR-DELIVER]"""
        check_workflow(workflow)
        check_once(once)
        stored = self._coding.encode(workflow, INBOX, value)
        with filling(workflow):
            rows = await self._connections.call(sql.DELIVER, (workflow, self._queue, stored, once))
        self._bell.ready()
        return self._checkpointer.entry(workflow, rows)

    async def delete(self, workflow: str, /) -> int:
        """Forget the workflow, whatever it is doing, and say how many records it had. [DUR-DELETE]"""
        check_workflow(workflow)
        gone = number((await self._connections.call(sql.DISCARD, (workflow, self._queue)))[0][0])
        self._bell.ready()
        return gone

    def joined(self, connection: Connection) -> Client:
        """Give a client that writes in the application's own open transaction. [DUR-JOINED]

        From the first call to the application's commit it holds the position lock and the wakeup of every workflow it touched:
        running passes of these wait to record, and `begin` passes them over. Put these calls last, touch at most 1 000
        workflows in one transaction, and call `nudge()` after the commit, since nobody is told of it.

        Raises: `Misconfigured` for a connection without an open transaction at READ COMMITTED, from its methods.
        """
        return JoinedClient(connection, self._connections, self._queue, self._checkpointer)

    def nudge(self) -> None:
        """Have whoever waits look now, here and in other processes: after the commit of a transaction that was `joined`."""
        self._bell.everybody()

    # ---------------------------------------------------------------------------------------------------------- worker

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        """Take up to `limit` deliveries, claim their workflows and load them. [DUR-BEGIN] [DUR-BEGIN-FRESH]"""
        wait = check_wait(wait)
        check_duration(budget, "budget")
        check_limit(limit)

        async def take() -> Look[list[Turn]]:
            params = (self._queue, span(self._scheduler.lease), span(budget), limit, _RECORDS, _SIZE)
            rows = await self._connections.call(sql.BEGIN, params)
            if rows[0][0] is None:
                return Look(due=seconds_until(rows[0][5], rows[0][2]))
            return Look(self._turns(rows))

        return await self._scheduler.waiting(take, self._take_back, wait) or []

    def _turns(self, rows: Rows) -> list[Turn]:
        turns: list[Turn] = []
        stored: dict[str, str] = {}
        for workflow, token, at, attempt, lapses, due, big, key, value in rows:
            if token is None:
                stored[text(key)] = text(value)
                continue
            stored = {}
            holder = Pass(text(workflow), number(token), instant(at))
            delivery = Delivery(holder.workflow, str(token), number(attempt), number(lapses), instant(due))
            turns.append(Turn(holder, delivery, None if big else Decoded(self._coding, holder.workflow, stored)))
        return turns

    async def _take_back(self, turns: list[Turn]) -> None:
        """Put back what was begun for a caller who was cancelled meanwhile."""
        for turn in turns:
            await self.hand_back(turn, timedelta(0))

    async def renew(self, turn: Turn, /) -> Turn | None:
        """Give a sign of life for the turn; `None` when its claim is lost. [DUR-KEEP]"""
        kept = await self._connections.call(sql.KEEP_TURN, (*self._answer(turn), span(self._scheduler.lease)))
        return turn if kept[0][0] else None

    async def finish(self, turn: Turn, value: object, /) -> Recorded:
        """End the workflow with its outcome. Raises: `Fenced`, `NotEncodable`. [DUR-FINISH] [DUR-TURN-FENCED]"""
        workflow = turn.holder.workflow
        answer = self._answer(turn)
        stored = self._coding.encode(workflow, OUTCOME, value)
        try:
            rows = await self._connections.call(sql.FINISH, (*answer, stored))
        except psycopg.Error as error:
            if error.sqlstate != FENCED:
                raise
            raise Fenced(workflow, turn.holder.token, OUTCOME) from None
        self._bell.ended(workflow)
        if rows[0][2]:
            self._bell.ready()
        return self._checkpointer.recorded(workflow, OUTCOME, stored, other_of(rows))

    async def pause(self, turn: Turn, due: datetime | None, /) -> None:
        """End the pass while the workflow waits. [DUR-PAUSE] [DUR-TURN-FENCED]"""
        at = None if due is None else check_moment(due, "due")
        await self._end(turn, at, None, 1, 0, None)

    async def fail(self, turn: Turn, reason: str, again_in: timedelta | None, /) -> None:
        """End the pass as a failed attempt, to be tried again or set aside. [DUR-FAIL] [DUR-TURN-FENCED]"""
        if again_in is None:
            await self._end(turn, None, None, 1, 0, storable(reason))
        else:
            check_duration(again_in, "again_in")
            await self._end(turn, None, again_in, turn.delivery.attempt + 1, 0, None)

    async def hand_back(self, turn: Turn, again_in: timedelta, /) -> None:
        """End the pass untouched; an `again_in` of zero means at once. [DUR-HAND-BACK] [DUR-TURN-FENCED]"""
        delay, delivery = check_wait(again_in, "again_in"), turn.delivery
        await self._end(turn, None, delay, delivery.attempt, delivery.lapses, None)

    async def _end(
        self, turn: Turn, due: datetime | None, delay: timedelta | None, attempt: int, lapses: int, reason: str | None
    ) -> None:
        after = None if delay is None else span(delay)
        ((again,),) = await self._connections.call(sql.END, (*self._answer(turn), due, after, attempt, lapses, reason))
        if again:
            self._bell.ready()
        if reason is not None:
            self._bell.ended(turn.holder.workflow)

    def _answer(self, turn: Turn) -> tuple[str, int, str, int]:
        check_workflow(turn.holder.workflow)
        check_workflow(turn.delivery.workflow)
        return turn.holder.workflow, turn.holder.token, self._queue, number_of(turn.delivery)

    # --------------------------------------------------------------------------------------------------------- results

    async def result(self, workflow: str, /) -> Finished[object] | Failed | None:
        """Give how the workflow ended, or `None`. Raises: `NotParsed`. [DUR-RESULT]"""
        check_workflow(workflow)
        ((outcome, reason),) = await self._connections.call(sql.RESULT, {"workflow": workflow, "queue": self._queue})
        if outcome is not None:
            return Finished(self._coding.decode(workflow, OUTCOME, text(outcome)))
        return None if reason is None else Failed(text(reason))

    async def watch(self, workflow: str, wait: timedelta, /) -> None:
        """Return when the workflow has a result, or after `wait`. [DUR-RESULT]"""
        check_workflow(workflow)

        async def look() -> Look[bool]:
            return Look(True if await self.result(workflow) is not None else None)

        async def nothing(_: bool) -> None:
            return None

        await self._scheduler.waiting(look, nothing, check_wait(wait), topic_of(workflow))

    async def describe(self, /) -> Description:
        """Say what the store is and promises now. [DUR-DESCRIBE]"""
        return await self._checkpointer.describe()

    # --------------------------------------------------------------------------------------------------------- catalog

    async def workflows(
        self, /, *, prefix: str = "", state: State | None = None, after: str | None = None, limit: int = 100
    ) -> Sequence[Listed]:
        """Give a page of workflows in the order of their ids, by code point; of every queue. [CAT-LIST]"""
        check_limit(limit)
        return await _catalog.workflows(self._connections, self._queue, prefix, state, after, limit)

    async def sweep(self, finished_before: datetime, /) -> int:
        """Discard workflows that finished before an instant of the store's clock, a few hundred in a commit. [CAT-SWEEP]"""
        return await _catalog.sweep(self._connections, check_moment(finished_before, "finished_before"))


def other_of(rows: Rows) -> str | None:
    """Give what is stored instead of what was written, or `None`."""
    stored = rows[0][1]
    return stored if isinstance(stored, str) else None


_: type[Durable[SqlEffect]] = PostgresDurable
_catalog_too: type[Catalog] = PostgresDurable
