"""What a parser takes, and how a refusal reads. [RUN-PARSE]"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from types import NoneType
from typing import Literal, NewType, TypedDict, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_core.contract import Entry
from durable_core.errors import DurableError, GiveUp, Misconfigured, NotParsed
from durable_core.parsing import Parser, check_parser, dict_of, list_of, moment, nothing, optional, parsed
from durable_core.run import Run

STORED: list[object] = [None, True, False, 0, 1, 0.0, 1.0, "", "1", "None", "false", [], [1], {}, {"a": 1}]
CLASSES: list[type[object]] = [str, int, float, bool, list, dict, NoneType]
UserId = NewType("UserId", str)


class Colour(enum.Enum):
    RED = "red"


class Order(TypedDict):
    number: int


class Reply:
    def __init__(self, text: str) -> None:
        self.text = text


def as_reply(value: object) -> Reply:
    match value:
        case {"text": str(text)}:
            return Reply(text)
        case _:
            raise KeyError("text")


async def as_coroutine(value: object) -> str:
    return str(value)


class Reader:
    def read(self, value: object) -> int:
        return parsed("inner", "inner", int, value)

    async def read_later(self, value: object) -> int:
        return self.read(value)

    def __call__(self, value: object) -> str:
        return f"<{value}>"


# ------------------------------------------------------------------------------------------------------------ classes


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("stored", STORED, ids=repr)
def test_a_class_means_exactly_that_type(kind: type[object], stored: object) -> None:
    """RUN-PARSE: nothing is converted, and a bool is no int, an int no float."""
    if type(stored) is kind:
        assert parsed("w", "k", kind, stored) is stored
    else:
        with pytest.raises(NotParsed, match=f"must be exactly {kind.__name__}"):
            parsed("w", "k", kind, stored)


def test_a_refusal_names_workflow_key_and_what_was_stored() -> None:
    """RUN-PARSE: everything that one needs to know is in the message and on the error."""
    with pytest.raises(NotParsed) as refused:
        parsed("shop/1", "total", int, "12", fresh=True)
    error = refused.value
    assert (error.workflow, error.key, error.stored, error.fresh) == ("shop/1", "total", "'12'", True)
    why = "'12' is of type str, and must be exactly int"
    assert str(error) == f"'total' of workflow 'shop/1' holds '12', which is not what the body expects: {why}"


def test_what_was_stored_is_shown_shortened() -> None:
    """RUN-PARSE: a value of megabytes does not end up in a log."""
    with pytest.raises(NotParsed) as refused:
        parsed("w", "k", int, "x" * 10**6)
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize("kind", [tuple, set, bytes, datetime, object, Colour, Order, Reply, type, complex])
def test_any_other_class_is_refused_with_what_to_write(kind: type[object]) -> None:
    """RUN-PARSE: a class that would convert, or could never match, is a mistake of code."""
    uses: list[Callable[[type[object]], object]] = [
        check_parser,
        list_of,
        dict_of,
        optional,
    ]
    for use in uses:
        with pytest.raises(Misconfigured, match=f"{kind.__name__} is no parser: .*; write "):
            use(kind)


def test_the_refusal_of_a_class_names_the_parser_that_exists() -> None:
    """RUN-PARSE: `moment` for a datetime, `list_of` for a tuple."""
    with pytest.raises(Misconfigured, match="write moment"):
        check_parser(datetime)
    with pytest.raises(Misconfigured, match="write list_of"):
        check_parser(tuple)


@pytest.mark.parametrize(
    ("parse", "why"),
    [
        (list[int], "write list_of"),
        (dict[str, int], "write list_of"),
        (Literal["a"], "write list_of"),
        (int | None, "no parser"),
        (None, "no parser"),
        ("str", "no parser"),
        (UserId, "NewType"),
        (as_coroutine, "async"),
        (Reader().read_later, "async"),
    ],
    ids=lambda given: getattr(given, "__name__", None) or repr(given).split(" at 0x")[0],
)
def test_what_would_fail_or_lie_is_refused(parse: Parser[object], why: str) -> None:
    """RUN-PARSE: `list[int]` would convert, a NewType checks nothing, an async function gives a coroutine."""
    uses: list[Callable[[Parser[object]], object]] = [check_parser, list_of, dict_of, optional]
    for use in uses:
        with pytest.raises(Misconfigured, match=why):
            use(parse)


# ---------------------------------------------------------------------------------------------------------- functions


def test_a_function_gives_what_it_makes_of_the_stored_value() -> None:
    """RUN-PARSE: any plain callable is a parser."""
    assert parsed("w", "k", as_reply, {"text": "hi"}).text == "hi"
    assert parsed("w", "k", Reader().read, 3) == 3
    assert parsed("w", "k", Reader(), 3) == "<3>"
    assert parsed("w", "k", functools.partial(parsed, "inner", "inner", int), 3) == 3
    assert parsed("w", "k", lambda value: [value], 3) == [3]
    assert parsed("w", "k", repr, [1, 2]) == "[1, 2]"


def test_an_exception_of_the_parser_becomes_the_refusal_and_its_cause() -> None:
    """RUN-PARSE: a parser's refusal names workflow, key and what was stored."""
    with pytest.raises(NotParsed, match=r"'quote' of workflow 'w' holds \{'txt': 1\}.*KeyError: 'text'") as refused:
        parsed("w", "quote", as_reply, {"txt": 1})
    assert isinstance(refused.value.__cause__, KeyError)
    assert not refused.value.fresh


