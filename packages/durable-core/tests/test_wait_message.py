"""Messages: what a pass reads of its inbox, and how far."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from durable_core.contract import Entry
from durable_core.errors import (
    NotParsed,
)
from durable_core.outcome import Blocked, Completed, Sleeping
from durable_core.run import Run
from probe import Effect, Held, Probe

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def inbox(number: int) -> str:
    return f"inbox:{number:020}"


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
