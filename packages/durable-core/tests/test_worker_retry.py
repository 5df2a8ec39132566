"""What becomes of a pass that failed: it comes back, ever later, or is buried with a reason that says it all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_core import Failed, Finished, Run, result, start
from durable_core._clock import ManualClock
from durable_core._retry import doubled, is_final, reason_of
from durable_core.contract import Torn
from durable_core.errors import (
    DuplicateStep,
    EffectTorn,
    GiveUp,
    Misconfigured,
    NotEncodable,
    NotParsed,
    OutcomeUnknown,
    ReservedKey,
    StepFailed,
    Swallowed,
)
from durable_core.memory import MemoryDurable
from durable_core.observer import Buried, Event, Retried
from durable_core.worker import Retry, Worker

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


async def one() -> int:
    return 1


def raising(error: BaseException) -> Callable[[Run], Awaitable[None]]:
    async def body(run: Run) -> None:
        raise error

    return body


async def reason_after(body: Callable[[Run], Awaitable[object]]) -> str | None:
    """Give the reason why a workflow was buried at its first pass, or `None` when it was not."""
    durable = MemoryDurable(clock=ManualClock())
    await start(durable, "job/1", 5)
    await Worker(durable).settle({"job": body})
    ended = await durable.result("job/1")
    return ended.reason if isinstance(ended, Failed) else None


async def test_work_retry_a_failure_comes_back_ever_later_and_is_buried_at_the_limit() -> None:
    """RUN-WORK-RETRY: exponential, with jitter of at most a half; the reason names the exception."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    events: list[Event] = []
    worker = Worker(durable, observer=events.append, retry=Retry(first=SECOND, most=5 * SECOND, attempts=6))
    await start(durable, "job/1")
    for _ in range(6):
        await worker.settle({"job": raising(KeyError("nothing"))})
        clock.advance(5 * SECOND)
    delays = [event.again_in.total_seconds() for event in events if isinstance(event, Retried)]
    assert [event.attempt for event in events if isinstance(event, Retried)] == [1, 2, 3, 4, 5]
    assert all(most / 2 <= delay <= most for delay, most in zip(delays, [1, 2, 4, 5, 5], strict=True))
    assert [event for event in events if isinstance(event, Buried)] == [Buried("job/1", "KeyError: 'nothing'", 6)]
    assert await durable.result("job/1") == Failed("KeyError: 'nothing'")


async def test_work_retry_delays_differ_by_chance() -> None:
    """RUN-WORK-RETRY: what failed together does not come back together."""
    assert len({Retry().again_in(3) for _ in range(20)}) > 10


async def test_work_retry_progress_begins_the_count_anew() -> None:
    """RUN-WORK-RETRY: in a row means without a pass that waits in between."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    worker = Worker(durable, retry=Retry(attempts=2))
    calls = 0

    async def flaky(run: Run) -> int:
        nonlocal calls
        calls += 1
        if calls in (1, 3):
            raise ConnectionError
        await run.sleep("nap", HOUR)
        return calls

    await start(durable, "job/1")
    for _ in range(4):
        await worker.settle({"job": flaky})
        clock.advance(2 * HOUR)
    assert await result(durable, "job/1", int) == Finished(4)


async def test_work_retry_lapses_are_no_failures() -> None:
    """RUN-WORK-RETRY: those that share a process with one that kills it have their attempts still."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    events: list[Event] = []
    await start(durable, "job/1")
    for _ in range(2):
        assert await durable.begin(timedelta(0), HOUR)
        clock.advance(HOUR)
    await Worker(durable, retry=Retry(attempts=2), observer=events.append).settle({"job": raising(ValueError("x"))})
    assert [type(event) for event in events if isinstance(event, (Retried, Buried))] == [Retried]


FINAL: list[Exception] = [
    GiveUp("enough"),
    StepFailed("w", "k", "Declined", "no"),
    OutcomeUnknown("w", "k"),
    EffectTorn("w", "k", "half"),
    DuplicateStep("w", "k"),
    ReservedKey("w", "inbox:1"),
    Swallowed("w", ["k"], "the wait for"),
    NotEncodable("nan", "w", "k"),
    Misconfigured("write this instead"),
    NotParsed("w", "k", "5", "no str", fresh=True),
]


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
async def test_work_retry_what_is_the_same_on_every_pass_buries_at_once(error: Exception) -> None:
    """RUN-WORK-RETRY: so do mistakes of code."""
    assert await reason_after(raising(error)) is not None


@pytest.mark.parametrize("error", [ValueError("x"), TimeoutError(), NotParsed("w", "k", "5", "no str")])
async def test_work_retry_what_may_heal_is_tried_again(error: Exception) -> None:
    """RUN-WORK-RETRY: also a value that an older program wrote, in a rolling deploy."""
    assert await reason_after(raising(error)) is None


async def test_work_retry_give_up_is_buried_with_its_own_words() -> None:
    """RUN-WORK-RETRY: nothing is put before the reason."""
    assert await reason_after(raising(GiveUp("the card is stolen"))) == "the card is stolen"


