"""The records of workflows in Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import cast

import psycopg
from psycopg import AsyncCursor
from psycopg.rows import tuple_row

from durable_core.codec import JsonCodec
from durable_core.contract import CheckpointCodec, Checkpointer, Description, Entry, Pass, Recorded, Written
from durable_core.errors import Fenced, Misconfigured
from durable_core.keys import INBOX, check_duration, check_key, check_once, check_skip, check_workflow
from durable_postgres import effect, sql
from durable_postgres._bell import Bell
from durable_postgres._coding import Coding
from durable_postgres._describe import describe
from durable_postgres._lane import Lane
from durable_postgres._pool import Connection, Connections, Pool, Rows, span
from durable_postgres.effect import SqlEffect

FENCED, ENDED, FULL = "DU002", "DU003", "DU005"
_WRITTEN, _RECORDED, _FENCED = range(3)
_GUARD = "workflow_guard"
_PATIENCE = 2.0  # seconds that a claim waits for commits in flight before it is a refusal
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05  # seconds between two tries


class PostgresCheckpointer:
    """A `Checkpointer[SqlEffect]`: the clauses of `durable_core.contract.Checkpointer` hold, each write in one commit.

    `pool` is the application's own, and is used in autocommit; `schema` is where the tables are, by default wherever the search
    path of the connection finds them. Every method may raise `psycopg.Error` and `psycopg_pool.PoolTimeout`.
    """

    def __init__(self, pool: Pool, *, schema: str | None = None, codec: CheckpointCodec[str] | None = None) -> None:
        self.pool: Pool = pool
        self.schema: str | None = schema
        self.connections: Connections = Connections(pool, schema)
        self.coding: Coding = Coding(JsonCodec() if codec is None else codec)
        self.lane: Lane = Lane(self.connections)
        self.bell: Bell = Bell(self.connections)

    def __repr__(self) -> str:
        return f"PostgresCheckpointer({self.connections!r})"

    def roundtrip(self, value: object, /) -> object:
        """Give `decode(encode(value))`. Raises: `NotEncodable`."""
        return self.coding.roundtrip(value)

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        """Give every record but the first `skip`. Raises: `NotParsed`. [CKP-LOAD-ORDER] [CKP-LOAD-PREFIX]"""
        check_workflow(workflow)
        check_skip(skip)
        rows = cast("list[tuple[str, str]]", await self.connections.call(sql.LOAD, (workflow, skip)))  # both columns are text
        return self.coding.decode_all(workflow, rows)

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        """Record as the holder. Raises: `Fenced`, `NotEncodable`. [CKP-RECORD-ONCE] [CKP-RECORD-FENCED] [CKP-RECORD-DURABLE]"""
        workflow = holder.workflow
        check_key(workflow, key)
        stored = self.coding.encode(workflow, key, value)
        return self.recorded(workflow, key, stored, await self.lane.record(workflow, holder.token, key, stored))

    async def transact(self, holder: Pass, key: str, effect_: SqlEffect, /) -> object:
        """Apply an effect and record its result in one commit, or do neither. [CKP-TRANSACT-ATOMIC] [CKP-TRANSACT-OWN]

        No lock of the store is held while the effect runs; the fence is asked again, under the position lock, in the commit. A
        long effect holds a connection, and the horizon of the whole database: bound it with `statement_timeout`. What the effect
        asks this store for takes another connection of the pool.

        Raises: `Fenced`, `NotEncodable`, and whatever the effect raises, unchanged; `Misconfigured` for an effect that ended its
        transaction, or went on after an error of the database.
        """
        check_key(holder.workflow, key)
        effect.check(effect_)
        stored = await self._transact(holder, key, effect_)
        if stored is None:
            ((other,),) = await self.connections.call(sql.RECORDED, (holder.workflow, key))
            stored = text(other)
        return self.coding.decode(holder.workflow, key, stored)

    async def _transact(self, holder: Pass, key: str, effect_: SqlEffect) -> str | None:
        """Give what is stored, or `None` when somebody else recorded it meanwhile."""
        workflow, token = holder.workflow, holder.token
        async with self.connections.transaction() as connection:
            async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
                async with connection.pipeline():
                    await cursor.execute(self.connections.statement(sql.TRANSACT), (workflow, token, key), binary=True)
                ((state, recorded, guard),) = await cursor.fetchall()
            if state == _RECORDED:
                await connection.commit()  # it was a sign of life
                return text(recorded)
            if state == _FENCED:
                raise Fenced(workflow, token, key)
            with _guarded(workflow, key):
                async with connection.cursor(row_factory=tuple_row) as cursor:
                    stored = self.coding.encode(workflow, key, await effect.applied(effect_, cursor))
                state = await self._transacted(connection, (workflow, token, key, stored, guard))
        if state == _FENCED:
            raise Fenced(workflow, token, key)
        return stored if state == _WRITTEN else None

    async def _transacted(self, connection: Connection, params: tuple[object, ...]) -> object:
        """Record and commit in one flight. Where the state is another than written, the guard has made the commit fail."""
        async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
            failed: psycopg.Error | None = None
            try:
                async with connection.pipeline():
                    await cursor.execute(self.connections.statement(sql.TRANSACTED), params, binary=True)
                    await connection.execute(sql.COMMIT)
            except psycopg.errors.ForeignKeyViolation as error:
                if not _by_guard(error):
                    raise
                failed = error
            ((state,),) = await cursor.fetchall()
        if failed is not None and state == _WRITTEN:
            raise failed
        return state

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record from outside any pass. Raises: `NotEncodable`. [CKP-SUPPLY-FREE] [CKP-SUPPLY-ONCE]"""
        check_key(workflow, key)
        stored = self.coding.encode(workflow, key, value)
        return self.recorded(workflow, key, stored, await self.lane.record(workflow, None, key, stored))

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox. Raises: `NotEncodable`, `ValueError` if it is full. [CKP-APPEND-ABOVE] [CKP-APPEND-ONCE]"""
        check_workflow(workflow)
        check_once(once)
        stored = self.coding.encode(workflow, INBOX, value)
        with filling(workflow):
            rows = await self.connections.call(sql.APPEND, (workflow, stored, once))
        return self.entry(workflow, rows)

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        """Take the workflow for one pass, or give `None`. [CKP-CLAIM-ONE] [CKP-CLAIM-RISING] [CKP-CLAIM-LAPSE]"""
        check_workflow(workflow)
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        params = workflow, span(budget), span(alive)
        pause, left = _FIRST_PAUSE, _PATIENCE
        while True:
            rows = await self.connections.call(sql.CLAIM, params)
            if not rows or rows[0][0] is not None or left <= 0:
                break
            await asyncio.sleep(
                pause
            )  # a commit is in flight, or a transaction of the application's has joined: no connection waits
            left, pause = left - pause, min(pause * 2, _LONGEST_PAUSE)
        return Pass(workflow, number(rows[0][0]), instant(rows[0][1])) if rows and rows[0][0] is not None else None

    async def extend(self, holder: Pass, budget: timedelta, alive: timedelta, /) -> bool:
        """Grant `budget` from now. [CKP-EXTEND-GRANT] [CKP-EXTEND-LAPSED] [CKP-HOLD-LOST]"""
        check_workflow(holder.workflow)
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        return bool((await self.connections.call(sql.KEEP, (holder.workflow, holder.token, span(budget), span(alive))))[0][0])

    async def renew(self, holder: Pass, alive: timedelta, /) -> bool:
        """Give a sign of life. [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET] [CKP-HOLD-LOST]"""
        check_workflow(holder.workflow)
        check_duration(alive, "alive")
        return bool((await self.connections.call(sql.KEEP, (holder.workflow, holder.token, None, span(alive))))[0][0])

    async def release(self, holder: Pass, /) -> None:
        """Give the claim back. [CKP-RELEASE-FREE] [CKP-RELEASE-FINAL]"""
        check_workflow(holder.workflow)
        ((met,),) = await self.connections.call(sql.RELEASE, (holder.workflow, holder.token))
        if met:
            self.bell.ready()

    async def history(self, workflow: str, /) -> dict[str, Written]:
        """Give every record with its time. Raises: `NotParsed`. [CKP-HISTORY-SAME] [CKP-HISTORY-TIME] [CKP-HISTORY-RISING]"""
        check_workflow(workflow)
        decode = self.coding.decode
        rows = await self.connections.call(sql.HISTORY, (workflow,))
        return {text(key): Written(decode(workflow, text(key), text(stored)), instant(at)) for key, stored, at in rows}

    async def discard(self, workflow: str, /) -> int:
        """Forget every record, and say how many there were. [CKP-DISCARD-ALL] [CKP-DISCARD-FENCE] [CKP-DISCARD-FREE]"""
        check_workflow(workflow)
        gone = number((await self.connections.call(sql.DISCARD, (workflow, None)))[0][0])
        self.bell.ready()
        return gone

    async def describe(self, /) -> Description:
        """Say what the store promises now. [DUR-DESCRIBE]"""
        return await describe(self.connections, self.bell)

    async def aclose(self) -> None:
        """Give back what was borrowed; the pool stays open. A `PostgresDurable` does it for its halves."""
        await self.bell.aclose()
        await self.connections.aclose()

    def recorded(self, workflow: str, key: str, stored: str, other: str | None) -> Recorded:
        """Give the answer of a write: `other` is what was there instead."""
        return Recorded(self.coding.decode(workflow, key, stored if other is None else other), other is None)

    def entry(self, workflow: str, rows: Rows) -> Entry[object]:
        """Give the answer of an append."""
        key, stored = rows[0]
        return Entry(text(key), self.coding.decode(workflow, text(key), text(stored)))


@contextmanager
def filling(workflow: str) -> Generator[None]:
    """Refuse a full inbox in our own words."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate != FULL:
            raise
        raise ValueError(f"the inbox of workflow {workflow!r} is full: the number of an entry is below 2^53") from error


@contextmanager
def _guarded(workflow: str, key: str) -> Generator[None]:
    """Say in our own words what an effect may not do."""
    what = f"the effect {key!r} of workflow {workflow!r}"
    try:
        yield
    except psycopg.errors.InFailedSqlTransaction as error:
        raise Misconfigured(f"{what} went on after an error of the database, which undid it all: let it through") from error
    except psycopg.Error as error:
        if error.sqlstate != ENDED and not _by_guard(error):
            raise
        raise Misconfigured(f"{what} tried to end its transaction, which is the store's; it is undone") from error


def _by_guard(error: psycopg.Error) -> bool:
    return error.sqlstate == "23503" and error.diag.table_name == _GUARD


def text(value: object) -> str:
    """Take a column of text."""
    assert isinstance(value, str)
    return value


def number(value: object) -> int:
    """Take a column of bigint."""
    assert isinstance(value, int)
    return value


def instant(value: object) -> datetime:
    """Take an instant, which comes in UTC and without saying so."""
    assert isinstance(value, datetime)
    return value.replace(tzinfo=UTC)


_: type[Checkpointer[SqlEffect]] = PostgresCheckpointer
