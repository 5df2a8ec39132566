"""What each transition costs the server, beside a bare `INSERT … ON CONFLICT`: `pytest -s` on this file prints the table.

Statements come from pg_stat_statements, commits are transactions that write, by their numbers, round trips come from a proxy, and
bytes of the log from its position, on a server without full pages, where nobody else is.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import pytest
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from durable_conformance import servers
from durable_conformance.proxy import Proxy
from durable_conformance.servers.fixtures import or_say_so
from durable_core.contract import Turn
from durable_postgres import PostgresDurable
from durable_postgres._bell import Bell

SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    "full_page_writes": "off",
    "autovacuum": "off",
    "pg_stat_statements.track_utility": "on",
}
TIMES = 200
NOW = timedelta(0)
LONG = timedelta(hours=1)
BARE = """
CREATE TABLE bare (workflow text COLLATE "C", key text COLLATE "C", value text COLLATE "C", at timestamptz,
    PRIMARY KEY (workflow, key))
"""
INSERT = b"""
INSERT INTO bare VALUES (%s, %s, %s, clock_timestamp())
ON CONFLICT (workflow, key) DO UPDATE SET value = bare.value RETURNING value
"""
COUNTS = b"""
SELECT (SELECT sum(calls)::int FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
        WHERE datname = current_database() AND toplevel AND query NOT LIKE '%pg_stat%'),
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
       pg_current_wal_insert_lsn() - '0/0'
"""


@dataclass(frozen=True)
class Cost:
    """Of one call, on average."""

    trips: float
    statements: float
    commits: float
    bytes: float

    def __str__(self) -> str:
        return f"{self.trips:12.2f} {self.statements:12.2f} {self.commits:12.2f} {self.bytes:12.0f}"


class Meter:
    """Measures calls on a store that is reached through a proxy."""

    def __init__(self, durable: PostgresDurable, operator: psycopg.Connection[TupleRow], proxy: Proxy) -> None:
        self.durable, self._operator, self._proxy = durable, operator, proxy

    def _read(self) -> tuple[int, int, int]:
        row = self._operator.execute(COUNTS).fetchone()
        assert row is not None
        return int(row[0]), int(row[1]), int(row[2])

    async def cost(self, calls: Callable[[], Awaitable[None]], times: int = TIMES) -> Cost:
        """Give what one of so many calls costs."""
        before = self._read()
        trips = self._proxy.round_trips
        await calls()
        trips = self._proxy.round_trips - trips
        after = self._read()
        statements, commits, log = ((then - now) / times for then, now in zip(after, before, strict=True))
        return Cost(trips / times, statements, commits, log)


async def effect(cursor: AsyncCursor[TupleRow]) -> object:
    await cursor.execute("INSERT INTO mine VALUES (1)")
    return "done"


@pytest.fixture
def own() -> Iterator[servers.PostgresServer]:
    with or_say_so(servers.postgres(settings=SETTINGS)) as given:
        given.query("CREATE EXTENSION pg_stat_statements")
        yield given


@asynccontextmanager
async def metered(own: servers.PostgresServer, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Meter]:
    def silent(_: Bell, name: str) -> None:
        assert name  # hints are beside the calls

    monkeypatch.setattr(Bell, "_owe", silent)
    with Proxy(own.url) as proxy, psycopg.connect(own.url, autocommit=True) as operator:
        operator.execute(BARE.encode())
        operator.execute("CREATE TABLE mine (n int)")
        pool: AsyncConnectionPool[AsyncConnection[TupleRow]] = AsyncConnectionPool(
            proxy.url, min_size=1, max_size=1, open=False, kwargs={"autocommit": True}
        )
        async with pool, PostgresDurable.on(pool, lease=LONG) as durable:
            yield Meter(durable, operator, proxy)


async def measured(meter: Meter) -> dict[str, Cost]:
    """Walk many workflows through their lives, one kind of call after the other."""
    durable = meter.durable
    turns: list[Turn] = []

    async def bare(first: int = 0, times: int = TIMES) -> None:
        async with durable.checkpointer.pool.connection() as connection:
            for number in range(first, first + times):
                await (await connection.execute(INSERT, ("w", f"s{number:06}", '{"ok":1}'), binary=True)).fetchall()

    async def start() -> None:
        for number in range(TIMES):
            await durable.arrive(f"w{number}", "input", {"ok": 1})

    async def begin() -> None:
        for _ in range(TIMES):
            turns.extend(await durable.begin(NOW, LONG))

    async def step() -> None:
        for number in range(TIMES):
            await durable.checkpointer.record(turns[0].holder, f"s{number:06}", {"ok": 1})

    async def renew() -> None:
        for turn in turns:
            await durable.renew(turn)

    async def transact() -> None:
        for number in range(TIMES):
            await durable.checkpointer.transact(turns[1].holder, f"t{number:06}", effect)

    async def finish() -> None:
        for turn in turns:
            await durable.finish(turn, {"ok": 1})

    async def start_again() -> None:
        for number in range(TIMES):
            await durable.scheduler.make_ready(f"v{number}")

    await bare(TIMES, 20)  # prepared by now
    table = {"bare insert": await meter.cost(bare)}
    for call in (start, begin, step, renew, transact, finish):
        table[call.__name__] = await meter.cost(call)
    await start_again()
    turns.clear()

    async def batch() -> None:
        turns.extend(await durable.begin(NOW, LONG, limit=TIMES))

    table["begin, of a batch"] = await meter.cost(batch)
    return table


async def test_costs_of_each_transition(own: servers.PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step, a start, a begin, a renewal and an end are one statement, one round trip and one commit each."""
    async with metered(own, monkeypatch) as meter:
        table = await measured(meter)
    print(f"\n{'':20} {'round trips':>12} {'statements':>12} {'commits':>12} {'log bytes':>12}")
    for name, cost in table.items():
        print(f"{name:20} {cost}")
    for name in ("bare insert", "start", "begin", "step", "renew", "finish"):
        assert (table[name].statements, table[name].commits) == (1, 1), name
        assert table[name].trips <= 1 + 1 / TIMES, name  # the driver prepares each statement once
    assert (int(table["transact"].trips), table["transact"].commits) == (4, 1)
    assert table["begin, of a batch"].trips == 1 / TIMES
    assert table["step"].bytes <= 1.4 * table["bare insert"].bytes
