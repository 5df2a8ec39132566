"""When a pass suspends: after everything else that it can do."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from durable_core.errors import Suspended
from durable_core.memory import MemoryEffect
from durable_core.outcome import Blocked, Completed, Sleeping
from durable_core.run import Run
from probe import Effect, Held, Probe

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)

Branch = Callable[[], Awaitable[object]]


async def passes(probe: Probe, body: Callable[[Run[MemoryEffect]], Awaitable[object]], count: int = 3) -> list[object]:
    """Give the outcomes of as many passes."""
    return [await probe.advance(body) for _ in range(count)]


# Siblings


async def test_suspend_settle_lets_a_sibling_finish_its_step(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: a charge beside an approval is made once, and every pass names the approval."""
    charge = Held("charged")
    charge.go.set()

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("approval", bool))
            group.create_task(run.step("charge", charge, str))
        return "both"

    assert await passes(probe, body) == [Blocked(("approval",), ())] * 3
    assert charge.runs == 1
    await probe.supply_now("approval", True)
    assert await probe.advance(body) == Completed("both")


async def test_suspend_settle_lets_a_sibling_reach_a_wait_of_its_own(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: the wait behind a sibling's step is named on the first pass already."""
    step = Effect("done")

    async def second(run: Run) -> None:
        for number in range(5):
            await run.step(f"x{number}", step, str)
        await run.awaiting("b", str)

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("a", str))
            group.create_task(second(run))

    assert await passes(probe, body) == [Blocked(("a", "b"), ())] * 3
    assert step.runs == 5


