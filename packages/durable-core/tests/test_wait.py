"""Sleeps, clocks and answers: what a pass waits for, and until when."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from durable_core.errors import (
    NotEncodable,
    NotParsed,
)
from durable_core.outcome import Blocked, Completed, Sleeping
from durable_core.parsing import list_of
from durable_core.run import Run
from probe import Held, Probe

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def inbox(number: int) -> str:
    return f"inbox:{number:020}"


# Sleeps and clocks


async def test_sleep_records_the_deadline_and_not_the_duration(probe: Probe) -> None:
    """RUN-SLEEP: a later pass waits for the same instant, whatever duration it is given."""

    async def body(run: Run, duration: timedelta) -> str:
        await run.sleep("nap", duration)
        return "awake"

    assert await probe.advance(lambda run: body(run, HOUR)) == Sleeping("nap", START + HOUR, ("nap",), ())
    probe.tick(1_800)
    assert await probe.advance(lambda run: body(run, DAY)) == Sleeping("nap", START + HOUR, ("nap",), ())
    probe.tick(1_800)
    assert await probe.advance(lambda run: body(run, DAY)) == Completed("awake")
    assert await probe.inner.load("w") == {"nap": "2024-01-01T01:00:00+00:00"}


@pytest.mark.parametrize("duration", [timedelta(0), timedelta(seconds=-1), timedelta.min])
async def test_sleep_of_zero_or_less_returns_at_once(probe: Probe, duration: timedelta) -> None:
    """RUN-SLEEP: nothing is recorded, and nothing waits."""

    async def body(run: Run) -> str:
        await run.sleep("nap", duration)
        return "awake"

    assert await probe.advance(body) == Completed("awake")
    assert await probe.keys() == []


async def test_sleep_refuses_what_ends_after_the_year_9999(probe: Probe) -> None:
    """RUN-SLEEP: absurd durations are refused before anything is recorded."""

    async def body(run: Run) -> None:
        await run.sleep("nap", timedelta.max)

    with pytest.raises(ValueError, match="'nap' of workflow 'w'"):
        await probe.advance(body)
    assert await probe.keys() == []


async def test_sleep_whose_deadline_passes_while_it_is_held_goes_on(probe: Probe) -> None:
    """RUN-SLEEP: a pass that works past a deadline does not come back for it."""
    sibling = Held("done")

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("work", sibling, str))
            await run.sleep("nap", HOUR)
            order.append("awake")
        return "both"

    order: list[str] = []
    task = asyncio.create_task(probe.advance(body))
    await sibling.began.wait()
    probe.tick(3_600)
    sibling.go.set()
    assert await task == Completed("both")
    assert order == ["awake"]


async def test_clock_is_recorded_like_a_step(probe: Probe) -> None:
    """RUN-CLOCK: every pass is told the same time."""
    seen: list[datetime] = []

    async def body(run: Run) -> None:
        seen.append(await run.now("began"))

    await probe.advance(body)
    probe.tick(3_600)
    await probe.advance(body)
    assert seen == [START, START]
    assert await probe.inner.load("w") == {"began": "2024-01-01T00:00:00+00:00"}


async def test_clock_goes_with_the_store_and_not_ahead_of_it(probe: Probe) -> None:
    """RUN-CLOCK: it is the claim's instant and what has passed since its reply."""
    probe.tick(1_000)
    holder = await probe.take()
    probe.tick(5)
    seen: list[datetime] = []

    async def body(run: Run) -> None:
        seen.append(await run.now("one"))
        probe.tick(10)
        seen.append(await run.now("two"))

    await probe.advance(body, holder=holder)
    assert seen == [START + timedelta(seconds=1_000), START + timedelta(seconds=1_010)]
    assert seen[1] <= probe.clock.now()


async def test_clock_that_was_written_elsewhere_is_an_instant(probe: Probe) -> None:
    """RUN-CLOCK: what comes back is aware; text without an offset is refused."""
    await probe.supply_now("a", "2024-02-01T00:00:00Z")
    await probe.supply_now("b", "2024-02-01T00:00:00")

    async def body(run: Run) -> None:
        assert await run.now("a") == datetime(2024, 2, 1, tzinfo=UTC)
        await run.now("b")

    with pytest.raises(NotParsed, match="no offset"):
        await probe.advance(body)


# Answers


async def test_await_until_blocks_until_somebody_answers(probe: Probe) -> None:
    """RUN-AWAIT-UNTIL: without a timeout it waits for ever, and records nothing."""

    async def body(run: Run) -> str:
        return await run.awaiting("answer", str)

    for _ in range(2):
        assert await probe.advance(body) == Blocked(("answer",), ())
    assert await probe.keys() == []
    await probe.supply_now("answer", "yes")
    assert await probe.advance(body) == Completed("yes")


async def approval(run: Run) -> str:
    return await run.awaiting("answer", str, timeout=HOUR, default="nobody")


async def test_await_until_keeps_the_deadline_that_was_recorded_first(probe: Probe) -> None:
    """RUN-AWAIT-UNTIL: later passes do not begin to wait anew."""
    for _ in range(3):
        assert await probe.advance(approval) == Sleeping("answer", START + HOUR, ("answer",), ())
        probe.tick(1_000)
    assert await probe.inner.load("w") == {"until:answer": "2024-01-01T01:00:00+00:00"}


