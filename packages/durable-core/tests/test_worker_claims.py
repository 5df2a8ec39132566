"""The worker and its claims: renewed beside the work, lost, run out of, and never given to two."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from durable_core import Finished, Run, result, start
from durable_core._clock import ManualClock
from durable_core.contract import Turn
from durable_core.memory import Memory, MemoryDurable
from durable_core.observer import ClaimLost, Event, PassEnded, PutBack, Retried, StoreBack, StoreLost
from durable_core.worker import Worker

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
THIRD = timedelta(seconds=20)


class Store(MemoryDurable):
    """Counts renewals, and can be out of reach."""

    def __init__(self, *, clock: ManualClock | None = None, memory: Memory | None = None, lease: timedelta = MINUTE) -> None:
        super().__init__(clock=clock, memory=memory, lease=lease)
        self.asked = self.renewed = 0
        self.down = self.deaf = False

    async def renew(self, turn: Turn) -> Turn | None:
        self.asked += 1
        if self.deaf:
            await asyncio.get_running_loop().create_future()
        if self.down:
            raise ConnectionError("nobody there")
        renewed = await super().renew(turn)
        self.renewed += 1
        return renewed


async def until(condition: Callable[[], object]) -> None:
    """Wait for what the test waits for."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Effect:
    """An effect that runs until it is let go."""

    def __init__(self) -> None:
        self.runs = 0
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.cancelled = 0

    async def __call__(self) -> int:
        self.runs += 1
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return 1


async def test_work_renews_three_times_per_window_while_the_body_is_at_work() -> None:
    """RUN-WORK, case 1: nobody else gets a turn, and the attempt does not rise."""
    clock = ManualClock()
    durable, effect = Store(clock=clock), Effect()
    other = MemoryDurable(memory=durable.memory)

    async def body(run: Run) -> int:
        return await run.step("slow", effect, int)

    await start(durable, "job/1")
    worker = Worker(durable)
    running = asyncio.create_task(worker.run({"job": body}))
    await effect.began.wait()
    for renewals in range(1, 10):
        clock.advance(THIRD)
        await until(lambda: durable.renewed == renewals)  # noqa: B023
        assert await other.begin(timedelta(0), MINUTE) == []
        assert await other.checkpointer.claim("job/1", MINUTE, MINUTE) is None
    effect.go.set()
    assert await result(durable, "job/1", int, wait=MINUTE) == Finished(1)
    worker.drain()
    await running
    assert effect.runs == 1


async def test_case_137_one_id_runs_one_body() -> None:
    """RUN-WORK: a second worker in the same process, and a claim by hand, get nothing while it runs."""
    durable, effect = Store(), Effect()

    async def body(run: Run) -> int:
        return await run.step("slow", effect, int)

    await start(durable, "job/1")
    first = asyncio.create_task(Worker(durable).run({"job": body}))
    await effect.began.wait()
    await start(durable, "job/1")
    await Worker(durable).settle({"job": body})
    assert effect.runs == 1
    effect.go.set()
    assert await result(durable, "job/1", int, wait=MINUTE) == Finished(1)
    first.cancel()
    await asyncio.wait((first,))
    assert effect.runs == 1


async def test_cases_91_and_144_a_deleted_workflow_stops_and_stays_away() -> None:
    """RUN-WORK: the delete does not wait for the pass; the body ends with the next renewal; nothing comes back."""
    clock = ManualClock()
    durable, effect = Store(clock=clock), Effect()
    events: list[Event] = []

    async def body(run: Run) -> int:
        return await run.step("slow", effect, int)

    await start(durable, "job/1")
    worker = Worker(durable, observer=events.append)
    running = asyncio.create_task(worker.run({"job": body}))
    await effect.began.wait()
    assert await durable.delete("job/1") == 1
    clock.advance(THIRD)
    await until(lambda: any(isinstance(event, PassEnded) for event in events))
    assert effect.cancelled == 1
    assert [type(event) for event in events if not isinstance(event, PutBack)][-2:] == [ClaimLost, PassEnded]
    assert await durable.checkpointer.load("job/1") == {}
    assert await durable.workflows() == []
    worker.drain()
    await running


async def test_work_a_pass_whose_claim_was_taken_is_handed_back_with_its_counts() -> None:
    """RUN-WORK, case 8: it is no failure."""
    clock = ManualClock()
    durable, effect = Store(clock=clock), Effect()
    events: list[Event] = []

    async def body(run: Run) -> int:
        return await run.step("slow", effect, int)

    await start(durable, "job/1")
    worker = Worker(durable, observer=events.append)
    running = asyncio.create_task(worker.run({"job": body}))
    await effect.began.wait()
    await durable.checkpointer.discard("job/1")
    rival = await durable.checkpointer.claim("job/1", MINUTE, MINUTE)
    assert rival is not None
    clock.advance(THIRD)
    await until(lambda: any(isinstance(event, PassEnded) for event in events))
    assert PutBack("job/1", "the claim was lost", SECOND) in events
    worker.drain()
    await running
    await durable.checkpointer.release(rival)
    clock.advance(SECOND)
    (turn,) = await durable.begin(timedelta(0), MINUTE)
    assert (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)