def test_an_exception_that_cannot_be_shown_is_still_a_refusal() -> None:
    """RUN-PARSE: a broken message does not hide the refusal."""

    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def refuse(value: object) -> None:
        raise Silent

    with pytest.raises(NotParsed, match="Silent"):
        parsed("w", "k", refuse, 1)


@pytest.mark.parametrize("error", [GiveUp("no such shop"), Misconfigured("write this"), NotParsed("w", "k2", "1", "inner")])
def test_an_error_of_the_library_passes_as_it_is(error: DurableError) -> None:
    """RUN-PARSE: what the parser says about the workflow is not wrapped."""

    def refuse(value: object) -> None:
        raise error

    for parse in (refuse, list_of(refuse)):
        with pytest.raises(DurableError) as raised:
            parsed("w", "k", parse, [1])
        assert raised.value is error


def test_what_ends_the_process_passes() -> None:
    """RUN-PARSE: only an `Exception` is a refusal."""

    def leave(value: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parsed("w", "k", leave, 1)


# ----------------------------------------------------------------------------------------------------- the library's own


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30)), timezone(timedelta(hours=14))])))
def test_a_moment_comes_back_from_its_iso_text(written: datetime) -> None:
    """`moment` reads what `isoformat` wrote, offset included."""
    read = moment(written.isoformat())
    assert read == written
    assert read.utcoffset() == written.utcoffset()


@pytest.mark.parametrize(
    "stored", ["2024-05-01T12:00:00", "2024-05-01", "12:00:00Z", "now", "", 1714521600, None, datetime(2024, 5, 1, tzinfo=UTC)]
)
def test_what_is_no_aware_moment_is_refused(stored: object) -> None:
    """`moment` refuses naive text, other text and other types."""
    with pytest.raises(NotParsed):
        parsed("w", "k", moment, stored)


def test_a_moment_may_be_written_with_z() -> None:
    """`moment` takes ISO 8601 as other languages write it."""
    assert moment("2024-05-01T12:00:00Z") == datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("stored", STORED, ids=repr)
def test_nothing_takes_none_alone(stored: object) -> None:
    """`nothing` refuses what is merely false."""
    if stored is None:
        parsed("w", "k", nothing, stored)
    else:
        with pytest.raises(NotParsed, match="is not None"):
            parsed("w", "k", nothing, stored)


