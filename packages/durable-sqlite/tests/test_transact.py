"""`transact` on SQLite: effect and record in one commit, and no way out of the transaction."""

import asyncio
import contextvars
import sqlite3
from collections.abc import Callable
from datetime import timedelta

import pytest

from durable_core.contract import Pass
from durable_core.errors import Fenced, Misconfigured, NotEncodable
from durable_sqlite import EffectCursor, SqliteCheckpointer, SqliteDurable, SqliteEffect

LONG = timedelta(hours=1)


@pytest.fixture
async def checkpointer(durable: SqliteDurable, statements: list[str]) -> SqliteCheckpointer:
    """With a table of the application's beside the store's."""
    with sqlite3.connect(durable.checkpointer.connection.path) as connection:
        connection.execute("CREATE TABLE stock (sku TEXT PRIMARY KEY, reserved INTEGER NOT NULL)")
        connection.execute("INSERT INTO stock VALUES ('piano', 0)")
    connection.close()
    return durable.checkpointer


@pytest.fixture
async def holder(checkpointer: SqliteCheckpointer) -> Pass:
    granted = await checkpointer.claim("w", LONG, LONG)
    assert granted is not None
    return granted


def reserve(cursor: EffectCursor) -> int:
    cursor.execute("UPDATE stock SET reserved = reserved + 1 WHERE sku = 'piano' RETURNING reserved")
    reserved: int = cursor.fetchone()[0]
    return reserved


async def reserved(checkpointer: SqliteCheckpointer) -> int:
    rows = await checkpointer.connection.read(lambda tx: tx.execute("SELECT reserved FROM stock").fetchall())
    count: int = rows[0][0]
    return count


async def nothing_happened(checkpointer: SqliteCheckpointer, holder: Pass) -> None:
    """Neither effect nor record, and the store and the claim work on."""
    assert await reserved(checkpointer) == 0
    assert await checkpointer.load("w") == {}
    assert (await checkpointer.record(holder, "after", 1)).first
    assert await checkpointer.transact(holder, "again", reserve) == 1


async def test_transact_once_and_recorded(checkpointer: SqliteCheckpointer, holder: Pass) -> None:
    """[CKP-TRANSACT-ONCE] [CKP-TRANSACT-RECORDED] A key that is recorded gives its value, and the effect does not run."""
    assert await checkpointer.transact(holder, "k", reserve) == 1
    for _ in range(5):
        assert await checkpointer.transact(holder, "k", reserve) == 1
    assert await reserved(checkpointer) == 1


async def test_transact_takes_one_commit(checkpointer: SqliteCheckpointer, holder: Pass, statements: list[str]) -> None:
    """[CKP-TRANSACT-ATOMIC] Effect and record are in one transaction of their own."""
    del statements[:]
    await checkpointer.transact(holder, "k", reserve)
    assert [statement.split()[0] for statement in statements] == ["BEGIN", "SELECT", "SELECT", "UPDATE", "INSERT", "COMMIT"]


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}])
async def test_transact_of_an_empty_result_is_recorded(checkpointer: SqliteCheckpointer, holder: Pass, value: object) -> None:
    """Case 132: nothing, zero and empty are results like any other."""
    calls: list[int] = []

    def effect(_cursor: EffectCursor) -> object:
        calls.append(1)
        return value

    for _ in range(5):
        assert await checkpointer.transact(holder, "k", effect) == value
    assert len(calls) == 1


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError("a"), KeyError("b"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()],
)
async def test_transact_atomic_when_the_effect_raises(
    checkpointer: SqliteCheckpointer, holder: Pass, error: BaseException
) -> None:
    """[CKP-TRANSACT-ATOMIC] The effect's own error passes through as the same object, and nothing of it stays."""

    def effect(cursor: EffectCursor) -> None:
        reserve(cursor)
        raise error

    with pytest.raises(type(error)) as raised:
        await checkpointer.transact(holder, "k", effect)
    assert raised.value is error
    await nothing_happened(checkpointer, holder)


