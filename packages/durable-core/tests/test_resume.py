"""One pass: what comes out of it, what goes wrong in the middle of it, and what it leaves behind."""

import asyncio
import gc
import sys
import weakref
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from durable_core._probe import Effect, Held, Probe
from durable_core._pulse import Pulse
from durable_core.contract import Pass
from durable_core.errors import Contended, DurableError, Fenced, Misconfigured, NotEncodable, Suspended, Swallowed
from durable_core.memory import MemoryEffect
from durable_core.observer import Event, StepRecorded, StepReplayed
from durable_core.outcome import Blocked, Completed, Sleeping
from durable_core.resume import Advance, resume
from durable_core.run import Run

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def test_resume_outcome_is_the_value_as_it_crossed_the_codec(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: a tuple is a list, and the body's own object does not come out."""
    value = ([1], 2)

    async def body(run: Run) -> object:
        return value

    outcome = await probe.advance(body)
    assert outcome == Completed([[1], 2])


async def test_resume_outcome_that_cannot_be_stored_is_refused(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: naming workflow and what it is the value of."""

    async def body(run: Run) -> object:
        return {1}

    with pytest.raises(NotEncodable, match="'outcome:' of workflow 'w'"):
        await probe.advance(body)


@pytest.mark.parametrize("value", ["done", None, False])
async def test_resume_outcome_of_a_finished_workflow_comes_without_the_body(probe: Probe, value: object) -> None:
    """RUN-RESUME-OUTCOME: whatever the value, the body is not called again."""
    await probe.supply_now("outcome:", value)

    async def body(run: Run) -> object:
        raise AssertionError("called")

    assert await probe.advance(body) == Completed(value)


async def test_resume_outcome_takes_records_that_were_loaded_already(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: with them nothing is loaded."""

    async def body(run: Run) -> str:
        return await run.step("a", Effect("unknown"), str)

    holder = await probe.take()
    assert await resume(probe, holder, body, records={"a": "known"}) == Completed("known")
    assert probe.calls == []


async def test_resume_outcome_of_a_failure_is_the_failure_itself(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: it propagates as it is."""
    error = KeyError("no")

    async def body(run: Run) -> None:
        raise error

    with pytest.raises(KeyError) as raised:
        await probe.advance(body)
    assert raised.value is error


async def test_resume_outcome_of_a_failure_leaves_out_the_suspensions_that_came_along(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: a group of failures has no waits in it."""

    async def failing(run: Run) -> None:
        try:
            await run.awaiting("b", str)
        finally:
            raise KeyError("cleanup")

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("a", str))
            group.create_task(failing(run))

    with pytest.raises(ExceptionGroup) as raised:
        await probe.advance(body)
    assert [type(error) for error in raised.value.exceptions] == [KeyError]


@pytest.mark.parametrize("error", [Fenced("w", 1, "x"), Contended("w", "x")])
async def test_resume_outcome_of_a_lost_claim_wins_over_everything(probe: Probe, error: BaseException) -> None:
    """RUN-RESUME-OUTCOME: over failures and suspensions, however deep."""

    async def lost() -> None:
        raise error

    async def failed() -> None:
        raise KeyError("no")

    async def body(run: Run) -> None:
        async def inner() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(failed())
                group.create_task(lost())

        async with asyncio.TaskGroup() as group:
            group.create_task(run.awaiting("a", str))
            group.create_task(inner())

    with pytest.raises(type(error)) as raised:
        await probe.advance(body)
    assert raised.value is error


async def test_resume_outcome_of_a_lost_claim_wins_over_a_suspension_that_was_reached(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: a pass that lost its workflow has nothing to say about its waits."""

    async def body(run: Run) -> None:
        try:
            await run.awaiting("a", str)
        finally:
            raise Fenced("w", 1)

    with pytest.raises(Fenced):
        await probe.advance(body)


async def test_resume_outcome_wants_an_async_body(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: a plain function is refused, whatever it gives."""

    def body(run: Run) -> None:
        return None

    with pytest.raises(Misconfigured, match="plain function"):
        await probe.advance(body)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("error", [SystemExit(2), GeneratorExit()])
@pytest.mark.parametrize("when", ["called", "awaited", "later"])
async def test_step_exit_out_of_a_body_is_a_failure_of_the_pass(probe: Probe, error: BaseException, when: str) -> None:
    """RUN-STEP-EXIT: it neither ends the loop nor passes as something else, whenever it comes."""

    async def body(run: Run) -> None:
        if when == "later":
            await asyncio.sleep(0)
        raise error

    def called(run: Run) -> Awaitable[None]:
        raise error

    with pytest.raises(DurableError, match=type(error).__name__):
        await probe.advance(called if when == "called" else body)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks start eagerly from 3.12 on")
async def test_step_exit_out_of_a_body_that_starts_eagerly(probe: Probe) -> None:
    """RUN-STEP-EXIT: also before the pass has seen its task."""
    if sys.version_info >= (3, 12):
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)

    async def body(run: Run) -> None:
        raise GeneratorExit

    with pytest.raises(DurableError, match="GeneratorExit"):
        await probe.advance(body)


async def test_resume_outcome_of_a_body_that_was_cancelled_by_itself_is_a_failure(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: a cancellation that nobody asked for does not look like one that somebody did."""

    async def body(run: Run) -> None:
        raise asyncio.CancelledError

    with pytest.raises(DurableError, match="'w' was cancelled"):
        await probe.advance(body)


async def test_resume_outcome_of_a_suspension_that_a_body_made_up_is_a_failure(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: nothing is waited for, so nothing would wake it."""

    async def body(run: Run) -> None:
        raise Suspended("w", "a")

    with pytest.raises(DurableError, match="suspended, by itself"):
        await probe.advance(body)


async def test_resume_outcome_tells_the_observer_what_was_recorded_and_replayed(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: an observer sees each step once a pass, and one that raises breaks nothing."""
    events: list[Event] = []

    def observer(event: Event) -> None:
        events.append(event)
        raise RuntimeError("no")

    async def body(run: Run) -> str:
        return await run.step("a", Effect("done"), str)

    for _ in range(2):
        holder = await probe.take()
        assert await resume(probe, holder, body, observer=observer) == Completed("done")
        await probe.inner.release(holder)
    assert [type(event) for event in events] == [StepRecorded, StepReplayed]


# Losing the claim from outside, as a worker finds it


@contextmanager
def advancing(probe: Probe, holder: Pass) -> Generator[Advance[MemoryEffect]]:
    pulse = Pulse(holder, HOUR, HOUR, probe.clock.monotonic, 0.0, 0.0)
    yield Advance(probe, pulse, {}, None)


async def test_resume_outcome_of_a_claim_that_is_lost_from_outside_is_fenced(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: the body is ended wherever it is, once, and its cleanup is not interrupted."""
    effect, cleaned = Held("done"), asyncio.Event()

    async def body(run: Run) -> str:
        try:
            return await run.step("a", effect, str)
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            cleaned.set()

    with advancing(probe, await probe.take()) as advance:
        task = asyncio.create_task(advance.outcome(body))
        await effect.began.wait()
        assert list(advance.at_work) == ["a"]
        advance.lose()
        with pytest.raises(Fenced):
            await task
        assert list(advance.at_work) == []
    assert effect.ending == "cancelled"
    assert cleaned.is_set()


async def test_resume_outcome_of_a_claim_that_is_lost_while_the_body_is_elsewhere(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: an await of its own is no refuge, and a body that returns all the same has completed nothing."""
    began = asyncio.Event()

    async def body(run: Run) -> str:
        began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        return "done"

    with advancing(probe, await probe.take()) as advance:
        task = asyncio.create_task(advance.outcome(body))
        await began.wait()
        advance.lose()
        with pytest.raises(Fenced):
            await task


# Whatever happens in the middle


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
    effect = Held("done")

    async def body(run: Run) -> str:
        return await run.step("a", effect, str)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
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


# Leaks


class Witness:
    """What a body holds; a weak reference tells whether somebody still holds the body."""


async def completed(run: Run, effect: Effect) -> str:
    return await run.step("a", effect, str)


async def suspended(run: Run, effect: Effect) -> str:
    await run.step("a", effect, str)
    return await run.awaiting("b", str)


async def asleep(run: Run, effect: Effect) -> str:
    await run.sleep("b", HOUR)
    return "awake"


async def refusing() -> str:
    raise ValueError("no")


async def failed(run: Run, effect: Effect) -> str:
    return await run.step("a", refusing, str)


async def declined(run: Run, effect: Effect) -> str:
    return await run.step("a", refusing, str, failures=(ValueError,))


async def timed_out(run: Run, effect: Effect) -> str:
    return await run.step("a", Held("done"), str, timeout=timedelta(microseconds=1))


async def swallowing(run: Run, effect: Effect) -> str:
    with suppress(BaseException):
        await run.awaiting("b", str)
    return "ok"


async def raising(run: Run, effect: Effect) -> str:
    raise ValueError("no")


@pytest.mark.parametrize("kind", [completed, suspended, asleep, failed, declined, timed_out, swallowing, raising])
async def test_resume_keeps_no_body_alive(probe: Probe, kind: Callable[[Run, Effect], Awaitable[str]]) -> None:
    """RUN-CLOSED: what a pass held is gone with it, and does not wait for the collector of cycles."""
    seen: list[weakref.ref[Witness]] = []

    async def body(run: Run) -> str:
        witness = Witness()
        seen.append(weakref.ref(witness))
        return await kind(run, Effect("done"))

    gc.collect()
    gc.disable()
    try:
        with suppress(Exception):
            await probe.advance(body)
        await asyncio.sleep(0)
        assert seen[0]() is None
    finally:
        gc.enable()


async def test_resume_keeps_no_cancelled_body_alive(probe: Probe) -> None:
    """RUN-CLOSED: nor one that was cancelled in the middle of a step."""
    seen: list[weakref.ref[Witness]] = []
    effect = Held("done")

    async def body(run: Run) -> str:
        witness = Witness()
        seen.append(weakref.ref(witness))
        return await run.step("a", effect, str)

    gc.collect()
    gc.disable()
    try:
        task = asyncio.create_task(probe.advance(body))
        await effect.began.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        del task
        await asyncio.sleep(0)
        assert seen[0]() is None
    finally:
        gc.enable()


async def test_resume_parks_without_a_timer(probe: Probe) -> None:
    """RUN-RESUME-OUTCOME: a parked workflow holds no task and no timer of the loop."""

    async def body(run: Run) -> None:
        await run.sleep("a", HOUR)

    before = asyncio.all_tasks()
    assert await probe.advance(body) == Sleeping("a", START + HOUR, ("a",), ())
    assert asyncio.all_tasks() == before
