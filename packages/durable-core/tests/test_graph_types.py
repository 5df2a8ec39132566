"""A node's value comes back from the codec type for type, or is refused on the pass that computed it. [RUN-GRAPH]"""

from __future__ import annotations

import copy
import enum
import json
import math
import pickle
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeAlias
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_core._same import difference
from durable_core.codec import JsonCodec
from durable_core.contract import CheckpointCodec, Encoded
from durable_core.errors import NotEncodable
from durable_core.graph import Graph, Node, run_durably
from durable_core.memory import MemoryCheckpointer

MINUTE = timedelta(minutes=1)

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
SCALARS: st.SearchStrategy[Json] = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.floats(), st.text(max_size=2))
VALUES: st.SearchStrategy[Json] = st.recursive(
    SCALARS, lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=2), parts, max_size=3), max_leaves=10
)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    YES = "yes"


class Count(int):
    pass


class Name(str):
    __slots__ = ()


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Order:
    number: object
    lines: list[object] = field(default_factory=list[object])


@dataclass(frozen=True, slots=True)
class Money:
    amount: object


class Plain:
    """An object without an `==` of its own."""

    def __init__(self, inner: object) -> None:
        self.inner = inner


class Tagged(list[object]):
    """A list with an attribute."""

    tag: object = None


