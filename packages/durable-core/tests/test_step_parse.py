"""A step gives what its parser makes of what is stored."""

import contextvars
from datetime import datetime

import pytest

from durable_core.errors import Misconfigured, NotParsed
from durable_core.outcome import Completed
from durable_core.parsing import list_of, nothing
from durable_core.run import Run
from probe import Effect, Probe


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
