"""A hot standby that follows: it is read, never written, and once it takes over the same pool goes on there."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from durable_conformance import servers
from durable_core.client import start
from durable_core.contract import Finished
from durable_core.run import Run
from durable_core.worker import Worker
from durable_postgres import PostgresDurable, SqlEffect

NOW = timedelta(0)
LONG = timedelta(hours=1)
LOST = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)


@contextmanager
def following(primary: servers.PostgresServer) -> Generator[servers.PostgresServer]:
    """A standby that has everything the primary has."""
    program = servers.find("postgres")
    if not isinstance(program, servers.Binary) or not program.path.with_name("pg_basebackup").exists():
        pytest.skip("pg_basebackup is not beside the server's program")
    with servers.postgres() as standby:
        data = Path(str(standby.query("SHOW data_directory")[0][0]))
        owner = data.stat()
        standby.stop()
        shutil.rmtree(data)
        copied = [str(program.path.with_name("pg_basebackup")), "-D", str(data), "-d", primary.url, "-R", "--checkpoint=fast"]
        subprocess.run(copied, check=True)
        for path in (data, *data.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)
        standby.start()
        yield standby


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[PostgresDurable]:
    pool: AsyncConnectionPool[AsyncConnection[TupleRow]] = AsyncConnectionPool(
        url, min_size=1, max_size=4, open=False, timeout=20, reconnect_timeout=60, kwargs={"autocommit": True}
    )
    async with pool, PostgresDurable.on(pool, lease=timedelta(seconds=2)) as durable:
        yield durable


async def body(run: Run[SqlEffect]) -> str:
    async def applied(cursor: AsyncCursor[TupleRow]) -> int:
        await cursor.execute("INSERT INTO mine VALUES (%s)", (run.workflow,))
        return 1

    for number in range(3):
        await run.transact(f"effect {number}", applied, int)
    return "done"


async def test_a_standby_is_read_and_takes_over(tmp_path: Path) -> None:
    """Reads are answered on the standby and every write fails with the server's word; after a failover that lost nothing (the
    commits waited for the standby) a worker on the same pool ends its work, each effect once.
    """
    with servers.postgres() as primary:
        async with opened(primary.url) as durable:
            await durable.arrive("w", "input", 1)
            primary.query("CREATE TABLE mine (workflow text)")
        with following(primary) as standby:
            await read_only(standby.url)
            primary.query("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.query("SELECT pg_reload_conf()")
            await fails_over(primary, standby)


async def read_only(url: str) -> None:
    """What a standby is good for."""
    async with opened(url) as durable:
        assert await durable.checkpointer.load("w") == {"input": 1}
        assert list(await durable.checkpointer.history("w")) == ["input"]
        assert await durable.result("w") is None
        assert [listed.workflow for listed in await durable.workflows()] == ["w"]
        for call in (durable.arrive("w", "k", 1), durable.begin(NOW, LONG), durable.checkpointer.claim("w", LONG, LONG)):
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await call


async def fails_over(primary: servers.PostgresServer, standby: servers.PostgresServer) -> None:
    """The primary is killed in the middle of some work, and the standby promoted."""
    both = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres?target_session_attrs=read-write"
    async with opened(both) as durable, asyncio.TaskGroup() as group:
        for number in range(60):
            await start(durable, f"job/{number}")
        working = group.create_task(Worker(durable, limit=8).run({"job": body}))
        async with asyncio.timeout(60):
            while len(effects(primary)) < 40:  # noqa: ASYNC110 - the server's word
                await asyncio.sleep(0.005)
        await asyncio.to_thread(primary.kill)
        standby.query("SELECT pg_promote()")
        ended = list[object]()
        async with asyncio.timeout(90):
            while len(ended) < 60:
                try:
                    if (outcome := await durable.result(f"job/{len(ended)}")) is not None:
                        ended.append(outcome)
                        continue
                except LOST:
                    pass
                await asyncio.sleep(0.05)
        working.cancel()
    assert ended == [Finished("done")] * 60
    assert sorted(effects(standby)) == sorted(f"job/{number}" for number in range(60) for _ in range(3))


def effects(server: servers.PostgresServer) -> list[str]:
    return [str(row[0]) for row in server.query("SELECT workflow FROM mine")]
