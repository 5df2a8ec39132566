"""The checker of histories: what some order of the calls explains, and what none does."""

from datetime import UTC, datetime

from durable_conformance.linear import NEVER, UNKNOWN, Call, explained, shortest, until
from durable_core.contract import Entry, Pass, Recorded
from durable_core.keys import inbox_key
from durable_core.reference import FENCED

AT = datetime(2024, 1, 1, tzinfo=UTC)
FIRST, SECOND = Pass("w", 1, AT), Pass("w", 2, AT)


def call(method: str, began: int, ended: int, answer: object, *arguments: object, client: str = "c") -> Call:
    """Make a call."""
    return Call(client, method, arguments, began, ended, answer)


def test_calls_one_after_another_are_explained() -> None:
    """By their own order."""
    assert explained(
        [
            call("claim", 1, 2, FIRST),
            call("record", 3, 4, Recorded("v", True), FIRST, "k", "v"),
            call("load", 5, 6, {"k": "v"}),
            call("release", 7, 8, None, FIRST),
        ]
    )


def test_a_write_that_was_lost_is_not() -> None:
    """A load that began when a record had ended shows it."""
    assert not explained([call("supply", 1, 2, Recorded("v", True), "k", "v"), call("load", 3, 4, {})])


def test_calls_at_once_may_be_in_either_order() -> None:
    """A load beside a supply may show it or not."""
    for seen in ({}, {"k": "v"}):
        assert explained([call("supply", 1, 4, Recorded("v", True), "k", "v"), call("load", 2, 3, seen)])


def test_two_winners_of_one_key_are_not_explained() -> None:
    """First writer wins, in every interleaving."""
    both = [call("supply", 1, 3, Recorded("a", True), "k", "a"), call("supply", 2, 4, Recorded("b", True), "k", "b")]
    assert not explained(both)
    assert explained([both[0], call("supply", 2, 4, Recorded("a", False), "k", "b")])


def test_two_live_passes_are_not_explained() -> None:
    """Of two claims at once one is refused."""
    assert not explained([call("claim", 1, 3, FIRST), call("claim", 2, 4, SECOND)])
    assert explained([call("claim", 1, 3, FIRST), call("claim", 2, 4, None)])


def test_tokens_must_rise() -> None:
    """A later pass with a smaller token is explained by nothing, whatever the gap between two that rise."""
    released = [call("claim", 1, 2, SECOND), call("release", 3, 4, None, SECOND)]
    assert not explained([*released, call("claim", 5, 6, FIRST)])
    assert explained([*released, call("claim", 5, 6, Pass("w", 900, AT))])


def test_a_superseded_write_is_fenced() -> None:
    """And one that is not superseded is not."""
    passes = [call("claim", 1, 2, FIRST), call("release", 3, 4, None, FIRST), call("claim", 5, 6, SECOND)]
    assert explained([*passes, call("record", 7, 8, FENCED, FIRST, "k", "v")])
    assert not explained([*passes, call("record", 7, 8, Recorded("v", True), FIRST, "k", "v")])


def test_entries_sort_as_they_are_loaded() -> None:
    """A key below one that was there before is explained by nothing."""
    entries = [
        call("append", 1, 2, Entry(inbox_key(5), "a"), "a", None),
        call("append", 3, 4, Entry(inbox_key(4), "b"), "b", None),
    ]
    assert explained(entries[:1])
    assert not explained(entries)


def test_a_call_without_an_answer_may_have_been_carried_out_or_not() -> None:
    """Both are explained, and so is one that is carried out later."""
    for seen in ({}, {"k": "v"}):
        assert explained([call("supply", 1, NEVER, UNKNOWN, "k", "v"), call("load", 5, 6, seen)])


def test_the_shortest_beginning_is_told() -> None:
    """What comes after the first thing that nothing explains is left out; what had not ended then has no answer."""
    history = [
        call("supply", 1, 2, Recorded("v", True), "k", "v"),
        call("supply", 3, 9, Recorded("w", True), "l", "w"),
        call("load", 4, 5, {}),
        call("load", 6, 7, {"k": "v"}),
    ]
    told = shortest(history)
    assert [(one.method, one.answer) for one in told] == [
        ("supply", Recorded("v", True)),
        ("supply", UNKNOWN),
        ("load", {}),
    ]
    assert [one.answer for one in until(history, 4)] == [Recorded("v", True), UNKNOWN, UNKNOWN]
