"""Ending a worker: gently, at once, by signal, by cancellation, on any loop and in any thread."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from durable_core import Finished, OutcomeUnknown, Run, in_thread, result, start
from durable_core._clock import ManualClock
from durable_core.contract import Pass, Recorded, Turn
from durable_core.memory import MemoryCheckpointer, MemoryDurable, MemoryEffect
from durable_core.observer import Event, PassEnded, PutBack
from durable_core.worker import Worker

ZERO = timedelta(0)
MINUTE = timedelta(minutes=1)


class Effect:
    """An effect that runs until it is let go."""

    def __init__(self) -> None:
        self.runs = self.cancelled = 0
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> int:
        self.runs += 1
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.runs


class Scene:
    """A worker that is inside an effect."""

    def __init__(self, durable: MemoryDurable, worker: Worker[MemoryEffect], running: asyncio.Task[None], effect: Effect) -> None:
        self.durable, self.worker, self.running, self.effect = durable, worker, running, effect
        self.events: list[Event] = []

    async def turn(self) -> Turn:
        """Take what came back."""
        (turn,) = await self.durable.begin(ZERO, MINUTE)
        return turn


@asynccontextmanager
async def scene(
    *,
    at_most_once: bool = False,
    grace: timedelta = MINUTE,
    signals: Sequence[signal.Signals] = (),
    durable: MemoryDurable | None = None,
) -> AsyncGenerator[Scene]:
    """Start a worker and wait until it is inside the effect."""
    durable = MemoryDurable() if durable is None else durable
    effect, events = Effect(), list[Event]()

    async def body(run: Run) -> int:
        first = await run.step("first", effect, int, at_most_once=at_most_once)
        return first + await run.step("second", effect, int, at_most_once=at_most_once)

    await start(durable, "job/1")
    worker = Worker(durable, grace=grace, observer=events.append)
    running = asyncio.create_task(worker.run({"job": body}, signals=signals))
    await effect.began.wait()
    made = Scene(durable, worker, running, effect)
    made.events = events
    yield made
    if not running.done():
        running.cancel()
        await asyncio.wait((running,))


async def turns(count: int = 200) -> None:
    """Let the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


def is_untouched(turn: Turn) -> bool:
    """Say whether the delivery is the same attempt still."""
    return (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)


async def test_work_drain_takes_nothing_more_and_lets_passes_finish() -> None:
    """RUN-WORK-DRAIN: within the grace time nothing is cancelled, and `run` returns once everything is answered."""
    async with scene() as at:
        at.worker.drain()
        at.worker.drain()
        await turns()
        await start(at.durable, "job/2")
        await turns()
        assert not at.running.done()
        at.effect.go.set()
        await at.running
        assert await result(at.durable, "job/1", int) == Finished(3)
        assert is_untouched(await at.turn())
        assert at.effect.runs == 2
        assert at.effect.cancelled == 0


async def test_work_drain_hands_back_at_the_end_of_the_grace_time() -> None:
    """RUN-WORK-DRAIN, case 105: at once, as the same attempt, and nothing is a failure."""
    async with scene(grace=ZERO) as at:
        at.worker.drain()
        await at.running
        assert at.effect.cancelled == 1
        assert [type(event) for event in at.events][-2:] == [PutBack, PassEnded]
        assert at.events[-1] == PassEnded("job/1", 1, "handed back")
        assert is_untouched(await at.turn())


