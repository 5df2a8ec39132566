"""The harnesses of durable-postgres: on its own server, in the settings that applications have."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from typing import ClassVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from durable_conformance import Application, Effects, Harness, Hook, Meter, Opening, Stores, servers
from durable_core.contract import Client, Durable
from durable_postgres import PostgresCheckpointer, PostgresDurable, PostgresScheduler, SqlEffect
from durable_postgres.schema import printed

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]

COUNTERS = "CREATE TABLE IF NOT EXISTS {}.counter (name text PRIMARY KEY, times bigint NOT NULL)"
ADD = "INSERT INTO {}.counter VALUES (%s, 1) ON CONFLICT (name) DO UPDATE SET times = counter.times + 1"
WORK = """
SELECT coalesce(sum(calls), 0), coalesce(sum(shared_blks_hit + shared_blks_read), 0) FROM pg_stat_statements
WHERE query LIKE '%{}%' AND query NOT LIKE '%pg_stat_statements%' AND toplevel
"""


class PostgresEffects(Effects[SqlEffect]):
    """Effects on a table of the application's, in the same schema."""

    def __init__(self, url: str, schema: str) -> None:
        self._url, self._schema = url, schema
        self._add = ADD.format(schema).encode()

    def add(self, counter: str, gives: object, /) -> SqlEffect:
        async def effect(cursor: AsyncCursor[TupleRow]) -> object:
            await cursor.execute(self._add, (counter,))
            return gives

        return effect

    def fail(self, counter: str, /, *, first: bool) -> SqlEffect:
        async def effect(cursor: AsyncCursor[TupleRow]) -> object:
            if not first:
                await cursor.execute(self._add, (counter,))
            raise ZeroDivisionError("the effect failed")

        return effect

    async def applied(self, counter: str, /) -> int:
        async with await AsyncConnection.connect(self._url, autocommit=True, prepare_threshold=None) as connection:
            statement = f"SELECT times FROM {self._schema}.counter WHERE name = %s".encode()
            found = await (await connection.execute(statement, (counter,))).fetchone()
        return 0 if found is None else int(found[0])

    def commit(self, counter: str, /) -> SqlEffect:
        async def effect(cursor: AsyncCursor[TupleRow]) -> object:
            await cursor.execute(self._add, (counter,))
            await cursor.execute("COMMIT")
            return "committed"

        return effect

    def swallow(self, counter: str, /) -> SqlEffect:
        async def effect(cursor: AsyncCursor[TupleRow]) -> object:
            await cursor.execute(self._add, (counter,))
            try:
                await cursor.execute("SELECT 1 / 0")
            except psycopg.Error:
                pass
            return "swallowed"

        return effect

    def meanwhile(self, counter: str, call: Callable[[], Awaitable[object]], /) -> SqlEffect:
        async def effect(cursor: AsyncCursor[TupleRow]) -> object:
            await cursor.execute(self._add, (counter,))
            await call()
            return "meanwhile"

        return effect

    def inside(self, counter: str, call: Callable[[], object], /) -> SqlEffect:
        async def effect(cursor: AsyncCursor[TupleRow]) -> object:
            await cursor.execute(self._add, (counter,))
            call()
            return "inside"

        return effect


class PostgresApplication:
    """A transaction of the application's on a connection of its own."""

    def __init__(self, durable: PostgresDurable, connection: AsyncConnection[TupleRow]) -> None:
        self._durable, self._connection = durable, connection

    @property
    def client(self) -> Client:
        return self._durable.joined(self._connection)

    async def commit(self) -> None:
        await self._connection.commit()
        self._durable.nudge()

    async def rollback(self) -> None:
        await self._connection.rollback()


