"""Workflows that lapse again and again: alone in their process, and buried when that does not help."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from durable_core import Failed, Finished, Run, result, start
from durable_core._clock import ManualClock
from durable_core.contract import Turn
from durable_core.memory import MemoryDurable
from durable_core.observer import Buried, Event, PassBegan, PutBack
from durable_core.worker import Worker

ZERO = timedelta(0)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


async def lapse(durable: MemoryDurable, clock: ManualClock, times: int) -> None:
    """Take whatever is ready and never answer, so many times in a row."""
    for _ in range(times):
        assert await durable.begin(ZERO, MINUTE, limit=1_000)
        clock.advance(MINUTE)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what the test waits for."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Company:
    """Bodies that know who else is at work."""

    def __init__(self) -> None:
        self.now: set[str] = set()
        self.met: dict[str, int] = {}
        self.lock = threading.Lock()

    async def body(self, run: Run) -> int:
        with self.lock:
            self.now.add(run.workflow)
            for workflow in self.now:
                self.met[workflow] = max(self.met.get(workflow, 0), len(self.now))
        for _ in range(5):
            await asyncio.sleep(0.001)
        self.now.discard(run.workflow)
        return 1


async def finished(durable: MemoryDurable) -> set[str]:
    return {listed.workflow for listed in await durable.workflows(state="finished", limit=1_000)}


@pytest.mark.parametrize(("lapses", "alone"), [(2, False), (3, True), (5, True)])
async def test_work_suspect_runs_alone_from_the_third_lapse_on(lapses: int, alone: bool) -> None:
    """RUN-WORK-SUSPECT: others of a full worker end first, and none begins meanwhile."""
    clock = ManualClock()
    durable, company = MemoryDurable(clock=clock), Company()
    await start(durable, "bad/1")
    await lapse(durable, clock, lapses)
    for number in range(20):
        await start(durable, f"job/{number}")
    await Worker(durable, limit=5).settle({"bad": company.body, "job": company.body})
    assert len(await finished(durable)) == 21
    assert (company.met["bad/1"] == 1) is alone
    assert max(company.met.values()) == 5


async def test_work_suspect_many_suspects_run_one_by_one() -> None:
    """RUN-WORK-SUSPECT: twenty that lapsed together with one that kills are alone one after the other, and none is buried."""
    clock = ManualClock()
    durable, company = MemoryDurable(clock=clock), Company()
    events: list[Event] = []
    for number in range(21):
        await start(durable, f"job/{number}")
    await lapse(durable, clock, 3)
    await Worker(durable, observer=events.append).settle({"job": company.body})
    assert len(await finished(durable)) == 21
    assert set(company.met.values()) == {1}
    assert not [event for event in events if isinstance(event, Buried)]
    assert len([event for event in events if isinstance(event, PutBack)]) == 20


@pytest.mark.parametrize(("lapses", "options", "buried"), [(5, 3, False), (6, 3, True), (4, 1, True), (9, 7, False)])
async def test_work_suspect_is_buried_after_three_lapses_alone(lapses: int, options: int, buried: bool) -> None:
    """RUN-WORK-SUSPECT: configurable, with the reason, and without another pass."""
    clock = ManualClock()
    durable, company = MemoryDurable(clock=clock), Company()
    events: list[Event] = []
    await start(durable, "bad/1")
    await lapse(durable, clock, lapses)
    await Worker(durable, lapses_alone=options, observer=events.append).settle({"bad": company.body})
    ended = await durable.result("bad/1")
    assert isinstance(ended, Failed if buried else Finished)
    assert company.met == ({} if buried else {"bad/1": 1})
    if isinstance(ended, Failed):
        assert f"{lapses} passes" in ended.reason
        assert events == [Buried("bad/1", ended.reason, lapses + 1)]


async def test_work_suspect_progress_clears_the_suspicion() -> None:
    """RUN-WORK-SUSPECT: a pass that is answered ends the row."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)

    async def body(run: Run) -> int:
        await run.sleep("nap", SECOND)
        return 1

    await start(durable, "job/1")
    await lapse(durable, clock, 4)
    await Worker(durable).settle({"job": body})
    clock.advance(SECOND)
    (turn,) = await durable.begin(ZERO, MINUTE)
    assert (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)


async def test_work_suspect_waits_for_no_long_pass_and_comes_back() -> None:
    """RUN-WORK-SUSPECT: it is handed back with a delay, counts unchanged; the worker goes on taking others meanwhile."""
    clock = ManualClock()
    durable, company = MemoryDurable(clock=clock, lease=SECOND), Company()
    events: list[Event] = []
    go, began = asyncio.Event(), asyncio.Event()

    async def long(run: Run) -> int:
        began.set()
        await go.wait()
        return 1

    await start(durable, "bad/1")
    for _ in range(3):
        assert await durable.begin(ZERO, MINUTE)
        clock.advance(SECOND)
    (turn,) = await durable.begin(ZERO, MINUTE)
    await durable.hand_back(turn, 10 * SECOND)
    await start(durable, "long/1")
    worker = Worker(durable, observer=events.append, grace=ZERO)
    running = asyncio.create_task(worker.run({"bad": company.body, "long": long, "job": company.body}))
    await began.wait()
    await durable.arrive("bad/1", "now", True)
    await until(lambda: [event for event in events if isinstance(event, PutBack) and event.workflow == "bad/1"])
    await start(durable, "job/1")
    assert await result(durable, "job/1", int, wait=MINUTE) == Finished(1)
    assert "bad/1" not in company.met
    go.set()
    assert await result(durable, "long/1", int, wait=MINUTE) == Finished(1)
    clock.advance(2 * SECOND)
    assert await result(durable, "bad/1", int, wait=MINUTE) == Finished(1)
    worker.drain()
    await running
    assert [event.attempt for event in events if isinstance(event, PassBegan) and event.workflow == "bad/1"] == [4]


