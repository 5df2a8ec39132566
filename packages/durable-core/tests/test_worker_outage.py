"""The worker and a store that does not answer, answers late, or refuses one answer only; and names without a body."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest

from durable_core import Failed, Finished, Run, result, start
from durable_core._clock import ManualClock
from durable_core._outage import Outage
from durable_core.contract import Recorded, Turn
from durable_core.errors import Misconfigured, NotEncodable
from durable_core.memory import MemoryDurable
from durable_core.observer import Buried, Event, PassBegan, PassEnded, PutBack, Retried, StoreBack, StoreLost
from durable_core.worker import Retry, Worker

ZERO = timedelta(0)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class Faulty(MemoryDurable):
    """Raises, hangs, or loses its reply, as often as it is told to, in the methods it is told to."""

    def __init__(self, *, clock: ManualClock | None = None, lease: timedelta = MINUTE) -> None:
        super().__init__(clock=clock, lease=lease)
        self.faults: dict[str, list[Exception | None]] = {}
        self.lost_replies: dict[str, int] = {}
        self.calls: list[str] = []

    async def _met(self, method: str) -> None:
        self.calls.append(method)
        planned = self.faults.get(method)
        if planned:
            fault = planned.pop(0)
            if fault is None:
                await asyncio.get_running_loop().create_future()
            else:
                raise fault

    def _reply(self, method: str) -> None:
        if self.lost_replies.get(method, 0) > 0:
            self.lost_replies[method] -= 1
            raise ConnectionResetError

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        await self._met("begin")
        return await super().begin(wait, budget, limit=limit)

    async def renew(self, turn: Turn) -> Turn | None:
        await self._met("renew")
        return await super().renew(turn)

    async def finish(self, turn: Turn, value: object) -> Recorded:
        await self._met("finish")
        recorded = await super().finish(turn, value)
        self._reply("finish")
        return recorded

    async def pause(self, turn: Turn, due: datetime | None) -> None:
        await self._met("pause")
        await super().pause(turn, due)
        self._reply("pause")

    async def fail(self, turn: Turn, reason: str, again_in: timedelta | None) -> None:
        await self._met("fail")
        await super().fail(turn, reason, again_in)
        self._reply("fail")


async def until(condition: Callable[[], object]) -> None:
    """Wait for what the test waits for."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def one() -> int:
    return 1


async def quick(run: Run) -> int:
    return await run.step("one", one, int)


async def napping(run: Run) -> None:
    await run.sleep("nap", MINUTE)


async def test_work_survives_an_outage_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """RUN-WORK: once when the store goes and once when it is back, not once a second; the delay is bounded."""
    durable = Faulty()
    durable.faults["begin"] = [ConnectionError("refused") for _ in range(5)]
    events: list[Event] = []
    caplog.set_level(logging.WARNING, "durable_core")
    worker = Worker(durable, observer=events.append)
    running = asyncio.create_task(worker.run({"job": quick}))
    await until(lambda: not durable.faults["begin"])
    await start(durable, "job/1")
    assert await result(durable, "job/1", int, wait=MINUTE) == Finished(1)
    worker.drain()
    await running
    assert [event for event in events if isinstance(event, (StoreLost, StoreBack))] == [
        StoreLost("ConnectionError: refused"),
        StoreBack(),
    ]
    assert [record.getMessage() for record in caplog.records] == ["the store does not answer", "the store answers again"]


def test_work_asks_a_store_that_is_away_ever_less_often_and_at_least_every_other_second() -> None:
    """RUN-WORK: bounded backoff, and quicker where the lease is short."""
    outage = Outage(MINUTE, None)
    delays = [outage.lost("begin", ConnectionError()) for _ in range(2_000)]
    assert 0.05 <= delays[0] <= 0.1
    assert all(1 <= delay <= 2 for delay in delays[10:])
    assert Outage(SECOND, None).delay(50) <= 1 / 6


