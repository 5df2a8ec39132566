"""When a pass suspends: after everything else that it can do, with every wait named, and nobody hides it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from durable_core._probe import Effect, Held, Probe
from durable_core.errors import Fenced, Suspended, Swallowed
from durable_core.memory import MemoryEffect
from durable_core.outcome import Blocked, Completed, Sleeping
from durable_core.run import Run

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


# Quiet


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


# Hidden suspensions


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


# Outcomes


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
