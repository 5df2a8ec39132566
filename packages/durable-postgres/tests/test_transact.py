"""Effects in the store's transaction: they cannot end it, and nothing of the store is held while they run. [CKP-TRANSACT-OWN]"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import psycopg
import pytest
from psycopg import AsyncCursor
from psycopg.rows import TupleRow

from durable_core.contract import Pass
from durable_core.errors import Fenced, Misconfigured
from durable_postgres import PostgresDurable

LONG = timedelta(hours=1)
Cursor = AsyncCursor[TupleRow]


@pytest.fixture(autouse=True)
def table(operator: psycopg.Connection[TupleRow]) -> None:
    operator.execute("CREATE TABLE stock (sku text PRIMARY KEY, n bigint NOT NULL)")
    operator.execute("INSERT INTO stock VALUES ('piano', 0), ('organ', 0)")


def stock(operator: psycopg.Connection[TupleRow], sku: str = "piano") -> int:
    row = operator.execute("SELECT n FROM stock WHERE sku = %s", (sku,)).fetchone()
    assert row is not None
    return int(row[0])


async def claimed(durable: PostgresDurable, workflow: str = "w") -> Pass:
    holder = await durable.checkpointer.claim(workflow, LONG, LONG)
    assert holder is not None
    return holder


ADD = "UPDATE stock SET n = n + 1 WHERE sku = 'piano'"
ENDINGS = [
    "COMMIT",
    "COMMIT; BEGIN",
    "COMMIT AND CHAIN",
    "END",
    "PREPARE TRANSACTION 'mine'",
    "ROLLBACK",
    "ROLLBACK; BEGIN",
    "ROLLBACK; UPDATE stock SET n = n + 1 WHERE sku = 'piano'; COMMIT; BEGIN",
    "SET CONSTRAINTS ALL IMMEDIATE",
]


@pytest.mark.parametrize("swallowed", [False, True], ids=["raised", "swallowed"])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_transact_own_an_ending_is_undone(
    durable: PostgresDurable, operator: psycopg.Connection[TupleRow], ending: str, swallowed: bool
) -> None:
    """[CKP-TRANSACT-OWN] However an effect ends its transaction, raised or swallowed: refused by name, and nothing is durable.

    (Within the transaction that it was handed: what a second one does that it commits for itself after a ROLLBACK is its own.)
    """
    holder = await claimed(durable)

    async def effect(cursor: Cursor) -> object:
        await cursor.execute(ADD)
        try:
            await cursor.execute(ending.encode())
        except psycopg.Error:
            if not swallowed:
                raise
        return "done"

    with pytest.raises(Misconfigured, match=r"effect 'k' of workflow 'w'"):
        await durable.checkpointer.transact(holder, "k", effect)
    assert stock(operator) == (1 if "COMMIT; BEGIN" in ending and "ROLLBACK" in ending else 0)
    assert await durable.checkpointer.load("w") == {}
    assert (await durable.checkpointer.record(holder, "next", 1)).first


async def test_transact_own_what_follows_a_rollback_is_undone_too(
    durable: PostgresDurable, operator: psycopg.Connection[TupleRow]
) -> None:
    """[CKP-TRANSACT-OWN] After a ROLLBACK the effect's next statements are in a transaction as well, and it is not committed."""
    holder = await claimed(durable)

    async def effect(cursor: Cursor) -> object:
        await cursor.execute("ROLLBACK")
        await cursor.execute(ADD)
        return "done"

    with pytest.raises(Misconfigured):
        await durable.checkpointer.transact(holder, "k", effect)
    assert stock(operator) == 0


@pytest.mark.parametrize("method", ["commit", "rollback"])
async def test_transact_own_the_connections_methods(
    durable: PostgresDurable, operator: psycopg.Connection[TupleRow], method: str
) -> None:
    """[CKP-TRANSACT-OWN] `cursor.connection.commit()` and `rollback()` are refused like the statements."""
    holder = await claimed(durable)

    async def effect(cursor: Cursor) -> object:
        await cursor.execute(ADD)
        await (cursor.connection.commit() if method == "commit" else cursor.connection.rollback())
        return "done"

    with pytest.raises(Misconfigured):
        await durable.checkpointer.transact(holder, "k", effect)
    assert stock(operator) == 0


async def test_transact_own_a_swallowed_error_is_no_record(
    durable: PostgresDurable, operator: psycopg.Connection[TupleRow]
) -> None:
    """[CKP-TRANSACT-OWN] An effect that goes on after an error of the database is refused; with a savepoint it may."""
    holder = await claimed(durable)

    async def careless(cursor: Cursor) -> object:
        await cursor.execute(ADD)
        try:
            await cursor.execute("SELECT 1 / 0")
        except psycopg.errors.DivisionByZero:
            pass
        return "done"

    async def careful(cursor: Cursor) -> object:
        await cursor.execute(ADD)
        try:
            async with cursor.connection.transaction():
                await cursor.execute("SELECT 1 / 0")
        except psycopg.errors.DivisionByZero:
            pass
        return "done"

    with pytest.raises(Misconfigured, match="went on after an error"):
        await durable.checkpointer.transact(holder, "k", careless)
    assert stock(operator) == 0
    assert await durable.checkpointer.transact(holder, "k", careful) == "done"
    assert stock(operator) == 1


