"""What the tests share: a server, an empty database on it, a pool and a store, as an application has them."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from durable_conformance import servers
from durable_conformance.servers.fixtures import or_say_so
from durable_postgres import PostgresDurable

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
SETTINGS = {"shared_preload_libraries": "pg_stat_statements", "max_prepared_transactions": "5", "deadlock_timeout": "100ms"}
LEASE = timedelta(seconds=30)


@pytest.fixture(scope="session")
def server() -> Iterator[servers.PostgresServer]:
    """A server of the run's own; not to be killed, see `own`."""
    with or_say_so(servers.postgres(settings=SETTINGS)) as given:
        yield given


@pytest.fixture
def own() -> Iterator[servers.PostgresServer]:
    """A server of the test's own, to be killed."""
    with or_say_so(servers.postgres()) as given:
        yield given


@pytest.fixture
def url(server: servers.PostgresServer) -> Iterator[str]:
    """An empty database."""
    with servers.fresh_database(server) as given:
        yield given


@pytest.fixture
def operator(url: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """A connection of the database's operator."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def make_pool(url: str) -> Callable[..., AbstractAsyncContextManager[Pool]]:
    """Gives pools: of so many connections, on another address, with other options of a connection."""

    def make(size: int = 4, at: str = "", **options: object) -> AbstractAsyncContextManager[Pool]:
        pool: Pool = AsyncConnectionPool(
            at or url, min_size=1, max_size=size, open=False, timeout=20, kwargs={"autocommit": True, **options}
        )
        return pool

    return make


@pytest.fixture
async def pool(make_pool: Callable[..., AbstractAsyncContextManager[Pool]]) -> AsyncIterator[Pool]:
    """The application's pool."""
    async with make_pool() as given:
        yield given


@pytest.fixture
async def durable(pool: Pool) -> AsyncIterator[PostgresDurable]:
    """A store on the pool, open."""
    async with PostgresDurable.on(pool, lease=LEASE) as store:
        yield store


@pytest.fixture
async def other(
    make_pool: Callable[..., AbstractAsyncContextManager[Pool]], durable: PostgresDurable
) -> AsyncIterator[PostgresDurable]:
    """A second store in the same database, as another process has it."""
    async with make_pool() as pool, PostgresDurable.on(pool, lease=LEASE) as store:
        yield store
