"""The client half in the application's own transaction. [DUR-JOINED]"""

import asyncio
import sqlite3
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

from durable_core.contract import Recorded
from durable_core.errors import Misconfigured, NotEncodable, ReservedKey
from durable_core.keys import inbox_key
from durable_sqlite import SqliteDurable

NOW = timedelta(0)
LONG = timedelta(hours=1)


@pytest.fixture
def connection(durable: SqliteDurable) -> Iterator[sqlite3.Connection]:
    """The application's, with a table of its own."""
    connection = sqlite3.connect(durable.checkpointer.connection.path, isolation_level=None)
    connection.execute("CREATE TABLE shop_order (id INTEGER PRIMARY KEY)")
    yield connection
    connection.close()


async def test_joined_commits_with_the_application(durable: SqliteDurable, connection: sqlite3.Connection) -> None:
    """[DUR-JOINED] The order and the start of its workflow are one commit; nothing is seen before it."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO shop_order VALUES (1)")
    client = durable.joined(connection)
    assert await client.arrive("order/1", "input", {"n": 1}) == Recorded({"n": 1}, True)
    assert await client.arrive("order/1", "input", {"n": 2}) == Recorded({"n": 1}, False)
    assert (await client.deliver("order/1", "m", once="m1")).key == inbox_key(1)
    assert (await client.deliver("order/1", "m", once="m1")).key == inbox_key(1)
    assert await durable.checkpointer.load("order/1") == {}
    connection.execute("COMMIT")
    (turn,) = await durable.begin(NOW, LONG)
    assert dict(turn.records or {}) == {"input": {"n": 1}, inbox_key(1): "m"}


async def test_joined_leaves_no_trace_after_a_rollback(durable: SqliteDurable, connection: sqlite3.Connection) -> None:
    """[DUR-JOINED] Arrivals, messages and deletions are undone with the application's own work."""
    await durable.arrive("old", "input", 1)
    connection.execute("BEGIN")
    client = durable.joined(connection)
    await client.arrive("order/1", "input", 1)
    await client.deliver("order/2", 1)
    assert await client.delete("old") == 1
    connection.execute("ROLLBACK")
    assert [(listed.workflow, listed.state) for listed in await durable.workflows()] == [("old", "ready")]


async def test_joined_nudge_wakes_takers_of_this_process(durable: SqliteDurable, connection: sqlite3.Connection) -> None:
    """[DUR-JOINED] After the commit `nudge` has them look at once."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(durable.begin(LONG, LONG))
        await asyncio.sleep(0)
        connection.execute("BEGIN IMMEDIATE")
        await durable.joined(connection).arrive("w", "input", 1)
        connection.execute("COMMIT")
        durable.nudge()
    assert len(waiting.result()) == 1


async def test_joined_wakes_takers_without_a_nudge(durable: SqliteDurable, connection: sqlite3.Connection) -> None:
    """[DUR-JOINED] Without it they see the commit at their next look, as they would another process's."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(durable.begin(LONG, LONG))
        await durable.checkpointer.load("nobody")
        connection.execute("BEGIN IMMEDIATE")
        await durable.joined(connection).arrive("w", "input", 1)
        connection.execute("COMMIT")
    assert len(waiting.result()) == 1


async def test_joined_refuses_a_connection_without_a_transaction(durable: SqliteDurable, connection: sqlite3.Connection) -> None:
    """[DUR-JOINED] At `joined`, and at each call once the transaction is over."""
    with pytest.raises(Misconfigured, match="transaction open"):
        durable.joined(connection)
    connection.execute("BEGIN")
    client = durable.joined(connection)
    connection.execute("COMMIT")
    with pytest.raises(Misconfigured, match="transaction open"):
        await client.arrive("w", "k", 1)
    assert await durable.workflows() == []


async def test_joined_refuses_another_file(durable: SqliteDurable, tmp_path: Path) -> None:
    """[DUR-JOINED] A connection to another file, to memory, or that has ours only attached."""
    for name in (":memory:", str(tmp_path / "other.db")):
        connection = sqlite3.connect(name, isolation_level=None)
        connection.execute("ATTACH ? AS shop", (durable.checkpointer.connection.path,))
        connection.execute("BEGIN")
        with pytest.raises(Misconfigured, match="main database"):
            durable.joined(connection)
        connection.close()


