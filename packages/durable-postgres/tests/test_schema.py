"""The schema: applied once, verified without DDL, printed, under any name, partitioned."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

import durable_postgres
from durable_core.errors import SchemaMismatch
from durable_postgres import PostgresDurable
from durable_postgres.schema import migrations, printed

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
MakePool = Callable[..., AbstractAsyncContextManager[Pool]]
NOW = timedelta(0)
LONG = timedelta(hours=1)

PREPARE = """
import asyncio, sys, durable_postgres
async def main():
    sys.stdin.readline()
    for schema in sys.argv[2:]:
        async with durable_postgres.open(sys.argv[1], schema=schema, connections=1) as durable:
            await durable.arrive("w", "input", 1)
asyncio.run(main())
"""


async def used(durable: PostgresDurable) -> None:
    """One short life of a workflow."""
    await durable.arrive("w", "input", 1)
    (turn,) = await durable.begin(NOW, LONG)
    assert dict(turn.records or {}) == {"input": 1}

    async def effect(_: object) -> object:
        return 2

    await durable.checkpointer.transact(turn.holder, "t", effect)
    await durable.finish(turn, "done")
    assert list(await durable.checkpointer.load("w")) == ["input", "t", "outcome:"]


def test_prepare_case_124_processes_at_the_same_moment(url: str, operator: psycopg.Connection[TupleRow]) -> None:
    """Case 124: ten processes set up the same empty schemas at once: all succeed, and each is there once."""
    schemas = [f"s{number}" for number in range(5)]
    command = [sys.executable, "-c", PREPARE, url, *schemas]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(10)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(60) for process in processes] == [0] * 10
    for process in processes:
        process.communicate()
    for schema in schemas:
        versions = operator.execute(f"SELECT version FROM {schema}.workflow_schema ORDER BY version".encode()).fetchall()
        assert [row[0] for row in versions] == [number for number, _, _ in migrations()]


@pytest.mark.parametrize("name", ["plain", 'we\'ird "name" 100% {schema} @lock@', "Größe", "select"])
async def test_prepare_in_a_schema_of_any_name(pool: Pool, name: str) -> None:
    """Whatever a schema may be called, its store works, and another search path does not matter."""
    async with PostgresDurable.on(pool, schema=name) as durable:
        await used(durable)


async def test_prepare_follows_the_search_path(make_pool: MakePool, operator: psycopg.Connection[TupleRow]) -> None:
    """Without a name the tables are where the search path says; a name that is given wins over it."""
    operator.execute("CREATE SCHEMA app")
    async with make_pool(2, options="-c search_path=app,public") as pool:
        async with PostgresDurable.on(pool) as durable:
            await used(durable)
        async with PostgresDurable.on(pool, schema="named") as durable:
            await used(durable)
    assert operator.execute("SELECT count(*) FROM app.workflow_checkpoint").fetchone() == (3,)
    assert operator.execute("SELECT count(*) FROM named.workflow_checkpoint").fetchone() == (3,)
    assert operator.execute("SELECT to_regclass('public.workflow_checkpoint')").fetchone() == (None,)


async def test_prepare_without_a_schema_to_go_to(make_pool: MakePool) -> None:
    """A search path that names nothing is refused with the way out."""
    async with make_pool(1, options="-c search_path=nowhere") as pool:
        with pytest.raises(SchemaMismatch, match="schema="):
            await PostgresDurable.on(pool).prepare()


async def test_printed_schema_is_what_prepare_makes(pool: Pool, operator: psycopg.Connection[TupleRow], url: str) -> None:
    """`python -m durable_postgres schema NAME`, run by who may create, is a schema that a role without CREATE can use."""
    command = [sys.executable, "-m", "durable_postgres", "schema", "app"]
    text = (await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)).stdout
    assert text.strip() == printed("app").strip()
    operator.execute(text.encode())
    operator.execute("CREATE ROLE worker LOGIN")
    operator.execute("GRANT USAGE ON SCHEMA app TO worker")
    try:
        async with open_as(url, "worker", "app") as durable:
            with pytest.raises(SchemaMismatch, match="grant SELECT, INSERT, UPDATE, DELETE"):
                await durable.prepare()
            operator.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA app TO worker")
            with pytest.raises(SchemaMismatch, match="workflow_number: grant USAGE"):
                await durable.prepare()
            operator.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA app TO worker")
            await durable.prepare()
            await used(durable)
    finally:
        operator.execute("DROP OWNED BY worker")
        operator.execute("DROP ROLE worker")


class open_as:
    """A store that verifies only, as another role."""

    def __init__(self, url: str, role: str, schema: str) -> None:
        self.pool: Pool = AsyncConnectionPool(url, min_size=1, max_size=2, open=False, kwargs={"user": role})
        self.durable = PostgresDurable.on(self.pool, schema=schema, create=False)

    async def __aenter__(self) -> PostgresDurable:
        await self.pool.open()
        return self.durable

    async def __aexit__(self, *_: object) -> None:
        await self.durable.aclose()
        await self.pool.close()


async def test_verify_only_fails_closed(pool: Pool, operator: psycopg.Connection[TupleRow]) -> None:
    """Without the schema, with an older, a newer or an incomplete one a store that only verifies says so, and creates nothing."""
    store = PostgresDurable.on(pool, schema="app", create=False)
    with pytest.raises(SchemaMismatch, match="no durable tables"):
        await store.prepare()
    assert operator.execute("SELECT to_regnamespace('app')").fetchone() == (None,)
    await PostgresDurable.on(pool, schema="app").prepare()
    await store.prepare()
    operator.execute("DROP FUNCTION app.workflow_begin_v1")
    with pytest.raises(SchemaMismatch, match="workflow_begin_v1: it is missing"):
        await store.prepare()
    operator.execute("DELETE FROM app.workflow_schema WHERE version > 1")
    with pytest.raises(SchemaMismatch, match=f"version 1 of the schema, and this code needs {migrations()[-1][0]}"):
        await store.prepare()
    operator.execute("INSERT INTO app.workflow_schema VALUES (999)")
    for one in (store, PostgresDurable.on(pool, schema="app")):
        with pytest.raises(SchemaMismatch, match="999"):
            await one.prepare()


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
async def test_three_isolation_levels(make_pool: MakePool, operator: psycopg.Connection[TupleRow], level: str) -> None:
    """Under each default of the database everything works; one statement stays one flight."""
    operator.execute(f"ALTER DATABASE {operator.info.dbname} SET default_transaction_isolation = '{level}'".encode())
    async with make_pool(2) as pool, PostgresDurable.on(pool) as durable:
        await used(durable)


async def test_partitioned_by_hash_of_the_workflow(pool: Pool, operator: psycopg.Connection[TupleRow]) -> None:
    """On tables that are partitioned by workflow everything works as on plain ones, forty workflows over eight partitions."""
    operator.execute(printed("parts", partitions=8).encode())
    async with PostgresDurable.on(pool, schema="parts", create=False) as durable:
        await used(durable)
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(durable.arrive(f"w{number}", "input", number))
        begun = 0
        while turns := await durable.begin(NOW, LONG, limit=7):
            for turn in turns:
                assert (turn.records or {})["input"] == int(turn.holder.workflow[1:])
                await durable.checkpointer.record(turn.holder, "k", 1)
                assert await durable.renew(turn)
                await durable.finish(turn, begun)
                begun += 1
        assert begun == 40
        assert len(await durable.workflows(limit=100)) == 41
        assert await durable.sweep(await durable.scheduler.now()) == 41
    counts = operator.execute(
        "SELECT relname, relispartition FROM pg_class WHERE relname LIKE 'workflow_queue_%' AND relkind = 'r'"
    )
    assert len(counts.fetchall()) == 8


async def test_open_a_url(url: str) -> None:
    """One line opens a store, in a queue and a schema of one's own."""
    async with durable_postgres.open(url, schema="app", queue="mine", lease=timedelta(seconds=5)) as durable:
        await used(durable)
        assert durable.scheduler.queue == "mine"