def test_list_of_parses_every_item() -> None:
    """`list_of` gives a list of what the parser gives."""
    assert parsed("w", "k", list_of(int), [1, 2]) == [1, 2]
    assert parsed("w", "k", list_of(int), []) == []
    assert [reply.text for reply in parsed("w", "k", list_of(as_reply), [{"text": "a"}, {"text": "b"}])] == ["a", "b"]
    assert parsed("w", "k", list_of(optional(list_of(str))), [["a"], None]) == [["a"], None]


def test_dict_of_parses_every_value() -> None:
    """`dict_of` gives a dict of what the parser gives, under the same keys in the same order."""
    assert parsed("w", "k", dict_of(int), {"b": 1, "a": 2}) == {"b": 1, "a": 2}
    assert list(parsed("w", "k", dict_of(optional(int)), {"b": None, "a": 2})) == ["b", "a"]


REFUSED: list[tuple[Parser[object], object, str]] = [
    (list_of(int), (1, 2), "must be exactly list"),
    (list_of(int), "12", "must be exactly list"),
    (list_of(int), [1, True], r"at \[1\]: True is of type bool, and must be exactly int"),
    (list_of(list_of(int)), [[1], [2, "3"]], r"at \[1\]\[1\]: '3' is of type str"),
    (dict_of(int), [1], "must be exactly dict"),
    (dict_of(int), {"a": None}, r"at \['a'\]: None is of type NoneType"),
    (dict_of(int), {1: 1}, r"at \[1\]: 1 is of type int, and must be exactly str"),
    (dict_of(list_of(as_reply)), {"a": [{"txt": 1}]}, r"at \['a'\]\[0\]: KeyError: 'text'"),
    (dict_of(list_of(moment)), {"a": ["now"]}, r"at \['a'\]\[0\]: ValueError"),
    (optional(int), "1", "must be exactly int"),
    (optional(as_reply), False, "KeyError"),
]


@pytest.mark.parametrize(("parse", "stored", "why"), REFUSED)
def test_a_refusal_inside_names_the_place(parse: Parser[object], stored: object, why: str) -> None:
    """The parsers that hold others say which part was refused, and why."""
    with pytest.raises(NotParsed, match=why):
        parsed("w", "k", parse, stored)


PARTS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.lists(PARTS), st.sampled_from([str, int, float, bool, NoneType]))
def test_list_of_and_dict_of_take_exactly_what_their_parts_take(items: list[object], kind: type[object]) -> None:
    """RUN-PARSE: all parts pass or the first that does not is named, and what passes comes back as it is."""
    named = {str(index): item for index, item in enumerate(items)}
    wrong = [index for index, item in enumerate(items) if type(item) is not kind]
    if not wrong:
        assert parsed("w", "k", list_of(kind), items) == items
        assert parsed("w", "k", dict_of(kind), named) == named
        return
    with pytest.raises(NotParsed, match=rf"at \[{wrong[0]}\]: "):
        parsed("w", "k", list_of(kind), items)
    with pytest.raises(NotParsed, match=rf"at \['{wrong[0]}'\]: "):
        parsed("w", "k", dict_of(kind), named)


async def typed(run: Run, llm: Callable[[str], object]) -> None:
    """What the type checkers make of parsers; checked, not run."""

    async def effect(number: int) -> object:
        return number

    assert_type(await run.step("a", effect, str, 1), str)
    assert_type(await run.step("b", effect, nothing, 1), None)
    assert_type(await run.step("c", effect, list_of(int), 1), list[int])
    assert_type(await run.step("d", effect, dict_of(list_of(moment)), 1), dict[str, list[datetime]])
    assert_type(await run.step("e", effect, optional(as_reply), 1), Reply | None)
    assert_type(await run.step("f", effect, as_reply, 1), Reply)
    assert_type(await run.step("g", effect, NoneType, 1), None)
    assert_type(await run.awaiting("h", bool, timeout=timedelta(days=2), default=False), bool)
    assert_type(await run.receive("i", as_reply, after=None), tuple[Entry[Reply], ...])
    await run.step("j", effect, 3, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.step("k", effect, list_of(3), 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