async def test_work_drain_keeps_renewing() -> None:
    """RUN-WORK-DRAIN: a pass that is waited for keeps its workflow."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    async with scene(durable=durable) as at:
        at.worker.drain()
        for _ in range(6):
            (before,) = await durable.workflows()
            clock.advance(MINUTE / 3)
            while (await durable.workflows())[0].held_until == before.held_until:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        at.effect.go.set()
        await at.running
        assert await result(durable, "job/1", int) == Finished(3)


async def test_work_drain_before_run_and_after() -> None:
    """RUN-WORK-DRAIN: it is never too early, and what is drained takes no more."""
    durable = MemoryDurable()
    worker = Worker(durable)
    worker.drain()
    await start(durable, "job/1")
    await worker.run({})
    await worker.settle({})
    worker.drain()
    assert is_untouched((await durable.begin(ZERO, MINUTE))[0])


async def test_work_drain_from_another_thread() -> None:
    """RUN-WORK-DRAIN: it wakes the loop."""
    async with scene(grace=ZERO) as at:
        await asyncio.to_thread(at.worker.drain)
        await at.running
        assert at.effect.cancelled == 1


async def test_work_drain_cancelling_run_hands_back_at_once_and_is_raised() -> None:
    """RUN-WORK-DRAIN: whatever the grace time."""
    async with scene() as at:
        at.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await at.running
        assert at.effect.cancelled == 1
        assert is_untouched(await at.turn())


async def test_work_drain_a_turn_that_has_not_begun_is_handed_back_too() -> None:
    """RUN-WORK-DRAIN: cancelled between `begin` and the first line of the pass."""
    durable = MemoryDurable()
    bodies = 0

    async def body(run: Run) -> None:
        nonlocal bodies
        bodies += 1
        await asyncio.sleep(60)

    for stop in range(40):
        workflow = f"job/{stop}"
        await start(durable, workflow)
        running = asyncio.create_task(Worker(durable).run({"job": body}))
        await turns(stop)
        running.cancel()
        await asyncio.wait((running,))
        assert running.cancelled()
        (turn,) = await durable.begin(ZERO, MINUTE)
        assert is_untouched(turn)
        await durable.finish(turn, None)
    assert 0 < bodies < 40


def test_work_drain_when_every_task_is_cancelled_at_once_the_work_is_handed_back() -> None:
    """RUN-WORK-DRAIN: `asyncio.run` does that, also to tasks that have not begun."""
    durable = MemoryDurable()
    passes = 0

    async def body(run: Run) -> None:
        nonlocal passes
        passes += 1
        await asyncio.sleep(60)

    async def main(stop: int) -> None:
        await start(durable, f"job/{stop}")
        running = asyncio.create_task(Worker(durable).run({"job": body}))
        await turns(stop)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait((running,))
        (turn,) = await durable.begin(ZERO, MINUTE)
        assert is_untouched(turn)
        await durable.finish(turn, None)

    for stop in range(30):
        asyncio.run(main(stop))
    assert 0 < passes < 30


async def test_work_drain_an_at_most_once_step_is_not_cancelled_within_the_grace_time() -> None:
    """RUN-WORK-DRAIN: nor does another one begin; the next pass goes on behind it."""
    async with scene(at_most_once=True) as at:
        at.running.cancel()
        await turns()
        assert at.effect.cancelled == 0
        at.effect.go.set()
        with pytest.raises(asyncio.CancelledError):
            await at.running
        assert (at.effect.runs, at.effect.cancelled) == (1, 0)
        turn = await at.turn()
        assert is_untouched(turn)
        assert list(await at.durable.checkpointer.load("job/1")) == ["input", "start:first", "first"]


class Sent(MemoryCheckpointer):
    """Writes what it was asked to, though the caller is cancelled: the bytes are on their way."""

    async def record(self, holder: Pass, key: str, value: object) -> Recorded:
        return await asyncio.shield(asyncio.ensure_future(super().record(holder, key, value)))


class SentDurable(MemoryDurable):
    """A store whose records cannot be called back."""

    @property
    def checkpointer(self) -> MemoryCheckpointer:
        return Sent(self.memory)


async def test_work_drain_no_at_most_once_step_begins_when_the_pass_is_about_to_end() -> None:
    """RUN-WORK-DRAIN: its start would be recorded, and its outcome unknown for ever."""
    async with scene(at_most_once=True, durable=SentDurable()) as at:
        at.running.cancel()
        await turns()
        at.effect.go.set()
        await asyncio.wait((at.running,))
        await turns()
        assert list(await at.durable.checkpointer.load("job/1")) == ["input", "start:first", "first"]


async def test_work_drain_a_second_cancellation_ends_an_at_most_once_step() -> None:
    """RUN-WORK-DRAIN: nobody waits against their will; the step's outcome is unknown then."""
    async with scene(at_most_once=True) as at:
        at.running.cancel()
        await turns()
        at.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await at.running
        assert at.effect.cancelled == 1


