"""How cases compare, and what they say."""

import asyncio
from datetime import timedelta

import pytest

from durable_conformance.expect import Broken, alike, answers, fenced, good_time, raises, same
from durable_core.errors import Fenced


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), ([1], (1,)), ({"a": 1}, {"a": 1.0}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([1], [1, 2]), ("a", b"a")],
)
def test_values_of_other_types_or_order_are_not_alike(one: object, other: object) -> None:
    """Equal in Python is not enough."""
    assert not alike(one, other)


def test_values_of_the_same_types_are_alike() -> None:
    """At every level."""
    assert alike({"a": [1, (2.0, None)], "b": {}}, {"a": [1, (2.0, None)], "b": {}})


def test_what_is_broken_says_what_was_promised_and_what_was_seen() -> None:
    """Both, in one line."""
    with pytest.raises(Broken, match=r"promised: load: \{'a': 1\}; seen: \{\}"):
        same({}, {"a": 1}, "load")


async def test_an_answer_that_does_not_come_is_broken() -> None:
    """A silence is seen, and so is an exception."""
    good_time.set(timedelta(milliseconds=10))
    with pytest.raises(Broken, match="no answer in"):
        await answers(asyncio.sleep(5), "a call")

    async def failing() -> None:
        raise KeyError("no")

    with pytest.raises(Broken, match="KeyError"):
        await answers(failing(), "a call")


async def test_a_refusal_must_be_of_its_kind() -> None:
    """An answer, or another exception, is broken."""

    async def refused(error: BaseException | None) -> str:
        if error is not None:
            raise error
        return "an answer"

    assert (await fenced(refused(Fenced("w", 1)), "a write")).token == 1
    with pytest.raises(Broken, match="an answer"):
        await fenced(refused(None), "a write")
    with pytest.raises(Broken, match="LookupError"):
        await raises(refused(LookupError("x")), ValueError, "a call")
