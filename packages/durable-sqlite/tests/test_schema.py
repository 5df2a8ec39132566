"""The schema: numbered files, applied once, printable, and safe to copy."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from durable_core.keys import inbox_key
from durable_sqlite import SqliteDurable, schema

NOW = timedelta(0)


def names(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()
    connection.close()
    return [row[0] for row in rows]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "durable_sqlite", *arguments], capture_output=True, text=True)


async def made_elsewhere(path: Path) -> None:
    async with SqliteDurable.at(path, create=False) as own:
        assert (await own.arrive("w", "k", 1)).first


async def made(path: Path) -> None:
    async with SqliteDurable.at(path):
        pass


def test_schema_is_printed_as_it_is_applied(path: Path, tmp_path: Path) -> None:
    """`python -m durable_sqlite schema` prints what the store applies: a file that is made with it is taken as it is."""
    printed = subprocess.run(
        [sys.executable, "-m", "durable_sqlite", "schema"], capture_output=True, text=True, check=True
    ).stdout
    by_hand = tmp_path / "by hand.db"
    connection = sqlite3.connect(by_hand)
    connection.executescript(printed)
    connection.close()
    asyncio.run(made(path))
    assert names(by_hand) == names(path)
    asyncio.run(made_elsewhere(by_hand))
    wrong = run()
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "usage" in wrong.stderr


def test_schema_numbers_are_explicit(path: Path) -> None:
    """Case 73: the order of records is a declared key, which SQLite promises to keep; the files are numbered as the code says."""
    assert len(schema.migrations()) == schema.VERSION
    assert "seq INTEGER PRIMARY KEY" in schema.migrations()[0]


async def test_schema_is_applied_once_by_whoever_comes_first(path: Path, child: Callable[..., subprocess.Popen[str]]) -> None:
    """Case 124: ten processes open an empty file at the same moment, and all succeed with one schema; then again on the full
    one.
    """
    for round_ in range(2):
        processes = [child("prepare") for _ in range(10)]
        for process in processes:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            assert process.stdout
            assert process.stdout.readline() == f"{round_}\n"
            assert process.wait(30) == 0
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT version FROM workflow_schema").fetchall() == [(schema.VERSION,)]
        connection.close()
        async with SqliteDurable.at(path) as durable:
            assert (await durable.checkpointer.supply("w", f"k{round_}", 1)).first


async def test_schema_of_stores_that_open_at_once_in_one_process(path: Path) -> None:
    """The same among eight stores of one process."""
    stores = [SqliteDurable.at(path) for _ in range(8)]
    async with asyncio.TaskGroup() as group:
        for number, store in enumerate(stores):
            group.create_task(store.arrive("w", f"k{number}", 1))
    assert len(await stores[0].checkpointer.load("w")) == 8
    for store in stores:
        await store.aclose()


async def test_schema_leaves_the_application_s_own_alone(path: Path) -> None:
    """The store lives beside other tables, and does not use PRAGMA user_version or application_id."""
    connection = sqlite3.connect(path)
    connection.executescript(
        "PRAGMA user_version = 41; PRAGMA application_id = 7; CREATE TABLE shop_order (id INTEGER PRIMARY KEY)"
    )
    connection.close()
    async with SqliteDurable.at(path) as durable:
        await durable.arrive("w", "k", 1)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (41,)
    assert connection.execute("PRAGMA application_id").fetchone() == (7,)
    assert connection.execute("SELECT count(*) FROM shop_order").fetchone() == (0,)
    connection.close()


async def test_order_survives_vacuum_and_copies(durable: SqliteDurable, path: Path, tmp_path: Path) -> None:
    """Case 73: after discards, VACUUM, VACUUM INTO and a dump, records stand as they stood, and a new entry sorts after all."""
    checkpointer = durable.checkpointer
    for number in range(50):
        for name in ("w", "v", "u"):
            await checkpointer.supply(name, f"k{number * 7 % 50}", number)
        await checkpointer.append("w", number)
    await checkpointer.discard("v")
    before = await checkpointer.history("w")
    maintenance = sqlite3.connect(path, isolation_level=None)
    maintenance.execute("VACUUM")
    assert await checkpointer.history("w") == before
    maintenance.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    dump = "\n".join(maintenance.iterdump())
    maintenance.close()
    restored = sqlite3.connect(tmp_path / "dump.db")
    restored.executescript(dump)
    restored.close()
    for name in ("shop.db", "copy.db", "dump.db"):
        async with SqliteDurable.at(tmp_path / name) as store:
            after = await store.checkpointer.history("w")
            assert list(after.items()) == list(before.items())
            assert (await store.checkpointer.append("w", "new")).key == inbox_key(51)
            assert list(await store.checkpointer.load("w"))[-1] == inbox_key(51)
            assert await store.checkpointer.load("v") == {}