@pytest.mark.parametrize("fault", ["down", "deaf"])
async def test_work_an_unanswered_renewal_ends_the_body_when_the_window_is_over_and_not_before(fault: str) -> None:
    """RUN-WORK: whether the store refuses or says nothing at all."""
    clock = ManualClock()
    durable, effect = Store(clock=clock), Effect()
    events: list[Event] = []

    async def body(run: Run) -> int:
        return await run.step("slow", effect, int)

    await start(durable, "job/1")
    worker = Worker(durable, observer=events.append)
    running = asyncio.create_task(worker.run({"job": body}))
    await effect.began.wait()
    setattr(durable, fault, True)
    clock.advance(THIRD)
    await until(lambda: durable.asked)
    clock.advance(THIRD)
    before = durable.asked
    await until(lambda: durable.asked > before)
    clock.advance(THIRD - SECOND)
    before = durable.asked
    if fault == "down":
        await until(lambda: durable.asked > before)
    assert effect.cancelled == 0
    clock.advance(2 * SECOND)
    await until(lambda: effect.cancelled)
    setattr(durable, fault, False)
    await until(lambda: any(isinstance(event, PassEnded) for event in events))
    running.cancel()
    await asyncio.wait((running,))
    assert any(isinstance(event, StoreLost) for event in events) is (fault == "down")


async def test_work_a_short_outage_is_survived_by_the_pass() -> None:
    """RUN-WORK: said once when the store goes, once when it is back."""
    clock = ManualClock()
    durable, effect = Store(clock=clock), Effect()
    events: list[Event] = []

    async def body(run: Run) -> int:
        return await run.step("slow", effect, int)

    await start(durable, "job/1")
    worker = Worker(durable, observer=events.append)
    running = asyncio.create_task(worker.run({"job": body}))
    await effect.began.wait()
    for renewals in range(1, 6):
        clock.advance(THIRD)
        await until(lambda: durable.renewed == renewals)  # noqa: B023
    durable.down = True
    clock.advance(2 * THIRD)
    await until(lambda: durable.asked > 5)
    clock.advance(15 * SECOND)
    await until(lambda: durable.asked > 6)
    durable.down = False
    clock.advance(2 * SECOND)
    await until(lambda: StoreBack() in events)
    effect.go.set()
    assert await result(durable, "job/1", int, wait=MINUTE) == Finished(1)
    worker.drain()
    await running
    assert [type(event) for event in events if isinstance(event, (StoreLost, StoreBack))] == [StoreLost, StoreBack]
    assert effect.runs == 1


async def test_step_budget_a_pass_that_ran_out_of_it_is_a_failed_attempt() -> None:
    """RUN-STEP-BUDGET: the reason names the step at work and the budget; renewals do not lift it."""
    clock = ManualClock()
    durable, effect = Store(clock=clock), Effect()
    events: list[Event] = []

    async def body(run: Run) -> int:
        return await run.step("endless", effect, int)

    await start(durable, "job/1")
    worker = Worker(durable, observer=events.append, budget=3 * MINUTE)
    running = asyncio.create_task(worker.run({"job": body}))
    await effect.began.wait()
    for _ in range(9):
        before = durable.renewed
        clock.advance(THIRD)
        await until(lambda: durable.renewed > before)  # noqa: B023
    await until(lambda: any(isinstance(event, Retried) for event in events))
    worker.drain()
    await running
    (retried,) = [event for event in events if isinstance(event, Retried)]
    assert "'endless'" in retried.reason
    assert "0:03:00" in retried.reason
    assert retried.attempt == 1
    assert effect.cancelled == 1
    (listed,) = await durable.workflows()
    assert listed.attempt == 2


@pytest.mark.timing
async def test_case_7_a_blocked_loop_is_warned_of_and_its_pass_goes_on_when_nobody_claimed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """RUN-WORK: the record of the blocking effect stands, and the pass renews before the next one."""
    durable = Store(lease=timedelta(seconds=0.3))
    # The clock of this store is the system's; only a blocked loop needs real time.
    caplog.set_level(logging.WARNING, "durable_core")

    async def block() -> int:
        await asyncio.sleep(0)
        time.sleep(0.5)  # noqa: ASYNC251
        return 1

    async def after() -> int:
        await asyncio.sleep(0)
        return 2

    async def body(run: Run) -> list[int]:
        return [await run.step("cpu", block, int), await run.step("after", after, int)]

    await start(durable, "job/1")
    await Worker(durable, budget=MINUTE).settle({"job": body})
    assert await durable.result("job/1") == Finished([1, 2])
    assert durable.renewed >= 1
    assert [record for record in caplog.records if record.__dict__.get("durable_blocked", 0) > 0.1]
