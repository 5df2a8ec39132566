"""How a pass ends: with nothing at work, and with nothing written afterwards."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from durable_core.errors import Fenced, Swallowed
from durable_core.outcome import Blocked, Completed
from durable_core.run import Ended, Run
from probe import Effect, Held, Probe


async def test_closed_a_body_that_returned_is_waited_for(probe: Probe) -> None:
    """RUN-CLOSED: a notification that was started and not awaited is sent once, and recorded."""
    notify = Held("sent")

    async def body(run: Run) -> str:
        probe.leave(run.step("notify", notify, str))
        await notify.began.wait()
        return "done"

    task = asyncio.create_task(probe.advance(body))
    await notify.began.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    notify.go.set()
    assert await task == Completed("done")
    assert notify.ending == "returned"
    assert await probe.keys() == ["notify"]


async def test_closed_a_call_that_had_just_been_started_is_waited_for(probe: Probe) -> None:
    """RUN-CLOSED: a task that the body created with its last breath is not too late."""
    notify = Effect("sent")

    async def body(run: Run) -> str:
        probe.leave(run.step("notify", notify, str))
        return "done"

    assert await probe.advance(body) == Completed("done")
    assert notify.runs == 1
    assert await probe.keys() == ["notify"]


async def test_closed_what_such_a_call_goes_on_to_do_is_waited_for(probe: Probe) -> None:
    """RUN-CLOSED: a branch that outlives its body and keeps working is part of it."""

    async def chain(run: Run) -> None:
        for number in range(5):
            await run.step(f"{number}", Effect(number), int)
            await asyncio.sleep(0)

    async def body(run: Run) -> str:
        probe.leave(chain(run))
        await asyncio.sleep(0)
        return "done"

    assert await probe.advance(body) == Completed("done")
    assert await probe.keys() == list("01234")


async def test_closed_the_failure_of_a_call_that_outlived_its_body_is_the_body_s(probe: Probe) -> None:
    """RUN-CLOSED: the pass does not complete, and the loop has nothing to complain of."""
    notify = Held(ConnectionError("down"))

    async def body(run: Run) -> str:
        probe.leave(run.step("notify", notify, str))
        await notify.began.wait()
        asyncio.get_running_loop().call_soon(notify.go.set)
        return "done"

    with pytest.raises(ConnectionError, match="down"):
        await probe.advance(body)


async def test_closed_several_such_failures_come_together(probe: Probe) -> None:
    """RUN-CLOSED: none is lost."""
    effects = [Held(ConnectionError("1")), Held(KeyError("2")), Held(BaseException("3"))]

    async def body(run: Run) -> str:
        for number, effect in enumerate(effects):
            probe.leave(run.step(f"{number}", effect, str))
            await effect.began.wait()
        for effect in effects:
            asyncio.get_running_loop().call_soon(effect.go.set)
        return "done"

    with pytest.raises(BaseExceptionGroup) as failed:
        await probe.advance(body)
    assert sorted(type(error).__name__ for error in failed.value.exceptions) == ["BaseException", "ConnectionError", "KeyError"]


async def test_closed_a_failure_that_was_retried_is_none(probe: Probe) -> None:
    """RUN-CLOSED: a retry helper may outlive the body too."""
    effect = Effect(ConnectionError("down"), "sent")

    async def retried(run: Run) -> str:
        with suppress(ConnectionError):
            return await run.step("notify", effect, str)
        return await run.step("notify", effect, str)

    async def body(run: Run) -> str:
        probe.leave(retried(run))
        return "done"

    assert await probe.advance(body) == Completed("done")
    assert effect.runs == 2


async def test_closed_a_lost_claim_found_by_a_call_that_outlived_its_body_is_fenced(probe: Probe) -> None:
    """RUN-CLOSED: the body hid nothing, so it is no mistake of the code."""

    async def body(run: Run) -> str:
        probe.leave(run.step("notify", Effect("sent"), str))
        await probe.inner.discard("w")
        return "done"

    with pytest.raises(Fenced):
        await probe.advance(body)


async def test_closed_a_pass_in_which_only_held_waits_remain_is_swallowed(probe: Probe) -> None:
    """RUN-CLOSED: a held wait is not at work."""

    async def body(run: Run) -> str:
        probe.leave(run.awaiting("a", str))
        probe.leave(run.step("x", Effect("done"), str))
        await asyncio.sleep(0)
        return "done"

    with pytest.raises(Swallowed, match="'a'"):
        await probe.advance(body)
    assert await probe.keys() == ["x"]


@pytest.mark.parametrize("how", ["failure", "cancellation", "loss"])
async def test_closed_in_every_other_ending_what_is_at_work_is_cancelled_and_waited_for(probe: Probe, how: str) -> None:
    """RUN-CLOSED: no effect outlives a pass that failed, was cancelled or lost its claim."""
    effect = Held("done")
    stopped = asyncio.Event()

    async def stubborn() -> None:
        try:
            await effect()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            stopped.set()

    async def body(run: Run) -> str:
        probe.leave(run.step("x", stubborn, str))
        await effect.began.wait()
        match how:
            case "failure":
                raise ValueError("no")
            case "cancellation":
                await asyncio.get_running_loop().create_future()
            case _:
                await probe.inner.discard("w")
                await run.step("y", Effect("done"), str)
        return "unreached"

    task = asyncio.create_task(probe.advance(body))
    await effect.began.wait()
    if how == "cancellation":
        task.cancel()
    with pytest.raises((ValueError, asyncio.CancelledError, Fenced)):
        await task
    assert stopped.is_set()
    assert effect.ending == "cancelled"
    assert await probe.keys() == []


async def test_closed_a_failing_pass_waits_for_records_of_effects_that_have_returned(probe: Probe) -> None:
    """RUN-CLOSED: what happened is recorded before the failure is raised."""
    gate = probe.gate("record", "x")

    async def body(run: Run) -> str:
        probe.leave(run.step("x", Effect("charged"), str))
        await gate.reached.wait()
        raise ValueError("no")

    task = asyncio.create_task(probe.advance(body))
    await gate.reached.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    gate.open()
    with pytest.raises(ValueError, match="no"):
        await task
    assert await probe.keys() == ["x"]


async def late(run: Run, call: Callable[[Run], Awaitable[object]], over: asyncio.Event) -> None:
    await over.wait()
    await call(run)


async def called(run: Run, kind: str) -> object:
    match kind:
        case "step":
            return await run.step("x", Effect("done"), str)
        case "awaiting":
            return await run.awaiting("x", str)
        case "sleep":
            return await run.sleep("x", timedelta(0))  # type: ignore[func-returns-value]
        case "now":
            return await run.now("x")
        case "pending":
            return await run.pending("x", str, after=None)
        case "receive":
            return await run.receive("x", str, after=None)
        case "input":
            return await run.input(str)
        case _:
            return await run.step("known", Effect("done"), str)


@pytest.mark.parametrize("kind", ["step", "awaiting", "sleep", "now", "pending", "receive", "input", "replay"])
async def test_closed_afterwards_every_call_ends_its_task_quietly(probe: Probe, kind: str) -> None:
    """RUN-CLOSED: an orphan is Ended, which nobody logs, and writes nothing."""
    over = asyncio.Event()

    async def body(run: Run) -> str:
        await run.step("known", Effect("known"), str)
        probe.leave(late(run, lambda run: called(run, kind), over))
        await asyncio.sleep(0)
        return "done"

    assert await probe.advance(body) == Completed("done")
    calls = list(probe.calls)
    over.set()
    await asyncio.wait(probe.kept)
    assert probe.kept[0].cancelled()
    with pytest.raises(asyncio.CancelledError):
        await probe.kept[0]
    assert issubclass(Ended, asyncio.CancelledError)
    assert probe.calls == calls


async def test_closed_after_a_suspension_too(probe: Probe) -> None:
    """RUN-CLOSED: an orphan of a pass that suspended writes nothing while the next pass runs."""
    over, effect = asyncio.Event(), Effect("orphan")

    async def body(run: Run) -> str:
        probe.leave(late(run, lambda run: run.step("x", effect, str), over))
        return await run.awaiting("a", str)

    assert await probe.advance(body) == Blocked(("a",), ())
    over.set()
    await asyncio.wait(probe.kept)
    assert effect.runs == 0
    assert await probe.keys() == []


async def test_closed_leaves_no_task_of_a_plain_gather(probe: Probe) -> None:
    """RUN-CLOSED: the siblings that gather leaves behind are cancelled and waited for."""
    slow = Held("slow")

    async def body(run: Run) -> str:
        await asyncio.gather(run.step("slow", slow, str), run.step("bad", Effect(ValueError("no")), str))
        return "unreached"

    with pytest.raises(ValueError, match="no"):
        await probe.advance(body)
    assert slow.ending == "cancelled"


async def test_closed_a_second_cancellation_does_not_break_the_wait_for_what_is_at_work(probe: Probe) -> None:
    """RUN-CLOSED: however often a pass is cancelled, it ends with nothing at work."""
    gates = [probe.gate("record", key) for key in "xy"]

    async def body(run: Run) -> str:
        probe.leave(run.step("x", Effect("x"), str))
        return await run.step("y", Effect("y"), str)

    task = asyncio.create_task(probe.advance(body))
    await asyncio.gather(*(gate.reached.wait() for gate in gates))
    for _ in range(4):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    gates[1].open()
    for _ in range(4):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    assert not task.done()
    gates[0].open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(await probe.keys()) == ["x", "y"]


async def test_closed_does_not_wait_for_a_held_wait_of_a_failing_pass(probe: Probe) -> None:
    """RUN-CLOSED: it is cancelled like the rest."""

    async def body(run: Run) -> str:
        probe.leave(run.awaiting("a", str))
        await run.step("x", Effect("done"), str)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await probe.advance(body)
    assert probe.kept[0].cancelled()


async def test_closed_a_cancelled_pass_waits_for_its_body(probe: Probe) -> None:
    """RUN-CLOSED: also for what a body does about the cancellation outside its calls."""
    began, cleaned = asyncio.Event(), asyncio.Event()

    async def body(run: Run) -> None:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            cleaned.set()

    task = asyncio.create_task(probe.advance(body))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


async def test_closed_a_cancelled_pass_says_nothing_of_what_its_body_raised(probe: Probe) -> None:
    """RUN-CLOSED: whoever cancelled it is told of the cancellation, and the loop has nothing to complain of."""
    began = asyncio.Event()

    async def body(run: Run) -> None:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            raise ValueError("cleanup")

    task = asyncio.create_task(probe.advance(body))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_closed_a_call_between_two_others_of_its_branch_is_waited_for(probe: Probe) -> None:
    """RUN-CLOSED: a branch that is just on its way to its next call, on a replay too, is not taken for one that is done."""
    await probe.supply_now("known", "known")

    async def branch(run: Run) -> None:
        await run.step("known", Effect("unknown"), str)
        for _ in range(20):
            await asyncio.sleep(0)
        await run.step("x", Effect("done"), str)

    async def body(run: Run) -> str:
        probe.leave(branch(run))
        await asyncio.sleep(0)
        return "done"

    assert await probe.advance(body) == Completed("done")
    assert await probe.keys() == ["known", "x"]
