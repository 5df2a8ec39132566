"""What each call costs in round trips, counted on the wire."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import psycopg
import pytest
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from durable_conformance import servers
from durable_conformance.proxy import Proxy
from durable_postgres import PostgresDurable
from durable_postgres._bell import Bell

NOW = timedelta(0)
LONG = timedelta(hours=1)
Cursor = AsyncCursor[TupleRow]


@pytest.fixture
def proxy(server: servers.PostgresServer) -> Iterator[Proxy]:
    with Proxy(server.url) as given:
        yield given


@pytest.fixture(autouse=True)
def no_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints are beside the calls, and not counted."""

    def silent(_: Bell, name: str) -> None:
        assert name

    monkeypatch.setattr(Bell, "_owe", silent)


@pytest.fixture(params=["read committed", "repeatable read"])
async def counted(
    request: pytest.FixtureRequest, server: servers.PostgresServer, url: str, operator: psycopg.Connection[TupleRow], proxy: Proxy
) -> AsyncIterator[PostgresDurable]:
    """A store behind a proxy that counts, under two defaults of the database; it has made each call a few times."""
    operator.execute(f"ALTER DATABASE {operator.info.dbname} SET default_transaction_isolation = '{request.param}'".encode())
    at = url.replace(f":{server.port}/", f":{proxy.port}/")
    pool: AsyncConnectionPool[AsyncConnection[TupleRow]] = AsyncConnectionPool(
        at, min_size=1, max_size=2, open=False, kwargs={"autocommit": True}
    )
    async with pool, PostgresDurable.on(pool) as durable:
        yield durable


async def effect(cursor: Cursor) -> object:
    await cursor.execute("SELECT 1")
    return "done"


async def test_round_trips_of_a_workflow(counted: PostgresDurable, proxy: Proxy) -> None:
    """One for each step, one to begin, one to finish, four for a transact with one statement, at any isolation."""
    costs: dict[str, int] = {}
    for number in range(8):  # the driver prepares a statement at its sixth use
        before = proxy.round_trips

        def spent(name: str) -> None:
            nonlocal before
            costs[name], before = proxy.round_trips - before, proxy.round_trips

        workflow = f"w{number}"
        await counted.arrive(workflow, "input", 1)
        spent("arrive")
        (turn,) = await counted.begin(NOW, LONG)
        spent("begin")
        await counted.checkpointer.record(turn.holder, "k", 1)
        spent("record")
        assert await counted.renew(turn)
        spent("renew")
        await counted.checkpointer.transact(turn.holder, "t", effect)
        spent("transact")
        await counted.finish(turn, 1)
        spent("finish")
    assert costs == {"arrive": 1, "begin": 1, "record": 1, "renew": 1, "transact": 4, "finish": 1}