async def test_work_retry_give_up_on_names_further_exceptions() -> None:
    """RUN-WORK-RETRY: subclasses count."""
    durable = MemoryDurable(clock=ManualClock())
    await start(durable, "job/1")
    await Worker(durable, give_up_on=[LookupError]).settle({"job": raising(KeyError("k"))})
    assert await durable.result("job/1") == Failed("KeyError: 'k'")


async def test_work_retry_a_group_is_buried_when_all_its_leaves_are() -> None:
    """RUN-WORK-RETRY: one leaf that may heal is worth another pass."""
    final = ExceptionGroup("both", [GiveUp("a"), ExceptionGroup("inner", [StepFailed("w", "k", "Declined", "no")])])
    mixed = ExceptionGroup("both", [GiveUp("a"), ConnectionError("b")])
    reason = await reason_after(raising(final))
    assert reason is not None
    assert "a" in reason
    assert "Declined: no" in reason
    assert await reason_after(raising(mixed)) is None


async def test_case_103_a_value_of_an_older_program_is_retried_and_one_of_this_pass_is_not() -> None:
    """RUN-WORK-RETRY, RUN-PARSE: the reason names workflow and key, no record changes, and a later program finishes it."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    worker = Worker(durable, retry=Retry(first=SECOND, attempts=2))
    await start(durable, "order/1")
    await durable.checkpointer.supply("order/1", "quote", {"price": 5})

    def strict(value: object) -> int:
        assert isinstance(value, dict)
        return int(value["cents"])  # pyright: ignore[reportUnknownArgumentType]

    def lenient(value: object) -> int:
        assert isinstance(value, dict)
        return int(value.get("cents", 0))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]

    def order(parse: Callable[[object], int]) -> Callable[[Run], Awaitable[int]]:
        async def body(run: Run) -> int:
            return await run.step("quote", one, parse)

        return body

    await worker.settle({"order": order(strict)})
    assert await durable.result("order/1") is None
    clock.advance(SECOND)
    await worker.settle({"order": order(strict)})
    ended = await durable.result("order/1")
    assert isinstance(ended, Failed)
    assert "'order/1'" in ended.reason
    assert "'quote'" in ended.reason
    await durable.scheduler.make_ready("order/1", revive=True)
    await worker.settle({"order": order(lenient)})
    assert await result(durable, "order/1", int) == Finished(0)
    assert list(await durable.checkpointer.load("order/1")) == ["input", "quote", "outcome:"]

    async def fresh(run: Run) -> str:
        return await run.step("quote", one, str)

    assert "'quote'" in (await reason_after(fresh) or "")


async def test_work_retry_an_outcome_that_the_codec_refuses_is_buried() -> None:
    """RUN-WORK-RETRY: the body would return it again."""

    async def body(run: Run) -> object:
        return {1, 2}

    reason = await reason_after(body)
    assert reason is not None
    assert reason.startswith("NotEncodable")


async def test_work_retry_a_torn_key_is_buried() -> None:
    """RUN-WORK-RETRY: only an operator can mend it."""
    assert is_final(EffectTorn("w", "k", Torn("half").reason), ())


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Interrupting(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class NotText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


class Text(str):
    def encode(self, *args: object, **options: object) -> bytes:
        raise RuntimeError("no")


class SubText(Exception):
    def __str__(self) -> str:
        return Text("sub")


class Long(Exception):
    pass


Long.__name__ = "x" * 9_999


def wordless() -> GiveUp:
    error = GiveUp("")
    error.reason = 5  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    return error


STRANGE: list[BaseException] = [
    Unspeakable(),
    Interrupting(),
    NotText(),
    SubText(),
    wordless(),
    GiveUp("\ud800\0" * 5_000),
    ValueError("\0\ud800" * 9_999),
    Long("x"),
    RecursionError(),
    ExceptionGroup("\ud800" * 9_999, [Unspeakable(), ValueError("\0" * 9_999)] * 2_000),
    BaseExceptionGroup("x", [Interrupting()]),
]


@pytest.mark.parametrize("error", STRANGE, ids=range(len(STRANGE)))
def test_work_retry_the_reason_is_total(error: BaseException) -> None:
    """RUN-WORK-RETRY: text that every store can hold, whatever the exception does."""
    held(reason_of(error))


@given(st.text(), st.lists(st.text(max_size=50), max_size=3))
def test_work_retry_the_reason_is_total_for_any_text(message: str, inner: list[str]) -> None:
    """RUN-WORK-RETRY: with any characters, in groups too."""
    held(reason_of(ValueError(message)))
    if inner:
        held(reason_of(ExceptionGroup(message, [GiveUp(text) for text in inner])))


def held(reason: str) -> None:
    assert type(reason) is str
    assert len(reason) <= 4_000
    assert "\0" not in reason
    assert reason.encode().decode() == reason


@given(st.integers(0, 10_000))
def test_a_delay_is_doubled_and_never_too_long(times: int) -> None:
    """No overflow, however often."""
    assert doubled(SECOND, times, HOUR) == (SECOND * 2**times if times < 12 else HOUR)
