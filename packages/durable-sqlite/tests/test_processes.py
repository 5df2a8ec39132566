"""Several processes on one file, killed and stopped for real."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from durable_sqlite import SqliteDurable

NOW = timedelta(0)
SOON = timedelta(seconds=30)
LONG = timedelta(hours=1)
Start = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def tell(process: "subprocess.Popen[str]", text: str = "") -> None:
    assert process.stdin
    process.stdin.write(text + "\n")
    process.stdin.flush()


async def test_a_stopped_holder_is_fenced_at_each_write(durable: SqliteDurable, child: Start) -> None:
    """Case 4: SIGSTOP past its window, somebody else claims, SIGCONT: whatever the first pass does then changes nothing."""
    first = child("hold", "w", "0.05")
    token = int(said(first))
    first.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(30):
        while (second := await durable.checkpointer.claim("w", LONG, LONG)) is None:  # noqa: ASYNC110 - until the window is over
            await asyncio.sleep(0.005)
    assert second.token > token
    await durable.checkpointer.record(second, "a", "second")
    before = await durable.checkpointer.history("w")
    first.send_signal(signal.SIGCONT)
    for words, answer in (
        (["record", "a", "first"], "fenced"),
        (["record", "b", "first"], "fenced"),
        (["transact", "c"], "fenced"),
        (["transact", "a"], "fenced"),
        (["extend"], False),
        (["renew"], False),
        (["release"], None),
    ):
        tell(first, json.dumps(words))
        assert json.loads(said(first)) == answer
    assert await durable.checkpointer.history("w") == before
    assert await durable.checkpointer.claim("w", LONG, LONG) is None
    tables = await durable.checkpointer.connection.read(
        lambda tx: tx.execute("SELECT name FROM sqlite_schema WHERE name = 'torn'").fetchall()
    )
    assert tables == []
    assert (await durable.checkpointer.record(second, "b", "second")).first


async def test_a_killed_worker_s_turn_is_taken_up(durable: SqliteDurable, child: Start) -> None:
    """[SCH-NEXT-LAPSED] [SCH-READY-EVENTUALLY] After SIGKILL the turn is given out again when its lease is over, counted as a
    lapse.
    """
    await durable.arrive("w", "input", 1)
    worker = child("begin")
    assert said(worker) == "w 1 0"
    worker.kill()
    worker.wait(20)
    (turn,) = await durable.begin(SOON, LONG)
    assert (turn.delivery.workflow, turn.delivery.attempt, turn.delivery.lapses) == ("w", 2, 1)
    assert dict(turn.records or {}) == {"input": 1}


async def test_what_was_acknowledged_survives_a_kill(durable: SqliteDurable, child: Start) -> None:
    """[CKP-RECORD-DURABLE] [CKP-SUPPLY-DURABLE] SIGKILL in the middle of recording: every record that was acknowledged is
    there, in order.
    """
    worker = child("record", "w")
    acknowledged = 0
    while acknowledged < 200:
        acknowledged = int(said(worker))
    worker.kill()
    rest = worker.communicate()[0].split()
    acknowledged = int(rest[-1]) if rest else acknowledged
    found = list((await durable.checkpointer.load("w")).values())
    assert len(found) > acknowledged
    assert found == list(range(len(found)))


@pytest.mark.parametrize("method", ["arrive", "deliver", "delete", "begin", "finish", "pause", "fail"])
async def test_a_kill_before_any_statement_shows_both_halves_or_none(path: Path, child: Start, method: str) -> None:
    """[DUR-CO-COMMIT] Cases 88 and 92: killed before each statement in turn, a transition is whole or absent."""
    seen: Counter[object] = Counter()
    for number in range(40):
        async with SqliteDurable.at(path, lease=LONG) as durable:
            await durable.delete("w")
            if method != "arrive" and method != "deliver":
                await durable.arrive("w", "input", 1)
        worker = child("die", method, number)
        survived = worker.communicate(timeout=60)[0].strip() == "survived"
        connection = sqlite3.connect(path)
        records = connection.execute(
            "SELECT count(*), max(key = 'outcome:') FROM workflow_checkpoint WHERE workflow = 'w'"
        ).fetchone()
        held = connection.execute("SELECT held FROM workflow_claim WHERE workflow = 'w'").fetchall()
        queue = connection.execute("SELECT receipt IS NOT NULL, reason FROM workflow_queue WHERE workflow = 'w'").fetchall()
        connection.close()
        seen[(records, tuple(held), tuple(queue))] += 1
        if survived:
            break
    before, after = {
        "arrive": (((0, None), (), ()), ((1, 0), (), ((0, None),))),
        "deliver": (((0, None), (), ()), ((1, 0), (), ((0, None),))),
        "delete": (((1, 0), (), ((0, None),)), ((0, None), (), ())),
        "begin": (((1, 0), (), ((0, None),)), ((1, 0), ((1,),), ((1, None),))),
        "finish": (((1, 0), ((1,),), ((1, None),)), ((2, 1), ((0,),), ())),
        "pause": (((1, 0), ((1,),), ((1, None),)), ((1, 0), ((0,),), ())),
        "fail": (((1, 0), ((1,),), ((1, None),)), ((1, 0), ((0,),), ((0, "why"),))),
    }[method]
    assert set(seen) == {before, after}
    assert seen[before] >= 3


async def test_a_wakeup_from_another_process_is_seen(durable: SqliteDurable, child: Start) -> None:
    """[SCH-NEXT-WAIT] A taker that waits hears of another process's arrival, each time, long before its wait is over."""
    for number in range(5):
        arriving = child("arrive", f"w{number}")
        assert said(arriving) == "ready"
        waiting = asyncio.create_task(durable.begin(LONG, LONG))
        await durable.checkpointer.load("nobody")
        tell(arriving)
        async with asyncio.timeout(30):
            (turn,) = await waiting
        assert turn.delivery.workflow == f"w{number}"
        await durable.pause(turn, None)


