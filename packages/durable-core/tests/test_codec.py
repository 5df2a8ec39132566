"""JsonCodec carries what it documents, and refuses everything else."""

from __future__ import annotations

import enum
import json
import math
import os
import sys
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_core.codec import MAX_DEPTH, JsonCodec, all_decoded, decoded_for, encoded_for, roundtripped
from durable_core.errors import NotEncodable, NotParsed

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

SCALARS: st.SearchStrategy[Json] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
VALUES: st.SearchStrategy[Json] = st.recursive(
    SCALARS, lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts), max_leaves=30
)
CODEC = JsonCodec()


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    YES = "yes"


class Count(int):
    pass


class Ratio(float):
    pass


class Name(str):
    __slots__ = ()


class Numbers(list[int]):
    pass


class Pair(tuple[int, int]):
    __slots__ = ()


@dataclass
class Order:
    number: int


class Point(NamedTuple):
    x: int
    y: int


class Place(Point):
    __slots__ = ()


def in_order(value: Json) -> Json:
    """Give the value with its dicts in the order of their keys: then its `repr` tells all, types and signs included."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [in_order(item) for item in value]
    return value


def reversed_dicts(value: Json) -> Json:
    """Give an equal value whose dicts were filled the other way round."""
    if isinstance(value, dict):
        return {key: reversed_dicts(item) for key, item in reversed(value.items())}
    if isinstance(value, list):
        return [reversed_dicts(item) for item in value]
    return value


def nested(depth: int, wrap: Callable[[object], object]) -> object:
    """Give so many levels of containers."""
    value: object = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def inside(frames: int, call: Callable[[], object]) -> object:
    """Make a call from below so many frames."""
    return call() if frames == 0 else inside(frames - 1, call)


def in_list(value: object) -> object:
    return [value]


def in_dict(value: object) -> object:
    return {"in": value}


def in_tuple(value: object) -> object:
    return (value,)


WRAPS = [in_list, in_dict, in_tuple]


# ------------------------------------------------------------------------------------------------------ what it carries


@given(VALUES)
def test_a_carried_value_comes_back_type_for_type(value: Json) -> None:
    """CDC-ROUND: decode(encode(x)) equals x, type for type at every level."""
    assert repr(CODEC.decode(CODEC.encode(value))) == repr(in_order(value))


@given(VALUES)
def test_equal_values_encode_equal_whatever_the_order_of_insertion(value: Json) -> None:
    """CDC-SAME: the encoding does not depend on the order in which dicts were filled."""
    assert CODEC.encode(reversed_dicts(value)) == CODEC.encode(value)


@given(VALUES)
def test_an_encoding_is_json_that_any_text_column_holds(value: Json) -> None:
    """CDC-REFUSE: what is written has no NUL and no lone surrogate, and other readers of JSON read it."""
    text = CODEC.encode(value)
    assert "\0" not in text
    assert json.loads(text.encode()) == value


def test_zero_keeps_its_sign() -> None:
    """CDC-ROUND: -0.0 comes back as -0.0."""
    assert repr(CODEC.decode(CODEC.encode([-0.0, 0.0]))) == "[-0.0, 0.0]"


@pytest.mark.parametrize(
    "number",
    [2**53 + 1, 2**63, 2**64 - 1, -(2**80), 10**4000, 10**4300 - 1, 1 - 10**4300],
    ids=lambda number: f"{number.bit_length()} bits",
)
def test_an_integer_of_any_supported_size_comes_back_exact(number: int) -> None:
    """Case 61: integers are never floats and never rounded."""
    assert CODEC.decode(CODEC.encode({"n": number})) == {"n": number}


@pytest.mark.parametrize("number", [5e-324, 1.7976931348623157e308, 0.1, 1e16, 1e22, 2.0])
def test_a_float_comes_back_exact_and_a_float(number: float) -> None:
    """CDC-ROUND: floats keep their bits, and 2.0 stays a float."""
    assert repr(CODEC.decode(CODEC.encode(number))) == repr(number)


@pytest.mark.parametrize("value", ["a\0b", {"k\0": 1}, "\u2028\u2029\x7f", "\U0001f600", "é", ""])
def test_odd_text_is_carried(value: object) -> None:
    """Case 58: NUL inside a value is carried, as is everything but a lone surrogate."""
    assert CODEC.decode(CODEC.encode(value)) == value


@pytest.mark.parametrize("value", [(1, 2), Point(1, 2), [1, 2]])
def test_a_tuple_comes_back_as_a_list(value: object) -> None:
    """CDC-ROUND: the one documented exception, for tuples and namedtuples."""
    assert CODEC.decode(CODEC.encode({"at": value})) == {"at": [1, 2]}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("frames", [0, 300])
def test_the_deepest_nesting_is_carried(wrap: Callable[[object], object], frames: int) -> None:
    """CDC-REFUSE: 200 levels are carried on every supported Python, from below 300 frames too."""
    value = nested(MAX_DEPTH, wrap)
    assert inside(frames, lambda: CODEC.encode(CODEC.decode(CODEC.encode(value)))) == CODEC.encode(value)


def test_a_part_may_be_met_twice() -> None:
    """CDC-ROUND: a value that holds one object in two places contains no circle."""
    part = {"a": [1]}
    assert CODEC.decode(CODEC.encode([part, {"again": part}, part])) == [part, {"again": part}, part]


# ------------------------------------------------------------------------------------------------------ what it refuses


UNCARRIED: list[tuple[object, str]] = [
    (math.nan, "nan"),
    (math.inf, "inf"),
    (-math.inf, "-inf"),
    ("x\ud83d", "lone surrogate"),
    ({"\udc97": 1}, "lone surrogate"),
    ({1: "a"}, "int"),
    ({None: "a"}, "NoneType"),
    ({True: "a"}, "bool"),
    ({Word.YES: 1}, "Word"),
    ({Name("a"): 1}, "Name"),
    ({("a",): 1}, "tuple"),
    ({1, 2}, "set"),
    (frozenset({1}), "frozenset"),
    (b"ab", "bytes"),
    (bytearray(b"ab"), "bytearray"),
    (Colour.RED, "Colour"),
    (Level.HIGH, "Level"),
    (Word.YES, "Word"),
    (Count(3), "Count"),
    (Ratio(0.5), "Ratio"),
    (Name("ada"), "Name"),
    (Numbers([1]), "Numbers"),
    (Pair((1, 2)), "Pair"),
    (Place(1, 2), "Place"),
    (defaultdict(int, a=1), "defaultdict"),
    (OrderedDict({"a": 1}), "OrderedDict"),
    (UserDict(a=1), "UserDict"),
    (Order(1), "Order"),
    (datetime(2024, 1, 1, tzinfo=UTC), "datetime"),
    (Decimal("1.0"), "Decimal"),
    (1j, "complex"),
    (range(3), "range"),
    (iter([1]), "list_iterator"),
    (os.terminal_size((1, 2)), "terminal_size"),
    (object(), "object"),
    (str, "type"),
    (10**4300, "4300 digits"),
    (-(10**4300), "4300 digits"),
]


@pytest.mark.parametrize(
    ("value", "named"), UNCARRIED, ids=lambda part: part if isinstance(part, str) and part.isascii() else type(part).__name__
)
@pytest.mark.parametrize("place", ["alone", "in a dict", "in a list", "in a tuple"])
def test_what_it_cannot_carry_is_refused_by_name(value: object, named: str, place: str) -> None:
    """CDC-REFUSE, cases 49, 53, 56, 60: refused when encoding, naming what it is and where."""
    placed, where = {
        "alone": (value, "the value"),
        "in a dict": ({"a": 1, "b": {"c": value}}, "['b']['c']"),
        "in a list": ([1, [2, value]], "[1][1]"),
        "in a tuple": (({"a": (0, value)},), "[0]['a'][1]"),
    }[place]
    with pytest.raises(NotEncodable) as refused:
        CODEC.encode(placed)
    assert named in refused.value.reason
    assert where in refused.value.reason


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("frames", [0, 300])
def test_one_level_more_is_refused(wrap: Callable[[object], object], frames: int) -> None:
    """CDC-REFUSE: 201 levels are refused, with the same words on every supported Python."""
    with pytest.raises(NotEncodable, match="deeper than 200 levels"):
        inside(frames, lambda: CODEC.encode(nested(MAX_DEPTH + 1, wrap)))


def test_a_value_far_too_deep_is_refused_without_recursion() -> None:
    """CDC-REFUSE: depth is no matter of the interpreter's stack."""
    with pytest.raises(NotEncodable, match="deeper than 200 levels"):
        CODEC.encode(nested(100_000, in_list))


