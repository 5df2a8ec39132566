"""The hint that something is there: it comes from other processes, and nothing hangs on it. [SCH-NEXT-WAIT]"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from durable_conformance import servers
from durable_conformance.servers.fixtures import or_say_so
from durable_core.contract import Finished
from durable_postgres import PostgresDurable, _bell

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
MakePool = Callable[..., AbstractAsyncContextManager[Pool]]
NOW = timedelta(0)
LONG = timedelta(hours=1)


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by himself: what is seen was told."""
    monkeypatch.setattr(_bell, "TOLD_POLL", 1000.0)
    monkeypatch.setattr(_bell, "UNTOLD_POLL", 1000.0)


async def listens(durable: PostgresDurable) -> None:
    while not durable.checkpointer.bell.told:  # noqa: ASYNC110 - the server's word
        await asyncio.sleep(0.01)


async def test_hint_wakeups_and_results_of_another_process(
    durable: PostgresDurable, other: PostgresDurable, no_poll: None
) -> None:
    """[SCH-NEXT-WAIT] [DUR-RESULT] A taker hears of an arrival elsewhere, and a client elsewhere of the end."""
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        begun = group.create_task(durable.begin(LONG, LONG))
        watched = group.create_task(other.watch("w", LONG))
        await listens(durable)
        await listens(other)
        await other.arrive("w", "input", 1)
        (turn,) = await begun
        await durable.finish(turn, "done")
        await watched
    assert await other.result("w") == Finished("done")
    description = await other.describe()
    assert description.poll == timedelta(seconds=1000)


@pytest.mark.usefixtures("no_poll")
async def test_hint_a_sleeper_wakes_by_itself(durable: PostgresDurable) -> None:
    """[SCH-NEXT-WAIT] An idle worker sleeps until the next due instant, which needs no hint and no poll."""
    await durable.arrive("w", "input", 1)
    (turn,) = await durable.begin(NOW, LONG)
    await durable.pause(turn, await durable.scheduler.now() + timedelta(milliseconds=100))
    async with asyncio.timeout(20):
        assert len(await durable.begin(LONG, LONG)) == 1


async def test_hint_listening_survives_a_lost_connection(
    durable: PostgresDurable, other: PostgresDurable, operator: psycopg.Connection[TupleRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the connection that listens is lost the store listens again, and looks by itself meanwhile."""
    monkeypatch.setattr(_bell, "_AGAIN", 0.01)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        begun = group.create_task(durable.begin(LONG, LONG))
        await listens(durable)
        operator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
        )
        while durable.checkpointer.bell.told:  # noqa: ASYNC110 - the server's word
            await asyncio.sleep(0.01)
        await listens(durable)
        await other.arrive("w", "input", 1)
        await begun


async def test_hint_a_small_pool_is_left_to_the_application(make_pool: MakePool, durable: PostgresDurable) -> None:
    """A pool of two has no connection for listening: the store polls, and says so."""
    async with make_pool(2) as pool, PostgresDurable.on(pool) as small:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            begun = group.create_task(small.begin(LONG, LONG))
            await asyncio.sleep(0)
            await durable.arrive("w", "input", 1)
            await begun
        assert (await small.describe()).poll == timedelta(seconds=_bell.UNTOLD_POLL)


async def test_hint_behind_a_pooler_it_polls(server: servers.PostgresServer, url: str, make_pool: MakePool) -> None:
    """Behind a pooler in transaction mode nothing listens on a connection that is somebody else's next: it polls, and says so."""
    with or_say_so(servers.pgbouncer(server, pool_mode="transaction", settings={"default_pool_size": "2"})) as bouncer:
        at = url.replace(f":{server.port}/", f":{bouncer.port}/")
        async with make_pool(4, at=at, prepare_threshold=None) as pool, PostgresDurable.on(pool) as durable:
            async with asyncio.timeout(30), asyncio.TaskGroup() as group:
                begun = group.create_task(durable.begin(LONG, LONG))
                async with make_pool(1) as direct, PostgresDurable.on(direct) as other:
                    await other.arrive("w", "input", 1)
                    await begun
            assert (await durable.describe()).poll == timedelta(seconds=_bell.UNTOLD_POLL)
    listening = "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen%' AND query NOT ILIKE '%pg_stat%'"
    assert server.query(listening) == [["0"]]


async def test_hint_gives_its_connection_back(make_pool: MakePool) -> None:
    """Closing the store gives all connections back to the pool, and none of them listens any more."""
    async with make_pool(3) as pool:
        async with PostgresDurable.on(pool) as durable:
            waiting = asyncio.ensure_future(durable.begin(LONG, LONG))
            await listens(durable)
            waiting.cancel()
            await asyncio.wait((waiting,))
        async with asyncio.timeout(20), pool.connection() as one, pool.connection() as two, pool.connection() as three:
            for connection in (one, two, three):
                assert await (await connection.execute("SELECT pg_listening_channels()")).fetchall() == []


@pytest.mark.usefixtures("no_poll")
async def test_hint_of_a_client_that_leaves_at_once(durable: PostgresDurable, make_pool: MakePool) -> None:
    """A client that closes right after its call has sent its hint."""
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        begun = group.create_task(durable.begin(LONG, LONG))
        await listens(durable)
        async with make_pool(2) as pool, PostgresDurable.on(pool) as client:
            await client.arrive("w", "input", 1)
        await begun


@pytest.mark.usefixtures("no_poll")
async def test_idle_worker_asks_seldom(durable: PostgresDurable, operator: psycopg.Connection[TupleRow]) -> None:
    """An idle taker that is told of work asks once, and not again until something happens."""
    waiting = asyncio.ensure_future(durable.begin(LONG, LONG))
    async with asyncio.timeout(20):
        await listens(durable)
    operator.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    calls = b"""
        SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements JOIN pg_database d ON d.oid = dbid
        WHERE query LIKE '%workflow_begin%' AND datname = current_database()
    """
    before = operator.execute(calls).fetchone()
    await asyncio.sleep(1.2)
    assert operator.execute(calls).fetchone() == before
    waiting.cancel()
    await asyncio.wait((waiting,))


class Losing(AsyncConnection[TupleRow]):
    """A connection that loses the first cancellation while it waits, as a client may on Python 3.11."""

    lost = 0

    async def wait(self, *args: object, **options: object) -> object:  # type: ignore[override]
        try:
            return await super().wait(*args, **options)  # type: ignore[arg-type] # pyright: ignore
        except asyncio.CancelledError:
            Losing.lost += 1
            if Losing.lost == 1:
                return []
            raise


async def test_hint_closing_does_not_wait_for_a_listener_that_missed_its_cancellation(url: str) -> None:
    """[SCH-NEXT-WAIT] A listener whose client lost the cancellation is cancelled again."""
    pool: Pool = AsyncConnectionPool(
        url, connection_class=Losing, min_size=1, max_size=4, open=False, kwargs={"autocommit": True}
    )
    async with asyncio.timeout(60), pool:
        async with PostgresDurable.on(pool) as durable:
            begun = asyncio.create_task(durable.begin(LONG, LONG))
            await listens(durable)
            begun.cancel()
            await asyncio.wait((begun,))
            Losing.lost = 0
            await durable.checkpointer.bell.aclose()
    assert Losing.lost > 0
