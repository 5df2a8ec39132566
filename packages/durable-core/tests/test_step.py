"""A step runs its effect until a result is recorded; its name, its arguments, its parser."""

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import cast

import pytest

from durable_core._probe import Effect, Held, Probe
from durable_core.errors import DuplicateStep, Misconfigured, NotEncodable, NotParsed, ReservedKey
from durable_core.outcome import Blocked, Completed
from durable_core.parsing import list_of, nothing
from durable_core.run import Run


def same(stored: object) -> object:
    return stored


async def double(number: int) -> int:
    return number * 2


async def test_step_runs_its_effect_until_a_result_is_recorded(probe: Probe) -> None:
    """RUN-STEP: an attempt that raised is made again, one that is recorded never."""
    effect = Effect(ConnectionError("down"), "done")

    async def body(run: Run) -> str:
        return await run.step("a", effect, str)

    with pytest.raises(ConnectionError, match="down"):
        await probe.advance(body)
    assert await probe.keys() == []
    for _ in range(3):
        assert await probe.advance(body) == Completed("done")
    assert effect.runs == 2


async def test_step_hands_its_arguments_to_the_effect(probe: Probe) -> None:
    """RUN-STEP: each name in a loop records what its own arguments gave."""

    async def body(run: Run) -> list[int]:
        return [await run.step(f"item {number}", double, int, number) for number in range(3)]

    assert await probe.advance(body) == Completed([0, 2, 4])


async def test_step_gives_what_the_store_holds_also_on_the_pass_that_ran_the_effect(probe: Probe) -> None:
    """RUN-STEP: a tuple is a list on both passes, and the effect's own object never comes back."""
    made = ([1], 2)
    effect = Effect(made)
    seen: list[object] = []

    async def body(run: Run) -> object:
        value = await run.step("a", effect, same)
        seen.append(value)
        return value

    assert await probe.advance(body) == await probe.advance(body) == Completed([[1], 2])
    made[0].append(3)
    assert seen == [[[1], 2], [[1], 2]]


async def test_step_gives_what_was_supplied_under_its_name_meanwhile(probe: Probe) -> None:
    """RUN-STEP: the first writer wins, also against the effect."""

    async def beaten() -> str:
        await probe.supply_now("a", "supplied")
        return "mine"

    async def body(run: Run) -> str:
        return await run.step("a", beaten, str)

    assert await probe.advance(body) == await probe.advance(body) == Completed("supplied")


async def test_step_does_not_run_an_effect_whose_value_was_supplied_before(probe: Probe) -> None:
    """RUN-STEP: a recorded name replays, whoever recorded it."""
    effect = Effect("mine")
    await probe.supply_now("a", "supplied")

    async def body(run: Run) -> str:
        return await run.step("a", effect, str)

    assert await probe.advance(body) == Completed("supplied")
    assert effect.runs == 0


async def test_step_whose_record_failed_runs_its_effect_again(probe: Probe) -> None:
    """RUN-STEP: what is not recorded did not happen."""
    effect = Effect("first", "second")
    probe.fail("record", "a", ConnectionError("the answer"))

    async def body(run: Run) -> str:
        return await run.step("a", effect, str)

    with pytest.raises(ConnectionError, match="the answer"):
        await probe.advance(body)
    assert await probe.advance(body) == Completed("second")


async def test_step_whose_record_landed_without_an_answer_replays(probe: Probe) -> None:
    """RUN-STEP: a lost reply costs an attempt and no second effect."""
    effect = Effect("first", "second")
    probe.fail("record", "a", ConnectionError("the answer"), after=True)

    async def body(run: Run) -> str:
        return await run.step("a", effect, str)

    with pytest.raises(ConnectionError, match="the answer"):
        await probe.advance(body)
    assert await probe.advance(body) == Completed("first")