def test_work_the_store_is_back_when_everything_is_answered_again() -> None:
    """RUN-WORK: renewals that are answered say nothing of a queue that is not."""
    events: list[Event] = []
    outage = Outage(MINUTE, events.append)
    outage.lost("begin", ConnectionError("x"))
    outage.lost("renew", ConnectionError("y"))
    outage.answered("renew")
    outage.lost("begin", ConnectionError("z"))
    assert events == [StoreLost("ConnectionError: x")]
    outage.answered("begin")
    outage.answered("begin")
    assert events == [StoreLost("ConnectionError: x"), StoreBack()]


async def test_work_a_begin_that_never_answers_is_given_up() -> None:
    """RUN-WORK: a connection into nothing does not keep the worker from its work."""
    durable = Faulty(lease=timedelta(seconds=0.05))
    durable.faults["begin"] = [None]
    events: list[Event] = []
    await start(durable, "job/1")
    worker = Worker(durable, observer=events.append)
    running = asyncio.create_task(worker.run({"job": quick}))
    assert await result(durable, "job/1", int, wait=MINUTE) == Finished(1)
    worker.drain()
    await running
    assert [type(event) for event in events if isinstance(event, (StoreLost, StoreBack))] == [StoreLost, StoreBack]


async def test_work_a_misconfigured_store_ends_the_worker() -> None:
    """RUN-WORK: it would not heal."""
    durable = Faulty()
    durable.faults["begin"] = [Misconfigured("no such table")]
    with pytest.raises(Misconfigured):
        await Worker(durable).run({})


async def test_settle_raises_what_the_store_raises() -> None:
    """RUN-SETTLE: a test does not wait for a store to come back."""
    durable = Faulty()
    durable.faults["begin"] = [ConnectionError("refused")]
    with pytest.raises(ConnectionError):
        await Worker(durable).settle({})


@pytest.mark.parametrize("method", ["finish", "pause", "fail"])
async def test_work_an_answer_is_repeated_until_it_is_taken_and_the_body_is_not(method: str) -> None:
    """RUN-WORK: errors of the store while answering cost no second pass."""
    durable = Faulty()
    durable.faults = {method: [ConnectionError(), ConnectionError()], "renew": [ConnectionError(), ConnectionError()]}
    events: list[Event] = []

    async def bad(run: Run) -> None:
        raise ValueError("no")

    await start(durable, "job/1")
    await Worker(durable, observer=events.append).settle({"job": {"finish": quick, "pause": napping, "fail": bad}[method]})
    assert len([event for event in events if isinstance(event, PassBegan)]) == 1
    assert durable.calls.count(method) == 3
    assert [listed.state for listed in await durable.workflows()] == ["finished" if method == "finish" else "sleeping"]
    assert [type(event) for event in events if isinstance(event, (StoreLost, StoreBack))] == [StoreLost, StoreBack]


@pytest.mark.parametrize("method", ["finish", "pause", "fail"])
async def test_work_an_answer_whose_reply_was_lost_is_not_given_twice(method: str) -> None:
    """RUN-WORK: asking again is safe, DUR-TURN-FENCED."""
    durable = Faulty()
    durable.lost_replies[method] = 1
    events: list[Event] = []

    async def bad(run: Run) -> None:
        raise ValueError("no")

    await start(durable, "job/1")
    await Worker(durable, observer=events.append).settle({"job": {"finish": quick, "pause": napping, "fail": bad}[method]})
    assert len([event for event in events if isinstance(event, PassBegan)]) == 1
    (listed,) = await durable.workflows()
    assert listed.state == ("finished" if method == "finish" else "sleeping")
    assert listed.attempt == {"finish": None, "pause": 1, "fail": 2}[method]
    assert [event.ending for event in events if isinstance(event, PassEnded)] == [
        {"finish": "completed", "pause": "sleeping", "fail": "failed"}[method]
    ]


