"""What an effect may raise: failures that are outcomes, failures that are not, and exits."""

import asyncio

import pytest

from durable_core.errors import DuplicateStep, DurableError, OutcomeUnknown, StepFailed
from durable_core.outcome import Completed
from durable_core.run import Run
from probe import Effect, Held, Probe


class Declined(Exception):
    """A failure that a body handles."""


class Expired(Declined):
    """A kind of it."""


async def test_step_failures_are_recorded_and_raised_on_every_pass(probe: Probe) -> None:
    """RUN-STEP-FAILURES: the first pass has the original as its cause, every pass has type name and message, one effect."""
    effect = Effect(Declined("no funds"))
    seen: list[StepFailed] = []

    async def body(run: Run) -> str:
        try:
            return await run.step("charge", effect, str, failures=(Declined,))
        except StepFailed as failed:
            seen.append(failed)
            return failed.message

    for _ in range(3):
        assert await probe.advance(body) == Completed("no funds")
    assert [(failed.workflow, failed.key, failed.kind, failed.message) for failed in seen] == [
        ("w", "charge", "Declined", "no funds")
    ] * 3
    assert isinstance(seen[0].__cause__, Declined)
    assert effect.runs == 1
    assert await probe.inner.load("w") == {"failed:charge": {"kind": "Declined", "message": "no funds"}}


async def test_step_failures_cover_subclasses(probe: Probe) -> None:
    """RUN-STEP-FAILURES: a subclass is of its base's type, and keeps its own name."""

    async def body(run: Run) -> str:
        return await run.step("charge", Effect(Expired("2019")), str, failures=(KeyError, Declined))

    for _ in range(2):
        with pytest.raises(StepFailed, match="Expired: 2019"):
            await probe.advance(body)


async def test_step_failures_leave_other_exceptions_alone(probe: Probe) -> None:
    """RUN-STEP-FAILURES: any other exception records nothing, propagates as it is, and the effect runs again."""
    error = ConnectionError("down")
    effect = Effect(error, "charged")

    async def body(run: Run) -> str:
        return await run.step("charge", effect, str, failures=(Declined,))

    with pytest.raises(ConnectionError) as raised:
        await probe.advance(body)
    assert raised.value is error
    assert await probe.keys() == []
    assert await probe.advance(body) == Completed("charged")


async def test_step_failures_outrank_a_value(probe: Probe) -> None:
    """RUN-STEP-FAILURES: a value supplied after a failure changes no branch that was taken."""
    effect = Effect(Declined("no"))

    async def body(run: Run) -> str:
        try:
            return await run.step("charge", effect, str, failures=(Declined,))
        except StepFailed:
            return "compensated"

    assert await probe.advance(body) == Completed("compensated")
    await probe.supply_now("charge", "late")
    assert await probe.advance(body) == Completed("compensated")


async def test_step_failures_are_met_whether_or_not_they_are_still_declared(probe: Probe) -> None:
    """RUN-STEP-FAILURES: what is recorded stands; a deploy that declares no failures runs no effect again."""
    effect = Effect(Declined("no"), "charged")

    async def before(run: Run) -> str:
        return await run.step("charge", effect, str, failures=(Declined,))

    async def after(run: Run) -> str:
        return await run.step("charge", effect, str)

    for body in (before, after):
        with pytest.raises(StepFailed):
            await probe.advance(body)
    assert effect.runs == 1


async def test_step_failures_take_the_name(probe: Probe) -> None:
    """RUN-STEP-FAILURES: a recorded failure is a result, and its name is not free."""

    async def body(run: Run) -> None:
        with pytest.raises(StepFailed):
            await run.step("charge", Effect(Declined("no")), str, failures=(Declined,))
        with pytest.raises(DuplicateStep):
            await run.step("charge", Effect("yes"), str)

    assert await probe.advance(body) == await probe.advance(body) == Completed(None)


async def test_step_failures_keep_any_message(probe: Probe) -> None:
    """RUN-STEP-FAILURES: what an exception says is stored as text, whatever it says, and says it again alike."""

    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    errors = [Declined("x" * 10_000), Declined("a\0b \ud83d"), Rude(), Declined()]
    seen: list[str] = []

    async def body(run: Run) -> None:
        for number, error in enumerate(errors):
            try:
                await run.step(f"{number}", Effect(error), str, failures=(Declined, Rude))
            except StepFailed as failed:
                seen.append(failed.message)

    await probe.advance(body)
    await probe.advance(body)
    assert seen[:4] == seen[4:] == ["x" * 3_997 + "...", "a\\x00b \\ud83d", "<Rude whose str raises RuntimeError>", ""]


async def test_step_failures_that_could_not_be_recorded_are_none(probe: Probe) -> None:
    """RUN-STEP-FAILURES: nobody may act on a failure that the next pass would not meet."""
    effect = Effect(Declined("no"), "charged")
    probe.fail("record", "failed:charge", ConnectionError("down"))

    async def body(run: Run) -> str:
        return await run.step("charge", effect, str, failures=(Declined,))

    with pytest.raises(ConnectionError):
        await probe.advance(body)
    assert await probe.advance(body) == Completed("charged")


# at_most_once


async def test_step_maybe_records_the_start_before_the_effect(probe: Probe) -> None:
    """RUN-STEP-MAYBE: when the effect runs, its start is there."""
    seen: list[list[str]] = []

    async def effect() -> str:
        seen.append(await probe.keys())
        return "charged"

    async def body(run: Run) -> str:
        return await run.step("charge", effect, str, at_most_once=True)

    assert await probe.advance(body) == await probe.advance(body) == Completed("charged")
    assert seen == [["start:charge"]]
    assert await probe.keys() == ["start:charge", "charge"]


