"""The worker: which body runs, how many at once, how a pass is answered, and what it tells."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from durable_core import Failed, Finished, Run, in_thread, result, start
from durable_core._clock import ManualClock
from durable_core.contract import Turn
from durable_core.errors import GiveUp, Misconfigured
from durable_core.memory import MemoryDurable, MemoryEffect
from durable_core.observer import (
    Buried,
    Event,
    PassBegan,
    PassEnded,
    Retried,
    StepRecorded,
    StepReplayed,
)
from durable_core.worker import Retry, Worker

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


class Counted(MemoryDurable):
    """Writes down what it was asked to begin."""

    def __init__(self, *, clock: ManualClock | None = None, lean: bool = False) -> None:
        super().__init__(clock=clock)
        self.begun: list[tuple[timedelta, int]] = []
        self.lean = lean

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        self.begun.append((wait, limit))
        turns = await super().begin(wait, budget, limit=limit)
        return [Turn(turn.holder, turn.delivery, None) for turn in turns] if self.lean else turns


async def one() -> int:
    return 1


async def quick(run: Run) -> int:
    return await run.step("one", one, int)


async def test_work_the_part_before_the_first_slash_names_the_body() -> None:
    """RUN-WORK: so does an id without a slash, as a whole."""
    durable = MemoryDurable()

    def named(name: str) -> Callable[[Run], Awaitable[str]]:
        async def body(run: Run) -> str:
            return name

        return body

    for workflow in ("order", "order/1", "order/1/2", "orders/1"):
        await start(durable, workflow)
    await Worker(durable).settle({"order": named("order"), "orders": named("orders")})
    names = [await result(durable, workflow, str) for workflow in ("order", "order/1", "order/1/2", "orders/1")]
    assert names == [Finished("order"), Finished("order"), Finished("order"), Finished("orders")]


async def test_work_runs_at_most_limit_passes_and_uses_every_slot() -> None:
    """RUN-WORK: one turn per free slot."""
    durable = MemoryDurable()
    now, most = 0, 0

    async def effect() -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return 1

    async def body(run: Run) -> int:
        return await run.step("one", effect, int)

    for number in range(30):
        await start(durable, f"job/{number}")
    await Worker(durable, limit=7).settle({"job": body})
    assert most == 7
    assert all([isinstance(await durable.result(f"job/{number}"), Finished) for number in range(30)])


async def test_work_asks_for_as_many_turns_as_there_are_free_slots() -> None:
    """RUN-WORK: a backlog is taken in batches, and never more than can run."""
    durable = Counted()
    for number in range(200):
        await start(durable, f"job/{number}")
    await Worker(durable, limit=50).settle({"job": quick})
    assert durable.begun[0] == (timedelta(0), 50)
    assert max(limit for _, limit in durable.begun) == 50
    assert len(durable.begun) < 40


async def test_an_idle_worker_asks_the_store_once_and_waits_there() -> None:
    """RUN-WORK: a third of the lease at a time, by the store's clock."""
    clock = ManualClock()
    durable = Counted(clock=clock)
    worker = Worker(durable)
    running = asyncio.create_task(worker.run({}))
    while not durable.begun:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert durable.begun == [(timedelta(seconds=20), 50)]
    clock.advance(timedelta(seconds=20))
    while len(durable.begun) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    worker.drain()
    await running
    assert len(durable.begun) == 2


async def test_work_loads_a_history_that_came_without_its_records() -> None:
    """RUN-WORK: `records` is `None` for a large one; what is recorded does not run."""
    durable = Counted(lean=True)

    async def never() -> int:
        raise AssertionError("it is recorded")

    async def body(run: Run) -> int:
        return await run.step("one", never, int)

    await start(durable, "job/1")
    await durable.checkpointer.supply("job/1", "one", 41)
    await Worker(durable).settle({"job": body})
    assert await result(durable, "job/1", int) == Finished(41)


