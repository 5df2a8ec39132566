"""When the server is the trouble: the true error, nothing half done, and on it goes by itself."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from durable_conformance import servers
from durable_conformance.proxy import Proxy
from durable_core.client import start
from durable_core.contract import Finished, Pass, Recorded
from durable_core.run import Run
from durable_core.worker import Worker
from durable_postgres import PostgresDurable, SqlEffect

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
MakePool = Callable[..., AbstractAsyncContextManager[Pool]]
Cursor = AsyncCursor[TupleRow]
T = TypeVar("T")
NOW = timedelta(0)
LONG = timedelta(hours=1)
LOST = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)


@asynccontextmanager
async def opened(url: str, size: int = 4, **options: object) -> AsyncGenerator[PostgresDurable]:
    kwargs = {"autocommit": True, **options}
    pool: Pool = AsyncConnectionPool(url, min_size=1, max_size=size, open=False, timeout=30, kwargs=kwargs)
    async with pool, PostgresDurable.on(pool, lease=timedelta(seconds=3)) as durable:
        yield durable


async def claimed(durable: PostgresDurable, workflow: str = "w") -> Pass:
    holder = await durable.checkpointer.claim(workflow, LONG, LONG)
    assert holder is not None
    return holder


async def until(call: Callable[[], Awaitable[T]], seconds: float = 30) -> T:
    """Ask again until the server is there."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                return await call()
            except LOST:
                await asyncio.sleep(0.05)


def counter(connection: psycopg.Connection[TupleRow]) -> None:
    connection.execute("CREATE TABLE tally (workflow text, key text)")


def tallying(workflow: str, key: str) -> SqlEffect:
    async def effect(cursor: Cursor) -> object:
        await cursor.execute("INSERT INTO tally VALUES (%s, %s)", (workflow, key))
        return key

    return effect


async def tallied(run: Run[SqlEffect]) -> object:
    async def two() -> int:
        return 2

    first = await run.transact("one", tallying(run.workflow, "one"), str)
    second = await run.step("two", two, int)
    return [first, second, await run.transact("three", tallying(run.workflow, "three"), str)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [150, pytest.param(1_000, marks=pytest.mark.slow)])
