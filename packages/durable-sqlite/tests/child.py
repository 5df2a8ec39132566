"""Another process that works on a store: `python child.py VERB PATH …`. Answers line by line."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

from durable_core.contract import Pass
from durable_core.errors import Fenced
from durable_sqlite import SqliteDurable
from durable_sqlite._tx import Tx
from durable_sqlite.effect import EffectCursor

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def say(*words: object) -> None:
    print(*words, flush=True)


async def prepare(durable: SqliteDurable) -> None:
    """Opens the store when a line comes, then says what is in it."""
    say("ready")
    sys.stdin.readline()
    async with durable:
        say(len(await durable.checkpointer.load("w")))


async def arrive(durable: SqliteDurable, workflow: str) -> None:
    """Arrives when a line comes."""
    async with durable:
        say("ready")
        sys.stdin.readline()
        await durable.arrive(workflow, "input", 1)
        say("arrived")


async def hold(durable: SqliteDurable, workflow: str, alive: str) -> None:
    """Claims, then does what each line says in its name, and answers what became of it."""
    async with durable:
        checkpointer = durable.checkpointer
        holder = await checkpointer.claim(workflow, timedelta(hours=1), timedelta(seconds=float(alive)))
        assert holder is not None
        say(holder.token)
        for line in sys.stdin:
            say(json.dumps(await done(durable, holder, *json.loads(line))))


async def done(durable: SqliteDurable, holder: Pass, verb: str, *words: str) -> object:
    def effect(cursor: EffectCursor) -> str:
        cursor.execute("CREATE TABLE torn (x)")
        return "applied"

    checkpointer = durable.checkpointer
    try:
        match verb:
            case "record":
                return (await checkpointer.record(holder, words[0], words[1])).first
            case "transact":
                return await checkpointer.transact(holder, words[0], effect)
            case "extend":
                return await checkpointer.extend(holder, MINUTE, MINUTE)
            case "renew":
                return await checkpointer.renew(holder, MINUTE)
            case _:
                await checkpointer.release(holder)
                return None
    except Fenced:
        return "fenced"


async def supply(durable: SqliteDurable, name: str, tasks: str, each: str) -> None:
    """Supplies from many tasks at once, and says how many of them were first."""
    first = 0

    async def task(number: int) -> None:
        nonlocal first
        for index in range(int(each)):
            recorded = await durable.checkpointer.supply(f"{name}/{number}", f"k{index}", index)
            first += recorded.first

    async with durable:
        say("ready")
        sys.stdin.readline()
        async with asyncio.TaskGroup() as group:
            for number in range(int(tasks)):
                group.create_task(task(number))
        say(first)


async def write(durable: SqliteDurable) -> None:
    """Supplies without end, one after the other in eight tasks, until it is killed; says the number of each thousandth."""
    count = 0

    async def task(number: int) -> None:
        nonlocal count
        while True:
            await durable.checkpointer.supply(f"{os.getpid()}/{number}", f"k{count}", None)
            count += 1

    async with durable:
        say("ready")
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(task(number))


async def record(durable: SqliteDurable, workflow: str) -> None:
    """Records without end, and says the number of each that was acknowledged."""
    async with durable:
        holder = await durable.checkpointer.claim(workflow, timedelta(hours=1), timedelta(hours=1))
        assert holder is not None
        for number in range(1_000_000):
            await durable.checkpointer.record(holder, f"k{number}", number)
            say(number)


async def begin(durable: SqliteDurable) -> None:
    """Begins one turn, says which, and stays."""
    async with durable:
        turns = await durable.begin(MINUTE, MINUTE)
        say(turns[0].delivery.workflow, turns[0].delivery.attempt, turns[0].delivery.lapses)
        sys.stdin.readline()


async def die(durable: SqliteDurable, method: str, number: str) -> None:
    """Does one thing to the workflow `w` and is killed before statement `number` of it; says so when it was not."""
    async with durable:
        left = int(number)

        def trace(statement: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        turns = list(await durable.begin(timedelta(0), MINUTE)) if method in ("finish", "pause", "fail") else []
        doing: dict[str, Callable[[], Awaitable[object]]] = {
            "arrive": lambda: durable.arrive("w", "a", 1),
            "deliver": lambda: durable.deliver("w", 1),
            "delete": lambda: durable.delete("w"),
            "begin": lambda: durable.begin(timedelta(0), MINUTE),
            "finish": lambda: durable.finish(turns[0], 1),
            "pause": lambda: durable.pause(turns[0], None),
            "fail": lambda: durable.fail(turns[0], "why", None),
        }

        def set_trace(tx: Tx) -> None:
            tx.connection.set_trace_callback(trace)

        await durable.checkpointer.connection.read(set_trace)
        await doing[method]()
        say("survived")


async def lock(durable: SqliteDurable) -> None:
    """Holds the file's only writer, as an application does, until a line comes."""
    await durable.aclose()
    connection = sqlite3.connect(durable.checkpointer.connection.path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    say("locked")
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()


VERBS: dict[str, Callable[..., Awaitable[None]]] = {
    "prepare": prepare,
    "arrive": arrive,
    "hold": hold,
    "supply": supply,
    "write": write,
    "record": record,
    "begin": begin,
    "die": die,
    "lock": lock,
}

if __name__ == "__main__":

    async def main() -> None:
        await VERBS[sys.argv[1]](SqliteDurable.at(sys.argv[2], lease=SECOND), *sys.argv[3:])

    asyncio.run(main())
