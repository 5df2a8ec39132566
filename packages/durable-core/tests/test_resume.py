"""One pass, and what comes out of it."""

import asyncio
import sys
from collections.abc import Awaitable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest

from durable_core._pulse import Pulse
from durable_core.contract import Pass
from durable_core.errors import Contended, DurableError, Fenced, Misconfigured, NotEncodable, Suspended
from durable_core.memory import MemoryDurable, MemoryEffect
from durable_core.observer import Event, StepRecorded, StepReplayed
from durable_core.outcome import Completed
from durable_core.resume import Advance, resume
from durable_core.run import Run
from probe import Effect, Held, Probe

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


async def test_resume_refuses_a_workflow_id_that_no_store_could_hold() -> None:
    """ANY-VALID: a run looks at the id once, when it begins, also where the records were given to it."""
    held = Pass("w\0", 1, datetime(2026, 1, 1, tzinfo=UTC))

    async def body(run: Run[MemoryEffect]) -> None:
        raise AssertionError("the body ran")

    async with MemoryDurable() as durable:
        with pytest.raises(ValueError, match="NUL"):
            await resume(durable.checkpointer, held, body, records={})