async def test_step_refuses_a_value_that_cannot_be_stored(probe: Probe) -> None:
    """RUN-STEP: the refusal names workflow and key, and nothing is recorded."""

    async def body(run: Run) -> object:
        return await run.step("a", Effect({1, 2}), same)

    with pytest.raises(NotEncodable, match="'a' of workflow 'w'"):
        await probe.advance(body)
    assert await probe.keys() == []


async def test_step_refuses_a_call_in_place_of_a_function(probe: Probe) -> None:
    """RUN-STEP: a coroutine says what to write instead, is closed, and leaves the name free."""
    effect = Effect("done")

    async def body(run: Run) -> str:
        call = cast("Callable[[], Awaitable[object]]", effect())  # a mistake that the type checkers refuse
        with pytest.raises(Misconfigured, match="pass the function, not its call"):
            await run.step("a", call, str)
        return await run.step("a", effect, str)

    assert await probe.advance(body) == Completed("done")
    assert effect.runs == 1


def plain() -> str:
    raise AssertionError("called")


@pytest.mark.parametrize("effect", [plain, lambda: None, len, "name", functools.partial(plain), None])
async def test_step_refuses_a_plain_function(probe: Probe, effect: object) -> None:
    """RUN-STEP: what is no async function is not called, and the name stays free."""

    async def body(run: Run) -> str:
        with pytest.raises(Misconfigured, match="step 'a' was given"):
            await run.step("a", cast("Callable[[], Awaitable[object]]", effect), str)  # a mistake, as above
        return await run.step("a", Effect("done"), str)

    assert await probe.advance(body) == Completed("done")


class Adder:
    """An object with effects for methods."""

    def __init__(self, one: int) -> None:
        self.one = one

    async def add(self, other: int) -> int:
        return self.one + other


def logged(function: Callable[[int], Awaitable[int]]) -> Callable[[int], Awaitable[int]]:
    @functools.wraps(function)
    def wrapper(number: int) -> Awaitable[int]:
        return function(number)

    return wrapper


@pytest.mark.parametrize(
    ("effect", "bound"),
    [
        (double, False),
        (functools.partial(double, 4), True),
        (Adder(4).add, False),
        (functools.partial(Adder(4).add, 4), True),
        (Effect(8), False),
        (logged(double), False),
    ],
)
async def test_step_takes_whatever_is_async(probe: Probe, effect: Callable[..., Awaitable[object]], bound: bool) -> None:
    """RUN-STEP: functions, methods, partials, callable objects, and plain decorators around async functions are effects."""
    arguments = () if bound else (4,)

    async def body(run: Run) -> int:
        return await run.step("a", effect, int, *arguments)

    assert await probe.advance(body) == Completed(8)


async def test_step_an_effect_may_use_steps_of_its_own(probe: Probe) -> None:
    """RUN-STEP: what an effect does through the run is recorded under its own names."""
    inner = Effect("inner")

    async def body(run: Run) -> str:
        async def outer() -> str:
            return await run.step("inner", inner, str) + ", outer"

        return await run.step("outer", outer, str)

    assert await probe.advance(body) == await probe.advance(body) == Completed("inner, outer")
    assert await probe.keys() == ["inner", "outer"]
    assert inner.runs == 1


async def test_step_keeps_the_idempotency_key_over_passes_and_tokens(probe: Probe) -> None:
    """RUN-STEP: the key for the outside depends on workflow and name alone, and no two names share one."""
    keys: list[str] = []

    async def body(run: Run) -> None:
        keys.append(run.idempotency_key("charge"))
        assert run.idempotency_key("charge") != run.idempotency_key("refund")
        with pytest.raises(ReservedKey):
            run.idempotency_key("inbox:1")

    await probe.advance(body)
    await probe.advance(body)
    other = Probe("w2")
    await other.advance(body)
    assert keys[0] == keys[1] != keys[2]
    assert len(keys[0]) == 64


# Names


