"""What a call costs, counted: statements, commits, and hops to the store's thread and back."""

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from durable_core import Completed, Run, resume, start
from durable_core.contract import Pass, Turn
from durable_sqlite import SqliteDurable

LONG = timedelta(hours=1)
PAGE = 4_096


class Costs:
    """The statements since the last look, by their first word, and how often the thread called a loop."""

    def __init__(self, statements: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._statements = statements
        self._hops = 0
        loop = asyncio.get_running_loop()
        call = loop.call_soon_threadsafe

        def counted(callback: Callable[..., object], *args: object) -> asyncio.Handle:
            self._hops += 1
            return call(callback, *args)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)

    async def of(self, call: Awaitable[object]) -> tuple[str, int]:
        """Give the first words of the statements that a call runs, and its hops."""
        del self._statements[:]
        before = self._hops
        await call
        return " ".join(statement.split()[0] for statement in self._statements), self._hops - before


@pytest.fixture
async def costs(statements: list[str], monkeypatch: pytest.MonkeyPatch) -> Costs:
    return Costs(statements, monkeypatch)


async def charged() -> str:
    return "charged"


async def claimed(durable: SqliteDurable, workflow: str) -> Pass:
    holder = await durable.checkpointer.claim(workflow, LONG, LONG)
    assert holder is not None
    return holder


def size_of_log(durable: SqliteDurable) -> int:
    return os.path.getsize(durable.checkpointer.connection.path + "-wal")


async def begun(durable: SqliteDurable, workflow: str) -> Turn:
    await start(durable, workflow, 1)
    (turn,) = await durable.begin(timedelta(0), LONG)
    return turn


async def test_a_step_is_four_statements_one_commit_and_one_hop(durable: SqliteDurable, costs: Costs) -> None:
    """The fence is asked and the record written; the body adds nothing."""
    holder = await claimed(durable, "w")
    found: list[tuple[str, int]] = []

    async def body(run: Run) -> None:
        for number in range(10):
            found.append(await costs.of(run.step(f"s{number}", charged, str)))

    assert await resume(durable.checkpointer, holder, body, records={}, budget=LONG, alive=LONG) == Completed(None)
    assert found == [("BEGIN SELECT INSERT COMMIT", 1)] * 10


async def test_a_recorded_step_asks_nobody(durable: SqliteDurable, costs: Costs) -> None:
    """A pass of a hundred recorded steps is one statement, which loads them, and one hop."""
    holder = await claimed(durable, "w")
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(durable.checkpointer.record(holder, f"s{number}", "charged"))

    async def body(run: Run) -> None:
        for number in range(100):
            await run.step(f"s{number}", charged, str)

    assert await costs.of(resume(durable.checkpointer, holder, body, budget=LONG, alive=LONG)) == ("SELECT", 1)


async def test_an_effect_in_the_transaction_is_one_hop(durable: SqliteDurable, costs: Costs) -> None:
    """A step that commits something of the application's has one statement more, beside its own."""
    holder = await claimed(durable, "w")
    call = durable.checkpointer.transact(holder, "k", lambda cursor: 1)
    assert await costs.of(call) == ("BEGIN SELECT SELECT INSERT COMMIT", 1)


async def test_the_frame_of_a_workflow_is_three_commits(durable: SqliteDurable, costs: Costs) -> None:
    """Beyond its steps a workflow is started, begun and finished, each in one commit and one hop."""
    assert await costs.of(start(durable, "w", 1)) == ("BEGIN INSERT INSERT COMMIT", 1)
    turns: list[Turn] = []

    async def begin() -> None:
        turns.extend(await durable.begin(timedelta(0), LONG))

    look, taken = "SELECT", "SELECT SELECT SELECT UPDATE INSERT UPDATE SELECT"
    assert await costs.of(begin()) == (f"{look} BEGIN {taken} COMMIT", 1)
    assert await costs.of(durable.finish(turns[0], 1)) == ("BEGIN SELECT INSERT UPDATE SELECT DELETE COMMIT", 1)


async def test_a_renewal_and_a_pause_are_one_commit(durable: SqliteDurable, costs: Costs) -> None:
    """Claim and wakeup are kept together, and given back together."""
    turn = await begun(durable, "w")
    assert await costs.of(durable.renew(turn)) == ("BEGIN SELECT UPDATE UPDATE COMMIT", 1)
    assert await costs.of(durable.pause(turn, None)) == ("BEGIN SELECT UPDATE SELECT DELETE COMMIT", 1)


async def test_next_deep_fifty_that_came_together_lie_on_a_few_pages(durable: SqliteDurable) -> None:
    """SCH-NEXT-DEEP: however the ids are scattered, to take fifty of twenty thousand writes far fewer pages than fifty."""
    with sqlite3.connect(durable.checkpointer.connection.path) as connection:
        connection.executemany(
            "INSERT INTO workflow_queue (workflow, queue, due, look, attempt, lapses, newer) "
            "VALUES (?, 'default', ?, ?, 1, 0, 0)",
            [(hashlib.sha256(b"%d" % number).hexdigest(), number, number) for number in range(20_000)],
        )
    assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    connection.close()
    assert len(await durable.begin(timedelta(0), LONG, limit=50)) == 50
    assert size_of_log(durable) < 25 * PAGE