class PostgresMeter:
    """Counts the statements that name the case's schema, and the pages that they looked at."""

    def __init__(self, server: servers.PostgresServer, schema: str) -> None:
        self._server, self._schema = server, schema
        self._before = self._read()

    def _read(self) -> tuple[int, int]:
        ((calls, pages),) = self._server.query(WORK.format(self._schema))
        return int(calls or 0), int(pages or 0)

    @property
    def asked(self) -> int:
        return self._read()[0] - self._before[0]

    @property
    def touched(self) -> int:
        return self._read()[1] - self._before[1]


class PostgresHarness(Harness[SqlEffect]):
    """A `PostgresDurable` in a schema of the case's own, on a server of the run's own."""

    name = "Postgres"
    offers: ClassVar[frozenset[Hook]] = frozenset(
        {"codec", "queues", "effects", "restart", "kill", "processes", "skew", "joined", "halves", "meter"}
    )
    lacks: ClassVar[Mapping[Hook, str]] = {
        "wire": "its client never repeats a statement",
        "loss": "a claim's row cannot be lost",
        "retention": "nothing expires",
        "clock": "its clock is the server's",
    }
    settings: ClassVar[dict[str, str]] = {
        "shared_preload_libraries": "pg_stat_statements",
        "max_connections": "200",
        "deadlock_timeout": "100ms",
    }
    options: ClassVar[dict[str, object]] = {"autocommit": True}
    connections: ClassVar[int] = 5

    def __init__(self) -> None:
        self._exits = ExitStack()
        self._server: servers.PostgresServer | None = None

    @property
    def server(self) -> servers.PostgresServer:
        """The server of the run; a child process has none."""
        assert self._server is not None
        return self._server

    def start(self) -> str:
        self._server = self._exits.enter_context(servers.postgres(settings=self.settings))
        self._server.query("CREATE EXTENSION pg_stat_statements")
        return self.reached(self._server)

    def reached(self, server: servers.PostgresServer) -> str:
        """Give the address by which the store reaches the server."""
        return server.url

    def enter(self, manager: AbstractContextManager[servers.PgBouncerServer]) -> servers.PgBouncerServer:
        """Have something else run until the run ends."""
        return self._exits.enter_context(manager)

    def stop(self) -> None:
        self._exits.close()

    def pool(self, at: Opening) -> Pool:
        """Give a pool as an application has one."""
        return AsyncConnectionPool(at.address, min_size=1, max_size=self.connections, open=False, kwargs=self.options, timeout=20)

    def built(self, at: Opening, pool: Pool) -> PostgresDurable:
        """Give an instance in the case's schema."""
        return PostgresDurable.on(pool, schema=at.name, queue=at.queue, lease=at.lease, codec=at.codec)

    @asynccontextmanager
    async def open(self, at: Opening, /) -> AsyncGenerator[Stores[SqlEffect]]:
        async with self.pool(at) as pool, self.built(at, pool) as durable:
            async with pool.connection() as connection:
                await connection.execute(COUNTERS.format(at.name).encode())
            yield self.given(durable)

    def given(self, durable: PostgresDurable) -> Stores[SqlEffect]:
        """Give what `open` gives of an instance."""
        return durable

    def effects(self, at: Opening, /) -> PostgresEffects:
        return PostgresEffects(at.address, at.name)

    async def restart(self, at: Opening, /) -> None:
        self.server.restart()

    async def kill(self, at: Opening, /) -> None:
        self.server.kill()
        self.server.start()

    @asynccontextmanager
    async def application(self, at: Opening, /) -> AsyncGenerator[Application]:
        async with self.pool(at) as pool, self.built(at, pool) as durable:
            async with await AsyncConnection.connect(at.address, prepare_threshold=None) as connection:
                await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
                yield PostgresApplication(durable, connection)
                await connection.rollback()

    @asynccontextmanager
    async def mismatched(self, at: Opening, /) -> AsyncGenerator[Callable[[], object]]:
        async with self.pool(at) as one, self.pool(at) as other:
            yield lambda: PostgresDurable(PostgresCheckpointer(one, schema=at.name), PostgresScheduler(other, schema=at.name))

    @asynccontextmanager
    async def meter(self, at: Opening, stores: Durable[SqlEffect], /) -> AsyncGenerator[Meter]:
        yield PostgresMeter(self.server, at.name)


