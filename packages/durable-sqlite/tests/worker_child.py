"""Worker processes that are killed at every await: `python worker_child.py FOLDER`."""

import asyncio
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from durable_core import Run, list_of, result, start
from durable_core.worker import Worker
from durable_sqlite import SqliteDurable
from durable_sqlite.effect import EffectCursor, SqliteEffect

LEASE = timedelta(seconds=0.3)
MINUTE = timedelta(minutes=1)
AT_ONCE = 6


def note(folder: Path, *words: object) -> None:
    """Leave a line that survives whatever happens next."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, (" ".join(map(str, words)) + "\n").encode())
    os.close(log)


class Shop:
    """A workflow of everything: steps, branches, an effect in the store's transaction, a clock, a sleep, an answer, an inbox."""

    def __init__(self, folder: Path, who: str) -> None:
        self._folder, self._who = folder, who

    async def effect(self, key: str) -> str:
        note(self._folder, self._who, key)
        await asyncio.sleep(0)
        return f"{key} done"

    async def order(self, run: Run[SqliteEffect]) -> list[str]:
        def reserve(cursor: EffectCursor) -> int:
            cursor.execute("INSERT INTO reserved VALUES (?)", (run.workflow,))
            return 1

        found = [await run.input(str), await run.step("quoted", self.effect, str, "quoted")]
        await run.transact("reserved", reserve, int)
        async with asyncio.TaskGroup() as group:
            branches = [group.create_task(run.step(key, self.effect, str, key)) for key in ("left", "right")]
        found += [branch.result() for branch in branches]
        await run.now("noted")
        await run.sleep("nap", timedelta(microseconds=1))
        found.append(await run.awaiting("answer", str))
        (entry,) = await run.receive("read", str, after=None)
        await run.transact("reserved again", reserve, int)
        await run.step("sent", self.effect, str, "sent", failures=(ValueError,))
        return [*found, entry.value]


async def advance(folder: Path, who: str) -> None:
    """Run a worker until the order is done; say what was recorded before and afterwards."""
    async with SqliteDurable.at(folder / "shop.db", lease=LEASE) as durable:
        before = await durable.checkpointer.load("order/1")
        if who == "victim":
            die_at(int((folder / "at").read_text()))
        worker = Worker(durable)
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run({"order": Shop(folder, who).order}))
            ended = await result(durable, "order/1", list_of(str), wait=MINUTE)
            worker.drain()
        after = await durable.checkpointer.load("order/1")
        rows = await durable.checkpointer.connection.read(lambda tx: tx.execute("SELECT count(*) FROM reserved").fetchone()[0])
        if who == "heir":
            (folder / "said").write_text(json.dumps({"before": before, "after": after, "rows": rows, "ended": repr(ended)}))


def die_at(number: int) -> None:
    """Have this process killed before the callback of that number of its event loop; turns that only count turns do not count."""
    left, original = number, asyncio.Handle._run

    def run(self: asyncio.Handle) -> None:
        nonlocal left
        left -= getattr(getattr(self, "_callback", None), "__name__", "") != "_turn"
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        original(self)

    asyncio.Handle._run = run  # type: ignore[method-assign]


async def prepare(folder: Path) -> None:
    """Make the file that every victim begins with."""
    async with SqliteDurable.at(folder / "shop.db", lease=LEASE) as durable:
        await start(durable, "order/1", "piano")
        await durable.checkpointer.supply("order/1", "answer", "yes")
        await durable.deliver("order/1", "hello")
        await durable.checkpointer.connection.write(lambda tx: tx.execute("CREATE TABLE reserved (workflow TEXT)"))


def forked(work: Callable[[], None]) -> int:
    """Do it in a process of its own, which takes over nothing but memory."""
    if pid := os.fork():
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(9)


def everywhere(folder: Path) -> None:
    """Kill a worker before each callback, one process each, and let a fresh one go on; says one line each."""
    os.waitpid(forked(lambda: asyncio.run(prepare(folder))), 0)
    number, survived, heirs = 0, 0, dict[int, int]()
    while survived < 3 or heirs:
        if survived < 3 and len(heirs) < AT_ONCE:
            here = folder / str(number)
            here.mkdir()
            shutil.copy(folder / "shop.db", here / "shop.db")
            (here / "at").write_text(str(number))
            _, status = os.waitpid(forked(lambda: asyncio.run(advance(here, "victim"))), 0)  # noqa: B023
            survived = survived + 1 if status == 0 else 0
            heirs[forked(lambda: asyncio.run(advance(here, "heir")))] = number  # noqa: B023
            number += 1
            continue
        pid, status = os.waitpid(-1, 0)
        print(heirs.pop(pid), status, flush=True)


if __name__ == "__main__":
    everywhere(Path(sys.argv[1]))