async def test_four_processes_write_and_none_is_refused(durable: SqliteDurable, child: Start) -> None:
    """Case 115: four processes of eight tasks, with a reader that holds a long transaction: no "database is locked", nothing
    lost.
    """
    reader = sqlite3.connect(durable.checkpointer.connection.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM workflow_checkpoint").fetchall()
    processes = [child("supply", f"p{number % 2}", 8, 30) for number in range(4)]
    for process in processes:
        assert said(process) == "ready"
    for process in processes:
        tell(process)
    firsts = [int(said(process)) for process in processes]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
    reader.execute("ROLLBACK")
    reader.close()
    listed = await durable.workflows(limit=1_000)
    assert len(listed) == 16
    assert [one.records for one in listed] == [30] * 16
    assert all(first == 240 for first in firsts)  # equal encodings: a tie is a win for both


async def test_four_processes_are_served_fairly(durable: SqliteDurable, child: Start) -> None:
    """While three others write as fast as they can, each of the four gets its share of every few hundred commits."""
    processes = [child("write") for _ in range(4)]
    for process in processes:
        assert said(process) == "ready"

    async def counts() -> Counter[str]:
        listed = await durable.workflows(limit=1_000)
        total: Counter[str] = Counter()
        for one in listed:
            total[one.workflow.split("/")[0]] += one.records
        return total

    async with asyncio.timeout(60):
        while len(await counts()) < 4:  # noqa: ASYNC110 - what other processes do
            await asyncio.sleep(0.01)
        for _ in range(3):
            before = await counts()
            while sum((after := await counts()).values()) < sum(before.values()) + 1_500:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            gained = after - before
            assert len(gained) == 4
            assert min(gained.values()) * 8 > max(gained.values())
    for process in processes:
        process.kill()


async def test_a_stopped_writer_holds_up_nobody_for_long(path: Path, child: Start) -> None:
    """Beside a process that is frozen again and again writes land, or say that it is locked where it is frozen inside its
    commit.
    """
    worker = child("write")
    assert said(worker) == "ready"
    refused = set[str]()
    async with SqliteDurable.at(path, busy_timeout=timedelta(milliseconds=50)) as durable:

        async def supply(key: str) -> bool:
            try:
                return (await durable.checkpointer.supply("w", key, None)).first
            except sqlite3.OperationalError as error:
                refused.add(error.sqlite_errorname)
                return False

        for number in range(10):
            worker.send_signal(signal.SIGSTOP)
            await supply(f"frozen{number}")
            worker.send_signal(signal.SIGCONT)
            while not await supply(f"k{number}"):
                pass
        assert len([key for key in await durable.checkpointer.load("w") if key.startswith("k")]) == 10
    assert refused <= {"SQLITE_BUSY"}


async def test_a_deleted_workflow_is_fenced_in_another_process(durable: SqliteDurable, child: Start) -> None:
    """Case 91: a pass in another process whose workflow is deleted lands nothing any more."""
    holding = child("hold", "w", "60")
    said(holding)
    tell(holding, json.dumps(["record", "a", "1"]))
    assert said(holding) == "true"
    assert await durable.delete("w") == 1
    tell(holding, json.dumps(["record", "b", "1"]))
    assert json.loads(said(holding)) == "fenced"
    assert await durable.checkpointer.load("w") == {}
