"""A disk that is full: the true error, nothing half done, and on it goes by itself."""

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

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
MEGABYTE = 1_000_000


class Disk:
    """A small file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Leave no room at all."""
        with open(self.folder / "filler", "wb", buffering=0) as filler:
            try:
                for size in (MEGABYTE, 4096, 1):
                    try:
                        while True:
                            filler.write(b"x" * size)
                    except OSError:
                        continue
            finally:
                os.fsync(filler.fileno())

    def free(self) -> None:
        """Give the room back."""
        (self.folder / "filler").unlink()


@pytest.fixture
def disk() -> Generator[Disk]:
    """A disk of 160 megabytes, where one may be made."""
    with TemporaryDirectory(prefix="durable-disk-") as name:
        folder = Path(name)
        command = ["mount", "-t", "tmpfs", "-o", "size=160m,mode=755", "tmpfs", name]
        if os.name != "posix" or os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("only root may make a small disk")
        try:
            yield Disk(folder)
        finally:
            subprocess.run(["umount", "-l", name], check=True)


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[PostgresDurable]:
    pool: AsyncConnectionPool[AsyncConnection[TupleRow]] = AsyncConnectionPool(
        url, min_size=1, max_size=4, open=False, timeout=5, reconnect_timeout=60, kwargs={"autocommit": True}
    )
    async with pool, PostgresDurable.on(pool, lease=timedelta(seconds=2)) as durable:
        yield durable


async def body(run: Run[SqlEffect]) -> str:
    async def large() -> str:
        return "x" * MEGABYTE

    async def applied(cursor: AsyncCursor[TupleRow]) -> int:
        await cursor.execute("INSERT INTO mine VALUES (repeat('y', 100000))")
        return 1

    for number in range(4):
        await run.step(f"large {number}", large, str)
        await run.transact(f"effect {number}", applied, int)
    return "done"


def mine(url: str) -> int:
    with psycopg.connect(url) as operator:
        row = operator.execute("SELECT count(*) FROM mine").fetchone()
    assert row is not None
    return int(row[0])


def small_database(server: servers.PostgresServer, space: Path) -> str:
    """Make a database in a folder, and give its URL."""
    space.mkdir()
    os.chown(space, Path(str(server.query("SHOW data_directory")[0][0])).stat().st_uid, -1)
    server.query(f"CREATE TABLESPACE small LOCATION '{space}'")
    server.query("CREATE DATABASE little TABLESPACE small")
    return server.url.rpartition("/")[0] + "/little"


async def test_a_full_disk_is_an_error_and_no_half_transition(disk: Disk) -> None:
    """Where the tables cannot grow each write fails as `DiskFull`, as a whole; reads go on, and writes once there is room."""
    with servers.postgres() as server:
        url = small_database(server, disk.folder / "tables")
        async with opened(url) as durable:
            await durable.arrive("w", "input", 1)
            with psycopg.connect(url, autocommit=True) as operator:
                operator.execute("CREATE TABLE mine (t text); ALTER TABLE mine ALTER t SET STORAGE EXTERNAL")
            (turn,) = await durable.begin(NOW, LONG)
            disk.fill()
            large = "x" * MEGABYTE

            async def applied(cursor: AsyncCursor[TupleRow]) -> object:
                await cursor.execute("INSERT INTO mine VALUES ('small')")
                return large

            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "record": lambda: durable.checkpointer.record(turn.holder, "k", large),
                "transact": lambda: durable.checkpointer.transact(turn.holder, "t", applied),
                "arrive": lambda: durable.arrive("new", "input", large),
                "deliver": lambda: durable.deliver("new", large),
                "finish": lambda: durable.finish(turn, large),
            }
            for call in calls.values():
                with pytest.raises(psycopg.errors.DiskFull):
                    await call()
            assert await durable.checkpointer.load("w") == {"input": 1}
            assert [listed.workflow for listed in await durable.workflows()] == ["w"]
            assert mine(url) == 0
            assert await durable.renew(turn)
            disk.free()
            for call in calls.values():
                await call()
            assert mine(url) == 1
            assert isinstance(await durable.result("w"), Finished)


@pytest.mark.timeout(180)
async def test_a_log_without_room_stops_the_server_and_loses_nothing(disk: Disk) -> None:
    """Where the log cannot grow the server stops itself; once it is back a worker ends its work, each effect once."""
    with servers.postgres(folder=disk.folder, settings={"restart_after_crash": "off"}) as server:
        async with opened(server.url) as durable, asyncio.TaskGroup() as group:
            with psycopg.connect(server.url, autocommit=True) as operator:
                operator.execute("CREATE TABLE mine (t text); ALTER TABLE mine ALTER t SET STORAGE EXTERNAL")
            for number in range(4):
                await start(durable, f"job/{number}")
            working = group.create_task(Worker(durable).run({"job": body}))
            async with asyncio.timeout(60):
                while not mine(server.url):  # noqa: ASYNC110 - the server's word
                    await asyncio.sleep(0.01)
            disk.fill()
            async with asyncio.timeout(60):
                while server.running:
                    with suppress(OSError, servers.QueryError):
                        server.query("SELECT pg_logical_emit_message(false, 'more', 'log'), pg_switch_wal()")
                    await asyncio.sleep(0.05)
            disk.free()
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(90):
                for number in range(4):
                    while True:
                        try:
                            if await durable.result(f"job/{number}") is not None:
                                break
                        except LOST:
                            pass
                        await asyncio.sleep(0.05)
            working.cancel()
            assert [await durable.result(f"job/{number}") for number in range(4)] == [Finished("done")] * 4
        assert mine(server.url) == 16
