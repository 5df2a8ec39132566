"""One pass that is cancelled, broken or superseded anywhere in the middle."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest

from durable_core.errors import Fenced, Swallowed
from durable_core.memory import MemoryEffect
from durable_core.outcome import Blocked, Completed
from durable_core.run import Run
from probe import Effect, Held, Probe

HOUR = timedelta(hours=1)


async def saga(run: Run[MemoryEffect], effects: dict[str, Effect]) -> str:
    """Use everything that a pass can do, in branches, under names that never change."""

    async def shipping() -> str:
        await run.step("pack", effects["pack"], str)
        return await run.step("ship", effects["ship"], str, at_most_once=True)

    async with asyncio.TaskGroup() as group:
        charge = group.create_task(run.step("charge", effects["charge"], str))
        group.create_task(shipping())
        approval = group.create_task(run.awaiting("approval", str, timeout=HOUR, default="nobody"))
    await run.now("then")
    await run.transact("count", counted, int)
    await run.pending("read", str, after=None)
    return f"{charge.result()}, {approval.result()}"


def counted(data: dict[str, object]) -> int:
    before = data.get("count", 0)
    assert isinstance(before, int)
    data["count"] = before + 1
    return before + 1


def saga_effects() -> dict[str, Effect]:
    return {"pack": Effect("packed"), "ship": Effect("shipped"), "charge": Effect("charged")}


class Cancelling:
    """Cancels a task after so many turns of the loop, and perhaps once more a few turns later."""

    def __init__(self, task: asyncio.Task[object], turns: int, again: int | None) -> None:
        self._task, self._left, self._again = task, turns, again
        self._turn()

    def _turn(self) -> None:
        if self._left == 0:
            self._task.cancel()
            if self._again is None:
                return
            self._left, self._again = self._again, None
        self._left -= 1
        asyncio.get_running_loop().call_soon(self._turn)


async def cancelled_after(probe: Probe, turns: int, again: int | None, effects: dict[str, Effect]) -> bool:
    """Cancel a pass after so many turns, and say whether it had ended before."""
    holder = await probe.take()
    task: asyncio.Task[object] = asyncio.create_task(probe.advance(lambda run: saga(run, effects), holder=holder))
    Cancelling(task, turns, again)
    await asyncio.wait((task,))
    await probe.inner.release(holder)
    return not task.cancelled()


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize("again", [None, 1, 3])
async def test_resume_cancelled_at_any_turn_keeps_what_happened(again: int | None) -> None:
    """RUN-STEP-KEPT: wherever a pass is cancelled, nothing is at work afterwards, and no effect that returned runs again."""
    turns, ended = 0, False
    while not ended:
        probe, effects = Probe(), saga_effects()
        before = asyncio.all_tasks()
        ended = await cancelled_after(probe, turns, again, effects)
        assert asyncio.all_tasks() == before, f"after {turns} turns"
        ran = {name for name, effect in effects.items() if effect.runs}
        assert ran <= set(await probe.keys()), f"after {turns} turns"
        await probe.supply_now("approval", "yes")
        if ran >= {"ship"} or "start:ship" not in await probe.keys():
            assert await probe.advance(partial(saga, effects=effects)) == Completed("charged, yes")
            assert [effect.runs for effect in effects.values()] == [1, 1, 1], f"after {turns} turns"
            assert probe.inner.data == {"count": 1}
        turns += 1
    assert turns > 100


@pytest.mark.parametrize("after", [False, True])
async def test_resume_broken_at_any_call_of_the_store_goes_on_from_there(after: bool) -> None:
    """RUN-STEP: a store that fails in the middle costs an attempt; what was recorded is not done again."""
    probe = Probe()
    await probe.supply_now("approval", "yes")
    await probe.advance(lambda run: saga(run, saga_effects()))
    for method, key in dict.fromkeys(probe.calls):
        broken, effects = Probe(), saga_effects()
        await broken.supply_now("approval", "yes")
        broken.fail(method, key, ConnectionError("down"), after=after)

        body = partial(saga, effects=effects)
        with pytest.raises((ConnectionError, ExceptionGroup)):
            await broken.advance(body)
        if key == "start:ship" or (key == "ship" and not after):
            continue  # what an operator has to look at
        assert await broken.advance(body) == Completed("charged, yes"), (method, key)
        lost = key if method == "record" and not after else None
        assert {name: effect.runs for name, effect in effects.items()} == {name: 2 if name == lost else 1 for name in effects}, (
            method,
            key,
        )
        assert broken.inner.data == {"count": 1}


async def test_resume_superseded_at_any_call_of_the_store_writes_nothing_more() -> None:
    """RUN-RESUME-OUTCOME: a claim that is lost in the middle is Fenced, and the records stay as the new holder found them."""
    probe = Probe()
    await probe.supply_now("approval", "yes")
    await probe.advance(lambda run: saga(run, saga_effects()))
    writes = [call for call in dict.fromkeys(probe.calls) if call[0] != "load"]
    for method, key in writes:
        lost = Probe()
        await lost.supply_now("approval", "yes")
        found: list[list[str]] = []

        async def superseded(lost: Probe = lost, found: list[list[str]] = found) -> None:
            holder = await lost.take()
            await lost.inner.release(holder)
            lost.tick(1)
            await lost.inner.claim("w", HOUR, HOUR)
            found.append(await lost.keys())

        gate = lost.gate(method, key)
        holder = await lost.take()
        task = asyncio.create_task(lost.advance(lambda run: saga(run, saga_effects()), holder=holder))
        await gate.reached.wait()
        await lost.inner.release(holder)
        await superseded()
        gate.open()
        with pytest.raises(Fenced):
            await task
        assert await lost.keys() == found[0], (method, key)


async def test_resume_of_a_body_that_catches_everything_ends(probe: Probe) -> None:
    """RUN-SUSPEND-NOTED: it is refused, and nothing it wrote afterwards counts."""
    effect = Effect("done")

    async def body(run: Run) -> str:
        for number in range(5):
            with suppress(BaseException):
                await run.awaiting(f"a{number}", str)
            with suppress(BaseException):
                await run.step(f"s{number}", effect, str)
        return "done"

    with pytest.raises(Swallowed, match="'a0'"):
        await probe.advance(body)
    assert effect.runs == 0


async def test_resume_cancelled_though_its_body_returns_all_the_same_is_cancelled(probe: Probe) -> None:
    """RUN-CLOSED: a cancellation is neither swallowed nor lost."""
    began = asyncio.Event()

    async def body(run: Run) -> str:
        began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        return "done"

    task = asyncio.create_task(probe.advance(body))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_resume_inside_a_timeout_is_a_timeout(probe: Probe) -> None:
    """RUN-CLOSED: a scope around the whole pass works as it does around anything."""
    effect, scope = Held("done"), asyncio.timeout(None)

    async def late() -> object:
        scope.reschedule(0)
        return await effect()

    async def body(run: Run) -> str:
        return await run.step("a", late, str)

    with pytest.raises(TimeoutError):
        async with scope:
            await probe.advance(body)
    assert effect.ending == "cancelled"


async def test_resume_cancelled_before_its_body_began_calls_nothing(probe: Probe) -> None:
    """RUN-CLOSED: and nobody complains of a coroutine that was never awaited."""

    async def body(run: Run) -> None:
        raise AssertionError("called")

    task = asyncio.create_task(probe.advance(body))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_resume_many_at_once_in_one_loop_do_not_mix() -> None:
    """RUN-RESUME-OUTCOME: two hundred passes share a loop, and each has its own waits and values."""

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            step = group.create_task(run.step("x", Effect(run.workflow), str))
            if run.workflow.endswith("7"):
                group.create_task(run.awaiting(f"wait of {run.workflow}", str))
        return step.result()

    probes = [Probe(f"w{number}") for number in range(200)]
    async with asyncio.TaskGroup() as group:
        outcomes = [group.create_task(probe.advance(body)) for probe in probes]
    for probe, outcome in zip(probes, outcomes, strict=True):
        name = probe.workflow
        assert outcome.result() == (Blocked((f"wait of {name}",), ()) if name.endswith("7") else Completed(name))