async def test_step_name_twice_in_a_pass_is_an_error(probe: Probe) -> None:
    """RUN-STEP-NAME: the second step of a name runs nothing, on the first pass and on a replay."""
    effect = Effect("first", "second")

    async def body(run: Run) -> str:
        first = await run.step("a", effect, str)
        with pytest.raises(DuplicateStep, match="'w' uses 'a' twice"):
            await run.step("a", effect, str)
        return first

    assert await probe.advance(body) == await probe.advance(body) == Completed("first")
    assert effect.runs == 1


async def test_step_name_is_taken_while_its_effect_runs(probe: Probe) -> None:
    """RUN-STEP-NAME: two at once are two of one name, and the first is not disturbed."""
    effect = Held("done")

    async def body(run: Run) -> str:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(run.step("a", effect, str))
            await effect.began.wait()
            with pytest.raises(DuplicateStep):
                await run.step("a", effect, str)
            effect.go.set()
        return first.result()

    assert await probe.advance(body) == Completed("done")
    assert effect.runs == 1


async def test_step_name_is_one_for_steps_waits_and_clocks(probe: Probe) -> None:
    """RUN-STEP-NAME: whatever uses a name takes it."""

    async def body(run: Run) -> None:
        await run.now("a")
        with pytest.raises(DuplicateStep):
            await run.step("a", double, int, 1)
        with pytest.raises(DuplicateStep):
            await run.awaiting("a", str)
        with pytest.raises(DuplicateStep):
            await run.pending("a", str, after=None)

    assert await probe.advance(body) == await probe.advance(body) == Completed(None)


async def test_step_name_is_free_again_when_nothing_was_recorded(probe: Probe) -> None:
    """RUN-STEP-NAME: a retry helper around a step works."""
    effect = Effect(ConnectionError("1"), ConnectionError("2"), "third")

    async def body(run: Run) -> str:
        for _ in range(2):
            try:
                return await run.step("a", effect, str)
            except ConnectionError:
                continue
        return await run.step("a", effect, str)

    assert await probe.advance(body) == Completed("third")


async def test_step_name_is_free_again_when_the_record_was_refused(probe: Probe) -> None:
    """RUN-STEP-NAME: a value that could not be stored recorded nothing."""
    effect = Effect(object(), "fine")

    async def body(run: Run) -> str:
        try:
            return await run.step("a", effect, str)
        except NotEncodable:
            return await run.step("a", effect, str)

    assert await probe.advance(body) == Completed("fine")


async def test_step_name_is_free_again_when_its_wait_was_withdrawn(probe: Probe) -> None:
    """RUN-STEP-NAME: a wait that was cancelled while held counts as never reached."""
    sibling = Held("done")

    async def body(run: Run) -> str:
        step = asyncio.create_task(run.step("b", sibling, str))
        await sibling.began.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await run.awaiting("a", str)
        sibling.go.set()
        await step
        return await run.awaiting("a", str)

    assert await probe.advance(body) == Blocked(("a",), ())


async def test_step_name_stays_taken_when_the_value_is_recorded(probe: Probe) -> None:
    """RUN-STEP-NAME: a value that its parser refuses is there all the same."""

    async def body(run: Run) -> None:
        with pytest.raises(NotParsed):
            await run.step("a", double, str, 1)
        with pytest.raises(DuplicateStep):
            await run.step("a", double, int, 1)

    assert await probe.advance(body) == await probe.advance(body) == Completed(None)


@pytest.mark.parametrize("key", ["inbox:1", "until:a", "start:a", "failed:a", "outcome:", "input"])
async def test_step_name_refuses_what_belongs_to_the_library(probe: Probe, key: str) -> None:
    """CKP-KEY-RESERVED: no call of a run takes a reserved name, and nothing runs or is recorded."""
    effect = Effect("done")

    async def body(run: Run) -> None:
        with pytest.raises(ReservedKey):
            await run.step(key, effect, str)
        with pytest.raises(ReservedKey):
            await run.awaiting(key, str)
        with pytest.raises(ReservedKey):
            await run.now(key)
        with pytest.raises(ReservedKey):
            await run.receive(key, str, after=None)

    assert await probe.advance(body) == Completed(None)
    assert effect.runs == 0
    assert await probe.keys() == []


