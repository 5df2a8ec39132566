"""When nothing can move any more: deep groups, many waits, busy loops, other ways to start a task."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from durable_core.errors import Fenced
from durable_core.memory import MemoryEffect
from durable_core.outcome import Blocked, Completed
from durable_core.run import Run
from probe import Effect, Probe

HOUR = timedelta(hours=1)

Branch = Callable[[], Awaitable[object]]


async def passes(probe: Probe, body: Callable[[Run[MemoryEffect]], Awaitable[object]], count: int = 3) -> list[object]:
    """Give the outcomes of as many passes."""
    return [await probe.advance(body) for _ in range(count)]


async def nested(depth: int, leaf: Branch) -> None:
    """Run a leaf inside so many groups."""
    if depth == 0:
        await leaf()
        return
    async with asyncio.TaskGroup() as group:
        group.create_task(nested(depth - 1, leaf))


async def mixed(depth: int, leaf: Branch) -> None:
    """Run a leaf inside so many layers of what asyncio offers."""
    if depth == 0:
        await leaf()
        return
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        inner = group.create_task(mixed(depth - 1, leaf))
        await asyncio.shield(asyncio.gather(inner))
        await asyncio.wait((inner,))


@pytest.mark.parametrize("depth", [1, 3, 8, 20])
@pytest.mark.parametrize("nest", [nested, mixed])
async def test_suspend_settle_waits_for_nested_groups_to_unwind(
    probe: Probe, depth: int, nest: Callable[[int, Branch], Awaitable[None]]
) -> None:
    """RUN-SUSPEND-SETTLE: whatever the body can do without awaiting anything outside the run is done, twenty groups deep."""
    after = Effect("after")

    async def branch(run: Run) -> None:
        await nest(depth, lambda: run.step("deep", Effect("deep"), str))
        await run.step("after", after, str)
        await run.awaiting("b", str)

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("a", str))
            group.create_task(branch(run))

    assert await passes(probe, body) == [Blocked(("a", "b"), ())] * 3
    assert after.runs == 1


@pytest.mark.parametrize("depth", [1, 3, 8, 20])
async def test_suspend_settle_waits_for_nested_groups_to_begin(probe: Probe, depth: int) -> None:
    """RUN-SUSPEND-SETTLE: a branch that has not reached its first call is not forgotten, though the body waits already."""

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(nested(depth, lambda: run.awaiting("deep", str)))
            await run.awaiting("a", str)

    assert await passes(probe, body) == [Blocked(("a", "deep"), ())] * 3


async def test_suspend_settle_waits_for_a_failure_to_climb_out_of_nested_groups(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: the compensation above twenty groups comes before the suspension."""

    async def failing(run: Run) -> None:
        await run.step("deep", Effect(ValueError("no")), str, failures=(ValueError,))

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(run.awaiting("a", str))
            try:
                await nested(20, lambda: failing(run))
            except* Exception:
                held.cancel()
        return await run.step("compensated", Effect("compensated"), str)

    assert await passes(probe, body) == [Completed("compensated")] * 3