class Touchy:
    """An object that cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        return 0


class LenientJson:
    """JSON as the standard library writes it when nobody looks: it takes much, and gives back less."""

    def encode(self, value: object, /) -> str:
        return json.dumps(value, default=list)

    def decode(self, encoded: str, /) -> object:
        value: object = json.loads(encoded)
        return value


class Pickled:
    """A codec over bytes that carries nearly everything."""

    def encode(self, value: object, /) -> bytes:
        return pickle.dumps(value)

    def decode(self, encoded: bytes, /) -> object:
        value: object = pickle.loads(encoded)
        return value


class Forgetful(Pickled):
    """A codec that gives nothing back."""

    def decode(self, encoded: bytes, /) -> object:
        return None


class Broken(Pickled):
    """A codec that cannot read what it wrote."""

    def decode(self, encoded: bytes, /) -> object:
        raise KeyError("unknown class")


def circle() -> list[object]:
    """Give a list that contains itself, directly and further down."""
    value: list[object] = [1.5]
    value.extend([value, {"up": value}])
    return value


async def run(codec: CheckpointCodec[Encoded], value: object) -> tuple[object, dict[str, object]]:
    """Run a graph whose first node gives the value; give what the second one got, and what is recorded."""
    store = MemoryCheckpointer(codec=codec)
    holder = await store.claim("w", MINUTE, MINUTE)
    assert holder is not None
    got: list[object] = []

    async def make() -> object:
        return value

    async def take(taken: object) -> str:
        got.append(taken)
        return "done"

    try:
        await run_durably(Graph(Node("taken", take, Node("made", make))), store, holder)
    finally:
        if not got:
            assert await store.load("w") == {}
    return got[0], await store.load("w")


REFUSED_BY_JSON: list[object] = [(1, 2), {"a": [(1,)]}, {1: "a"}, math.nan, {"a": [math.inf]}, {1}, b"a", Level.HIGH, "\ud800"]


@pytest.mark.parametrize("value", REFUSED_BY_JSON, ids=repr)
async def test_what_json_changes_or_refuses_is_refused_naming_the_node(value: object) -> None:
    """Cases 53, 56: with the default codec, on the pass that computed it, and nothing is recorded."""
    with pytest.raises(NotEncodable, match="'made' of workflow 'w' cannot be stored") as refused:
        await run(JsonCodec(), value)
    assert (refused.value.workflow, refused.value.key) == ("w", "made")


CHANGED_BY_LENIENT_JSON: list[tuple[object, str]] = [
    (Level.HIGH, "the value is .*Level and comes back as int"),
    ([Word.YES], r"\[0\] is .*Word and comes back as str"),
    ({"a": Count(3)}, r"\['a'\] is .*Count and comes back as int"),
    ({"a": {"b": Name("x")}}, r"\['a'\]\['b'\] is .*Name and comes back as str"),
    (defaultdict(list, a=[1]), "is collections.defaultdict and comes back as dict"),
    ([OrderedDict({"a": 1})], r"\[0\] is collections.OrderedDict and comes back as dict"),
    ({1: "a"}, r"\[1\] is str and comes back as nothing"),
    ({None: 1}, "nothing"),
    ({Word.YES: 1}, r"\['yes'\] is .*Word and comes back as str"),
    ({"a": (1, 2)}, r"\['a'\] is tuple and comes back as list"),
    (Point(1, 2), "is .*Point and comes back as list"),
    ({3, 4}, "is set and comes back as list"),
    (deque([1]), "is collections.deque and comes back as list"),
]


@pytest.mark.parametrize(("value", "why"), CHANGED_BY_LENIENT_JSON)
async def test_what_merely_equals_its_json_is_refused(value: object, why: str) -> None:
    """RUN-GRAPH: an Enum, a defaultdict, a subclass, a key of another type: named by place, and nothing is recorded."""
    with pytest.raises(NotEncodable, match=why):
        await run(LenientJson(), value)


@pytest.mark.parametrize("codec", [Forgetful(), Broken()])
@pytest.mark.parametrize("value", [0, "", [], {1, 2}, Order(1)], ids=repr)
async def test_a_codec_that_is_no_inverse_is_refused_on_the_writing_pass(codec: Pickled, value: object) -> None:
    """Case 50: neither `None` nor a later failure in place of a value."""
    with pytest.raises(NotEncodable, match="'made' of workflow 'w'"):
        await run(codec, value)


CARRIED: list[object] = [
    {1, 2},
    frozenset({("a", 1)}),
    {("a", 1): b"x"},
    {2: "int", "2": "str"},
    Colour.RED,
    {Level.HIGH: [Word.YES]},
    math.nan,
    [-0.0, math.inf, complex(math.nan, -0.0)],
    datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=2))),
    Decimal("1.00"),
    Decimal("NaN"),
    Fraction(1, 3),
    UUID(int=7),
    defaultdict(list, a=[1]),
    OrderedDict({"b": 1, "a": 2}),
    Point(1, 2),
    Order(math.nan, [Money(Decimal("1.0"))]),
    Money({"a": (1, 2)}),
    Plain([Plain(math.nan)]),
    deque([1, 2]),
    range(3),
    str,
    10**5000,
    "\ud800",
    circle(),
    Order(circle()),
]


@pytest.mark.parametrize("value", CARRIED, ids=lambda value: type(value).__name__)
async def test_what_the_codec_carries_is_handed_on(value: object) -> None:
    """RUN-GRAPH, case 56: a NaN is not refused for being unequal to itself, and a circle ends."""
    got, recorded = await run(Pickled(), value)
    assert difference(value, got) is None
    assert difference(value, recorded["made"]) is None
    assert type(got) is type(value)


CHANGES: list[tuple[object, object, str]] = [
    (1, True, "the value is int and comes back as bool"),
    (1, 1.0, "the value is int and comes back as float"),
    (0.0, -0.0, "the value is 0.0 and comes back as -0.0"),
    (1, None, "the value is int and comes back as NoneType"),
    (1, 2, "the value is 1 and comes back as 2"),
    (b"a", bytearray(b"a"), "the value is bytes and comes back as bytearray"),
    ([[1], [2, True]], [[1], [2, 1]], "the value[1][1] is bool and comes back as int"),
    ([1, 2], [1], "the value[1] is int and comes back as nothing"),
    ([1], [1, 2], "the value[1] is nothing and comes back as int"),
    ([1], (1,), "the value is list and comes back as tuple"),
    ({"a": 1}, {}, "the value['a'] is int and comes back as nothing"),
    ({}, {"a": 1}, "the value['a'] is nothing and comes back as int"),
    ({1: "a"}, {True: "a"}, "the value[1] is int and comes back as bool"),
    ({(1,): 0}, {(1.0,): 0}, "the value[(1,)][0] is int and comes back as float"),
    ({1}, {1.0}, "the value[1] is int and comes back as float"),
    ({1, 2}, {1}, "the value[2] is int and comes back as nothing"),
    ({1}, {1, 2}, "the value[2] is nothing and comes back as int"),
    (frozenset({1}), {1}, "the value is frozenset and comes back as set"),
    (Order(1), Order(True), "the value['number'] is int and comes back as bool"),
    (Order(1, [(2,)]), Order(1, [[2]]), "the value['lines'][0] is tuple and comes back as list"),
    (Money(1), Money(Level(3)), "the value['amount'] is int and comes back as"),
    (Plain(1), Plain(1.0), "the value['__dict__']['inner'] is int and comes back as float"),
    (Decimal("1.0"), Decimal("1.00"), "the value is Decimal('1.0') and comes back as Decimal('1.00')"),
    (
        datetime(2024, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        datetime(2024, 5, 1, 0, tzinfo=UTC),
        "the value is datetime.datetime(2024",
    ),
    (object(), object(), "the value is <object"),
    (Touchy(), Touchy(), "the value is "),
    (str, int, "the value is <class 'str'> and comes back as <class 'int'>"),
]


@pytest.mark.parametrize(("before", "after", "why"), CHANGES, ids=lambda part: type(part).__name__)
def test_a_change_is_found_and_named(before: object, after: object, why: str) -> None:
    """RUN-GRAPH: type for type at every level, where `==` sees nothing."""
    changed = difference(before, after)
    assert changed is not None
    assert changed.startswith(why)


def test_an_attribute_of_a_container_counts() -> None:
    """RUN-GRAPH: what a subclass carries beside its items is part of it."""
    one = Tagged([1])
    one.tag = (1,)
    other = copy.deepcopy(one)
    assert difference(one, other) is None
    other.tag = [1]
    assert difference(one, other) == "the value['__dict__']['tag'] is tuple and comes back as list"


def test_a_circle_that_changed_is_told_from_one_that_did_not() -> None:
    """RUN-GRAPH: values that contain themselves are safe, and differences in them are found."""
    assert difference(circle(), circle()) is None
    other = circle()
    other[0] = "1.5"
    assert difference(circle(), other) == "the value[0] is float and comes back as str"
    unrolled = circle()
    unrolled[1] = [1.5, None, None]
    assert difference(circle(), unrolled) is not None


def test_depth_and_breadth_do_not_matter() -> None:
    """RUN-GRAPH: the check does not recurse, and parts that are shared are looked at once."""
    deep: list[object] = []
    other: list[object] = []
    for _ in range(100_000):
        deep, other = [deep], [other]
    assert difference(deep, other) is None
    wide: list[object] = [1]
    twin: list[object] = [1]
    for _ in range(200):
        wide, twin = [wide, wide], [twin, twin]
    assert difference(wide, twin) is None


def canonical(value: Json) -> str:
    """Give a text that tells JSON values apart by type, sign and part."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(canonical, value)) + "]"
    return repr(value)


@given(VALUES, VALUES)
def test_it_finds_a_difference_exactly_where_there_is_one(one: Json, other: Json) -> None:
    """RUN-GRAPH: for values of JSON's types, NaN included."""
    assert difference(one, copy.deepcopy(one)) is None
    assert difference(one, pickle.loads(pickle.dumps(one))) is None
    assert (difference(one, other) is None) == (canonical(one) == canonical(other))


@given(VALUES, st.integers(0, 5))
def test_a_change_of_type_is_found_at_any_depth(value: Json, depth: int) -> None:
    """RUN-GRAPH: a tuple in place of a list, wherever it is."""
    one: object = [value]
    other: object = (value,)
    for _ in range(depth):
        one, other = {"a": [value, one]}, {"a": [value, other]}
    assert difference(one, other) is not None