async def test_transact_atomic_an_error_at_the_commit_is_the_applications(
    durable: PostgresDurable, operator: psycopg.Connection[TupleRow]
) -> None:
    """[CKP-TRANSACT-ATOMIC] A deferred constraint of the application's own passes through as it is, and undoes both."""
    operator.execute("CREATE TABLE part (sku text REFERENCES stock DEFERRABLE INITIALLY DEFERRED)")
    holder = await claimed(durable)

    async def effect(cursor: Cursor) -> object:
        await cursor.execute("INSERT INTO part VALUES ('nothing')")
        return "done"

    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="part"):
        await durable.checkpointer.transact(holder, "k", effect)
    assert await durable.checkpointer.load("w") == {}


def meanwhile(call: Callable[[], Awaitable[object]]) -> Callable[[Cursor], Awaitable[object]]:
    async def effect(cursor: Cursor) -> object:
        await cursor.execute(ADD)
        await call()
        return "done"

    return effect


async def test_transact_fenced_nothing_is_held_meanwhile(
    durable: PostgresDurable, other: PostgresDurable, operator: psycopg.Connection[TupleRow], caplog: pytest.LogCaptureFixture
) -> None:
    """[CKP-TRANSACT-FENCED] [CKP-SUPPLY-FREE] While an effect runs, supplies, appends, renewals and records of the pass go on;
    and a rival's claim takes the pass's right, without a word in the log.
    """
    holder = await durable.checkpointer.claim("w", LONG, timedelta(milliseconds=1))
    assert holder is not None

    async def calls() -> None:
        async with asyncio.timeout(10):
            assert (await other.checkpointer.supply("w", "s", 1)).first
            assert (await durable.arrive("w", "a", 1)).first
            await other.deliver("w", "m")
            assert await durable.checkpointer.renew(holder, timedelta(milliseconds=1))
            assert (await durable.checkpointer.record(holder, "r", 1)).first
            rival = None
            while rival is None:
                rival = await other.checkpointer.claim("w", LONG, LONG)

    with caplog.at_level(logging.WARNING), pytest.raises(Fenced):
        await durable.checkpointer.transact(holder, "k", meanwhile(calls))
    assert stock(operator) == 0
    assert list(await durable.checkpointer.load("w")) == ["s", "a", "inbox:00000000000000000001", "r"]
    assert not caplog.records


async def test_transact_supplied_meanwhile_undoes_the_effect(
    durable: PostgresDurable, other: PostgresDurable, operator: psycopg.Connection[TupleRow]
) -> None:
    """[CKP-TRANSACT-SUPPLIED] The supply was first: it comes back, and the effect is undone."""
    holder = await claimed(durable)
    assert (
        await durable.checkpointer.transact(holder, "k", meanwhile(lambda: other.checkpointer.supply("w", "k", "theirs")))
        == "theirs"
    )
    assert stock(operator) == 0


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
async def test_transact_case_27_opposite_orders(
    durable: PostgresDurable, other: PostgresDurable, operator: psycopg.Connection[TupleRow], level: str
) -> None:
    """Case 27: effects that update the same rows in opposite order deadlock at times; each is applied once all the same."""
    operator.execute(f"ALTER DATABASE {operator.info.dbname} SET default_transaction_isolation = '{level}'".encode())

    async def moves(store: PostgresDurable, workflow: str, rows: tuple[str, str]) -> int:
        holder, failures = await claimed(store, workflow), 0
        for number in range(25):
            while True:
                try:
                    await store.checkpointer.transact(holder, f"k{number}", lambda cursor: both(cursor, rows))
                    break
                except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                    failures += 1
        return failures

    async with asyncio.TaskGroup() as group:
        group.create_task(moves(durable, "a", ("piano", "organ")))
        group.create_task(moves(other, "b", ("organ", "piano")))
    assert stock(operator, "piano") == stock(operator, "organ") == 50
    assert len(await durable.checkpointer.load("a")) == len(await durable.checkpointer.load("b")) == 25


async def both(cursor: Cursor, rows: tuple[str, str]) -> object:
    for row in rows:
        await cursor.execute("UPDATE stock SET n = n + 1 WHERE sku = %s", (row,))
        await asyncio.sleep(0)
    return "moved"


async def test_transact_takes_async_functions_only(durable: PostgresDurable) -> None:
    """A plain function, and what is none, is refused by name."""
    holder = await claimed(durable)

    def plain(cursor: Cursor) -> object:
        return cursor

    with pytest.raises(Misconfigured, match="async def effect"):
        await durable.checkpointer.transact(holder, "k", plain)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(Misconfigured, match="int"):
        await durable.checkpointer.transact(holder, "k", 1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