async def test_suspend_settle_is_right_while_other_passes_keep_the_loop_busy(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: quiet is a matter of turns and not of time, however long they take."""
    busy = True

    async def noise() -> None:
        while busy:
            for _ in range(20_000):
                pass
            await asyncio.sleep(0)

    async def branch(run: Run) -> None:
        await nested(20, lambda: run.step("deep", Effect("deep"), str))
        await run.awaiting("b", str)

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("a", str))
            group.create_task(branch(run))

    async with asyncio.TaskGroup() as group:
        group.create_task(noise())
        found = [group.create_task(Probe(f"w{number}").advance(body)) for number in range(10)]
        found.append(group.create_task(probe.advance(body)))
        await asyncio.wait(found)
        busy = False
    assert [task.result() for task in found] == [Blocked(("a", "b"), ())] * 11


async def test_suspend_settle_holds_a_thousand_waits(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: all are named, and none costs a turn of the loop of its own."""
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        handle[0] = asyncio.get_running_loop().call_soon(turn)

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(1_000):
                group.create_task(run.awaiting(f"{number:04}", str))

    handle = [asyncio.get_running_loop().call_soon(turn)]
    assert await probe.advance(body) == Blocked(tuple(f"{number:04}" for number in range(1_000)), ())
    handle[0].cancel()
    assert turns < 500


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks start eagerly from 3.12 on")
async def test_suspend_settle_with_tasks_that_start_eagerly(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: the task factory of the loop makes no difference."""
    if sys.version_info >= (3, 12):
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    charge = Effect("charged")

    async def branch(run: Run) -> None:
        await nested(20, lambda: run.step("charge", charge, str))
        await run.awaiting("b", str)

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("a", str))
            group.create_task(branch(run))

    assert await passes(probe, body) == [Blocked(("a", "b"), ())] * 3
    assert charge.runs == 1


async def test_suspend_settle_with_first_completed(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: a wait that a body gives up for a step that came first is withdrawn."""

    async def body(run: Run) -> str:
        step = asyncio.create_task(run.step("quote", Effect("quote"), str))
        wait = asyncio.create_task(run.awaiting("cancelled", str))
        await asyncio.wait((step, wait), return_when=asyncio.FIRST_COMPLETED)
        wait.cancel()
        return step.result() if step.done() else await step

    assert await probe.advance(body) == Completed("quote")


async def test_suspend_settle_through_a_shield(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: a shielded wait is a wait."""

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("x", Effect("done"), str))
            await asyncio.shield(run.awaiting("a", str))

    assert await passes(probe, body) == [Blocked(("a",), ())] * 3


async def test_suspend_settle_says_nothing_of_a_wait_that_nobody_awaits(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: it is held and named like any other, and the loop has nothing to complain of."""

    async def body(run: Run) -> None:
        orphan = asyncio.create_task(run.awaiting("a", str))
        await run.awaiting("b", str)
        await orphan

    assert await passes(probe, body) == [Blocked(("a", "b"), ())] * 3


@pytest.mark.parametrize("how", ["suspended", "lost"])
async def test_suspend_settle_ends_a_body_that_waits_for_what_cannot_come(probe: Probe, how: str) -> None:
    """RUN-SUSPEND-SETTLE: an await of its own that hangs on a wait in another task ends a window after the suspension."""

    async def approved(run: Run, event: asyncio.Event) -> None:
        if how == "lost":
            await probe.inner.discard("w")
            await run.step("x", Effect("done"), str)
        await run.awaiting("approval", bool)
        event.set()

    async def body(run: Run) -> str:
        event = asyncio.Event()
        probe.leave(approved(run, event))
        await event.wait()
        return "approved"

    holder, alive = await probe.take(), timedelta(milliseconds=20)
    if how == "lost":
        with pytest.raises(Fenced):
            await probe.advance(body, holder=holder, alive=alive)
    else:
        assert await probe.advance(body, holder=holder, alive=alive) == Blocked(("approval",), ())


async def test_suspend_settle_lets_a_body_clean_up_after_the_suspension(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: what a body awaits of its own on the way out is not cut off as long as the window lasts."""
    closed: list[str] = []

    async def body(run: Run) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(run.awaiting("a", str))
        finally:
            await asyncio.sleep(0.02)
            closed.append("closed")

    assert await probe.advance(body) == Blocked(("a",), ())
    assert closed == ["closed"]


async def test_suspend_settle_answers_a_deadline_that_is_over_before_it_suspends(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: a pass does not park for an instant that is past."""

    async def late(run: Run) -> None:
        await run.step("x", Effect("done"), str)
        probe.tick(3_600)

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(run.awaiting("a", str, timeout=HOUR, default="nobody"))
            group.create_task(late(run))
        return answer.result()

    assert await probe.advance(body) == Completed("nobody")
