"""Sleeps, clocks, answers and messages: what a pass waits for, and until when."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from durable_core._probe import Effect, Held, Probe
from durable_core.contract import Entry
from durable_core.errors import (
    AwaitingMessage,
    AwaitingTime,
    AwaitingValue,
    Contended,
    Fenced,
    Interruption,
    Misconfigured,
    NotEncodable,
    NotParsed,
    Suspended,
)
from durable_core.outcome import Blocked, Completed, Sleeping
from durable_core.parsing import list_of
from durable_core.run import Run

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


# Messages


async def test_receive_records_how_far_it_read(probe: Probe) -> None:
    """RUN-RECEIVE: a replay reads the same entries, whatever came since."""
    await probe.inner.append("w", "one")

    async def body(run: Run) -> list[str]:
        entries = await run.receive("read", str, after=None)
        return [entry.value for entry in entries]

    assert await probe.advance(body) == Completed(["one"])
    await probe.inner.append("w", "two")
    assert await probe.advance(body) == Completed(["one"])
    assert (await probe.inner.load("w"))["read"] == inbox(1)


async def test_receive_gives_what_comes_after_a_key(probe: Probe) -> None:
    """RUN-RECEIVE: the cursor is the last key that was read, and the limit cuts from the front."""
    for text in ("one", "two", "three", "four"):
        await probe.inner.append("w", text)

    async def body(run: Run) -> list[list[str]]:
        first = await run.receive("first", str, after=None, limit=1)
        second = await run.receive("second", str, after=first[-1].key, limit=2)
        third = await run.receive("third", str, after=second[-1].key)
        return [[entry.value for entry in entries] for entries in (first, second, third)]

    for _ in range(2):
        assert await probe.advance(body) == Completed([["one"], ["two", "three"], ["four"]])


async def test_receive_waits_for_an_entry(probe: Probe) -> None:
    """RUN-RECEIVE: without an entry the pass blocks, listening."""

    seen: list[tuple[Entry[str], ...]] = []

    async def body(run: Run) -> None:
        seen.append(await run.receive("read", str, after=None))

    assert await probe.advance(body) == Blocked((), ("read",))
    entry = await probe.inner.append("w", "one")
    assert await probe.advance(body) == Completed(None)
    assert seen == [(Entry(entry.key, "one"),)]


async def heard(run: Run) -> list[str]:
    return [entry.value for entry in await run.receive("read", str, after=None, timeout=HOUR)]


async def test_receive_is_empty_when_the_recorded_deadline_passed_first(probe: Probe) -> None:
    """RUN-RECEIVE: and on every later pass, whatever came since."""
    for _ in range(2):
        assert await probe.advance(heard) == Sleeping("read", START + HOUR, (), ("read",))
        probe.tick(1_800)
    assert await probe.advance(heard) == Completed([])
    await probe.inner.append("w", "late")
    assert await probe.advance(heard) == Completed([])


async def test_receive_gives_what_came_before_it_recorded_that_nothing_had(probe: Probe) -> None:
    """RUN-RECEIVE: an entry that arrived after the deadline, and before anybody looked, is read."""
    await probe.advance(heard)
    probe.tick(3_600)
    await probe.inner.append("w", "late")
    assert await probe.advance(heard) == Completed(["late"])


async def test_receive_looks_again_when_its_deadline_passes_while_it_is_held(probe: Probe) -> None:
    """RUN-RECEIVE: an entry that arrived meanwhile is not missed."""
    sibling = Held("done")

    async def body(run: Run) -> list[str]:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("work", sibling, str))
            entries = group.create_task(heard(run))
        return entries.result()

    task = asyncio.create_task(probe.advance(body))
    await sibling.began.wait()
    await probe.inner.append("w", "meanwhile")
    probe.tick(3_600)
    sibling.go.set()
    assert await task == Completed(["meanwhile"])


@pytest.mark.parametrize("after", ["", "one", "inbox:1", "banana00000000000000000001", "00000000000000000001"])
async def test_receive_refuses_a_cursor_that_is_no_entry(probe: Probe, after: str) -> None:
    """RUN-RECEIVE: it would read everything again, or nothing for ever."""

    async def body(run: Run) -> None:
        with pytest.raises(ValueError, match="inbox key"):
            await run.receive("read", str, after=after)
        with pytest.raises(ValueError, match="limit"):
            await run.pending("read", str, after=None, limit=0)

    assert await probe.advance(body) == Completed(None)
    assert await probe.keys() == []


async def test_receive_parses_every_entry_and_says_which_it_refused(probe: Probe) -> None:
    """RUN-PARSE: the refusal names the entry; how far it read is recorded."""
    await probe.inner.append("w", "one")
    await probe.inner.append("w", 2)

    async def body(run: Run) -> int:
        return len(await run.receive("read", str, after=None))

    with pytest.raises(NotParsed) as refused:
        await probe.advance(body)
    assert (refused.value.key, refused.value.fresh) == (inbox(2), False)
    assert await probe.keys() == [inbox(1), inbox(2), "read"]


async def test_pending_gives_what_is_there_and_does_not_wait(probe: Probe) -> None:
    """RUN-RECEIVE: nothing is a result, recorded like any other."""

    async def body(run: Run) -> list[str]:
        return [entry.value for entry in await run.pending("stop?", str, after=None)]

    assert await probe.advance(body) == Completed([])
    await probe.inner.append("w", "stop")
    assert await probe.advance(body) == Completed([])
    assert await probe.inner.load("w") == {"stop?": None, inbox(1): "stop"}


@pytest.mark.parametrize("waits", [True, False])
async def test_pending_fresh_sees_what_came_during_the_pass(probe: Probe, waits: bool) -> None:
    """RUN-PENDING-FRESH: it looks at the store and not at what was loaded at the top, whatever the pass recorded since."""

    async def body(run: Run) -> list[str]:
        for number in range(3):
            await run.step(f"{number}", Effect(number), int)
        await probe.inner.append("w", "one")
        first = await run.pending("first", str, after=None)
        await run.step("3", Effect(3), int)
        await probe.inner.append("w", "two")
        read = run.receive if waits else run.pending
        second = await read("second", str, after=first[-1].key)
        return [entry.value for entry in (*first, *second)]

    for _ in range(2):
        assert await probe.advance(body) == Completed(["one", "two"])


async def test_pending_fresh_asks_for_what_it_has_not_loaded(probe: Probe) -> None:
    """RUN-PENDING-FRESH: it leaves out as many records as the last load gave, and none is missed."""
    await probe.supply_now("input", None)

    async def body(run: Run) -> None:
        for number in range(3):
            await run.step(f"{number}", Effect(number), int)
        await run.pending("first", str, after=None)
        await run.pending("second", str, after=None)

    await probe.advance(body)
    assert [key for method, key in probe.calls if method == "load"] == ["w from 0", "w from 1", "w from 4"]
    probe.calls.clear()
    await probe.advance(body)
    assert probe.calls == [("load", "w from 0")]


async def test_pending_fresh_misses_no_entry_between_its_own_records(probe: Probe) -> None:
    """RUN-PENDING-FRESH: what others wrote between the records of the pass is seen."""

    async def body(run: Run) -> list[str]:
        read: list[str] = []
        cursor: str | None = None
        for number in range(6):
            await run.step(f"step {number}", Effect(number), int)
            await probe.inner.append("w", f"message {number}")
            await run.step(f"more {number}", Effect(number), int)
            entries = await run.pending(f"read {number}", str, after=cursor)
            read += [entry.value for entry in entries]
            cursor = entries[-1].key
        return read

    assert await probe.advance(body) == Completed([f"message {number}" for number in range(6)])


# What a suspension is


@pytest.mark.parametrize("kind", [Fenced, Contended, Suspended, AwaitingValue, AwaitingMessage, AwaitingTime])
def test_suspend_base_is_no_exception(kind: type[BaseException]) -> None:
    """RUN-SUSPEND-BASE: `except Exception` does not absorb it."""
    assert issubclass(kind, Interruption)
    assert not issubclass(kind, Exception)


async def test_suspend_base_passes_what_a_body_wraps_around_a_wait(probe: Probe) -> None:
    """RUN-SUSPEND-BASE: each kind of wait raises its own suspension, through `except Exception`."""
    seen: list[tuple[type[BaseException], str]] = []

    async def body(run: Run, kind: str) -> str:
        try:
            match kind:
                case "value":
                    return await run.awaiting("key", str)
                case "message":
                    return str(await run.receive("key", str, after=None))
                case _:
                    await run.sleep("key", HOUR)
                    return "slept"
        except Exception:
            return "absorbed"
        except Suspended as suspended:
            seen.append((type(suspended), suspended.key))
            raise

    for kind in ("value", "message", "time"):
        assert not isinstance(await probe.advance(partial(body, kind=kind)), Completed)
    assert seen == [(AwaitingValue, "key"), (AwaitingMessage, "key"), (AwaitingTime, "key")]


async def test_suspend_base_a_refused_write_passes_too(probe: Probe) -> None:
    """RUN-SUSPEND-BASE: a lost claim is not seen as a failure by a compensation."""
    refund = Effect("refunded")

    async def body(run: Run) -> str:
        try:
            await probe.lose()
            return await run.step("charge", Effect("charged"), str)
        except Exception:
            return await run.step("refund", refund, str)

    with pytest.raises(Fenced):
        await probe.advance(body)
    assert refund.runs == 0


async def test_wait_inside_an_effect_is_refused(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: the effect is at work while it waits, so the pass could never suspend."""

    async def body(run: Run, kind: str) -> None:
        async def effect() -> object:
            match kind:
                case "value":
                    return await run.awaiting("answer", str)
                case "message":
                    return await run.receive("read", str, after=None)
                case "time":
                    return await run.sleep("nap", HOUR)  # type: ignore[func-returns-value]
                case _:
                    async with asyncio.TaskGroup() as group:
                        return await group.create_task(run.awaiting("answer", str))

        with pytest.raises((Misconfigured, ExceptionGroup)) as refused:
            await run.step("outer", effect, str)
        inner = refused.value.exceptions[0] if isinstance(refused.value, ExceptionGroup) else refused.value
        assert "the effect of step 'outer' of workflow 'w' waits for" in str(inner)

    for kind in ("value", "message", "time", "group"):
        assert await probe.advance(partial(body, kind=kind)) == Completed(None)


async def test_wait_of_another_workflow_inside_an_effect_is_not_refused(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: an effect may advance another workflow, which suspends as it likes."""

    async def child(run: Run) -> str:
        return await run.awaiting("answer", str)

    async def effect() -> str:
        return repr(await Probe("child").advance(child))

    async def body(run: Run) -> str:
        return await run.step("outer", effect, str)

    assert await probe.advance(body) == Completed("Blocked(waiting=('answer',), listening=())")