def test_a_value_that_contains_itself_is_refused() -> None:
    """CDC-REFUSE: a circle is refused, however many ways lead into it."""
    circle: list[object] = []
    circle.extend([circle, circle, {"up": circle}])
    with pytest.raises(NotEncodable, match="contains itself"):
        CODEC.encode({"a": circle})


@given(VALUES, st.sampled_from([math.nan, {1}, b"", "\ud800", {2: 1}, Level.HIGH]))
def test_one_bad_part_is_found_wherever_it_is(value: Json, bad: object) -> None:
    """CDC-REFUSE: a good neighbour does not hide a bad part."""
    for placed in ([value, bad], [bad, value], {"a": value, "b": [bad]}, {"a": [bad], "b": value}):
        with pytest.raises(NotEncodable):
            CODEC.encode(placed)


def test_a_refusal_stays_short_and_printable() -> None:
    """CDC-REFUSE: the message is text that every log can hold, whatever the value is."""
    with pytest.raises(NotEncodable) as refused:
        CODEC.encode({"k" * 100_000: {"x\ud800" * 100_000: 1}})
    assert len(str(refused.value)) < 600
    str(refused.value).encode()


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "-Infinity", "1 2", "nul"])
def test_a_text_that_is_not_json_is_not_decoded(text: str) -> None:
    """CDC-ROUND: nothing is made up for a text that the codec did not write."""
    with pytest.raises(ValueError):
        CODEC.decode(text)