async def test_settle_runs_what_is_ready_and_does_not_wait_for_the_rest() -> None:
    """RUN-SETTLE: what sleeps is left until the clock gets there; what waits for somebody is left for good."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    worker = Worker(durable)

    async def reminder(run: Run) -> str:
        await run.sleep("a while", DAY)
        return await run.awaiting("answer", str)

    await start(durable, "reminder/1")
    await worker.settle({"reminder": reminder})
    assert [(one.state, one.due) for one in await durable.workflows()] == [("sleeping", clock.now() + DAY)]
    clock.advance(DAY)
    await worker.settle({"reminder": reminder})
    assert [one.state for one in await durable.workflows()] == ["blocked"]
    await durable.arrive("reminder/1", "answer", "yes")
    await worker.settle({"reminder": reminder})
    assert await result(durable, "reminder/1", str) == Finished("yes")


async def test_settle_follows_what_it_started() -> None:
    """RUN-SETTLE: a workflow that its bodies made ready is ready too."""
    durable = MemoryDurable()

    async def parent(run: Run) -> str:
        async def spawn() -> None:
            await start(durable, "child/1", "hello")

        await run.step("spawned", spawn, lambda _: None)
        return await run.awaiting("back", str)

    async def child(run: Run) -> None:
        said = await run.input(str)

        async def tell() -> None:
            await durable.arrive("parent/1", "back", said)

        await run.step("told", tell, lambda _: None)

    await start(durable, "parent/1")
    await Worker(durable).settle({"parent": parent, "child": child})
    assert await result(durable, "parent/1", str) == Finished("hello")


class Odd(BaseException):
    """Derives from neither Exception nor anything of ours."""


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), GeneratorExit(), Odd("odd"), ValueError("no")])
async def test_work_whatever_a_body_raises_is_its_own_failure(error: BaseException) -> None:
    """RUN-WORK: the worker and its other workflows go on; the attempt counts."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    events: list[Event] = []

    async def bad(run: Run) -> None:
        raise error

    await start(durable, "bad/1")
    await start(durable, "job/1")
    await Worker(durable, observer=events.append).settle({"bad": bad, "job": quick})
    assert await result(durable, "job/1", int) == Finished(1)
    assert [event.attempt for event in events if isinstance(event, Retried)] == [1]
    (listed,) = await durable.workflows(prefix="bad")
    assert (listed.state, listed.attempt) == ("sleeping", 2)


def test_work_a_keyboard_interrupt_ends_the_worker_and_hands_the_work_back() -> None:
    """RUN-WORK: it is nobody's failure."""
    durable = MemoryDurable()
    events: list[Event] = []

    async def bad(run: Run) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        await start(durable, "bad/1")
        await Worker(durable, observer=events.append).run({"bad": bad})

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert [event.ending for event in events if isinstance(event, PassEnded)] == ["handed back"]
    (turn,) = asyncio.run(begun(durable))
    assert (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)