async def test_suspend_settle_waits_as_long_as_a_sibling_works(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: an effect that takes its time is not overtaken, and not cancelled."""
    charge = Held("charged")

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("approval", bool))
            group.create_task(run.step("charge", charge, str))

    task = asyncio.create_task(probe.advance(body))
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert not task.done()
    charge.go.set()
    assert await task == Blocked(("approval",), ())
    assert charge.ending == "returned"


async def test_suspend_settle_lets_a_body_compensate_for_a_sibling_that_failed(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: the failure is seen, the wait of the aborted group is withdrawn, and the pass goes on."""
    effect, refund = Effect(ValueError("declined")), Effect("refunded")

    async def body(run: Run) -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(run.awaiting("approval", bool))
                group.create_task(run.step("charge", effect, str, failures=(ValueError,)))
        except* Exception:
            pass
        return await run.step("refund", refund, str)

    assert await passes(probe, body) == [Completed("refunded")] * 3
    assert (effect.runs, refund.runs) == (1, 1)


async def test_suspend_settle_does_not_wait_for_branches_behind_a_semaphore_that_is_held_across_a_wait(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: they are not reached, on every pass alike, and nothing of theirs runs."""
    effects = [Effect(number) for number in range(4)]

    async def branch(run: Run, permits: asyncio.Semaphore, number: int) -> None:
        async with permits:
            await run.step(f"s{number}", effects[number], int)
            await run.awaiting(f"w{number}", str)

    async def body(run: Run) -> None:
        permits = asyncio.Semaphore(2)
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(branch(run, permits, number))

    assert await passes(probe, body) == [Blocked(("w0", "w1"), ())] * 3
    assert [effect.runs for effect in effects] == [1, 1, 0, 0]


async def test_suspend_settle_counts_a_replay_as_a_move(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: branches that hand something on are all reached on a replay too, where their steps take no time."""
    count = 300

    async def branch(run: Run, before: asyncio.Event, after: asyncio.Event, number: int) -> None:
        await before.wait()
        await run.step(f"s{number}", Effect(number), int)
        after.set()

    async def body(run: Run) -> None:
        events = [asyncio.Event() for _ in range(count + 1)]
        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("a", str))
            for number in reversed(range(count)):
                group.create_task(branch(run, events[number], events[number + 1], number))
            events[0].set()
            await events[count].wait()
            await run.awaiting("z", str)

    assert await passes(probe, body) == [Blocked(("a", "z"), ())] * 3


async def test_suspend_settle_withdraws_a_wait_that_is_cancelled_while_held(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: a wait whose branch was given up is not waited for."""

    async def body(run: Run) -> None:
        given_up = asyncio.create_task(run.awaiting("a", str))
        await run.step("x", Effect("done"), str)
        given_up.cancel()
        with suppress(asyncio.CancelledError):
            await given_up
        await run.awaiting("b", str)

    assert await passes(probe, body) == [Blocked(("b",), ())] * 3


async def test_suspend_settle_lets_a_timeout_around_a_held_wait_fire_while_a_sibling_works(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: such a wait is withdrawn, and the body goes on."""
    sibling = Held("done")

    async def impatient(run: Run) -> str:
        try:
            async with asyncio.timeout(0):
                return await run.awaiting("a", str)
        except TimeoutError:
            sibling.go.set()
            return "gave up"

    async def body(run: Run) -> list[str]:
        async with asyncio.TaskGroup() as group:
            step = group.create_task(run.step("x", sibling, str))
            answer = group.create_task(impatient(run))
        return [answer.result(), step.result()]

    assert await probe.advance(body) == Completed(["gave up", "done"])


async def test_suspend_settle_does_not_let_a_timeout_around_a_lone_wait_fire(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: alone, a wait suspends the pass at once; timeouts of waits are `awaiting(timeout=)`."""

    async def body(run: Run) -> str:
        async with asyncio.timeout(0.5):
            return await run.awaiting("a", str)

    assert await probe.advance(body) == Blocked(("a",), ())


async def test_suspend_settle_starts_no_effect_afterwards(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: a call that would start one, or record, or wait, raises the suspension; a replay gives its value."""
    effect = Effect("done")
    raised: list[str] = []

    async def attempt(call: Coroutine[object, object, object]) -> None:
        try:
            await call
        except Suspended as suspended:
            raised.append(suspended.key)

    async def body(run: Run[MemoryEffect]) -> None:
        await run.now("then")
        try:
            await run.awaiting("a", str)
        finally:
            await attempt(run.step("b", effect, str))
            await attempt(run.step("c", effect, str, at_most_once=True))
            await attempt(run.transact("d", lambda data: data.update(d=1), str))
            await attempt(run.now("e"))
            await attempt(run.sleep("f", HOUR))
            await attempt(run.awaiting("g", str))
            await attempt(run.awaiting("h", str, timeout=HOUR, default=""))
            await attempt(run.receive("i", str, after=None))
            await attempt(run.pending("j", str, after=None))

    assert await probe.advance(body) == Blocked(("a",), ())
    assert raised == ["a"] * 9
    assert effect.runs == 0
    assert probe.inner.data == {}
    assert await probe.keys() == ["then"]


async def test_suspend_settle_gives_recorded_values_afterwards(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: a replay starts nothing."""
    await probe.supply_now("b", "known")
    seen: list[str] = []

    async def body(run: Run) -> None:
        try:
            await run.awaiting("a", str)
        finally:
            seen.append(await run.step("b", Effect("unknown"), str))

    assert await probe.advance(body) == Blocked(("a",), ())
    assert seen == ["known"]


async def test_suspend_settle_does_not_wait_for_a_branch_in_an_await_of_its_own(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: what is not a call of the run is cut off by its group."""
    ended: list[str] = []

    async def elsewhere() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended.append("cut off")
            raise

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(elsewhere())
            group.create_task(run.awaiting("a", str))

    assert await probe.advance(body) == Blocked(("a",), ())
    assert ended == ["cut off"]


async def test_resume_outcome_names_every_wait_and_the_earliest_deadline(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: sorted keys, those of receives apart, the same on every pass."""

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.sleep("z", 3 * HOUR))
            group.create_task(run.receive("m", str, after=None))
            group.create_task(run.awaiting("b", str, timeout=2 * HOUR, default=""))
            group.create_task(run.receive("l", str, after=None, timeout=4 * HOUR))
            group.create_task(run.awaiting("a", str))

    expected = Sleeping("b", START + 2 * HOUR, ("a", "b", "z"), ("l", "m"))
    assert await passes(probe, body) == [expected] * 3


async def test_resume_outcome_gives_ties_to_the_least_key(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: of two that are due at once, whatever their order in the body."""

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            for key in "bca":
                group.create_task(run.sleep(key, HOUR))

    assert await passes(probe, body) == [Sleeping("a", START + HOUR, ("a", "b", "c"), ())] * 3