class SplitPostgresHarness(PostgresHarness):
    """Two halves, each by itself, as a stranger would give them: the kit puts them together."""

    name = "Postgres, split"
    offers = PostgresHarness.offers - {"joined", "halves"}

    def given(self, durable: PostgresDurable) -> Stores[SqlEffect]:
        return durable.checkpointer, durable.scheduler


class PreparedHarness(PostgresHarness):
    """A schema that an operator has made, and a store that makes none."""

    def schema(self, name: str) -> str:
        """Give what the operator runs, in one transaction."""
        return printed(name)

    @asynccontextmanager
    async def open(self, at: Opening, /) -> AsyncGenerator[Stores[SqlEffect]]:
        async with await AsyncConnection.connect(at.address, autocommit=True, prepare_threshold=None) as operator:
            async with operator.transaction():
                await operator.execute("SELECT pg_advisory_xact_lock(8)")
                found = await operator.execute("SELECT to_regnamespace(quote_ident(%s))", (at.name,))
                if await found.fetchone() == (None,):
                    await operator.execute(self.schema(at.name).removeprefix("BEGIN;").removesuffix("COMMIT;").encode())
        async with super().open(at) as stores:
            yield stores

    def built(self, at: Opening, pool: Pool) -> PostgresDurable:
        return PostgresDurable.on(pool, schema=at.name, queue=at.queue, lease=at.lease, codec=at.codec, create=False)


class PartitionedHarness(PreparedHarness):
    """Tables in eight partitions by hash of the workflow."""

    name = "Postgres, partitioned"

    def schema(self, name: str) -> str:
        return printed(name, partitions=8)


class CitusHarness(PreparedHarness):
    """Records and claims distributed by workflow over the shards of a Citus node, wakeups on the coordinator: see the how-to."""

    name = "Postgres, Citus"
    settings: ClassVar[dict[str, str]] = {
        **PostgresHarness.settings,
        "shared_preload_libraries": "citus,pg_stat_statements",
        "citus.shard_count": "4",
    }

    def start(self) -> str:
        address = super().start()
        self.server.query("CREATE EXTENSION citus")
        return address

    def schema(self, name: str) -> str:
        text = printed(name).removesuffix("COMMIT;")
        return f"""{text}
            SELECT create_distributed_table('{name}.workflow_checkpoint', 'workflow');
            SELECT create_distributed_table('{name}.workflow_claim', 'workflow', colocate_with => '{name}.workflow_checkpoint');
        """


class RepeatableReadHarness(PostgresHarness):
    """A database whose default isolation is REPEATABLE READ, and pools that are not in autocommit."""

    name = "Postgres, REPEATABLE READ by default"
    settings: ClassVar[dict[str, str]] = {**PostgresHarness.settings, "default_transaction_isolation": "repeatable read"}
    options: ClassVar[dict[str, object]] = {}


class SerializableHarness(PostgresHarness):
    """A database whose default isolation is SERIALIZABLE."""

    name = "Postgres, SERIALIZABLE by default"
    settings: ClassVar[dict[str, str]] = {**PostgresHarness.settings, "default_transaction_isolation": "serializable"}


class PoolOfOneHarness(PostgresHarness):
    """A pool with one connection."""

    name = "Postgres, a pool of one"
    connections = 1


class PgBouncerHarness(PostgresHarness):
    """Through pgbouncer in transaction mode, with two connections to the server for everybody. Case 112."""

    name = "Postgres, through pgbouncer"
    options: ClassVar[dict[str, object]] = {"autocommit": True, "prepare_threshold": None}

    def reached(self, server: servers.PostgresServer) -> str:
        settings = {"default_pool_size": "2", "max_client_conn": "500"}
        return self.enter(servers.pgbouncer(server, pool_mode="transaction", settings=settings)).url
