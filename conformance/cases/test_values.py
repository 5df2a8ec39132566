"""Cases of values and names, on every store: one verdict, and exactly what was given."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

import pytest

from conformance.cases.place import Effect, Place, advance, claimed, recorded, same
from durable_core.contract import Durable, Recorded
from durable_core.errors import NotEncodable
from durable_core.keys import MAX_BYTES
from durable_core.outcome import Blocked, Completed
from durable_core.run import Run


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Quote:
    price: int


CARRIED: list[object] = [
    "a\x00b",
    {"k\x00": 1},
    "😀",
    2**53 + 1,
    2**63,
    2**64 - 1,
    -(2**80),
    10**4000,
    None,
    0,
    False,
    "",
    [],
    {},
]
REFUSED: list[object] = [
    math.nan,
    {"deep": [{"er": math.inf}]},
    -math.inf,
    "x\ud83d",
    {"\udc97": 1},
    {1: "a"},
    Quote(1),
    datetime(2024, 1, 1, tzinfo=UTC),
    Decimal("1.5"),
    b"bytes",
    {1},
]


@pytest.mark.parametrize("value", CARRIED, ids=map(str, range(len(CARRIED))))
async def test_values_that_are_carried(durable: Durable[object], value: object) -> None:
    """Cases 58, 61, 132: NUL, large integers and what is empty come back type for type, on this pass and on later ones."""
    effect = Effect(value)

    async def body(run: Run[object]) -> list[object]:
        (entry,) = await run.receive("read", same, after=None)
        return [await run.step("step", effect, same), await run.awaiting("answer", same), entry.value]

    assert await durable.checkpointer.supply("w", "answer", value) == Recorded(value, True)
    await durable.deliver("w", value)
    for _ in range(3):
        outcome = await advance(durable, body)
        assert outcome == Completed([value] * 3)
        assert isinstance(outcome, Completed)
        assert [type(one) for one in outcome.value] == [type(value)] * 3
    assert effect.runs == 1
    assert await durable.checkpointer.record(await claimed(durable), "again", value) == Recorded(value, True)


@pytest.mark.parametrize("value", ["text", "", 2**53 + 1, [], {}, None])
async def test_values_of_an_effect_in_the_store(place: Place, value: object) -> None:
    """Case 132: what a `transact` gives comes back, however empty, and its effect is applied once over five passes."""
    effect = place.effects.add("c", value)
    async with place.open() as durable:

        async def body(run: Run[object]) -> object:
            return await run.transact("t", effect, same)

        for _ in range(5):
            assert await advance(durable, body) == Completed(value)
        assert await place.effects.applied("c") == 1


@pytest.mark.parametrize("value", REFUSED, ids=map(str, range(len(REFUSED))))
async def test_values_that_are_refused(durable: Durable[object], value: object) -> None:
    """Cases 49, 53, 56, 60: refused by name through every door, nothing is recorded, and the next record works."""

    async def body(run: Run[object]) -> object:
        return await run.step("quote", Effect(value), same)

    with pytest.raises(NotEncodable, match="'quote' of workflow 'w'"):
        await advance(durable, body)
    for call in (durable.checkpointer.supply, durable.arrive):
        with pytest.raises(NotEncodable, match="'quote' of workflow 'w'"):
            await call("w", "quote", value)
    for send in (durable.checkpointer.append, durable.deliver):
        with pytest.raises(NotEncodable, match="workflow 'w'"):
            await send("w", value)
    assert not await recorded(durable)
    assert (await durable.checkpointer.record(await claimed(durable), "quote", "sound")).first


async def test_a_tuple_is_a_list_on_both_passes(durable: Durable[object]) -> None:
    """Case 49: the parser makes the right type of it again, from the same thing on every pass."""
    seen: list[object] = []

    async def body(run: Run[object]) -> None:
        seen.append(await run.step("point", Effect(Point(1, 2)), same))

    for _ in range(2):
        await advance(durable, body)
    assert seen == [[1, 2], [1, 2]]


@pytest.mark.timing
async def test_large_values(durable: Durable[object]) -> None:
    """Case 64: ten megabytes, as a result and as a message, are the same on both passes."""
    large = "x" * 10_000_000
    await durable.deliver("w", large)

    async def body(run: Run[object]) -> bool:
        (entry,) = await run.receive("read", str, after=None)
        return await run.step("large", Effect(large), str) == entry.value == large

    for _ in range(2):
        assert await advance(durable, body) == Completed(True)


async def test_names_of_any_length(durable: Durable[object]) -> None:
    """Case 66: up to the limit they work, and all that is longer is refused before any effect runs."""
    longest = "".join(chr(33 + (number * 7919) % 90) for number in range(MAX_BYTES))
    effect = Effect("done")

    async def body(run: Run[object]) -> str:
        return await run.step(longest, effect, str)

    assert await advance(durable, body, longest) == Completed("done")
    for length in (MAX_BYTES + 1, 2_700, 10_000):

        async def too_long(run: Run[object], key: str = "k" * length) -> str:
            return await run.step(key, effect, str)

        with pytest.raises(ValueError, match=str(MAX_BYTES)):
            await advance(durable, too_long)
        with pytest.raises(ValueError, match=str(MAX_BYTES)):
            await durable.arrive("w" * length, "input", 1)
    assert effect.runs == 1
    assert not await recorded(durable)


async def test_an_equal_encoding_is_a_tie(durable: Durable[object]) -> None:
    """Case 69: the same value again is `first` as well, in whatever order its parts were put in; another one is not."""
    holder = await claimed(durable)
    value = {"b": 1, "a": [1.0, 1.10, 1e2]}
    assert await durable.checkpointer.record(holder, "k", value) == Recorded(value, True)
    assert await durable.checkpointer.record(holder, "k", {"a": [1.0, 1.1, 100.0], "b": 1}) == Recorded(value, True)
    assert await durable.checkpointer.supply("w", "k", {"b": 2}) == Recorded(value, False)


@pytest.mark.parametrize("answer", [None, False, 0, ""])
async def test_an_empty_answer_is_an_answer(durable: Durable[object], answer: object) -> None:
    """Case 132: it is not taken for one that has not come."""

    async def body(run: Run[object]) -> object:
        return await run.awaiting("answer", same)

    assert await advance(durable, body) == Blocked(("answer",), ())
    await durable.arrive("w", "answer", answer)
    assert await advance(durable, body) == Completed(answer)