async def test_case_64_an_outcome_that_the_store_does_not_take_is_a_failed_attempt() -> None:
    """RUN-WORK-RETRY: the store is there and refuses this one answer; the reason says why, and it is buried at the limit."""
    durable = Faulty()
    durable.faults["finish"] = [OSError("value of 600 MB is above the limit of 512 MB")] * 9
    events: list[Event] = []
    await start(durable, "job/1")
    await Worker(durable, observer=events.append, retry=Retry(attempts=1)).settle({"job": quick})
    (buried,) = [event for event in events if isinstance(event, Buried)]
    assert "600 MB" in buried.reason
    assert "outcome" in buried.reason
    assert not [event for event in events if isinstance(event, StoreLost)]
    assert await durable.result("job/1") == Failed(buried.reason)


async def test_work_retry_an_outcome_refused_by_finish_buries() -> None:
    """RUN-WORK-RETRY: as one that the codec refuses before."""
    durable = Faulty()
    durable.faults["finish"] = [NotEncodable("no", "job/1", "outcome:")]
    await start(durable, "job/1")
    await Worker(durable).settle({"job": quick})
    assert isinstance(await durable.result("job/1"), Failed)


async def test_work_a_store_that_stays_away_while_answering_is_given_up_when_the_window_is_over() -> None:
    """RUN-WORK: the slot is free again; the workflow comes back when its lease is over, with every record."""
    clock = ManualClock()
    durable = Faulty(clock=clock)
    durable.faults = {"finish": [ConnectionError()] * 1_000, "renew": [ConnectionError()] * 1_000}
    events: list[Event] = []
    await start(durable, "job/1")
    worker = Worker(durable, observer=events.append)
    running = asyncio.create_task(worker.run({"job": quick}))
    await until(lambda: "renew" in durable.calls)
    assert not [event for event in events if isinstance(event, PassEnded)]
    clock.advance(MINUTE)
    await until(lambda: [event for event in events if isinstance(event, PassEnded)])
    durable.faults.clear()
    assert await result(durable, "job/1", int, wait=MINUTE) == Finished(1)
    worker.drain()
    await running
    assert [event.ending for event in events if isinstance(event, PassEnded)] == ["lost", "completed"]
    assert [event.attempt for event in events if isinstance(event, PassBegan)] == [1, 2]


async def test_work_a_hung_answer_is_given_up_when_the_window_is_over() -> None:
    """RUN-WORK: no call holds a slot for ever."""
    clock = ManualClock()
    durable = Faulty(clock=clock)
    durable.faults = {"finish": [None]}
    events: list[Event] = []
    await start(durable, "job/1")
    worker = Worker(durable, limit=1, observer=events.append)
    running = asyncio.create_task(worker.run({"job": quick}))
    await until(lambda: "finish" in durable.calls)
    clock.advance(MINUTE)
    assert await result(durable, "job/1", int, wait=MINUTE) == Finished(1)
    worker.drain()
    await running


# Names without a body


async def test_work_unknown_is_put_off_for_twice_as_long_each_time_and_never_buried(caplog: pytest.LogCaptureFixture) -> None:
    """RUN-WORK-UNKNOWN: up to a minute, counts unchanged, said once a name."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    events: list[Event] = []
    caplog.set_level(logging.WARNING, "durable_core")
    worker = Worker(durable, observer=events.append, retry=Retry(attempts=1))
    await start(durable, "new/1")
    await start(durable, "job/1")
    for _ in range(9):
        await worker.settle({"job": quick})
        clock.advance(MINUTE)
    delays = [event.again_in.total_seconds() for event in events if isinstance(event, PutBack)]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [record.__dict__["durable_name"] for record in caplog.records] == ["new"]
    (turn,) = await durable.begin(ZERO, MINUTE)
    assert (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)
    assert not [event for event in events if isinstance(event, (Buried, Retried))]


async def test_work_unknown_an_unknown_workflow_that_lapsed_is_not_buried() -> None:
    """RUN-WORK-UNKNOWN: whatever killed it was not this program."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    await start(durable, "new/1")
    for _ in range(9):
        assert await durable.begin(ZERO, MINUTE)
        clock.advance(MINUTE)
    await Worker(durable).settle({"job": quick})
    clock.advance(MINUTE)
    (turn,) = await durable.begin(ZERO, MINUTE)
    assert (turn.delivery.attempt, turn.delivery.lapses) == (10, 9)