async def test_transact_atomic_when_the_effect_gives_up_with_an_error_of_ours(
    checkpointer: SqliteCheckpointer, holder: Pass
) -> None:
    """[CKP-TRANSACT-ATOMIC] Also when what it raises looks like a refusal of the store's."""

    def effect(cursor: EffectCursor) -> None:
        reserve(cursor)
        raise Fenced("x", 1)

    with pytest.raises(Fenced, match="'x'"):
        await checkpointer.transact(holder, "k", effect)
    await nothing_happened(checkpointer, holder)


async def test_transact_atomic_when_the_result_is_refused(checkpointer: SqliteCheckpointer, holder: Pass) -> None:
    """[CKP-TRANSACT-ATOMIC] A result that cannot be encoded undoes the effect, and is named with workflow and key."""

    def effect(cursor: EffectCursor) -> object:
        return {reserve(cursor)}

    with pytest.raises(NotEncodable) as refused:
        await checkpointer.transact(holder, "k", effect)
    assert (refused.value.workflow, refused.value.key) == ("w", "k")
    await nothing_happened(checkpointer, holder)


async def test_transact_fenced_before_the_effect(checkpointer: SqliteCheckpointer, holder: Pass) -> None:
    """[CKP-TRANSACT-FENCED] [CKP-TRANSACT-RECORDED] The fence is asked first, also for a key that is recorded."""
    await checkpointer.record(holder, "k", 1)
    await checkpointer.release(holder)
    assert await checkpointer.claim("w", LONG, LONG) is not None
    for key in ("k", "l"):
        with pytest.raises(Fenced):
            await checkpointer.transact(holder, key, reserve)
    assert await reserved(checkpointer) == 0


async def test_transact_supplied_first(checkpointer: SqliteCheckpointer, holder: Pass) -> None:
    """[CKP-TRANSACT-SUPPLIED] A value that was supplied first wins, and no effect is applied; a later one learns that it lost."""
    await checkpointer.supply("w", "k", "supplied")
    assert await checkpointer.transact(holder, "k", reserve) == "supplied"
    assert await reserved(checkpointer) == 0
    assert await checkpointer.transact(holder, "l", reserve) == 1
    assert not (await checkpointer.supply("w", "l", "late")).first


def swallowed(statement: str) -> SqliteEffect:
    def effect(cursor: EffectCursor) -> int:
        count = reserve(cursor)
        try:
            cursor.execute(statement)
        except sqlite3.Error:
            pass
        return count

    return effect


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "END",
        "ROLLBACK",
        "BEGIN",
        "BEGIN IMMEDIATE",
        "SAVEPOINT s",
        "RELEASE s",
        "ATTACH ':memory:' AS other",
        "DETACH main",
        "PRAGMA user_version = 3",
        "PRAGMA synchronous",
        "VACUUM",
        "DELETE FROM workflow_checkpoint",
        "UPDATE workflow_claim SET held = 0",
        "INSERT INTO workflow_queue DEFAULT VALUES",
        "DROP TABLE workflow_counter",
        "ALTER TABLE workflow_schema RENAME TO gone",
        "CREATE TRIGGER t AFTER INSERT ON workflow_checkpoint BEGIN SELECT 1; END",
        "DROP INDEX workflow_queue_look",
        "INSERT INTO stock VALUES ('piano', 1)",
        "INSERT OR ROLLBACK INTO stock VALUES ('piano', 1)",
        "SELECT * FROM nowhere",
        "not a statement",
    ],
)
async def test_transact_own_whatever_it_executes_and_swallows(
    checkpointer: SqliteCheckpointer, holder: Pass, statement: str
) -> None:
    """[CKP-TRANSACT-OWN] It cannot end its transaction, the attempt is not durable, and an error that it swallows is no
    record.
    """
    with pytest.raises(sqlite3.Error):
        await checkpointer.transact(holder, "k", swallowed(statement))
    await nothing_happened(checkpointer, holder)