async def test_work_drain_the_grace_time_ends_an_at_most_once_step() -> None:
    """RUN-WORK-DRAIN: it was not cancelled inside it."""
    async with scene(at_most_once=True, grace=timedelta(seconds=0.01)) as at:
        at.running.cancel()
        await asyncio.wait((at.running,))
        assert at.effect.cancelled == 1

    async def body(run: Run) -> str:
        try:
            await run.step("first", at.effect, int, at_most_once=True)
        except OutcomeUnknown:
            return "unknown"
        return "known"

    await Worker(at.durable).settle({"job": body})
    assert await result(at.durable, "job/1", str) == Finished("unknown")


async def test_work_drain_what_runs_in_a_thread_is_waited_for() -> None:
    """RUN-WORK-DRAIN, RUN-CLOSED: a thread cannot be stopped, and what it gave is recorded."""
    durable = MemoryDurable()
    inside, go = threading.Event(), threading.Event()

    def block() -> int:
        inside.set()
        assert go.wait(30)
        return 1

    async def body(run: Run) -> int:
        return await run.step("one", in_thread(block), int)

    await start(durable, "job/1")
    running = asyncio.create_task(Worker(durable).run({"job": body}))
    await asyncio.to_thread(inside.wait, 30)
    running.cancel()
    await turns()
    assert not running.done()
    go.set()
    await asyncio.wait((running,))
    assert list(await durable.checkpointer.load("job/1")) == ["input", "one"]


class Swallowing(MemoryDurable):
    """Swallows one cancellation while it begins, as `wait_for` of Python 3.11 may."""

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        try:
            return await super().begin(wait, budget, limit=limit)
        except asyncio.CancelledError:
            return await super().begin(ZERO, budget, limit=limit)


async def test_work_drain_survives_a_store_that_swallows_cancellations() -> None:
    """RUN-WORK-DRAIN: the worker ends all the same, and what was taken comes back."""
    durable = Swallowing()
    running = asyncio.create_task(Worker(durable).run({}))
    await turns()
    running.cancel()
    await asyncio.wait((running,))
    assert running.cancelled()


class Racing(MemoryDurable):
    """Takes a turn at the very moment at which it is cancelled."""

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        try:
            return await super().begin(wait, budget, limit=limit)
        except asyncio.CancelledError:
            await start(self, "job/1")
            return await super().begin(ZERO, budget, limit=limit)


async def test_work_drain_hands_back_what_was_taken_while_it_was_told_to_end() -> None:
    """RUN-WORK-DRAIN: no turn is left to lapse."""
    durable = Racing()
    worker = Worker(durable)
    running = asyncio.create_task(worker.run({}))
    await turns()
    worker.drain()
    await running
    (turn,) = await MemoryDurable.begin(durable, ZERO, MINUTE)
    assert is_untouched(turn)


# Signals