async def test_joined_refuses_a_file_without_the_schema(tmp_path: Path) -> None:
    """[DUR-JOINED] Before the store was prepared there is nothing to write to."""
    path = tmp_path / "early.db"
    durable = SqliteDurable.at(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE t (x)")
    connection.execute("BEGIN")
    with pytest.raises(Misconfigured, match="prepare the store first"):
        durable.joined(connection)
    connection.close()


async def test_joined_validates_and_encodes_first(durable: SqliteDurable, connection: sqlite3.Connection) -> None:
    """[ANY-VALID] [CKP-KEY-RESERVED] Bad input is refused and leaves the application's transaction open and clean."""
    connection.execute("BEGIN")
    client = durable.joined(connection)
    with pytest.raises(ReservedKey):
        await client.arrive("w", "outcome:", 1)
    with pytest.raises(NotEncodable):
        await client.arrive("w", "k", {1})
    with pytest.raises(ValueError):
        await client.deliver("", 1)
    assert connection.in_transaction
    connection.execute("COMMIT")
    assert await durable.workflows() == []


async def test_joined_call_is_all_or_nothing(durable: SqliteDurable, connection: sqlite3.Connection) -> None:
    """[DUR-CO-COMMIT] A call that fails half way leaves nothing of itself, and what the application did before stands."""
    connection.execute(
        "CREATE TRIGGER no BEFORE INSERT ON workflow_queue WHEN new.workflow = 'bad' "
        "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    )
    connection.execute("BEGIN")
    connection.execute("INSERT INTO shop_order VALUES (1)")
    client = durable.joined(connection)
    with pytest.raises(sqlite3.IntegrityError, match="not this one"):
        await client.arrive("bad", "k", 1)
    assert (await client.arrive("good", "k", 1)).first
    connection.execute("COMMIT")
    assert [listed.workflow for listed in await durable.workflows()] == ["good"]
    assert await durable.checkpointer.load("bad") == {}
    assert connection.execute("SELECT count(*) FROM shop_order").fetchone() == (1,)


@pytest.mark.parametrize("isolation_level", ["DEFERRED", "IMMEDIATE", None])
async def test_joined_takes_connections_as_applications_have_them(
    durable: SqliteDurable, isolation_level: Literal["DEFERRED", "IMMEDIATE"] | None
) -> None:
    """[DUR-JOINED] Whatever the isolation level, row factory, text factory and detected types of the connection; they stay as
    they are.
    """
    path = durable.checkpointer.connection.path
    connection = sqlite3.connect(
        path, isolation_level=isolation_level, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES
    )
    connection.row_factory = sqlite3.Row
    connection.text_factory = bytes
    connection.execute("CREATE TABLE t (x)")
    if isolation_level is None:
        connection.execute("BEGIN")
    connection.execute("INSERT INTO t VALUES (1)")
    client = durable.joined(connection)
    assert await client.arrive("w", "k", "ü") == Recorded("ü", True)
    assert await client.arrive("w", "k", "x") == Recorded("ü", False)
    assert (await client.deliver("w", 1)).key == inbox_key(1)
    assert (await client.deliver("w", 1)).key == inbox_key(2)
    assert connection.text_factory is bytes
    assert connection.row_factory is sqlite3.Row
    connection.commit()
    connection.close()
    assert await durable.checkpointer.load("w") == {"k": "ü", inbox_key(1): 1, inbox_key(2): 1}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit came with 3.12")
async def test_joined_takes_a_connection_without_autocommit(durable: SqliteDurable) -> None:
    """[DUR-JOINED] A connection that always has a transaction open is joined, and its commit and rollback decide."""
    connection = sqlite3.connect(durable.checkpointer.connection.path)
    setattr(connection, "autocommit", False)  # noqa: B010 - 3.11 has no such attribute
    await durable.joined(connection).arrive("w", "k", 1)
    connection.rollback()
    assert await durable.workflows() == []
    await durable.joined(connection).arrive("w", "k", 1)
    connection.commit()
    connection.close()
    assert await durable.checkpointer.load("w") == {"k": 1}


async def test_joined_holds_the_writer_until_the_commit(path: Path) -> None:
    """[CKP-RECORD-CONCURRENT] What SQLite allows: meanwhile reads go on, and writes wait for the busy timeout, then say that
    it is locked.
    """
    async with SqliteDurable.at(path, busy_timeout=timedelta(milliseconds=50)) as durable:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN")
        await durable.joined(connection).arrive("w", "k", 1)
        assert await durable.checkpointer.load("w") == {}
        with pytest.raises(sqlite3.OperationalError, match="locked") as locked:
            await durable.arrive("v", "k", 1)
        assert locked.value.sqlite_errorname == "SQLITE_BUSY"
        connection.execute("COMMIT")
        connection.close()
        assert (await durable.arrive("v", "k", 1)).first
        assert len(await durable.workflows()) == 2
