"""When the file is the trouble: the true error, nothing half stored, and on it goes when the cause is gone."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from durable_core.errors import SchemaMismatch
from durable_sqlite import EffectCursor, SqliteDurable
from durable_sqlite._tx import Tx

NOW = timedelta(0)
LONG = timedelta(hours=1)
PAGE = 4096


async def fill(durable: SqliteDurable) -> None:
    """Let the file grow no further: SQLite then says that the disk is full."""

    def limit(tx: Tx) -> None:
        count: int = tx.execute("PRAGMA page_count").fetchall()[0][0]
        tx.execute(f"PRAGMA max_page_count = {count}").fetchall()

    await durable.checkpointer.connection.read(limit)


async def make_room(durable: SqliteDurable) -> None:
    await durable.checkpointer.connection.read(lambda tx: tx.execute("PRAGMA max_page_count = 1000000").fetchall())


async def test_disk_full_stores_nothing_and_goes_on_later(durable: SqliteDurable) -> None:
    """A record, an effect and an arrival that do not fit say SQLITE_FULL; small neighbours land; with room all work again."""
    checkpointer = durable.checkpointer
    holder = await checkpointer.claim("w", LONG, LONG)
    assert holder is not None
    large = "x" * PAGE * 50

    def effect(cursor: EffectCursor) -> str:
        cursor.execute("CREATE TABLE much (x)")
        return large

    await fill(durable)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: checkpointer.record(holder, "large", large),
        lambda: checkpointer.transact(holder, "effect", effect),
        lambda: durable.arrive("v", "large", large),
        lambda: durable.deliver("v", large),
    ]
    for call in calls:
        beside = asyncio.create_task(checkpointer.record(holder, "small", 1))
        with pytest.raises(sqlite3.OperationalError, match="full") as full:
            await call()
        assert full.value.sqlite_errorname == "SQLITE_FULL"
        assert (await beside).first
    assert await checkpointer.load("w") == {"small": 1}
    assert await durable.workflows(prefix="v") == []
    await make_room(durable)
    for call in calls:
        await call()
    assert list(await checkpointer.load("w")) == ["small", "large", "effect"]
    assert (await durable.begin(NOW, LONG))[0].delivery.workflow == "v"


async def test_locked_by_another_waits_then_says_so(path: Path, child: Callable[..., subprocess.Popen[str]]) -> None:
    """Another process holds the writer: reads go on, every write waits for the busy timeout and says SQLITE_BUSY, each to its
    caller.
    """
    async with SqliteDurable.at(path, busy_timeout=timedelta(milliseconds=100)) as durable:
        await durable.arrive("w", "k", 1)
        locking = child("lock")
        assert locking.stdin
        assert locking.stdout
        assert locking.stdout.readline() == "locked\n"
        assert await durable.checkpointer.load("w") == {"k": 1}
        async with asyncio.TaskGroup() as group:
            tasks = [asyncio.create_task(durable.arrive(f"v/{number}", "k", 1)) for number in range(10)]
            reads = [group.create_task(durable.checkpointer.load("w")) for _ in range(10)]
        errors: list[sqlite3.OperationalError] = []
        for task in tasks:
            with pytest.raises(sqlite3.OperationalError, match="locked") as locked:
                await task
            assert locked.value.sqlite_errorname == "SQLITE_BUSY"
            errors.append(locked.value)
        assert len({id(error) for error in errors}) == 10
        assert all(task.result() == {"k": 1} for task in reads)
        assert await durable.workflows(prefix="v") == []
        locking.stdin.write("\n")
        locking.stdin.flush()
        locking.wait(60)
        assert (await durable.arrive("v/0", "k", 1)).first


async def test_locked_while_waiting_for_work(path: Path, child: Callable[..., subprocess.Popen[str]]) -> None:
    """A taker that finds the file locked says so, and finds the work when it is free."""
    async with SqliteDurable.at(path, busy_timeout=timedelta(milliseconds=50)) as durable:
        await durable.arrive("w", "k", 1)
        locking = child("lock")
        assert locking.stdin
        assert locking.stdout
        assert locking.stdout.readline() == "locked\n"
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await durable.begin(LONG, LONG)
        locking.stdin.write("\n")
        locking.stdin.flush()
        locking.wait(60)
        assert (await durable.begin(LONG, LONG))[0].delivery.attempt == 1


async def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """The error is SQLite's and names the path; once the directory is there the same store works."""
    path = tmp_path / "not there" / "shop.db"
    durable = SqliteDurable.at(path)
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="unable to open") as failed:
            await durable.arrive("w", "k", 1)
        assert any("not there" in note for note in failed.value.__notes__)
    path.parent.mkdir()
    assert (await durable.arrive("w", "k", 1)).first
    await durable.aclose()


