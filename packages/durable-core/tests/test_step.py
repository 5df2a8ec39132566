"""A step runs its effect until a result is recorded; what an effect may be."""

import functools
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from durable_core.errors import Misconfigured, NotEncodable, ReservedKey
from durable_core.outcome import Completed
from durable_core.run import Run
from probe import Effect, Probe


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
