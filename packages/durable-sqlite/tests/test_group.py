"""Group commit: what waits together is committed together, and nobody is the worse for it. [CKP-RECORD-CONCURRENT]"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from durable_core.contract import Pass
from durable_core.errors import Fenced, NotEncodable
from durable_sqlite import SqliteCheckpointer, SqliteDurable

LONG = timedelta(hours=1)


def commits(statements: list[str]) -> int:
    return sum(statement.startswith("COMMIT") for statement in statements)


async def claimed(checkpointer: SqliteCheckpointer, workflow: str) -> Pass:
    holder = await checkpointer.claim(workflow, LONG, LONG)
    assert holder is not None
    return holder


async def test_fifty_branches_share_their_commits(durable: SqliteDurable, statements: list[str]) -> None:
    """Fifty records at once all land, none twice, in a few commits."""
    holder = await claimed(durable.checkpointer, "w")
    del statements[:]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(durable.checkpointer.record(holder, f"k{number}", number)) for number in range(50)]
    assert all(task.result().first for task in tasks)
    assert sorted((await durable.checkpointer.load("w")).values(), key=str) == sorted(range(50), key=str)
    assert commits(statements) <= 5


async def test_fifty_workflows_share_their_commits(durable: SqliteDurable, statements: list[str]) -> None:
    """Fifty workflows of ten steps pay for far fewer than five hundred commits."""
    holders = [await claimed(durable.checkpointer, f"w/{number}") for number in range(50)]
    del statements[:]

    async def steps(holder: Pass) -> None:
        for number in range(10):
            await durable.checkpointer.record(holder, f"k{number}", number)

    async with asyncio.TaskGroup() as group:
        for holder in holders:
            group.create_task(steps(holder))
    assert commits(statements) <= 100
    for holder in holders:
        assert list((await durable.checkpointer.load(holder.workflow)).values()) == list(range(10))


async def test_a_lone_step_is_one_commit(durable: SqliteDurable, statements: list[str]) -> None:
    """Nothing is held back to wait for company."""
    holder = await claimed(durable.checkpointer, "w")
    del statements[:]
    for number in range(10):
        await durable.checkpointer.record(holder, f"k{number}", number)
    assert commits(statements) == 10


async def test_one_refused_disturbs_no_other(durable: SqliteDurable) -> None:
    """A fenced and an unencodable value among forty: those two fail, the others land."""
    checkpointer = durable.checkpointer
    old = await claimed(checkpointer, "w")
    await checkpointer.release(old)
    new = await claimed(checkpointer, "w")
    async with asyncio.TaskGroup() as group:
        fenced = asyncio.create_task(checkpointer.record(old, "old", 1))
        landed = [group.create_task(checkpointer.record(new, f"k{number}", number)) for number in range(20)]
        refused = asyncio.create_task(checkpointer.record(new, "bad", {1}))
        landed += [group.create_task(checkpointer.record(new, f"l{number}", number)) for number in range(20)]
    with pytest.raises(Fenced):
        await fenced
    with pytest.raises(NotEncodable):
        await refused
    assert all(task.result().first for task in landed)
    assert len(await checkpointer.load("w")) == 40


@pytest.mark.parametrize("resolution", ["ABORT", "ROLLBACK", "FAIL"])
async def test_one_failing_in_the_database_disturbs_no_other(durable: SqliteDurable, resolution: str) -> None:
    """A trigger of the application's that ends the whole transaction takes only its own row along."""
    checkpointer = durable.checkpointer
    with sqlite3.connect(checkpointer.connection.path) as connection:
        connection.execute(
            "CREATE TRIGGER no BEFORE INSERT ON workflow_checkpoint WHEN new.key = 'bad' "
            f"BEGIN SELECT RAISE({resolution}, 'not this one'); END"
        )
    connection.close()
    holder = await claimed(checkpointer, "w")
    async with asyncio.TaskGroup() as group:
        landed = [group.create_task(checkpointer.record(holder, f"k{number}", number)) for number in range(20)]
        bad = asyncio.create_task(checkpointer.record(holder, "bad", 1))
        landed += [group.create_task(durable.arrive(f"v/{number}", "k", number)) for number in range(20)]
    with pytest.raises(sqlite3.IntegrityError, match="not this one"):
        await bad
    assert all(task.result().first for task in landed)
    assert list(await checkpointer.load("w")) == [f"k{number}" for number in range(20)]
    with pytest.raises(sqlite3.IntegrityError, match="not this one"):
        await durable.arrive("v/0", "bad", 1)
    assert len(await durable.workflows(prefix="v/")) == 20


