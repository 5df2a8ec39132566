"""SQLite beside a bare `INSERT ... ON CONFLICT`: `python -m conformance.benchmarks.sqlite` from the root of the repository.

Every round measures everything once, each time on a new file, so that a slow minute of the machine falls on all alike. What is
printed are medians; read the ratios, and compare no two runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from durable_core import Run, resume
from durable_core.worker import Worker
from durable_sqlite import SqliteDurable, SqliteEffect

Level = Literal["FULL", "NORMAL"]

LONG = timedelta(hours=1)
SCHEMA = "CREATE TABLE step (workflow TEXT, key TEXT, value TEXT NOT NULL, PRIMARY KEY (workflow, key)) WITHOUT ROWID"
RECORD = "INSERT INTO step VALUES (?, ?, ?) ON CONFLICT (workflow, key) DO UPDATE SET value = value RETURNING value"


@dataclass(frozen=True)
class Sizes:
    """How much of everything is done."""

    steps: int
    at_once: int
    history: int
    taken: int
    shallow: int
    deep: int


SIZES = Sizes(steps=1_000, at_once=50, history=10_000, taken=1_000, shallow=1_000, deep=100_000)
QUICK = Sizes(steps=100, at_once=20, history=500, taken=50, shallow=100, deep=2_000)


async def effect() -> object:
    return {"ok": 1}


def as_it_is(value: object) -> object:
    return value


def name() -> str:
    return f"w/{uuid.uuid4().hex}"


def body_of(steps: int) -> Callable[[Run[SqliteEffect]], Awaitable[None]]:
    async def body(run: Run[SqliteEffect]) -> None:
        for number in range(steps):
            await run.step(f"s{number}", effect, as_it_is)

    return body


class Bare:
    """A commit a step through `sqlite3`, in the thread of the loop."""

    def __init__(self, path: Path, level: Level) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for statement in ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {level}", SCHEMA):
            self._connection.execute(statement)

    def steps(self, count: int) -> None:
        workflow = name()
        for number in range(count):
            stored: str = self._connection.execute(RECORD, (workflow, f"s{number}", json.dumps({"ok": 1}))).fetchone()[0]
            json.loads(stored)

    def read(self, count: int) -> float:
        """Give the seconds that reading a history takes, and writing one more."""
        workflow = name()
        rows = [(workflow, f"s{number}", json.dumps({"ok": 1})) for number in range(count)]
        self._connection.execute("BEGIN")
        self._connection.executemany(RECORD.partition(" ON ")[0], rows)
        self._connection.execute("COMMIT")
        begin = time.perf_counter()
        found = {key: json.loads(value) for key, value in self._connection.execute("SELECT key, value FROM step")}
        self._connection.execute(RECORD, (workflow, f"s{len(found)}", json.dumps({"ok": 1}))).fetchone()
        return time.perf_counter() - begin

    def close(self) -> None:
        self._connection.close()


async def one_pass(durable: SqliteDurable, workflow: str, steps: int) -> None:
    holder = await durable.checkpointer.claim(workflow, LONG, LONG)
    assert holder is not None
    await resume(durable.checkpointer, holder, body_of(steps), budget=LONG, alive=LONG)
    await durable.checkpointer.release(holder)


async def at_once(durable: SqliteDurable, sizes: Sizes) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(sizes.at_once):
            group.create_task(one_pass(durable, name(), sizes.steps // 10))


async def replay(durable: SqliteDurable, count: int) -> float:
    """Give the seconds that a pass over a history takes, with one step more."""
    workflow = name()
    await one_pass(durable, workflow, count)
    begin = time.perf_counter()
    await one_pass(durable, workflow, count + 1)
    return time.perf_counter() - begin


async def drained(durable: SqliteDurable, depth: int, taken: int) -> float:
    """Give the seconds that workflows of one step take, out of a backlog."""
    for low in range(0, depth, 500):
        async with asyncio.TaskGroup() as group:
            for _ in range(min(500, depth - low)):
                group.create_task(durable.scheduler.make_ready(name()))
    left, enough = taken, asyncio.Event()

    async def body(run: Run[SqliteEffect]) -> None:
        nonlocal left
        await run.step("s0", effect, as_it_is)
        left -= 1
        if left <= 0:
            enough.set()

    begin = time.perf_counter()
    async with Worker(durable, limit=50).running({"w": body}):
        await enough.wait()
        return time.perf_counter() - begin


async def timed(call: Awaitable[None]) -> float:
    begin = time.perf_counter()
    await call
    return time.perf_counter() - begin


async def one_round(folder: Path, level: Level, sizes: Sizes) -> dict[str, float]:
    """Measure everything once: microseconds a step or a workflow, and milliseconds a history."""
    found: dict[str, float] = {}
    bare = Bare(folder / "bare.db", level)
    bare.steps(10)
    begin = time.perf_counter()
    bare.steps(sizes.steps)
    found["bare step"] = (time.perf_counter() - begin) / sizes.steps * 1e6
    bare.close()
    async with SqliteDurable.at(folder / "steps.db", synchronous=level) as durable:
        await one_pass(durable, name(), 10)
        found["step"] = await timed(one_pass(durable, name(), sizes.steps)) / sizes.steps * 1e6
        found["step, many at once"] = await timed(at_once(durable, sizes)) / (sizes.at_once * (sizes.steps // 10)) * 1e6
    bare = Bare(folder / "read.db", level)
    found["bare history"] = bare.read(sizes.history) * 1e3
    bare.close()
    async with SqliteDurable.at(folder / "replay.db", synchronous=level) as durable:
        found["replay"] = await replay(durable, sizes.history) * 1e3
    for label, depth in (("workflow, shallow", sizes.shallow), ("workflow, deep", sizes.deep)):
        async with SqliteDurable.at(folder / f"queue{depth}.db", synchronous=level) as durable:
            found[label] = await drained(durable, depth, sizes.taken) / sizes.taken * 1e6
    return found


async def measure(level: Level, sizes: Sizes, rounds: int) -> dict[str, float]:
    """Give the median of every figure."""
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            found.append(await one_round(Path(folder), level, sizes))
    return {label: statistics.median(each[label] for each in found) for label in found[0]}


def report(level: Level, found: dict[str, float]) -> None:
    pairs = (
        ("step", "bare step", "us a step"),
        ("step, many at once", "bare step", "us a step"),
        ("replay", "bare history", "ms a history"),
        ("workflow, deep", "workflow, shallow", "us a workflow"),
    )
    print(f"SQLite {sqlite3.sqlite_version}, synchronous = {level}")
    for label, beside, unit in pairs:
        ratio = found[label] / found[beside]
        print(f"  {label:20} {found[label]:9.1f} {unit:14} {beside:18} {found[beside]:9.1f}   ratio {ratio:6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What durable-sqlite costs beside a bare INSERT.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works")
    arguments = parser.parse_args()
    levels: tuple[Level, Level] = ("FULL", "NORMAL")
    for level in levels:
        report(level, asyncio.run(measure(level, QUICK if arguments.quick else SIZES, arguments.rounds)))


if __name__ == "__main__":
    main()
