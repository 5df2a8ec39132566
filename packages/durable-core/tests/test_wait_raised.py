"""What a wait raises, and where it may not be made."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from durable_core.errors import (
    AwaitingMessage,
    AwaitingTime,
    AwaitingValue,
    Contended,
    Fenced,
    Interruption,
    Misconfigured,
    Suspended,
)
from durable_core.outcome import Completed
from durable_core.run import Run
from probe import Effect, Probe

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("kind", [Fenced, Contended, Suspended, AwaitingValue, AwaitingMessage, AwaitingTime])
def test_suspend_base_is_no_exception(kind: type[BaseException]) -> None:
    """RUN-SUSPEND-BASE: `except Exception` does not absorb it."""
    assert issubclass(kind, Interruption)
    assert not issubclass(kind, Exception)


async def test_suspend_base_passes_what_a_body_wraps_around_a_wait(probe: Probe) -> None:
    """RUN-SUSPEND-BASE: each kind of wait raises its own suspension, through `except Exception`."""
    seen: list[tuple[type[BaseException], str]] = []

    async def body(run: Run, kind: str) -> str:
        try:
            match kind:
                case "value":
                    return await run.awaiting("key", str)
                case "message":
                    return str(await run.receive("key", str, after=None))
                case _:
                    await run.sleep("key", HOUR)
                    return "slept"
        except Exception:
            return "absorbed"
        except Suspended as suspended:
            seen.append((type(suspended), suspended.key))
            raise

    for kind in ("value", "message", "time"):
        assert not isinstance(await probe.advance(partial(body, kind=kind)), Completed)
    assert seen == [(AwaitingValue, "key"), (AwaitingMessage, "key"), (AwaitingTime, "key")]


async def test_suspend_base_a_refused_write_passes_too(probe: Probe) -> None:
    """RUN-SUSPEND-BASE: a lost claim is not seen as a failure by a compensation."""
    refund = Effect("refunded")

    async def body(run: Run) -> str:
        try:
            await probe.lose()
            return await run.step("charge", Effect("charged"), str)
        except Exception:
            return await run.step("refund", refund, str)

    with pytest.raises(Fenced):
        await probe.advance(body)
    assert refund.runs == 0


async def test_wait_inside_an_effect_is_refused(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: the effect is at work while it waits, so the pass could never suspend."""

    async def body(run: Run, kind: str) -> None:
        async def effect() -> object:
            match kind:
                case "value":
                    return await run.awaiting("answer", str)
                case "message":
                    return await run.receive("read", str, after=None)
                case "time":
                    return await run.sleep("nap", HOUR)  # type: ignore[func-returns-value]
                case _:
                    async with asyncio.TaskGroup() as group:
                        return await group.create_task(run.awaiting("answer", str))

        with pytest.raises((Misconfigured, ExceptionGroup)) as refused:
            await run.step("outer", effect, str)
        inner = refused.value.exceptions[0] if isinstance(refused.value, ExceptionGroup) else refused.value
        assert "the effect of step 'outer' of workflow 'w' waits for" in str(inner)

    for kind in ("value", "message", "time", "group"):
        assert await probe.advance(partial(body, kind=kind)) == Completed(None)


async def test_wait_of_another_workflow_inside_an_effect_is_not_refused(probe: Probe) -> None:
    """RUN-SUSPEND-SETTLE: an effect may advance another workflow, which suspends as it likes."""

    async def child(run: Run) -> str:
        return await run.awaiting("answer", str)

    async def effect() -> str:
        return repr(await Probe("child").advance(child))

    async def body(run: Run) -> str:
        return await run.step("outer", effect, str)

    assert await probe.advance(body) == Completed("Blocked(waiting=('answer',), listening=())")