@pytest.mark.parametrize("still", [True, False])
async def test_step_maybe_runs_nothing_when_it_began_before(probe: Probe, still: bool) -> None:
    """RUN-STEP-MAYBE: a pass that finds the start alone raises OutcomeUnknown, however the step is declared by now."""
    effect = Held("charged")

    async def body(run: Run) -> str:
        return await run.step("charge", effect, str, at_most_once=True)

    task = asyncio.create_task(probe.advance(body))
    await effect.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = Effect("again")

    async def later(run: Run) -> str:
        return await run.step("charge", again, str, at_most_once=still)

    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="'charge' of workflow 'w'"):
            await probe.advance(later)
    assert again.runs == 0


async def test_step_maybe_takes_the_same_branch_on_the_pass_that_failed(probe: Probe) -> None:
    """RUN-STEP-MAYBE: an exception outside `failures` is OutcomeUnknown on every pass, and the first one's cause."""
    effect = Effect(ConnectionError("down"))
    seen: list[BaseException | None] = []

    async def body(run: Run) -> str:
        try:
            return await run.step("charge", effect, str, at_most_once=True)
        except OutcomeUnknown as unknown:
            seen.append(unknown.__cause__)
            return "ask somebody"

    for _ in range(2):
        assert await probe.advance(body) == Completed("ask somebody")
    assert [type(cause) for cause in seen] == [ConnectionError, type(None)]
    assert effect.runs == 1


async def test_step_maybe_knows_a_declared_failure(probe: Probe) -> None:
    """RUN-STEP-MAYBE: an exception inside `failures` is known, and recorded."""
    effect = Effect(Declined("no"))

    async def body(run: Run) -> str:
        return await run.step("charge", effect, str, at_most_once=True, failures=(Declined,))

    for _ in range(2):
        with pytest.raises(StepFailed):
            await probe.advance(body)
    assert effect.runs == 1
    assert await probe.keys() == ["start:charge", "failed:charge"]


async def test_step_maybe_is_answered_by_a_supplied_value(probe: Probe) -> None:
    """RUN-STEP-MAYBE: an operator who found out supplies the value, and the workflow goes on."""

    async def body(run: Run) -> str:
        return await run.step("charge", Effect(ConnectionError("down")), str, at_most_once=True)

    with pytest.raises(OutcomeUnknown):
        await probe.advance(body)
    await probe.supply_now("charge", "it was charged")
    assert await probe.advance(body) == Completed("it was charged")


async def test_step_maybe_does_not_run_without_its_start(probe: Probe) -> None:
    """RUN-STEP-MAYBE: a start that could not be recorded, or that another pass recorded, runs no effect."""
    effect = Effect("charged")
    probe.fail("record", "start:charge", ConnectionError("down"))

    async def body(run: Run) -> str:
        return await run.step("charge", effect, str, at_most_once=True)

    with pytest.raises(ConnectionError):
        await probe.advance(body)
    assert effect.runs == 0

    async def beaten(run: Run) -> str:
        await probe.supply_now("start:charge", 0)
        return await run.step("charge", effect, str, at_most_once=True)

    with pytest.raises(OutcomeUnknown):
        await probe.advance(beaten)
    assert effect.runs == 0


async def test_step_maybe_is_not_retried_by_a_helper(probe: Probe) -> None:
    """RUN-STEP-MAYBE: a second call in the same pass does not run the effect either."""
    effect = Effect(ConnectionError("down"), "charged")

    async def body(run: Run) -> None:
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                await run.step("charge", effect, str, at_most_once=True)

    await probe.advance(body)
    assert effect.runs == 1


# Exits


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit("out")])
async def test_step_exit_is_a_failure_of_the_step(probe: Probe, error: BaseException) -> None:
    """RUN-STEP-EXIT: inside a task group it would end the event loop."""
    effect = Effect(error, "fine")

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(run.step("a", effect, str))
        return task.result()

    with pytest.raises(ExceptionGroup) as raised:
        await probe.advance(body)
    [failure] = raised.value.exceptions
    assert isinstance(failure, DurableError)
    assert failure.__cause__ is error
    assert type(error).__name__ in str(failure)
    assert await probe.advance(body) == Completed("fine")


async def test_step_exit_can_be_declared_and_is_unknown_at_most_once(probe: Probe) -> None:
    """RUN-STEP-EXIT: as any other failure of that step."""

    async def body(run: Run) -> None:
        with pytest.raises(StepFailed):
            await run.step("a", Effect(SystemExit(1)), str, failures=(Exception,))
        with pytest.raises(OutcomeUnknown):
            await run.step("b", Effect(SystemExit(1)), str, at_most_once=True)

    assert await probe.advance(body) == await probe.advance(body) == Completed(None)


async def test_step_exit_of_an_effect_that_was_cancelled_by_itself_is_a_failure(probe: Probe) -> None:
    """RUN-STEP-EXIT: a task group takes a cancelled branch for one that needs nothing, and its pass would end as completed."""

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("a", Effect(asyncio.CancelledError()), str))
        return "all done"

    with pytest.raises(ExceptionGroup) as raised:
        await probe.advance(body)
    assert "was cancelled, and not by this library" in str(raised.value.exceptions[0])
    assert await probe.keys() == []


def test_step_exit_lets_keyboard_interrupt_pass() -> None:
    """RUN-STEP-EXIT: whoever presses the keys ends the program."""
    seen: list[str] = []

    async def main() -> None:
        probe = Probe()

        async def body(run: Run) -> str:
            try:
                return await run.step("a", Effect(KeyboardInterrupt()), str)
            except Exception:
                seen.append("caught")
                raise

        await probe.advance(body)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert seen == []