async def test_transact_own_after_the_store_has_committed_often(checkpointer: SqliteCheckpointer, holder: Pass) -> None:
    """[CKP-TRANSACT-OWN] Statements that the store keeps prepared are no way out, whatever it has run before."""
    for number in range(5):
        await checkpointer.supply("v", f"k{number}", number)
        for statement in ("COMMIT", "BEGIN IMMEDIATE", "ROLLBACK"):
            with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
                await checkpointer.transact(holder, "k", swallowed(statement))
    await nothing_happened(checkpointer, holder)


async def test_transact_own_goes_no_further_once_its_transaction_was_rolled_back(
    checkpointer: SqliteCheckpointer, holder: Pass
) -> None:
    """[CKP-TRANSACT-OWN] After INSERT OR ROLLBACK the next statement would commit by itself: it is refused."""
    ran: list[str] = []

    def effect(cursor: EffectCursor) -> None:
        reserve(cursor)
        try:
            cursor.execute("INSERT OR ROLLBACK INTO stock VALUES ('piano', 1)")
        except sqlite3.IntegrityError:
            ran.append("swallowed")
        try:
            cursor.execute("UPDATE stock SET reserved = 99")
        except sqlite3.ProgrammingError:
            ran.append("refused")
        try:
            cursor.executemany("INSERT INTO stock VALUES (?, 1)", [("organ",)])
        except sqlite3.ProgrammingError:
            ran.append("refused")

    with pytest.raises(sqlite3.IntegrityError):
        await checkpointer.transact(holder, "k", effect)
    assert ran == ["swallowed", "refused", "refused"]
    await nothing_happened(checkpointer, holder)


def by_connection(cursor: EffectCursor) -> object:
    return cursor.connection


def by_script(cursor: EffectCursor) -> object:
    return cursor.executescript("SELECT 1")


@pytest.mark.parametrize("escape", [by_connection, by_script])
async def test_transact_own_has_no_connection(
    checkpointer: SqliteCheckpointer, holder: Pass, escape: Callable[[EffectCursor], object]
) -> None:
    """[CKP-TRANSACT-OWN] The cursor gives neither the connection nor a script away."""
    with pytest.raises(Misconfigured):
        await checkpointer.transact(holder, "k", escape)
    await nothing_happened(checkpointer, holder)


async def test_transact_own_cursor_ends_with_the_effect(checkpointer: SqliteCheckpointer, holder: Pass) -> None:
    """[CKP-TRANSACT-OWN] A cursor that was kept is of no use in the next effect, which runs in the same thread."""
    kept: list[EffectCursor] = []

    def keep(cursor: EffectCursor) -> None:
        kept.append(cursor)
        cursor.execute("SELECT 1")

    def use(_cursor: EffectCursor) -> None:
        reserve(kept[0])

    await checkpointer.transact(holder, "k", keep)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await checkpointer.transact(holder, "l", use)
    assert await reserved(checkpointer) == 0


async def test_transact_cursor_is_a_plain_one_otherwise(checkpointer: SqliteCheckpointer, holder: Pass) -> None:
    """It fetches, iterates, runs many rows and makes tables, as any cursor."""

    def effect(cursor: EffectCursor) -> object:
        cursor.execute("CREATE TABLE line (n INTEGER, name TEXT)")
        cursor.executemany("INSERT INTO line VALUES (?, ?)", [(1, "a"), (2, "b")])
        changed = cursor.rowcount
        named: list[tuple[int]] = cursor.execute("SELECT n FROM line WHERE name = :name", {"name": "b"}).fetchall()
        names: list[str] = [row[0] for row in cursor.execute("SELECT name FROM line ORDER BY n")]
        some: list[tuple[int]] = cursor.execute("SELECT n FROM line").fetchmany(1)
        return [changed, named, names, some]

    assert await checkpointer.transact(holder, "k", effect) == [2, [[2]], ["a", "b"], [[1]]]