async def test_restart_in_the_middle_of_many_workflows(own: servers.PostgresServer, count: int) -> None:
    """The server is restarted, and killed, while a worker is at a thousand workflows: all end, every effect is applied once."""
    with psycopg.connect(own.url, autocommit=True) as operator:
        counter(operator)
    async with opened(own.url, 8) as durable, asyncio.TaskGroup() as group:
        for number in range(count):
            await start(durable, f"job/{number}", number)
        worker = Worker(durable, limit=40)
        working = group.create_task(worker.run({"job": tallied}))

        async def ended() -> int:
            async with durable.checkpointer.pool.connection() as connection:
                found = await connection.execute("SELECT count(*) FROM workflow_checkpoint WHERE key = 'outcome:'")
                return int((await found.fetchall())[0][0])

        for some, trouble in ((count // 10, own.restart), (count // 3, own.kill), (count // 2, own.restart)):
            while await until(ended) < some:  # noqa: ASYNC110 - the server's word
                await asyncio.sleep(0.05)
            await asyncio.to_thread(trouble)
            if not own.running:
                await asyncio.to_thread(own.start)
        async with asyncio.timeout(150):
            while await until(ended) != count:  # noqa: ASYNC110 - the server's word
                await asyncio.sleep(0.1)
        working.cancel()
        assert await durable.result("job/7") == Finished(["one", 2, "three"])
    with psycopg.connect(own.url) as operator:
        rows = operator.execute("SELECT count(*), count(DISTINCT (workflow, key)) FROM tally").fetchone()
    assert rows == (2 * count, 2 * count)


@pytest.mark.timeout(180)
async def test_transact_atomic_the_server_is_killed_around_the_commit(own: servers.PostgresServer) -> None:
    """[CKP-TRANSACT-ATOMIC] [CKP-TRANSACT-ONCE] SIGKILL at twenty random moments of transacts, fsync on: effect and record are
    both there or both not, and none is there twice.
    """
    chance = random.Random(20)
    with psycopg.connect(own.url, autocommit=True) as operator:
        counter(operator)
    async with opened(own.url) as durable:
        holders = [await claimed(durable, f"w{number}") for number in range(4)]
        for round_ in range(20):
            over = asyncio.Event()

            async def many(holder: Pass, round_: int = round_, over: asyncio.Event = over) -> None:
                for number in range(1_000):
                    if over.is_set():
                        return
                    key = f"{round_}/{number}"
                    try:
                        await durable.checkpointer.transact(holder, key, tallying(holder.workflow, key))
                    except LOST:
                        return

            tasks = [asyncio.ensure_future(many(holder)) for holder in holders]
            await asyncio.sleep(0.02 + chance.random() * 0.05)
            own.kill()
            own.start()
            over.set()
            await asyncio.wait(tasks)
            for task in tasks:
                task.result()
        with psycopg.connect(own.url) as operator:
            applied = {(str(w), str(k)) for w, k in operator.execute("SELECT workflow, key FROM tally").fetchall()}
            rows = operator.execute("SELECT count(*) FROM tally").fetchone()
        recorded: set[tuple[str, str]] = set()
        for holder in holders:
            records = await until(partial(durable.checkpointer.load, holder.workflow))
            recorded |= {(holder.workflow, key) for key in records}
        assert applied == recorded
        assert rows == (len(applied),)
        assert len(applied) > 20


@pytest.mark.parametrize("part", [b"workflow_transact_v1", b"INSERT INTO tally", b"workflow_transacted_v1"])
@pytest.mark.parametrize("lost", ["request", "reply"])
async def test_transact_once_a_connection_lost_at_each_flight(
    server: servers.PostgresServer, url: str, operator: psycopg.Connection[TupleRow], part: bytes, lost: str
) -> None:
    """[CKP-TRANSACT-ONCE] The connection is lost before or after the server did what a flight says: repeated, it lands once."""
    counter(operator)
    with Proxy(server.url) as proxy:
        at = url.replace(f":{server.port}/", f":{proxy.port}/")
        async with opened(at, prepare_threshold=None) as durable:
            holder = await claimed(durable)
            fault = proxy.lose_reply(part) if lost == "reply" else proxy.lose_request(part)
            with pytest.raises(LOST):
                await durable.checkpointer.transact(holder, "k", tallying("w", "k"))
            assert fault.struck
            assert await durable.checkpointer.transact(holder, "k", tallying("w", "k")) == "k"
            assert await durable.checkpointer.transact(holder, "k", tallying("w", "k")) == "k"
    assert operator.execute("SELECT count(*) FROM tally").fetchone() == (1,)


@pytest.mark.parametrize("call", ["record", "arrive", "finish"])
async def test_a_reply_that_is_lost_is_safe_to_repeat(server: servers.PostgresServer, url: str, call: str) -> None:
    """[ANY-REPEAT] A write whose reply nobody heard is an error, and repeating it gives what the first one did."""
    with Proxy(server.url) as proxy:
        at = url.replace(f":{server.port}/", f":{proxy.port}/")
        async with opened(at, prepare_threshold=None) as durable:
            await durable.arrive("w", "input", 1)
            (turn,) = await durable.begin(NOW, LONG)
            calls: dict[str, Callable[[], Awaitable[Recorded]]] = {
                "record": lambda: durable.checkpointer.record(turn.holder, "k", 1),
                "arrive": lambda: durable.arrive("w", "answer", 1),
                "finish": lambda: durable.finish(turn, 1),
            }
            made = calls[call]
            fault = proxy.lose_reply(f"workflow_{call}_v1".encode())
            with pytest.raises(LOST):
                await made()
            assert fault.struck
            assert (await made()).first


async def test_terminated_in_an_effect(durable: PostgresDurable, operator: psycopg.Connection[TupleRow]) -> None:
    """A backend that is terminated while an effect runs: the server's word for it, nothing applied, and the store goes on."""
    counter(operator)
    holder = await claimed(durable)

    async def effect(cursor: Cursor) -> object:
        await cursor.execute("INSERT INTO tally VALUES ('w', 'k')")
        operator.execute("SELECT pg_terminate_backend(%s, 5000)", (cursor.connection.info.backend_pid,))
        await cursor.execute("SELECT 1")
        return "done"

    with pytest.raises(psycopg.OperationalError):
        await durable.checkpointer.transact(holder, "k", effect)
    assert operator.execute("SELECT count(*) FROM tally").fetchone() == (0,)
    assert await durable.checkpointer.transact(holder, "k", tallying("w", "k")) == "k"


@pytest.mark.parametrize("setting", ["statement_timeout", "idle_in_transaction_session_timeout"])
async def test_timeouts_of_the_database(make_pool: MakePool, operator: psycopg.Connection[TupleRow], setting: str) -> None:
    """An effect that runs into a timeout of the database fails by its name, is undone, and the pass goes on."""
    counter(operator)
    async with make_pool(2, options=f"-c {setting}=200") as pool, PostgresDurable.on(pool) as durable:
        holder = await claimed(durable)

        async def effect(cursor: Cursor) -> object:
            await cursor.execute("INSERT INTO tally VALUES ('w', 'k')")
            if setting == "statement_timeout":
                await cursor.execute("SELECT pg_sleep(20)")
            await asyncio.sleep(0.5)
            await cursor.execute("SELECT 1")
            return "done"

        with pytest.raises(psycopg.Error, match="timeout"):
            await durable.checkpointer.transact(holder, "k", effect)
        assert operator.execute("SELECT count(*) FROM tally").fetchone() == (0,)
        assert (await durable.checkpointer.record(holder, "k", 1)).first


async def test_too_many_connections(own: servers.PostgresServer) -> None:
    """Where the server takes no more connections a call fails by the pool's timeout, and works when there is room again."""
    async with opened(own.url) as durable:
        await durable.arrive("w", "input", 1)
    taken: list[psycopg.Connection[TupleRow]] = []
    pool: Pool = AsyncConnectionPool(own.url, min_size=0, max_size=2, open=False, timeout=1, reconnect_timeout=30)
    async with pool:
        store = PostgresDurable.on(pool)
        try:
            while True:
                taken.append(psycopg.connect(own.url))
        except psycopg.OperationalError:
            pass
        with pytest.raises(PoolTimeout):
            await store.checkpointer.load("w")
        for connection in taken:
            connection.close()
        assert await until(lambda: store.checkpointer.load("w")) == {"input": 1}
        await store.aclose()


async def test_a_standby_is_read_only(own: servers.PostgresServer) -> None:
    """A standby takes no write: the server's word for it, and reads go on; once it is promoted the same store writes."""
    async with opened(own.url) as durable:
        await durable.arrive("w", "input", 1)
    (folder,) = own.query("SHOW data_directory")[0]
    own.stop()
    await asyncio.to_thread(Path(str(folder), "standby.signal").touch)
    own.start()
    async with opened(own.url) as durable:  # it verifies, and finds what it needs
        assert await durable.checkpointer.load("w") == {"input": 1}
        for call in (
            durable.arrive("w", "k", 1),
            durable.begin(NOW, LONG),
            durable.checkpointer.supply("w", "k", 1),
            durable.checkpointer.claim("w", LONG, LONG),
        ):
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await call
        own.query("SELECT pg_promote()")
        assert (await durable.arrive("w", "k", 1)).first


async def test_a_value_that_the_server_refuses_disturbs_nobody(
    durable: PostgresDurable, operator: psycopg.Connection[TupleRow]
) -> None:
    """[CKP-RECORD-CONCURRENT] One item of a group that the database refuses fails alone, with the database's own error."""
    operator.execute("ALTER TABLE workflow_checkpoint ADD CHECK (value NOT LIKE '%bad%')")
    holder = await claimed(durable)
    tasks = [
        asyncio.ensure_future(durable.checkpointer.record(holder, f"k{number}", "bad" if number == 7 else number))
        for number in range(20)
    ]
    await asyncio.wait(tasks)
    assert isinstance(tasks[7].exception(), psycopg.errors.CheckViolation)
    assert all(task.result().first for number, task in enumerate(tasks) if number != 7)
    assert len(await durable.checkpointer.load("w")) == 19


async def test_a_group_goes_in_one_statement(durable: PostgresDurable, operator: psycopg.Connection[TupleRow]) -> None:
    """[CKP-RECORD-CONCURRENT] Twenty branches of four passes, woken together, are one commit, and a lone step is one."""
    holders = [await claimed(durable, f"w{number}") for number in range(4)]
    operator.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    calls = b"""
        SELECT coalesce(sum(calls) FILTER (WHERE query LIKE '%record_group%'), 0)::int,
               coalesce(sum(calls) FILTER (WHERE query LIKE '%workflow_record_v1(%'), 0)::int
        FROM pg_stat_statements JOIN pg_database d ON d.oid = dbid WHERE datname = current_database() AND toplevel
    """
    before = operator.execute(calls).fetchone()
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(durable.checkpointer.record(holders[number % 4], f"k{number}", number))
    await durable.checkpointer.record(holders[0], "lone", 1)
    after = operator.execute(calls).fetchone()
    assert before is not None
    assert after is not None
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)