def held(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


async def test_a_file_that_is_no_database(path: Path) -> None:
    """Text in the file's place is refused as it is, and stays as it is."""
    before = b"this is not a database, it is a text that is longer than a header of one hundred bytes" * 9
    put(path, before)
    durable = SqliteDurable.at(path)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        await durable.prepare()
    assert held(path) == before
    os.unlink(path)
    assert await durable.checkpointer.load("w") == {}
    await durable.aclose()


async def filled(path: Path) -> None:
    async with SqliteDurable.at(path) as durable:
        for number in range(30):
            await durable.checkpointer.supply("w", f"k{number}", "x" * 1_000)
    assert len(held(path)) > 8 * PAGE


async def test_a_zeroed_first_page(path: Path) -> None:
    """Case 120: a damaged file is an error, never an empty history."""
    await filled(path)
    with path.open("r+b") as file:
        file.write(bytes(PAGE))
    durable = SqliteDurable.at(path)
    for call in (durable.checkpointer.load("w"), durable.arrive("w", "k", 1)):
        with pytest.raises(sqlite3.DatabaseError):
            await call
    await durable.aclose()


async def test_a_truncated_copy(path: Path) -> None:
    """Case 120: a file that lost its end is an error at the first use, never a shorter history."""
    await filled(path)
    with path.open("r+b") as file:
        file.truncate(5 * PAGE)
    durable = SqliteDurable.at(path)
    for call in (durable.checkpointer.load("w"), durable.arrive("w", "new", 1)):
        with pytest.raises(sqlite3.DatabaseError, match="malformed"):
            await call
    await durable.aclose()


@pytest.mark.parametrize("left", ["missing", "empty"])
async def test_a_log_without_its_database(path: Path, left: str) -> None:
    """Case 120: SQLite would delete a log whose database is missing, and its commits with it: it is refused, and kept."""
    async with SqliteDurable.at(path) as durable:
        await durable.arrive("w", "k", 1)
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{path}.copy{suffix}")
    copy = path.with_name("shop.db.copy")
    if left == "empty":
        copy.write_bytes(b"")
    else:
        copy.unlink()
    orphan = SqliteDurable.at(copy)
    with pytest.raises(sqlite3.DatabaseError, match="restore both"):
        await orphan.arrive("v", "k", 1)
    assert path.with_name("shop.db.copy-wal").stat().st_size > 0
    shutil.copy(path, copy)
    assert await orphan.checkpointer.load("w") == {"k": 1}
    await orphan.aclose()


async def test_a_file_that_is_removed_while_it_is_open(path: Path) -> None:
    """What is written to a file that has no name any more would be lost: it is refused, and opening again works."""
    durable = SqliteDurable.at(path)
    await durable.arrive("w", "k", 1)
    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{path}{suffix}")
    durable.checkpointer.connection._database._checked = 0.0  # pyright: ignore[reportPrivateUsage]
    for call in (durable.arrive("w", "l", 1), durable.checkpointer.load("w"), durable.begin(NOW, LONG)):
        with pytest.raises(sqlite3.OperationalError, match="removed or replaced"):
            await call
    await durable.aclose()
    async with SqliteDurable.at(path) as again:
        assert await again.checkpointer.load("w") == {}


async def test_a_read_only_file(path: Path) -> None:
    """Writes are refused with SQLite's word for it, reads go on, and when it may be written again the same store writes."""
    await filled(path)
    durable = SqliteDurable.at(path)
    await durable.prepare()
    await durable.checkpointer.connection.read(lambda tx: tx.execute("PRAGMA query_only = ON").fetchall())
    with pytest.raises(sqlite3.OperationalError, match="readonly") as refused:
        await durable.arrive("w", "new", 1)
    assert refused.value.sqlite_errorname == "SQLITE_READONLY"
    assert len(await durable.checkpointer.load("w")) == 30
    assert (await durable.arrive("w", "new", 1)).first  # the connection was opened anew after the refusal
    await durable.aclose()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write to everything")
async def test_a_file_without_the_right_to_write(path: Path) -> None:
    """The file's mode is respected, and once it is changed the same store goes on."""
    await filled(path)
    os.chmod(path, 0o444)
    durable = SqliteDurable.at(path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await durable.arrive("w", "new", 1)
    os.chmod(path, 0o644)
    assert (await durable.arrive("w", "new", 1)).first
    await durable.aclose()


async def test_a_schema_that_is_newer(path: Path) -> None:
    """A file of a later version is refused with both numbers, whether it is opened to create or to verify, and left alone."""
    async with SqliteDurable.at(path) as durable:
        await durable.checkpointer.connection.write(lambda tx: tx.execute("INSERT INTO workflow_schema VALUES (999)").rowcount)
    for create in (True, False):
        durable = SqliteDurable.at(path, create=create)
        with pytest.raises(SchemaMismatch, match=r"999.* 1"):
            await durable.prepare()
        await durable.aclose()


async def test_a_fault_of_ours_is_an_answer(durable: SqliteDurable) -> None:
    """Whatever goes wrong in the thread, the caller is told, and the next call works."""

    def broken(_tx: object) -> None:
        raise RuntimeError("a mistake")

    connection = durable.checkpointer.connection
    for call in (connection.read(broken), connection.write(broken), connection.alone(broken)):
        with pytest.raises(RuntimeError, match="a mistake"):
            await call
    with pytest.raises(RuntimeError, match="a mistake"):
        await connection.wait(broken, lambda _tx: 0, None, LONG)
    with pytest.raises(RuntimeError, match="a mistake"):
        await connection.wait(lambda _tx: None, broken, None, LONG)
    assert (await durable.arrive("w", "k", 1)).first