@pytest.mark.parametrize("fetch", ["__next__", "fetchone", "fetchmany", "fetchall"])
async def test_transact_own_notes_what_fails_while_it_fetches(checkpointer: SqliteCheckpointer, holder: Pass, fetch: str) -> None:
    """[CKP-TRANSACT-OWN] A query that fails at its second row is as little a record when that is swallowed."""

    def effect(cursor: EffectCursor) -> int:
        rows = cursor.execute("SELECT json(value) FROM (SELECT '1' AS value UNION ALL SELECT 'no json')")
        try:
            for _ in range(3):
                getattr(rows, fetch)()
        except sqlite3.OperationalError:
            pass
        return reserve(cursor)

    with pytest.raises(sqlite3.OperationalError, match="malformed JSON"):
        await checkpointer.transact(holder, "k", effect)
    await nothing_happened(checkpointer, holder)


async def test_transact_refuses_what_is_no_function(
    checkpointer: SqliteCheckpointer, holder: Pass, statements: list[str]
) -> None:
    """A coroutine function or a value in an effect's place is refused before anything is done."""

    async def effect(_cursor: EffectCursor) -> None: ...

    del statements[:]
    with pytest.raises(Misconfigured, match="async def"):
        await checkpointer.transact(holder, "k", effect)
    with pytest.raises(Misconfigured, match="str"):
        await checkpointer.transact(holder, "k", "UPDATE stock SET reserved = 1")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert statements == []


async def test_transact_refuses_a_call_of_its_own_store(
    durable: SqliteDurable, checkpointer: SqliteCheckpointer, holder: Pass
) -> None:
    """Case 111: an effect that calls the store it runs in would wait for itself; it is refused, and everything rolled back."""

    def effect(cursor: EffectCursor) -> None:
        reserve(cursor)
        asyncio.run(checkpointer.supply("w", "l", 1))

    with pytest.raises(Misconfigured, match="wait for itself"):
        await checkpointer.transact(holder, "k", effect)
    await nothing_happened(checkpointer, holder)


async def test_transact_runs_in_the_caller_s_context(checkpointer: SqliteCheckpointer, holder: Pass) -> None:
    """What the caller has set for its task is seen by the effect, and what the effect sets is not seen outside."""
    trace = contextvars.ContextVar("trace", default="none")
    trace.set("outside")

    def effect(_cursor: EffectCursor) -> str:
        seen = trace.get()
        trace.set("inside")
        return seen

    assert await checkpointer.transact(holder, "k", effect) == "outside"
    assert trace.get() == "outside"


async def test_transact_keeps_its_commit_when_its_caller_is_cancelled(checkpointer: SqliteCheckpointer, holder: Pass) -> None:
    """[CKP-TRANSACT-ATOMIC] Cancelled while the effect runs: it lands whole, and the next pass finds it."""
    loop = asyncio.get_running_loop()
    running = asyncio.Event()

    def effect(cursor: EffectCursor) -> int:
        loop.call_soon_threadsafe(running.set)
        count = reserve(cursor)
        while not task.cancelled():
            pass
        return count

    task = asyncio.create_task(checkpointer.transact(holder, "k", effect))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await checkpointer.load("w") == {"k": 1}
    assert await reserved(checkpointer) == 1


async def test_transact_has_a_transaction_of_its_own(
    checkpointer: SqliteCheckpointer, holder: Pass, statements: list[str]
) -> None:
    """Neighbours that wait beside it are in another commit: an effect that rolls back takes nobody along."""

    def effect(cursor: EffectCursor) -> None:
        cursor.execute("INSERT OR ROLLBACK INTO stock VALUES ('piano', 1)")

    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(checkpointer.record(holder, f"k{number}", number)) for number in range(20)]
        failing = [asyncio.create_task(checkpointer.transact(holder, f"e{number}", effect)) for number in range(5)]
        beside += [group.create_task(checkpointer.record(holder, f"l{number}", number)) for number in range(20)]
    for task in failing:
        with pytest.raises(sqlite3.IntegrityError):
            await task
    assert len(await checkpointer.load("w")) == 40