async def test_a_cancelled_caller_cancels_nobody_else(durable: SqliteDurable) -> None:
    """Case 34: of sixty at once every third caller is cancelled; the others land, and every answer is that of its question."""
    checkpointer = durable.checkpointer
    holder = await claimed(checkpointer, "w")
    for turn in range(10):
        tasks = [asyncio.create_task(checkpointer.record(holder, f"k{turn}.{number}", number)) for number in range(60)]
        for _ in range(turn):
            await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        for number, task in enumerate(tasks):
            try:
                assert (await task).value == number
            except asyncio.CancelledError:
                assert number % 3 == 0
                assert (await checkpointer.load("w")).get(f"k{turn}.{number}", number) == number


async def test_a_cancelled_load_leaves_the_next_one_alone(durable: SqliteDurable) -> None:
    """Case 34: whoever asks after a cancelled call is given its own answer."""
    checkpointer = durable.checkpointer
    for name in ("a", "b"):
        await checkpointer.supply(name, "who", name)
    for turn in range(200):
        first = asyncio.create_task(checkpointer.load("a"))
        for _ in range(turn % 4):
            await asyncio.sleep(0)
        first.cancel()
        assert await checkpointer.load("b") == {"who": "b"}
    assert (await checkpointer.supply("a", "more", 1)).first


async def test_step_ten_thousand_costs_what_the_first_cost(durable: SqliteDurable, statements: list[str]) -> None:
    """Case 126: the statements of the steps after 9 000 are those of the first ones, and ten thousand records are one load."""
    checkpointer = durable.checkpointer
    holder = await claimed(checkpointer, "w")

    async def steps(begin: int) -> list[str]:
        del statements[:]
        for number in range(begin, begin + 100):
            await checkpointer.record(holder, f"s{number}", "x" * 200)
        return [statement.split("(")[0] for statement in statements]

    first = await steps(0)
    with sqlite3.connect(checkpointer.connection.path) as connection:
        connection.executemany(
            "INSERT INTO workflow_checkpoint (workflow, key, value, at) VALUES ('w', ?, '1', 0)",
            [(f"s{number}",) for number in range(100, 9_900)],
        )
    connection.close()
    assert len(await steps(9_900)) == len(first) == 400
    del statements[:]
    assert len(await checkpointer.load("w")) == 10_000
    assert len(statements) == 1


async def test_reads_leave_nothing_open(durable: SqliteDurable) -> None:
    """After any read the log can be emptied by somebody else: a statement that is not finished would keep it growing for ever."""
    await durable.arrive("w", "k", 1)
    holder = await claimed(durable.checkpointer, "w")
    checkpointer, scheduler = durable.checkpointer, durable.scheduler
    maintenance = sqlite3.connect(checkpointer.connection.path, isolation_level=None)
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: checkpointer.load("w"),
        lambda: checkpointer.history("w"),
        lambda: scheduler.buried("w"),
        lambda: durable.result("w"),
        lambda: durable.workflows(),
        lambda: durable.describe(),
        lambda: durable.watch("w", timedelta(0)),
        lambda: durable.begin(timedelta(0), LONG),
        lambda: scheduler.next_ready(timedelta(0)),
        lambda: checkpointer.record(holder, "l", 1),
        lambda: checkpointer.transact(holder, "m", lambda cursor: cursor.execute("SELECT 1").rowcount),
    ]
    for number, read in enumerate(reads):
        maintenance.execute("CREATE TABLE IF NOT EXISTS t (x)")
        maintenance.execute("INSERT INTO t VALUES (1)")
        await read()
        busy = maintenance.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        assert (number, busy) == (number, 0)
    maintenance.close()
