"""One pass of a body, for tests that look at passes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from durable_core import Blocked, Completed, DurableError, Run, Sleeping
from durable_core.memory import MemoryCheckpointer, MemoryDurable, MemoryEffect
from durable_core.testing import ManualClock, one_pass

DAY = timedelta(days=1)


async def give() -> int:
    return 1


async def body(run: Run) -> int:
    value = await run.step("one", give, int)
    await run.sleep("nap", DAY)
    return value + await run.awaiting("answer", int)


async def test_one_pass_claims_resumes_and_releases() -> None:
    """With a durable or a bare checkpointer, by the store's own clock."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    assert await one_pass(durable, "job/1", body) == Sleeping("nap", clock.now() + DAY, ("nap",), ())
    clock.advance(DAY)
    assert await one_pass(durable.checkpointer, "job/1", body) == Blocked(("answer",), ())
    await durable.checkpointer.supply("job/1", "answer", 2)
    assert await one_pass(durable, "job/1", body) == Completed(3)
    assert list(await durable.checkpointer.load("job/1")) == ["one", "nap", "answer"]


async def test_one_pass_releases_when_the_body_raises() -> None:
    """The next pass can begin at once."""
    checkpointer = MemoryCheckpointer()

    async def bad(run: Run) -> None:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await one_pass(checkpointer, "job/1", bad)


async def test_one_pass_says_when_another_one_is_under_way() -> None:
    """Nothing waits for it."""
    durable = MemoryDurable()
    await durable.checkpointer.claim("job/1", DAY, DAY)
    with pytest.raises(DurableError, match="'job/1'"):
        await one_pass(durable, "job/1", body)


async def test_one_pass_takes_effects_of_the_store() -> None:
    """Typed by the store that is handed in."""
    durable = MemoryDurable()

    async def transacting(run: Run[MemoryEffect]) -> int:
        await asyncio.sleep(0)
        return await run.transact("bumped", lambda data: len(data), int)

    assert await one_pass(durable, "job/1", transacting) == Completed(0)
