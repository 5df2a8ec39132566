"""What an effect has returned is recorded, whoever cancels the step meanwhile; for no longer than a window."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from durable_core.errors import Fenced
from durable_core.outcome import Blocked, Completed
from durable_core.run import Run
from probe import Effect, Gate, Held, Probe


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_step_kept_when_a_sibling_fails(probe: Probe) -> None:
    """RUN-STEP-KEPT: a task group that aborts cancels no record, and is left once the record has landed."""
    effect, gate = Effect("charged"), probe.gate("record", "charge")

    async def failing() -> None:
        await gate.reached.wait()
        asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(gate.open))
        raise ValueError("sibling")

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("charge", effect, str))
            group.create_task(failing())
        return "unreached"

    with pytest.raises(ExceptionGroup, match="unhandled"):
        await probe.advance(body)
    assert await probe.keys() == ["charge"]
    assert effect.runs == 1


@pytest.mark.parametrize("times", [1, 3])
async def test_step_kept_however_often_the_pass_is_cancelled(probe: Probe, times: int) -> None:
    """RUN-STEP-KEPT: the cancellation is raised once the record has landed, and not before."""
    effect, gate = Effect("charged"), probe.gate("record", "charge")

    async def body(run: Run) -> str:
        return await run.step("charge", effect, str)

    task = asyncio.create_task(probe.advance(body))
    await gate.reached.wait()
    for _ in range(times):
        task.cancel()
        await turns()
    assert not task.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await probe.keys() == ["charge"]


async def test_step_kept_when_a_timeout_of_the_body_fires(probe: Probe) -> None:
    """RUN-STEP-KEPT: a scope of the body gets its TimeoutError, and the record is there."""
    gate = probe.gate("record", "charge")

    async def charge(scope: asyncio.Timeout) -> str:
        loop = asyncio.get_running_loop()
        scope.reschedule(loop.time())
        loop.call_soon(gate.open)
        return "charged"

    async def body(run: Run) -> str:
        try:
            async with asyncio.timeout(None) as scope:
                return await run.step("charge", charge, str, scope)
        except TimeoutError:
            return "late"

    assert await probe.advance(body) == Completed("late")
    assert await probe.keys() == ["charge"]


async def test_step_kept_before_its_effect_has_returned_is_not(probe: Probe) -> None:
    """RUN-STEP-KEPT: until then the effect is cancelled, and records nothing."""
    effect = Held("charged")

    async def body(run: Run) -> str:
        return await run.step("charge", effect, str)

    task = asyncio.create_task(probe.advance(body))
    await effect.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert effect.ending == "cancelled"
    assert await probe.keys() == []


async def test_step_kept_when_the_effect_returns_in_spite_of_the_cancellation(probe: Probe) -> None:
    """RUN-STEP-KEPT: an effect that catches the cancellation and returns has returned."""
    began = asyncio.Event()

    async def stubborn() -> str:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await turns()
        return "charged"

    async def body(run: Run) -> str:
        return await run.step("charge", stubborn, str)

    task = asyncio.create_task(probe.advance(body))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await probe.keys() == ["charge"]


async def cancelled_while_recording(probe: Probe, gate: Gate, tick: Callable[[], None]) -> asyncio.Task[object]:
    async def body(run: Run) -> str:
        return await run.step("charge", Effect("charged"), str)

    holder = await probe.take(alive=timedelta(seconds=0.01))
    task: asyncio.Task[object] = asyncio.create_task(probe.advance(body, holder=holder, alive=timedelta(seconds=0.01)))
    await gate.reached.wait()
    tick()
    task.cancel()
    await turns()
    return task


async def test_step_kept_no_longer_than_a_window_after_the_last_sign_of_life(probe: Probe) -> None:
    """RUN-STEP-KEPT: a record that never lands does not hold a cancelled pass for ever."""
    gate = probe.gate("record", "charge")
    task = await cancelled_while_recording(probe, gate, lambda: probe.tick(0.02))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await probe.keys() == []


async def test_step_kept_as_long_as_the_window_lasts(probe: Probe) -> None:
    """RUN-STEP-KEPT: while the store's clock stands still the window is not over, whatever real time says."""
    gate = probe.gate("record", "charge")
    task = await cancelled_while_recording(probe, gate, lambda: None)
    await asyncio.sleep(0.05)
    assert not task.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await probe.keys() == ["charge"]


async def test_step_kept_is_given_up_also_when_the_effect_returned_after_the_cancellation(probe: Probe) -> None:
    """RUN-STEP-KEPT: the bound holds for an effect that could not be stopped, too."""
    began = asyncio.Event()
    probe.gate("record", "charge")

    async def stubborn() -> str:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            probe.tick(0.02)
        return "charged"

    async def body(run: Run) -> str:
        return await run.step("charge", stubborn, str)

    holder = await probe.take(alive=timedelta(seconds=0.01))
    task = asyncio.create_task(probe.advance(body, holder=holder, alive=timedelta(seconds=0.01)))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_step_kept_says_that_the_claim_was_lost_rather_than_that_it_was_cancelled(probe: Probe) -> None:
    """RUN-STEP-KEPT: a record that is refused while the step is cancelled is a lost claim."""
    gate = probe.gate("record", "charge")
    seen: list[BaseException] = []

    async def body(run: Run) -> str:
        try:
            return await run.step("charge", Effect("charged"), str)
        except BaseException as error:
            seen.append(error)
            raise

    task = asyncio.create_task(probe.advance(body))
    await gate.reached.wait()
    await probe.inner.discard("w")
    task.cancel()
    await turns()
    gate.open()
    with pytest.raises(asyncio.CancelledError):  # whoever cancels a pass is answered with a cancellation
        await task
    assert [type(error) for error in seen] == [Fenced]
    assert await probe.keys() == []


async def test_step_kept_of_a_failure_too(probe: Probe) -> None:
    """RUN-STEP-KEPT: a failure that is an outcome is recorded like a value."""
    gate = probe.gate("record", "failed:charge")

    async def body(run: Run) -> str:
        return await run.step("charge", Effect(ValueError("declined")), str, failures=(ValueError,))

    task = asyncio.create_task(probe.advance(body))
    await gate.reached.wait()
    task.cancel()
    await turns()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await probe.keys() == ["failed:charge"]


async def test_step_kept_by_a_pass_that_suspends(probe: Probe) -> None:
    """RUN-STEP-KEPT: a wait of a sibling does not overtake a record."""
    gate = probe.gate("record", "charge")

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("approval", bool))
            group.create_task(run.step("charge", Effect("charged"), str))

    task = asyncio.create_task(probe.advance(body))
    await gate.reached.wait()
    await turns(400)
    assert not task.done()
    gate.open()
    assert await task == Blocked(("approval",), ())
    assert await probe.keys() == ["charge"]
