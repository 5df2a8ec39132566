"""What one pass leaves behind: nothing."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from durable_core.outcome import Sleeping
from durable_core.run import Run
from probe import Effect, Held, Probe

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Witness:
    """What a body holds; a weak reference tells whether somebody still holds the body."""


async def completed(run: Run, effect: Effect) -> str:
    return await run.step("a", effect, str)


async def suspended(run: Run, effect: Effect) -> str:
    await run.step("a", effect, str)
    return await run.awaiting("b", str)


async def asleep(run: Run, effect: Effect) -> str:
    await run.sleep("b", HOUR)
    return "awake"


async def refusing() -> str:
    raise ValueError("no")


async def failed(run: Run, effect: Effect) -> str:
    return await run.step("a", refusing, str)


async def declined(run: Run, effect: Effect) -> str:
    return await run.step("a", refusing, str, failures=(ValueError,))


async def timed_out(run: Run, effect: Effect) -> str:
    return await run.step("a", Held("done"), str, timeout=timedelta(microseconds=1))


async def swallowing(run: Run, effect: Effect) -> str:
    with suppress(BaseException):
        await run.awaiting("b", str)
    return "ok"


async def raising(run: Run, effect: Effect) -> str:
    raise ValueError("no")


@pytest.mark.parametrize("kind", [completed, suspended, asleep, failed, declined, timed_out, swallowing, raising])
async def test_resume_keeps_no_body_alive(probe: Probe, kind: Callable[[Run, Effect], Awaitable[str]]) -> None:
    """RUN-CLOSED: what a pass held is gone with it, and does not wait for the collector of cycles."""
    seen: list[weakref.ref[Witness]] = []

    async def body(run: Run) -> str:
        witness = Witness()
        seen.append(weakref.ref(witness))
        return await kind(run, Effect("done"))

    gc.collect()
    gc.disable()
    try:
        with suppress(Exception):
            await probe.advance(body)
        await asyncio.sleep(0)
        assert seen[0]() is None
    finally:
        gc.enable()


async def test_resume_keeps_no_cancelled_body_alive(probe: Probe) -> None:
    """RUN-CLOSED: nor one that was cancelled in the middle of a step."""
    seen: list[weakref.ref[Witness]] = []
    effect = Held("done")

    async def body(run: Run) -> str:
        witness = Witness()
        seen.append(weakref.ref(witness))
        return await run.step("a", effect, str)

    gc.collect()
    gc.disable()
    try:
        task = asyncio.create_task(probe.advance(body))
        await effect.began.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        del task
        await asyncio.sleep(0)
        assert seen[0]() is None
    finally:
        gc.enable()


async def test_resume_parks_without_a_timer(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: a parked workflow holds no task and no timer of the loop."""

    async def body(run: Run) -> None:
        await run.sleep("a", HOUR)

    before = asyncio.all_tasks()
    assert await probe.advance(body) == Sleeping("a", START + HOUR, ("a",), ())
    assert asyncio.all_tasks() == before