# ------------------------------------------------------------------------------------- how the stores use any codec at all


class Saying:
    """A codec that does as it is told."""

    def __init__(self, encoded: object = "", decoded: object = None) -> None:
        self.encoded, self.decoded = encoded, decoded

    def encode(self, value: object, /) -> object:
        if isinstance(self.encoded, Exception):
            raise self.encoded
        return self.encoded

    def decode(self, encoded: object, /) -> object:
        if isinstance(self.decoded, Exception):
            raise self.decoded
        return self.decoded


def test_a_refusal_names_workflow_and_key() -> None:
    """CKP-RECORD-REFUSED: whoever reads the error knows which record it is about."""
    with pytest.raises(NotEncodable, match=r"'total' of workflow 'shop/1' cannot be stored: the value\['n'\] is nan") as refused:
        encoded_for(CODEC, "shop/1", "total", {"n": math.nan})
    assert (refused.value.workflow, refused.value.key) == ("shop/1", "total")


@pytest.mark.parametrize("encoded", ["a\0b", "a\ud800", ValueError("no"), RecursionError("deep")])
def test_what_any_codec_gives_is_looked_at(encoded: object) -> None:
    """Case 60: a codec that raises, or whose text no column holds, is refused by name before anything is written."""
    with pytest.raises(NotEncodable) as refused:
        encoded_for(Saying(encoded), "w", "k", 1)
    assert (refused.value.workflow, refused.value.key) == ("w", "k")


@pytest.mark.parametrize("encoded", ["", "é", b"\0\xff"])
def test_any_other_encoding_passes(encoded: object) -> None:
    """CKP-LOAD-CODEC: text and bytes are the codec's own business."""
    assert encoded_for(Saying(encoded), "w", "k", 1) == encoded


def test_a_stored_value_that_does_not_decode_is_named() -> None:
    """Case 50: a decode error names workflow and key, and keeps its cause."""
    cause = KeyError("unknown class")
    with pytest.raises(NotParsed, match="'k' of workflow 'w' holds 'abc'") as refused:
        decoded_for(Saying(decoded=cause), "w", "k", "abc")
    assert refused.value.__cause__ is cause
    assert not refused.value.fresh


def test_of_many_stored_values_the_one_that_does_not_decode_is_named() -> None:
    """Case 50: a history names the key as well, keeps the order, and gives no part of itself."""
    assert list(all_decoded(CODEC, "w", [("b", "1"), ("a", "[2]")]).items()) == [("b", 1), ("a", [2])]
    with pytest.raises(NotParsed, match="'k' of workflow 'w' holds '1 2'"):
        all_decoded(CODEC, "w", [("sound", "1"), ("k", "1 2")])


@pytest.mark.parametrize("text", [" [1]", "[1] ", "\n[1]\t"])
def test_white_space_around_a_text_is_no_matter(text: str) -> None:
    """CDC-ROUND: somebody may have written it by hand."""
    assert CODEC.decode(text) == [1]


def test_a_round_trip_is_refused_either_way() -> None:
    """`roundtrip` gives decode(encode(value)) or a refusal, also where the encoding does not decode."""
    assert roundtripped(CODEC, (1, "a")) == [1, "a"]
    for codec in (Saying(ValueError("no")), Saying(decoded=ValueError("no"))):
        with pytest.raises(NotEncodable, match="ValueError: no") as refused:
            roundtripped(codec, 1)
        assert refused.value.key is None


def test_the_depth_does_not_need_a_higher_recursion_limit() -> None:
    """CDC-REFUSE: the limit of 200 holds with the interpreter's own settings."""
    assert sys.getrecursionlimit() >= 1000
    assert repr(CODEC) == "JsonCodec()"