async def test_work_drain_signals_drain_and_then_hand_back() -> None:
    """RUN-WORK-DRAIN, case 105: the first drains, the second hands back now; the handlers are put back."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with scene(signals=(signal.SIGTERM, signal.SIGINT)) as at:
        os.kill(os.getpid(), signal.SIGTERM)
        await turns()
        assert not at.running.done()
        assert at.effect.cancelled == 0
        os.kill(os.getpid(), signal.SIGINT)
        await at.running
        assert at.effect.cancelled == 1
        assert is_untouched(await at.turn())
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_work_drain_a_third_signal_ends_an_at_most_once_step() -> None:
    """RUN-WORK-DRAIN: the second one spares it."""
    async with scene(signals=(signal.SIGTERM,), at_most_once=True) as at:
        for cancelled in (0, 0, 1):
            os.kill(os.getpid(), signal.SIGTERM)
            await turns()
            assert at.effect.cancelled == cancelled
        await at.running


async def test_work_drain_installs_no_handlers_unless_asked() -> None:
    """RUN-WORK-DRAIN: under a server they belong to the server."""
    before = signal.getsignal(signal.SIGTERM)
    async with scene():
        assert signal.getsignal(signal.SIGTERM) is before


async def test_work_drain_leaves_handlers_of_the_loop_in_place() -> None:
    """RUN-WORK-DRAIN: a handler that the application gave its loop is called as well, and afterwards again."""
    heard: list[int] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, heard.append, 1)
    try:
        async with scene(signals=(signal.SIGTERM,), grace=ZERO) as at:
            os.kill(os.getpid(), signal.SIGTERM)
            await at.running
        os.kill(os.getpid(), signal.SIGTERM)
        await turns()
        assert heard == [1, 1]
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


class Bare(asyncio.SelectorEventLoop):
    """A loop without signal handlers, as on Windows."""

    def add_signal_handler(self, sig: int, callback: object, *args: object) -> None:
        raise NotImplementedError


def run_with(loop: asyncio.AbstractEventLoop, main: Callable[[], Coroutine[object, object, None]]) -> None:
    """Run it on this loop."""
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_case_107_a_loop_without_signal_handlers_drains_all_the_same() -> None:
    """RUN-WORK-DRAIN: `signals=` works there."""

    async def main() -> None:
        async with scene(signals=(signal.SIGTERM,), grace=ZERO) as at:
            os.kill(os.getpid(), signal.SIGTERM)
            await at.running
            assert at.effect.cancelled == 1

    run_with(Bare(), main)


def test_case_107_in_another_thread_the_worker_runs_and_drains_by_its_method() -> None:
    """RUN-WORK-DRAIN: where Python allows no handlers, asking for them does no harm."""
    ended: list[int] = []

    async def main() -> None:
        async with scene(signals=(signal.SIGTERM,), grace=ZERO) as at:
            at.worker.drain()
            await at.running
            ended.append(at.effect.cancelled)

    thread = threading.Thread(target=run_with, args=(asyncio.new_event_loop(), main))
    thread.start()
    thread.join(30)
    assert ended == [1]


async def test_work_drain_beside_a_block_finishes_what_it_has_when_the_block_ends() -> None:
    """`running` works while the block runs, and at its end lets the passes finish and takes no more."""
    durable, effect = MemoryDurable(), Effect()

    async def body(run: Run[MemoryEffect]) -> int:
        return await run.step("held", effect, int)

    await start(durable, "held/1")
    async with Worker(durable).running({"held": body}):
        await effect.began.wait()
        asyncio.get_running_loop().call_soon(effect.go.set)
    assert await result(durable, "held/1", int) == Finished(1)


async def test_work_drain_a_block_that_raises_hands_back_at_once() -> None:
    """What `running` had taken when its block raised comes back as the same attempt."""
    durable, effect = MemoryDurable(), Effect()

    async def body(run: Run[MemoryEffect]) -> int:
        return await run.step("held", effect, int)

    async def beside() -> None:
        async with Worker(durable).running({"held": body}):
            await effect.began.wait()
            raise ZeroDivisionError

    await start(durable, "held/1")
    with pytest.raises(ZeroDivisionError):
        await beside()
    (turn,) = await durable.begin(ZERO, MINUTE)
    assert (turn.delivery.attempt, turn.delivery.lapses, effect.cancelled) == (1, 0, 1)
