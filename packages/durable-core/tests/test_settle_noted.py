"""A suspension, or a lost claim, that a body hides."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from durable_core.errors import Fenced, Swallowed
from durable_core.memory import MemoryEffect
from durable_core.outcome import Completed
from durable_core.run import Run
from probe import Effect, Held, Probe


async def passes(probe: Probe, body: Callable[[Run[MemoryEffect]], Awaitable[object]], count: int = 3) -> list[object]:
    """Give the outcomes of as many passes."""
    return [await probe.advance(body) for _ in range(count)]


async def gathered(run: Run) -> str:
    await asyncio.gather(run.awaiting("a", str), run.awaiting("b", str), return_exceptions=True)
    return "ok"


async def waited(run: Run) -> str:
    await asyncio.wait([asyncio.create_task(run.awaiting(key, str)) for key in "ba"])
    return "ok"


async def grouped(run: Run) -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("a", str))
            group.create_task(run.awaiting("b", str))
    except BaseException:
        return "ok"
    return "unreached"


async def excepted(run: Run) -> str:
    other = asyncio.create_task(run.awaiting("b", str))
    try:
        return await run.awaiting("a", str)
    except BaseException:
        other.cancel()
        return "ok"


async def left_behind(run: Run) -> str:
    for key in "ab":
        tasks.append(asyncio.create_task(run.awaiting(key, str)))
    await run.step("x", Effect("done"), str)
    return "ok"


tasks: list[asyncio.Task[str]] = []  # so that nobody collects what a body leaves behind


@pytest.mark.parametrize("body", [gathered, waited, grouped, excepted, left_behind])
async def test_suspend_noted_however_a_body_hides_it(probe: Probe, body: Callable[[Run], Awaitable[str]]) -> None:
    """RUN-SUSPEND-NOTED: a body that returned with its waits hidden is Swallowed, all keys named, on every pass."""
    for _ in range(2):
        with pytest.raises(Swallowed) as swallowed:
            await probe.advance(body)
        assert swallowed.value.keys == ("a", "b")
        assert "'a', 'b'" in str(swallowed.value)
        assert isinstance(swallowed.value, Exception)
    tasks.clear()


async def test_suspend_noted_keeps_what_siblings_recorded(probe: Probe) -> None:
    """RUN-SUSPEND-NOTED: a refused ending undoes nothing."""
    step = Effect("done")

    async def body(run: Run) -> str:
        await asyncio.gather(run.awaiting("a", str), run.step("x", step, str), return_exceptions=True)
        return "ok"

    for _ in range(2):
        with pytest.raises(Swallowed):
            await probe.advance(body)
    assert await probe.keys() == ["x"]
    assert step.runs == 1


async def fenced_gathered(run: Run) -> str:
    await asyncio.gather(run.step("x", Effect("done"), str), return_exceptions=True)
    return "ok"


async def fenced_excepted(run: Run) -> str:
    try:
        return await run.step("x", Effect("done"), str)
    except BaseException:
        return "ok"


async def fenced_grouped(run: Run) -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("x", Effect("done"), str))
            await run.awaiting("a", str)
    except BaseException:
        pass
    return "ok"


@pytest.mark.parametrize("body", [fenced_gathered, fenced_excepted, fenced_grouped])
async def test_suspend_noted_a_lost_claim_too(probe: Probe, body: Callable[[Run], Awaitable[str]]) -> None:
    """RUN-SUSPEND-NOTED: a body that returned having hidden a Fenced is Swallowed, and completes nothing."""
    holder = await probe.take()
    await probe.inner.discard("w")
    with pytest.raises(Swallowed, match="'x'"):
        await probe.advance(body, holder=holder)
    assert await probe.keys() == []


async def test_suspend_noted_a_lost_claim_stops_the_calls_beside_it(probe: Probe) -> None:
    """RUN-SUSPEND-NOTED: a held wait raises it, an effect is cancelled, also when it is the body's own."""
    sibling, own = Held("sibling"), Held("own")
    seen: list[type[BaseException]] = []

    async def held(run: Run) -> None:
        try:
            await run.awaiting("a", str)
        except BaseException as error:
            seen.append(type(error))
            raise

    async def losing(run: Run) -> None:
        await sibling.began.wait()
        await own.began.wait()
        await probe.inner.discard("w")
        await run.step("x", Effect("done"), str)

    async def body(run: Run) -> str:
        tasks = [asyncio.create_task(call) for call in (held(run), run.step("y", sibling, str), losing(run))]
        await run.step("z", own, str)
        return repr(tasks)

    with pytest.raises(Fenced):
        await probe.advance(body)
    assert seen == [Fenced]
    assert (sibling.ending, own.ending) == ("cancelled", "cancelled")


async def test_suspend_noted_a_body_that_fails_after_the_suspension_has_failed(probe: Probe) -> None:
    """RUN-SUSPEND-NOTED: only a return is refused; an exception of the body's own is its failure."""

    async def body(run: Run) -> None:
        try:
            await run.awaiting("a", str)
        finally:
            raise KeyError("cleanup")

    with pytest.raises(KeyError):
        await probe.advance(body)


async def test_suspend_noted_a_failure_before_the_suspension_is_free_to_be_handled(probe: Probe) -> None:
    """RUN-SUSPEND-NOTED: waits that were withdrawn before the pass suspended do not stand."""

    async def body(run: Run) -> str:
        wait = asyncio.create_task(run.awaiting("a", str))
        with suppress(ValueError):
            await run.step("x", Effect(ValueError("no")), str)
        wait.cancel()
        await asyncio.wait((wait,))
        return "handled"

    assert await probe.advance(body) == Completed("handled")
