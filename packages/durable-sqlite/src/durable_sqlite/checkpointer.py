"""The records of workflows in a SQLite file."""

from __future__ import annotations

from datetime import timedelta

from durable_core.codec import JsonCodec
from durable_core.contract import Checkpointer, Description, Entry, Pass, Recorded, Written
from durable_core.errors import Fenced, Misconfigured
from durable_core.keys import INBOX, check_duration, check_key, check_once, check_skip, check_workflow
from durable_sqlite import _claims, _records, effect
from durable_sqlite._coding import Coding, SqliteCodec, Stored
from durable_sqlite._tx import Tx, micros, moment
from durable_sqlite.connection import SqliteConnection
from durable_sqlite.effect import SqliteEffect


class SqliteCheckpointer:
    """A `Checkpointer[SqliteEffect]`: the clauses of `durable_core.contract.Checkpointer` hold, each write in one commit.

    A codec may give `str` or `bytes`. Its `encode` is also called in the store's thread, for the result of an effect. SQLite has
    one writer: while an open transaction of the application, or an effect, holds the file, every write waits, at most for the
    connection's `busy_timeout`. Every method may raise `sqlite3.Error` for what is wrong with the file, and `Misconfigured` once
    the store is closed.
    """

    def __init__(self, connection: SqliteConnection, *, codec: SqliteCodec | None = None) -> None:
        if not isinstance(connection, SqliteConnection):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misconfigured(f"SqliteCheckpointer takes a SqliteConnection, and not {type(connection).__name__}")
        self.connection: SqliteConnection = connection
        self.coding: Coding = Coding(JsonCodec() if codec is None else codec)

    def __repr__(self) -> str:
        return f"SqliteCheckpointer({self.connection!r})"

    def roundtrip(self, value: object, /) -> object:
        """Give `decode(encode(value))`. Raises: `NotEncodable`."""
        return self.coding.roundtrip(value)

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        """Give every record but the first `skip`. Raises: `NotParsed`. [CKP-LOAD-ORDER] [CKP-LOAD-PREFIX]"""
        check_workflow(workflow)
        check_skip(skip)
        return self.coding.decode_all(workflow, await self.connection.read(_records.load, workflow, skip))

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        """Record as the holder. Raises: `Fenced`, `NotEncodable`. [CKP-RECORD-ONCE] [CKP-RECORD-FENCED] [CKP-RECORD-DURABLE]"""
        workflow = holder.workflow
        check_key(workflow, key)
        stored = self.coding.encode(workflow, key, value)
        other = await self.connection.write(_records.record, workflow, holder.token, key, stored)
        return self.coding.recorded(workflow, key, stored, other)

    async def transact(self, holder: Pass, key: str, effect_: SqliteEffect, /) -> object:
        """Apply an effect and record its result in one commit, or do neither. [CKP-TRANSACT-ATOMIC] [CKP-TRANSACT-OWN]

        The effect runs in the store's thread, in a copy of the caller's context, and holds SQLite's only writer meanwhile: keep
        it well below a third of the liveness window. It must not call the store, nor wait for the event loop to.

        Raises: `Fenced`, `NotEncodable`, `Misconfigured`, and whatever the effect raises, unchanged.
        """
        workflow = holder.workflow
        check_key(workflow, key)
        effect.check(effect_)
        stored = await self.connection.alone(self._transact, workflow, holder.token, key, effect_)
        return self.coding.decode(workflow, key, stored)

    def _transact(self, tx: Tx, workflow: str, token: int, key: str, effect_: SqliteEffect) -> Stored:
        claim = _claims.held_by(tx, workflow, token)
        if claim is None:
            raise Fenced(workflow, token, key)
        recorded = _records.recorded(tx, workflow, key)
        if recorded is None:
            recorded = self.coding.encode(workflow, key, effect.apply(tx.connection, effect_))
            tx.tick()
            _records.supply(tx, workflow, key, recorded)
        _claims.seen(tx, workflow, claim)
        return recorded

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record from outside any pass. Raises: `NotEncodable`. [CKP-SUPPLY-FREE] [CKP-SUPPLY-ONCE]"""
        check_key(workflow, key)
        stored = self.coding.encode(workflow, key, value)
        return self.coding.recorded(workflow, key, stored, await self.connection.write(_records.supply, workflow, key, stored))

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox. Raises: `NotEncodable`, `ValueError` if it is full. [CKP-APPEND-ABOVE] [CKP-APPEND-ONCE]"""
        check_workflow(workflow)
        check_once(once)
        stored = self.coding.encode(workflow, INBOX, value)
        return self.coding.entry(workflow, await self.connection.write(_records.append, workflow, stored, once))

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        """Take the workflow for one pass, or give `None`. [CKP-CLAIM-ONE] [CKP-CLAIM-RISING] [CKP-CLAIM-LAPSE]"""
        check_workflow(workflow)
        check_duration(budget, "budget")
        check_duration(alive, "alive")

        def take_back(tx: Tx, granted: tuple[int, int] | None) -> None:
            if granted is not None:
                _claims.release(tx, workflow, granted[0])

        granted = await self.connection.write(_claims.claim, workflow, micros(budget), micros(alive), take_back=take_back)
        return None if granted is None else Pass(workflow, granted[0], moment(granted[1]))

    async def extend(self, holder: Pass, budget: timedelta, alive: timedelta, /) -> bool:
        """Grant `budget` from now. [CKP-EXTEND-GRANT] [CKP-EXTEND-LAPSED] [CKP-HOLD-LOST]"""
        check_workflow(holder.workflow)
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        return await self.connection.write(_claims.extend, holder.workflow, holder.token, micros(budget), micros(alive))

    async def renew(self, holder: Pass, alive: timedelta, /) -> bool:
        """Give a sign of life. [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET] [CKP-HOLD-LOST]"""
        check_workflow(holder.workflow)
        check_duration(alive, "alive")
        return await self.connection.write(_claims.renew, holder.workflow, holder.token, micros(alive))

    async def release(self, holder: Pass, /) -> None:
        """Give the claim back. [CKP-RELEASE-FREE] [CKP-RELEASE-FINAL]"""
        check_workflow(holder.workflow)
        await self.connection.write(_claims.release, holder.workflow, holder.token)

    async def history(self, workflow: str, /) -> dict[str, Written]:
        """Give every record with its time. Raises: `NotParsed`. [CKP-HISTORY-SAME] [CKP-HISTORY-TIME] [CKP-HISTORY-RISING]"""
        check_workflow(workflow)
        decode = self.coding.decode
        rows = await self.connection.read(_records.history, workflow)
        return {key: Written(decode(workflow, key, stored), moment(at)) for key, stored, at in rows}

    async def discard(self, workflow: str, /) -> int:
        """Forget every record, and say how many there were. [CKP-DISCARD-ALL] [CKP-DISCARD-FENCE] [CKP-DISCARD-FREE]"""
        check_workflow(workflow)
        return await self.connection.write(_records.discard, workflow)

    async def describe(self, /) -> Description:
        """Say what the store promises now. [DUR-DESCRIBE]"""
        return await self.connection.describe()


_: type[Checkpointer[SqliteEffect]] = SqliteCheckpointer
