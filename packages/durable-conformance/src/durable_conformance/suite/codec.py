"""The codec, as the store applies it."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import math

from durable_conformance.bench import Bench
from durable_conformance.case import shows
from durable_conformance.expect import Broken, alike, answers, holds, mapping, same, sequence
from durable_core.codec import shortened
from durable_core.errors import NotEncodable


class Colour(enum.IntEnum):
    """A value that is an int and is not."""

    RED = 1


class Text(str):
    """A value that is a str and is not."""


def deep(levels: int) -> object:
    """Give a list in a list in a list."""
    value: object = "bottom"
    for _ in range(levels):
        value = [value]
    return value


_EMPTY: list[object] = []
_NOTHING: dict[str, object] = {}
PLAIN: tuple[object, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**53,
    2**53 + 1,
    2**64,
    -(10**40),
    0.0,
    1.0,
    0.1,
    -1.5,
    1e300,
    5e-324,
    "",
    "a",
    "\u00e9\u4e2d\U0001f600",
    "\x01\x7f\u2028",
    " \n\t\"'\\/",
    _EMPTY,
    _NOTHING,
    [None],
    {"": 1},
    {"a": {"b": [1, 2.0, True, None]}},
    [_EMPTY, _NOTHING],
    {"k": _EMPTY},
    "x" * 100_000,
    [1] * 1_000,
    {"b": 1, "a": 2},
    deep(100),
)

DOUBTFUL: tuple[object, ...] = (
    math.nan,
    math.inf,
    -math.inf,
    -0.0,
    b"bytes",
    bytearray(b"b"),
    {1, 2},
    frozenset({1}),
    {1: "a"},
    {True: 1},
    {None: 1},
    {1.5: 1},
    object(),
    Colour.RED,
    Text("t"),
    decimal.Decimal("1.10"),
    datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    datetime.timedelta(1),
    "\udc80",
    {"\udc80": 1},
    collections.defaultdict(int, a=1),
    collections.OrderedDict([("a", 1)]),
    1 + 2j,
    range(3),
    10**5000,
    deep(5_000),
    [math.nan],
    {"a": {"b": b"x"}},
    ...,
    int,
    "a\0b",
)


@shows("CDC-ROUND")
async def what_it_carries_comes_back_equal(bench: Bench) -> None:
    """Every plain value is carried, and comes back equal and of the same types at every level: by roundtrip, record and load."""
    holder = await bench.claim(bench.workflow())
    for number, value in enumerate(PLAIN):
        same(await answers(_roundtrip(bench, value), f"roundtrip of {shortened(value, 40)}"), value, "what roundtrip gives")
        await bench.checkpointer.record(holder, f"k{number}", value)
    loaded = await bench.checkpointer.load(holder.workflow)
    for number, value in enumerate(PLAIN):
        if not _unordered(loaded[f"k{number}"], value):
            same(loaded[f"k{number}"], value, "what load gives")


async def _roundtrip(bench: Bench, value: object) -> object:
    given = bench.checkpointer.roundtrip(value)
    return value if _unordered(given, value) else given


def _unordered(one: object, other: object) -> bool:
    """Say whether two values are alike, but for the order of mappings, which JSON does not keep."""
    kinds = (type(one), type(other))
    if kinds == (dict, dict):
        firsts, seconds = mapping(one), mapping(other)
        return firsts.keys() == seconds.keys() and all(_unordered(firsts[key], seconds[key]) for key in firsts)
    if kinds == (list, list):
        these, those = sequence(one), sequence(other)
        return len(these) == len(those) and all(_unordered(a, b) for a, b in zip(these, those, strict=True))
    return alike(one, other)


@shows("CDC-SAME")
async def equal_values_encode_equal(bench: Bench) -> None:
    """A mapping built in another order, at any depth, is the same encoding: a tie."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "k", {"a": 1, "b": [{"x": 1, "y": 2}]})
    given = await bench.checkpointer.record(holder, "k", {"b": [{"y": 2, "x": 1}], "a": 1})
    same(given.first, True, "`first` of an equal mapping, built in another order")
    given = await bench.checkpointer.supply(holder.workflow, "k", dict(reversed(list({"a": 1, "b": [{"x": 1, "y": 2}]}.items()))))
    same(given.first, True, "`first` of an equal mapping, supplied, built in another order")


@shows("CDC-REFUSE")
async def what_it_cannot_carry_it_refuses(bench: Bench) -> None:
    """Of doubtful values each is refused with NotEncodable, or comes back equal, type for type: never changed in silence."""
    workflow = bench.workflow()
    for number, value in enumerate(DOUBTFUL):
        try:
            given = bench.checkpointer.roundtrip(value)
        except NotEncodable as refusal:
            holds(bool(str(refusal)), f"the refusal of {shortened(value, 40)} says why", "nothing")
            continue
        except Exception as other:
            raise Broken(f"a refusal of {shortened(value, 40)} is NotEncodable", f"{type(other).__name__}: {other}") from other
        holds(_identical(given, value), f"{shortened(value, 40)} comes back equal, of the same type, or is refused", given)
        await bench.checkpointer.supply(workflow, f"k{number}", value)
        holds(
            _identical((await bench.checkpointer.load(workflow))[f"k{number}"], value),
            f"{shortened(value, 40)} is loaded as it was recorded",
            "another value",
        )


def _identical(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return type(one) is type(other) and repr(one) == repr(other)
    return alike(one, other)


@shows("CDC-REFUSE")
async def and_names_the_part(bench: Bench) -> None:
    """A refusal deep inside a value says where; through the store it names workflow and key as well."""
    value = {"good": 1, "outer": [0, {"inner": object()}]}
    try:
        bench.checkpointer.roundtrip(value)
    except NotEncodable as refusal:
        holds("inner" in str(refusal), "the refusal names the offending part, 'inner'", str(refusal))
    else:
        raise Broken("an object() inside a value is refused with NotEncodable", "it was carried")
