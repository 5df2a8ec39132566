"""How long an effect may take, and what the claim covers before it starts."""

import asyncio
from datetime import timedelta

import pytest

from durable_core.errors import Fenced, OutcomeUnknown, StepFailed
from durable_core.memory import MemoryEffect
from durable_core.outcome import Completed
from durable_core.run import Run
from probe import ALIVE, BUDGET, Effect, Held, Probe

SOON = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_step_timeout_ends_the_effect(probe: Probe) -> None:
    """RUN-STEP-TIMEOUT: the step raises TimeoutError and records nothing."""
    effect = Held("done")

    async def body(run: Run) -> str:
        return await run.step("a", effect, str, timeout=SOON)

    with pytest.raises(TimeoutError, match="step 'a' of workflow 'w' took longer"):
        await probe.advance(body)
    assert effect.ending == "cancelled"
    assert await probe.keys() == []


async def test_step_timeout_can_be_a_failure(probe: Probe) -> None:
    """RUN-STEP-TIMEOUT: it counts as TimeoutError for `failures`, and is the same on every pass."""
    effect = Held("done")

    async def body(run: Run) -> str:
        return await run.step("a", effect, str, timeout=SOON, failures=(TimeoutError,))

    for _ in range(2):
        with pytest.raises(StepFailed) as failed:
            await probe.advance(body)
        assert failed.value.kind == "TimeoutError"
    assert effect.runs == 1


async def test_step_timeout_is_unknown_at_most_once(probe: Probe) -> None:
    """RUN-STEP-TIMEOUT: an undeclared timeout of an at_most_once step is OutcomeUnknown on the same pass."""

    async def body(run: Run) -> str:
        return await run.step("a", Held("done"), str, timeout=SOON, at_most_once=True)

    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await probe.advance(body)


async def test_step_timeout_does_not_cover_the_record(probe: Probe) -> None:
    """RUN-STEP-TIMEOUT: when it fires after the effect returned, the step returns the value."""
    gate = probe.gate("record", "a")

    async def body(run: Run) -> str:
        return await run.step("a", Effect("done"), str, timeout=SOON)

    task = asyncio.create_task(probe.advance(body))
    await gate.reached.wait()
    await asyncio.sleep(0.01)
    gate.open()
    assert await task == Completed("done")


async def test_step_timeout_does_not_cover_what_comes_before_the_effect(probe: Probe) -> None:
    """RUN-STEP-TIMEOUT: it is the effect's, and a slow start is not the effect's fault."""
    gate = probe.gate("record", "start:a")

    async def body(run: Run) -> str:
        return await run.step("a", Effect("done"), str, timeout=SOON, at_most_once=True)

    task = asyncio.create_task(probe.advance(body))
    await gate.reached.wait()
    await asyncio.sleep(0.01)
    gate.open()
    assert await task == Completed("done")


async def test_step_timeout_of_an_effect_that_ends_in_time_does_nothing(probe: Probe) -> None:
    """RUN-STEP-TIMEOUT: neither the step nor what follows it."""

    async def body(run: Run) -> str:
        first = await run.step("a", Effect("first"), str, timeout=timedelta(milliseconds=5))
        await asyncio.sleep(0.02)
        return first

    assert await probe.advance(body) == Completed("first")


async def test_step_timeout_that_fires_while_the_step_is_being_cancelled_is_no_failure(probe: Probe) -> None:
    """RUN-STEP-TIMEOUT: an effect that was stopped by somebody else did not take too long."""
    began = asyncio.Event()

    async def slow_to_stop() -> str:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0.2)
        return "unreached"

    async def body(run: Run) -> str:
        return await run.step("a", slow_to_stop, str, timeout=timedelta(seconds=0.15), failures=(TimeoutError,))

    task = asyncio.create_task(probe.advance(body))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await probe.keys() == []


async def test_step_timeout_raises_a_cancellation_from_outside_once_the_record_has_landed(probe: Probe) -> None:
    """RUN-STEP-TIMEOUT: a cancellation is not turned into a value."""
    gate = probe.gate("record", "a")

    async def body(run: Run) -> bool:
        branch = asyncio.create_task(run.step("a", Effect("done"), str, timeout=MINUTE))
        await gate.reached.wait()
        branch.cancel()
        await turns()
        assert not branch.done()
        gate.open()
        await asyncio.wait((branch,))
        return branch.cancelled()

    assert await probe.advance(body) == Completed(True)
    assert await probe.keys() == ["a"]