class Seen(MemoryDurable):
    """Writes down what was taken."""

    taken: frozenset[str] = frozenset()

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        turns = await super().begin(wait, budget, limit=limit)
        self.taken |= {turn.delivery.workflow for turn in turns}
        return turns


async def test_work_suspect_does_not_wait_beside_a_pass_that_lapsed_before() -> None:
    """RUN-WORK-SUSPECT: if that one kills the process, it is no lapse of the suspect, which is handed back at once."""
    clock = ManualClock()
    durable, company = Seen(clock=clock), Company()
    events: list[Event] = []
    go, began = asyncio.Event(), asyncio.Event()

    async def long(run: Run) -> int:
        began.set()
        await go.wait()
        return 1

    await start(durable, "bad/1")
    await lapse(durable, clock, 2)
    await start(durable, "long/1")
    await lapse(durable, clock, 1)
    await Worker(durable).settle({})  # puts both off
    durable.taken = frozenset()
    worker = Worker(durable, observer=events.append)
    running = asyncio.create_task(worker.run({"bad": company.body, "long": long}))
    await durable.arrive("long/1", "now", True)
    await began.wait()
    await durable.arrive("bad/1", "now", True)
    await until(lambda: "bad/1" in durable.taken)
    for _ in range(50):
        await asyncio.sleep(0)
    go.set()
    assert await result(durable, "long/1", int, wait=MINUTE) == Finished(1)
    assert PutBack("bad/1", "it runs alone, and others are at work", SECOND) in events
    worker.drain()
    await running


async def test_work_suspect_is_alone_among_all_workers_of_the_process() -> None:
    """RUN-WORK-SUSPECT: in other queues and other threads too."""
    clock = ManualClock()
    durable, company = MemoryDurable(clock=clock), Company()
    other = MemoryDurable(memory=durable.memory, queue="other")
    await start(durable, "bad/1")
    await lapse(durable, clock, 3)
    inside, go = threading.Event(), threading.Event()
    beside = Worker(other, limit=5)

    async def held(run: Run) -> int:
        inside.set()
        while not go.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return 1

    async def in_thread() -> None:
        await start(other, "held/1")
        await beside.run({"held": held})

    thread = threading.Thread(target=asyncio.run, args=(in_thread(),))
    thread.start()
    await asyncio.to_thread(inside.wait, 30)
    running = asyncio.create_task(Worker(durable).settle({"bad": company.body}))
    try:
        await asyncio.sleep(0.2)  # there is nothing to wait for: that it does not begin is the point
        assert company.met == {}
        go.set()
        while not running.done():
            clock.advance(MINUTE / 3)  # who asks for turns does so for a third of a lease, and then sees that it is not wanted
            await asyncio.sleep(0.01)
    finally:
        go.set()
        beside.drain()
        await asyncio.to_thread(thread.join, 30)
    assert isinstance(await durable.result("bad/1"), Finished)
    assert company.met == {"bad/1": 1}


async def test_work_suspect_two_workers_of_a_process_take_turns() -> None:
    """RUN-WORK-SUSPECT: each is alone with its own; who comes second comes back later."""
    clock = ManualClock()
    durable, company = MemoryDurable(clock=clock), Company()
    other = MemoryDurable(memory=durable.memory, queue="other")
    await start(durable, "bad/1")
    await start(other, "bad/2")
    for _ in range(3):
        assert await other.begin(ZERO, MINUTE)
        await lapse(durable, clock, 1)
    while not (isinstance(await durable.result("bad/1"), Finished) and isinstance(await durable.result("bad/2"), Finished)):
        async with asyncio.TaskGroup() as group:
            group.create_task(Worker(durable).settle({"bad": company.body}))
            group.create_task(Worker(other).settle({"bad": company.body}))
        clock.advance(MINUTE)
    assert company.met == {"bad/1": 1, "bad/2": 1}


async def test_work_suspect_nobody_begins_a_pass_while_another_worker_of_the_process_has_a_suspect() -> None:
    """RUN-WORK-SUSPECT: what it takes meanwhile is handed back, counts unchanged."""
    clock = ManualClock()
    durable, company = MemoryDurable(clock=clock), Company()
    other = MemoryDurable(memory=durable.memory, queue="other")
    events: list[Event] = []
    go, began = asyncio.Event(), asyncio.Event()

    async def long(run: Run) -> int:
        began.set()
        await go.wait()
        return 1

    await start(durable, "bad/1")
    await lapse(durable, clock, 3)
    alone = asyncio.create_task(Worker(durable).settle({"bad": long}))
    await began.wait()
    beside = Worker(other, observer=events.append)
    running = asyncio.create_task(beside.run({"job": company.body}))
    await start(other, "job/1")
    await asyncio.sleep(0.2)
    assert company.met == {}
    assert not events
    go.set()
    assert await result(other, "job/1", int, wait=MINUTE) == Finished(1)
    beside.drain()
    await running
    await alone
