"""A name is used once in a pass, unless it recorded nothing."""

import asyncio

import pytest

from durable_core.errors import DuplicateStep, NotEncodable, NotParsed, ReservedKey
from durable_core.outcome import Blocked, Completed
from durable_core.run import Run
from probe import Effect, Held, Probe


async def double(number: int) -> int:
    return number * 2


async def test_step_name_twice_in_a_pass_is_an_error(probe: Probe) -> None:
    """RUN-STEP-NAME: the second step of a name runs nothing, on the first pass and on a replay."""
    effect = Effect("first", "second")

    async def body(run: Run) -> str:
        first = await run.step("a", effect, str)
        with pytest.raises(DuplicateStep, match="'w' uses 'a' twice"):
            await run.step("a", effect, str)
        return first

    assert await probe.advance(body) == await probe.advance(body) == Completed("first")
    assert effect.runs == 1


async def test_step_name_is_taken_while_its_effect_runs(probe: Probe) -> None:
    """RUN-STEP-NAME: two at once are two of one name, and the first is not disturbed."""
    effect = Held("done")

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(run.step("a", effect, str))
            await effect.began.wait()
            with pytest.raises(DuplicateStep):
                await run.step("a", effect, str)
            effect.go.set()
        return first.result()

    assert await probe.advance(body) == Completed("done")
    assert effect.runs == 1


async def test_step_name_is_one_for_steps_waits_and_clocks(probe: Probe) -> None:
    """RUN-STEP-NAME: whatever uses a name takes it."""

    async def body(run: Run) -> None:
        await run.now("a")
        with pytest.raises(DuplicateStep):
            await run.step("a", double, int, 1)
        with pytest.raises(DuplicateStep):
            await run.awaiting("a", str)
        with pytest.raises(DuplicateStep):
            await run.pending("a", str, after=None)

    assert await probe.advance(body) == await probe.advance(body) == Completed(None)


async def test_step_name_is_free_again_when_nothing_was_recorded(probe: Probe) -> None:
    """RUN-STEP-NAME: a retry helper around a step works."""
    effect = Effect(ConnectionError("1"), ConnectionError("2"), "third")

    async def body(run: Run) -> str:
        for _ in range(2):
            try:
                return await run.step("a", effect, str)
            except ConnectionError:
                continue
        return await run.step("a", effect, str)

    assert await probe.advance(body) == Completed("third")


async def test_step_name_is_free_again_when_the_record_was_refused(probe: Probe) -> None:
    """RUN-STEP-NAME: a value that could not be stored recorded nothing."""
    effect = Effect(object(), "fine")

    async def body(run: Run) -> str:
        try:
            return await run.step("a", effect, str)
        except NotEncodable:
            return await run.step("a", effect, str)

    assert await probe.advance(body) == Completed("fine")


async def test_step_name_is_free_again_when_its_wait_was_withdrawn(probe: Probe) -> None:
    """RUN-STEP-NAME: a wait that was cancelled while held counts as never reached."""
    sibling = Held("done")

    async def body(run: Run) -> str:
        step = asyncio.create_task(run.step("b", sibling, str))
        await sibling.began.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await run.awaiting("a", str)
        sibling.go.set()
        await step
        return await run.awaiting("a", str)

    assert await probe.advance(body) == Blocked(("a",), ())


async def test_step_name_stays_taken_when_the_value_is_recorded(probe: Probe) -> None:
    """RUN-STEP-NAME: a value that its parser refuses is there all the same."""

    async def body(run: Run) -> None:
        with pytest.raises(NotParsed):
            await run.step("a", double, str, 1)
        with pytest.raises(DuplicateStep):
            await run.step("a", double, int, 1)

    assert await probe.advance(body) == await probe.advance(body) == Completed(None)


@pytest.mark.parametrize("key", ["inbox:1", "until:a", "start:a", "failed:a", "outcome:", "input"])
async def test_step_name_refuses_what_belongs_to_the_library(probe: Probe, key: str) -> None:
    """CKP-KEY-RESERVED: no call of a run takes a reserved name, and nothing runs or is recorded."""
    effect = Effect("done")

    async def body(run: Run) -> None:
        with pytest.raises(ReservedKey):
            await run.step(key, effect, str)
        with pytest.raises(ReservedKey):
            await run.awaiting(key, str)
        with pytest.raises(ReservedKey):
            await run.now(key)
        with pytest.raises(ReservedKey):
            await run.receive(key, str, after=None)

    assert await probe.advance(body) == Completed(None)
    assert effect.runs == 0
    assert await probe.keys() == []