@pytest.mark.parametrize("duration", [timedelta(0), timedelta(-1), timedelta.max])
async def test_step_timeout_and_within_are_durations(probe: Probe, duration: timedelta) -> None:
    """ANY-VALID: nothing runs and the name is free when a duration is none."""
    effect = Effect("done")

    async def body(run: Run) -> str:
        with pytest.raises(ValueError, match="timeout"):
            await run.step("a", effect, str, timeout=duration)
        with pytest.raises(ValueError, match="within"):
            await run.step("a", effect, str, within=duration)
        return await run.step("a", effect, str)

    assert await probe.advance(body) == Completed("done")
    assert effect.runs == 1


# Budget


def count(data: dict[str, object]) -> int:
    data["count"] = 1
    return 1


def covered(probe: Probe, token: int, seconds: float) -> bool:
    """Say whether the claim lasts so much longer, as long as somebody renews it."""
    claim = probe.durable.memory.see("w").ledger.claim
    assert claim is not None
    assert claim.token == token
    return (claim.until - probe.clock.now()).total_seconds() >= seconds


async def test_step_budget_covers_all_of_within(probe: Probe) -> None:
    """RUN-STEP-BUDGET: when the effect starts, the claim lasts as long as it may take."""
    holder = await probe.take()

    async def effect() -> bool:
        return covered(probe, holder.token, 3_600)

    async def body(run: Run) -> bool:
        return await run.step("a", effect, bool, within=timedelta(hours=1))

    assert await probe.advance(body, holder=holder) == Completed(True)


async def test_step_budget_covers_within_though_the_answer_came_late(probe: Probe) -> None:
    """RUN-STEP-BUDGET: the extension counts from the request, and the effect starts after the reply."""
    holder = await probe.take()
    probe.then("extend", "w", lambda: probe.tick(20), after=True)
    probe.then("record", "start:a", lambda: probe.tick(20), after=True)

    async def effect() -> bool:
        return covered(probe, holder.token, 3_600)

    async def body(run: Run) -> bool:
        return await run.step("a", effect, bool, within=timedelta(hours=1), at_most_once=True)

    assert await probe.advance(body, holder=holder) == Completed(True)


async def test_step_budget_covers_half_of_it_where_nothing_is_said(probe: Probe) -> None:
    """RUN-STEP-BUDGET: a pass of many short steps outlives its first budget, and asks for more only when half of it is gone."""
    holder = await probe.take()
    effects: list[bool] = []

    async def effect() -> None:
        effects.append(covered(probe, holder.token, BUDGET.total_seconds() / 2))
        probe.tick(50)

    async def body(run: Run) -> None:
        for number in range(60):
            await run.step(f"{number}", effect, lambda _: None)

    assert await probe.advance(body, holder=holder) == Completed(None)
    assert effects == [True] * 60
    assert 1 < probe.count("extend") < 10


async def test_step_budget_asks_for_nothing_it_has(probe: Probe) -> None:
    """RUN-STEP-BUDGET: a step within the budget costs no extension."""

    async def body(run: Run) -> None:
        for number in range(10):
            await run.step(f"{number}", Effect(None), lambda _: None, within=timedelta(minutes=10))

    await probe.advance(body)
    assert probe.count("extend") == probe.count("renew") == 0


async def test_step_budget_asks_once_for_many_branches(probe: Probe) -> None:
    """RUN-STEP-BUDGET: two hundred branches that need the same extension ask for one."""

    async def body(run: Run) -> None:
        probe.tick(BUDGET.total_seconds() * 0.6)
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(run.step(f"{number}", Effect(None), lambda _: None))

    await probe.advance(body)
    assert probe.count("extend") == 1


async def test_step_budget_is_lost_with_the_claim(probe: Probe) -> None:
    """RUN-STEP-BUDGET: an extension that is refused runs no effect."""
    effect = Effect("done")

    async def body(run: Run) -> str:
        await probe.lose()
        return await run.step("a", effect, str, within=timedelta(hours=1))

    with pytest.raises(Fenced):
        await probe.advance(body)
    assert effect.runs == 0


async def test_step_budget_is_asked_for_a_transaction_too(probe: Probe) -> None:
    """RUN-STEP-BUDGET: `transact` asks like `step`, and replays like it."""

    async def body(run: Run[MemoryEffect]) -> int:
        return await run.transact("a", count, int, within=timedelta(hours=1))

    for _ in range(2):
        assert await probe.advance(body) == Completed(1)
    assert probe.count("extend") == probe.count("transact") == 1
    assert probe.inner.data == {"count": 1}