async def test_await_until_records_the_default_under_the_awaited_key(probe: Probe) -> None:
    """RUN-AWAIT-UNTIL: a client that comes too late learns that it lost, and to what; every pass has the default."""
    await probe.advance(approval)
    probe.tick(3_600)
    assert await probe.advance(approval) == Completed("nobody")
    late = await probe.supply_now("answer", "yes")
    assert (late.value, late.first) == ("nobody", False)
    assert await probe.advance(approval) == Completed("nobody")


async def test_await_until_takes_an_answer_that_came_before_the_default(probe: Probe) -> None:
    """RUN-AWAIT-UNTIL: even after the deadline, and even when the pass has not seen it."""
    await probe.advance(approval)
    probe.tick(3_600)
    gate = probe.gate("record", "answer")
    task = asyncio.create_task(probe.advance(approval))
    await gate.reached.wait()
    assert (await probe.supply_now("answer", "just in time")).first
    gate.open()
    assert await task == Completed("just in time")


async def test_await_until_is_answered_when_its_deadline_passes_while_it_is_held(probe: Probe) -> None:
    """RUN-AWAIT-UNTIL: the pass goes on with the default."""
    sibling = Held("done")

    async def body(run: Run) -> list[str]:
        async with asyncio.TaskGroup() as group:
            step = group.create_task(run.step("work", sibling, str))
            answer = group.create_task(approval(run))
        return [answer.result(), step.result()]

    task = asyncio.create_task(probe.advance(body))
    await sibling.began.wait()
    probe.tick(3_600)
    sibling.go.set()
    assert await task == Completed(["nobody", "done"])


async def test_await_until_wakes_by_itself_while_siblings_work(probe: Probe) -> None:
    """RUN-AWAIT-UNTIL: the deadline of a held wait is not looked at only when the siblings are done."""
    sibling = Held("done")

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("work", sibling, str))
            answer = await run.awaiting("answer", str, timeout=timedelta(milliseconds=20), default="nobody")
            sibling.go.set()
        return answer

    holder = await probe.take()
    task = asyncio.create_task(probe.advance(body, holder=holder))
    await sibling.began.wait()
    probe.tick(0.02)
    assert await task == Completed("nobody")


async def test_await_until_cannot_be_supplied_a_deadline_by_a_client(probe: Probe) -> None:
    """RUN-AWAIT-UNTIL: a record of the deadline that cannot be read is reported, and not waited for."""
    await probe.supply_now("until:answer", "tomorrow")
    with pytest.raises(NotParsed, match="'until:answer'"):
        await probe.advance(approval)


async def test_await_until_wants_timeout_and_default_together(probe: Probe) -> None:
    """RUN-AWAIT-UNTIL: one without the other is a mistake, told before anything is recorded."""

    async def body(run: Run) -> None:
        with pytest.raises(TypeError, match="go together"):
            await run.awaiting("a", str, timeout=HOUR)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
        with pytest.raises(TypeError, match="go together"):
            await run.awaiting("a", str, default="")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
        with pytest.raises(ValueError, match="the timeout of 'a'"):
            await run.awaiting("a", str, timeout=timedelta(0), default="")

    assert await probe.advance(body) == Completed(None)
    assert await probe.keys() == []


async def test_await_default_that_cannot_be_stored_fails_when_the_wait_is_first_reached(probe: Probe) -> None:
    """RUN-AWAIT-DEFAULT: today and not in three days, naming workflow and key, before the deadline is recorded."""

    async def body(run: Run) -> object:
        return await run.awaiting("answer", list_of(int), timeout=HOUR, default={1, 2})

    with pytest.raises(NotEncodable, match="'answer' of workflow 'w'"):
        await probe.advance(body)
    assert await probe.keys() == []


async def test_await_default_that_cannot_be_read_fails_when_the_wait_is_first_reached(probe: Probe) -> None:
    """RUN-AWAIT-DEFAULT: the parser is asked about the default as it would be stored."""

    async def body(run: Run) -> object:
        return await run.awaiting("answer", tuple_of_two, timeout=HOUR, default=(1, 2))

    def tuple_of_two(value: object) -> object:
        if not isinstance(value, tuple):
            raise TypeError("no tuple")
        return True

    with pytest.raises(NotParsed, match="'answer' of workflow 'w'") as refused:
        await probe.advance(body)
    assert refused.value.fresh
    assert await probe.keys() == []


async def test_await_default_is_given_as_it_is_stored(probe: Probe) -> None:
    """RUN-AWAIT-DEFAULT: it crosses codec and parser, also on the pass that records it."""

    async def body(run: Run) -> list[int]:
        return await run.awaiting("answer", list_of(int), timeout=HOUR, default=(1, 2))

    await probe.advance(body)
    probe.tick(3_600)
    for _ in range(2):
        assert await probe.advance(body) == Completed([1, 2])


async def test_start_input_awaits_what_the_workflow_was_started_with(probe: Probe) -> None:
    """RUN-START: a pass that comes before the input waits for it."""

    async def body(run: Run) -> str:
        return await run.input(str)

    assert await probe.advance(body) == Blocked(("input",), ())
    await probe.durable.arrive("w", "input", "go")
    assert await probe.advance(body) == Completed("go")
