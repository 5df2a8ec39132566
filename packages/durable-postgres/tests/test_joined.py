"""The client half in the application's own transaction. [DUR-JOINED]"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg
import pytest
from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from durable_core.contract import Recorded
from durable_core.errors import Misconfigured, NotEncodable, ReservedKey
from durable_core.keys import inbox_key
from durable_postgres import PostgresDurable, _bell

NOW = timedelta(0)
LONG = timedelta(hours=1)
Connection = AsyncConnection[TupleRow]


@pytest.fixture
async def connection(url: str, operator: psycopg.Connection[TupleRow]) -> AsyncIterator[Connection]:
    """The application's, with a table of its own."""
    operator.execute("CREATE TABLE shop_order (id bigint PRIMARY KEY)")
    async with await AsyncConnection.connect(url) as given:
        yield given
        await given.rollback()


async def test_joined_commits_with_the_application(durable: PostgresDurable, connection: Connection) -> None:
    """[DUR-JOINED] The order and the start of its workflow are one commit; nothing is seen before it."""
    async with connection.transaction():
        await connection.execute("INSERT INTO shop_order VALUES (1)")
        client = durable.joined(connection)
        assert await client.arrive("order/1", "input", {"n": 1}) == Recorded({"n": 1}, True)
        assert await client.arrive("order/1", "input", {"n": 2}) == Recorded({"n": 1}, False)
        assert (await client.deliver("order/1", "m", once="m1")).key == inbox_key(1)
        assert (await client.deliver("order/1", "m", once="m1")).key == inbox_key(1)
        assert await durable.checkpointer.load("order/1") == {}
        assert await durable.begin(NOW, LONG) == []
    (turn,) = await durable.begin(NOW, LONG)
    assert dict(turn.records or {}) == {"input": {"n": 1}, inbox_key(1): "m"}


async def test_joined_leaves_no_trace_after_a_rollback(durable: PostgresDurable, connection: Connection) -> None:
    """[DUR-JOINED] Arrivals, messages and deletions are undone with the application's own work."""
    await durable.arrive("old", "input", 1)
    client = durable.joined(connection)
    await client.arrive("order/1", "input", 1)
    await client.deliver("order/2", 1)
    assert await client.delete("old") == 1
    await connection.rollback()
    assert [(listed.workflow, listed.state) for listed in await durable.workflows()] == [("old", "ready")]


async def test_joined_needs_an_open_transaction(durable: PostgresDurable, connection: Connection) -> None:
    """[DUR-JOINED] On a connection in autocommit it would be a commit of its own: refused; so is another isolation."""
    await connection.set_autocommit(True)
    with pytest.raises(Misconfigured, match="transaction open"):
        await durable.joined(connection).arrive("w", "k", 1)
    async with connection.transaction():
        await durable.joined(connection).arrive("w", "k", 1)
    await connection.set_autocommit(False)
    await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    with pytest.raises(Misconfigured, match="READ COMMITTED"):
        await durable.joined(connection).arrive("w", "k", 1)


async def test_joined_refuses_what_a_durable_refuses(durable: PostgresDurable, connection: Connection) -> None:
    """[DUR-JOINED] Before anything is written, so that the transaction goes on."""
    client = durable.joined(connection)
    with pytest.raises(ReservedKey):
        await client.arrive("w", "outcome:", 1)
    with pytest.raises(NotEncodable):
        await client.arrive("w", "k", {1, 2})
    await client.arrive("w", "k", 1)
    await connection.commit()
    assert await durable.checkpointer.load("w") == {"k": 1}


async def test_joined_is_bounded(durable: PostgresDurable, connection: Connection) -> None:
    """[DUR-JOINED] The position locks of a transaction live in the server's memory: the 1 001st workflow is refused by name."""
    client = durable.joined(connection)
    for number in range(1_000):
        await client.arrive(f"w{number}", "k", 1)
    await client.arrive("w7", "again", 1)
    with pytest.raises(Misconfigured, match="'one more'"):
        await client.arrive("one more", "k", 1)
    await connection.commit()
    assert len(await durable.begin(NOW, LONG, limit=2_000)) == 1_000


async def test_joined_what_is_held_until_the_commit(
    durable: PostgresDurable, other: PostgresDurable, connection: Connection
) -> None:
    """[CKP-RECORD-CONCURRENT] [CKP-CLAIM-REFUSED] While the application holds one workflow: records of its pass wait, renewals do
    not, claims of it are refused after a while, and records of other workflows through the same store return.
    """
    await durable.arrive("held", "input", 1)
    await durable.arrive("free", "input", 1)
    turns = {turn.holder.workflow: turn for turn in await durable.begin(NOW, LONG, limit=2)}
    await durable.joined(connection).arrive("held", "answer", "yes")
    waiting = asyncio.ensure_future(durable.checkpointer.record(turns["held"].holder, "k", 1))
    async with asyncio.timeout(20):
        for number in range(20):
            assert (await durable.checkpointer.record(turns["free"].holder, f"k{number}", 1)).first
        assert await durable.renew(turns["held"])
        assert await other.checkpointer.claim("held", LONG, LONG) is None
    assert not waiting.done()
    await connection.commit()
    async with asyncio.timeout(20):
        assert (await waiting).first
    assert list(await durable.checkpointer.load("held")) == ["input", "answer", "k"]


async def test_joined_a_fleet_records_beside_an_open_transaction_on_a_pool_of_one(
    durable: PostgresDurable, connection: Connection, url: str
) -> None:
    """[CKP-RECORD-CONCURRENT] Also where there is one connection: a record that waits holds none."""
    pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(url, min_size=1, max_size=1, open=False)
    async with pool, PostgresDurable.on(pool) as small:
        holder = await small.checkpointer.claim("held", LONG, LONG)
        assert holder is not None
        await durable.joined(connection).arrive("held", "answer", "yes")
        waiting = asyncio.ensure_future(small.checkpointer.record(holder, "k", 1))
        async with asyncio.timeout(20):
            for number in range(10):
                assert (await small.checkpointer.supply("free", f"k{number}", 1)).first
        assert not waiting.done()
        await connection.commit()
        async with asyncio.timeout(20):
            assert (await waiting).first


async def test_joined_nudge_wakes_takers_of_other_processes(
    durable: PostgresDurable, other: PostgresDurable, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[DUR-JOINED] After the commit `nudge` has them look at once, here and elsewhere."""
    monkeypatch.setattr(_bell, "TOLD_POLL", 1000.0)
    monkeypatch.setattr(_bell, "UNTOLD_POLL", 1000.0)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        waiting = group.create_task(other.begin(LONG, LONG))
        while not other.checkpointer.bell.told:  # noqa: ASYNC110 - the server's word
            await asyncio.sleep(0.01)
        await durable.joined(connection).arrive("w", "input", 1)
        await connection.commit()
        durable.nudge()
    assert len(waiting.result()) == 1