async def begun(durable: MemoryDurable) -> Sequence[Turn]:
    return await durable.begin(timedelta(0), MINUTE)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": timedelta(seconds=59)}, ["0:00:59", "0:01:00"]),
        ({"budget": timedelta(0)}, ["0:00:00"]),
        ({"limit": 0}, ["0"]),
        ({"lapses_alone": 0}, ["0"]),
        ({"grace": timedelta(seconds=-1)}, ["-1 day"]),
    ],
)
def test_work_refuses_nonsensical_timings_at_construction(options: dict[str, object], said: list[str]) -> None:
    """RUN-WORK: with the numbers that do not go together."""
    with pytest.raises(ValueError) as refused:
        Worker(MemoryDurable(), **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert all(number in str(refused.value) for number in said)


def test_retry_refuses_nonsense() -> None:
    """RUN-WORK-RETRY: a first delay above the longest one, no attempts."""
    with pytest.raises(ValueError, match=r"0:00:02.*0:00:01"):
        Retry(first=2 * SECOND, most=SECOND)
    with pytest.raises(ValueError):
        Retry(first=timedelta(0))
    with pytest.raises(ValueError):
        Retry(attempts=0)


async def test_the_observer_hears_of_every_pass_and_step() -> None:
    """The events come in order, from inside the loop."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    events: list[Event] = []
    worker = Worker(durable, observer=events.append)

    async def body(run: Run) -> int:
        value = await run.step("one", one, int)
        await run.sleep("nap", SECOND)
        return value

    await start(durable, "job/1")
    await worker.settle({"job": body})
    clock.advance(SECOND)
    await worker.settle({"job": body})
    assert events == [
        PassBegan("job/1", 1, 1),
        StepRecorded("job/1", 1, "one", True),
        StepRecorded("job/1", 1, "nap", True),
        PassEnded("job/1", 1, "sleeping"),
        PassBegan("job/1", 2, 1),
        StepReplayed("job/1", 2, "one"),
        StepReplayed("job/1", 2, "nap"),
        PassEnded("job/1", 2, "completed"),
    ]


async def test_an_observer_that_raises_changes_nothing() -> None:
    """It is logged."""
    durable = MemoryDurable()

    def broken(event: Event) -> None:
        raise RuntimeError("no")

    await start(durable, "job/1")
    await Worker(durable, observer=broken).settle({"job": quick})
    assert await result(durable, "job/1", int) == Finished(1)


async def test_logs_name_the_workflow_and_never_a_value(caplog: pytest.LogCaptureFixture) -> None:
    """The reason, which may show one, goes to the store and the observer only."""
    durable = MemoryDurable(clock=ManualClock())

    async def bad(run: Run) -> None:
        secret = await run.input(str)
        raise ValueError(f"cannot do {secret}")

    async def worse(run: Run) -> None:
        raise GiveUp("because of hunter2")

    caplog.set_level(logging.DEBUG, "durable_core")
    events: list[Event] = []
    await start(durable, "bad/1", "hunter2")
    await start(durable, "worse/1", "hunter2")
    await Worker(durable, observer=events.append).settle({"bad": bad, "worse": worse})
    assert {Retried, Buried} == {type(event) for event in events if isinstance(event, (Retried, Buried))}
    records = [record for record in caplog.records if record.name == "durable_core"]
    assert {"bad/1", "worse/1"} == {record.__dict__["durable_workflow"] for record in records}
    assert {"ValueError", "GiveUp"} == {record.__dict__["durable_error"] for record in records}
    assert not [record for record in records if "hunter2" in str(record.__dict__)]


async def test_a_worker_runs_once_at_a_time() -> None:
    """A second `run` would double the limit."""
    worker = Worker(MemoryDurable())
    running = asyncio.create_task(worker.run({}))
    await asyncio.sleep(0)
    with pytest.raises(Misconfigured):
        await worker.settle({})
    worker.drain()
    await running


async def test_blocking_effects_run_in_threads_of_the_worker() -> None:
    """`in_thread` finds the executor of the worker, which is shut down with it."""
    durable = MemoryDurable()
    threads: list[threading.Thread] = []

    def name() -> str:
        threads.append(threading.current_thread())
        return threading.current_thread().name

    async def body(run: Run) -> str:
        return await run.step("name", in_thread(name), str)

    await start(durable, "job/1")
    await Worker(durable).settle({"job": body})
    ended = await result(durable, "job/1", str)
    assert isinstance(ended, Finished)
    assert ended.value.startswith("durable")
    await asyncio.to_thread(threads[0].join, 10)
    assert not threads[0].is_alive()


async def test_effects_of_the_store_run_through_the_worker() -> None:
    """A body that transacts is typed by the durable it runs on."""
    durable = MemoryDurable()

    async def body(run: Run[MemoryEffect]) -> int:
        def bump(data: dict[str, object]) -> object:
            data["bumped"] = True
            return 7

        return await run.transact("bumped", bump, int)

    await start(durable, "job/1")
    await Worker(durable).settle({"job": body, "quick": quick})
    assert await result(durable, "job/1", int) == Finished(7)
    assert durable.data == {"bumped": True}


async def test_a_body_that_is_no_coroutine_function_is_buried() -> None:
    """RUN-WORK-RETRY: a mistake of code, at once."""
    durable = MemoryDurable()

    def body(run: Run) -> int:
        return 1

    await start(durable, "job/1")
    await Worker(durable).settle({"job": body})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    ended = await durable.result("job/1")
    assert isinstance(ended, Failed)
    assert "async def" in ended.reason