# Freshness


async def test_step_fresh_renews_before_an_effect_when_the_last_sign_is_older_than_the_window(probe: Probe) -> None:
    """RUN-STEP-FRESH: a blocked event loop runs no effect on a claim that may be gone."""
    effect = Effect("done")

    async def body(run: Run) -> str:
        probe.tick(ALIVE.total_seconds() + 1)
        return await run.step("a", effect, str)

    assert await probe.advance(body) == Completed("done")
    assert probe.calls.index(("renew", "w")) < probe.calls.index(("record", "a"))


async def test_step_fresh_is_fenced_when_the_claim_is_gone(probe: Probe) -> None:
    """RUN-STEP-FRESH: the effect does not run when the renewal is refused."""
    effect = Effect("done")

    async def body(run: Run) -> str:
        probe.tick(ALIVE.total_seconds() + 1)
        await probe.take()
        return await run.step("a", effect, str)

    with pytest.raises(Fenced, match="'a'"):
        await probe.advance(body)
    assert effect.runs == 0


async def test_step_fresh_counts_from_when_the_call_was_sent(probe: Probe) -> None:
    """RUN-STEP-FRESH: a renewal that was answered a window late says nothing about now."""
    effect = Effect("done")
    probe.then("renew", "w", lambda: probe.tick(ALIVE.total_seconds() + 1), after=True)

    async def body(run: Run) -> str:
        probe.tick(ALIVE.total_seconds() + 1)
        return await run.step("a", effect, str)

    assert await probe.advance(body) == Completed("done")
    assert probe.count("renew") == 2


async def test_step_fresh_counts_a_record_from_when_it_was_sent(probe: Probe) -> None:
    """RUN-STEP-FRESH: a record that was answered late is as old as its request."""
    probe.then("record", "a", lambda: probe.tick(ALIVE.total_seconds() + 1), after=True)

    async def body(run: Run) -> str:
        await run.step("a", Effect(None), lambda _: None)
        return await run.step("b", Effect("done"), str)

    assert await probe.advance(body) == Completed("done")
    assert probe.calls.index(("renew", "w")) > probe.calls.index(("record", "a"))


async def test_step_fresh_does_not_count_on_a_sign_that_a_store_may_leave_out(probe: Probe) -> None:
    """RUN-STEP-FRESH: a write may keep a sign of life that is a third of the window old."""

    async def body(run: Run) -> str:
        probe.tick(ALIVE.total_seconds() * 0.5)
        await run.step("a", Effect(None), lambda _: None)
        probe.tick(ALIVE.total_seconds() * 0.7)
        return await run.step("b", Effect("done"), str)

    assert await probe.advance(body) == Completed("done")
    assert probe.count("renew") == 1


async def test_step_fresh_costs_nothing_while_the_sign_is_young(probe: Probe) -> None:
    """RUN-STEP-FRESH: records are signs of life."""

    async def body(run: Run) -> None:
        for number in range(20):
            probe.tick(ALIVE.total_seconds() / 2)
            await run.step(f"{number}", Effect(None), lambda _: None, within=MINUTE)

    await probe.advance(body)
    assert probe.count("renew") == 0


async def test_step_fresh_after_a_slow_start_too(probe: Probe) -> None:
    """RUN-STEP-FRESH: the start of an at_most_once step comes between the check and the effect."""
    probe.then("record", "start:a", lambda: probe.tick(ALIVE.total_seconds() + 1), after=True)

    async def body(run: Run) -> str:
        return await run.step("a", Effect("done"), str, at_most_once=True)

    assert await probe.advance(body) == Completed("done")
    assert probe.calls.index(("record", "start:a")) < probe.calls.index(("renew", "w")) < probe.calls.index(("record", "a"))


async def test_step_fresh_though_a_sibling_blocked_the_loop(probe: Probe) -> None:
    """RUN-STEP-FRESH: no turn of the loop comes between the check and the effect."""
    order: list[str] = []

    async def blocking(name: str) -> None:
        order.append(f"{name} after {probe.count('renew')} renewals")
        probe.tick(ALIVE.total_seconds() + 1)

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            for name in "ab":
                group.create_task(run.step(name, blocking, lambda _: None, name))

    await probe.advance(body)
    assert order == ["a after 0 renewals", "b after 1 renewals"]