# Parsers


async def test_parse_comes_after_the_record(probe: Probe) -> None:
    """RUN-PARSE: what was recorded when the parser is asked is there for the next pass."""
    effect = Effect("text")

    def refusing(value: object) -> str:
        raise ValueError(f"not {value}")

    async def body(run: Run) -> str:
        return await run.step("a", effect, refusing)

    for fresh in (True, False, False):
        with pytest.raises(NotParsed) as refused:
            await probe.advance(body)
        assert (refused.value.workflow, refused.value.key, refused.value.stored) == ("w", "a", "'text'")
        assert refused.value.fresh is fresh
        assert isinstance(refused.value.__cause__, ValueError)
    assert await probe.keys() == ["a"]
    assert effect.runs == 1


async def test_parse_sees_what_is_stored_on_every_pass(probe: Probe) -> None:
    """RUN-PARSE: the parser takes the value as it crossed the codec, also on the pass that made it."""
    seen: list[object] = []

    def parse(value: object) -> object:
        seen.append(value)
        return value

    async def body(run: Run) -> object:
        return await run.step("a", Effect((1, (2,))), parse)

    await probe.advance(body)
    await probe.advance(body)
    assert seen == [[1, [2]], [1, [2]]]


@pytest.mark.parametrize(("stored", "parse"), [(True, int), (1, bool), (1, float), (1.0, int), (1, str), (None, str)])
async def test_parse_with_a_class_means_exactly_that_type(probe: Probe, stored: object, parse: type) -> None:
    """RUN-PARSE: a class converts nothing."""

    async def body(run: Run) -> object:
        value: object = await run.step("a", Effect(stored), parse)
        return value

    for _ in range(2):
        with pytest.raises(NotParsed, match="must be exactly"):
            await probe.advance(body)


async def test_parse_of_a_value_that_somebody_else_wrote_is_not_of_this_pass(probe: Probe) -> None:
    """RUN-PARSE: `fresh` is for what this pass recorded; a supplied value may suit the next deploy."""

    async def beaten() -> str:
        await probe.supply_now("a", 1)
        return "mine"

    async def body(run: Run) -> str:
        return await run.step("a", beaten, str)

    with pytest.raises(NotParsed) as refused:
        await probe.advance(body)
    assert not refused.value.fresh


async def test_parse_with_what_cannot_be_a_parser_is_refused_before_the_effect(probe: Probe) -> None:
    """RUN-PARSE: a call that can never give a value has no effect."""
    effect = Effect("2024-01-01")

    async def body(run: Run) -> object:
        return await run.step("a", effect, datetime)

    with pytest.raises(Misconfigured, match="moment"):
        await probe.advance(body)
    assert effect.runs == 0


async def test_parse_is_asked_in_the_context_of_the_body(probe: Probe) -> None:
    """RUN-PARSE: context variables of the body are seen by effect and parser, and the effect's own stay inside."""
    variable = contextvars.ContextVar("variable", default="unset")

    async def effect() -> str:
        seen = variable.get()
        variable.set("inside")
        return seen

    def parse(value: object) -> str:
        return f"{value}, {variable.get()}"

    async def body(run: Run) -> str:
        variable.set("body")
        return await run.step("a", effect, parse)

    assert await probe.advance(body) == Completed("body, body")
    assert await probe.advance(body) == Completed("body, body")


async def test_parse_takes_the_parsers_that_come_with_the_library(probe: Probe) -> None:
    """RUN-PARSE: lists and nothing are read as they say."""

    async def body(run: Run) -> list[int]:
        await run.step("nothing", Effect(None), nothing)
        return await run.step("list", Effect([1, 2]), list_of(int))

    assert await probe.advance(body) == await probe.advance(body) == Completed([1, 2])
