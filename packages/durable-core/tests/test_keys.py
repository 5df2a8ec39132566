"""Validation gives one verdict, whatever the store. [ANY-VALID] [CKP-KEY-RESERVED]"""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_core import keys
from durable_core.errors import ReservedKey

NAMES: list[Callable[[str], None]] = [
    keys.check_workflow,
    lambda name: keys.check_key("w", name),
    lambda name: keys.check_open_key("w", name),
    lambda name: keys.check_open_key("w", name, allow_input=True),
    lambda name: keys.check_key(name, "k"),
    lambda name: keys.check_open_key(name, "k"),
    keys.check_once,
    keys.check_queue,
]
RESERVED = ["until:k", "start:k", "failed:k", "outcome:", "outcome:k", "until:", keys.inbox_key(0)]


class Word(enum.StrEnum):
    KEY = "key"


class Nowhere(tzinfo):
    """A time zone that does not know its offset."""

    def utcoffset(self, moment: datetime | None, /) -> None:
        return None

    dst = utcoffset

    def tzname(self, moment: datetime | None, /) -> str:
        return "nowhere"


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize(
    "name",
    [
        "a",
        "a" * 1000,
        "é" * 500,
        "€" * 333 + "a",
        "\U0001f600" * 250,
        " ",
        "\n\t",
        "a/b:c{d}*?[e]",
        "../..",
        "'; --",
        "%s",
        "Ünï\u202e",
        "e\u0301",
        "\x7f\x01",
        "None",
    ],
)
def test_any_name_of_at_most_a_thousand_bytes_passes(check: Callable[[str], None], name: str) -> None:
    """ANY-VALID: everything that is not forbidden, however odd, works everywhere."""
    check(name)


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        ("a" * 1001, "1001 bytes of UTF-8, and the limit is 1000"),
        ("é" * 501, "1002 bytes"),
        ("a" + "€" * 333 + "b", "1001 bytes"),
        ("\U0001f600" * 251, "1004 bytes"),
        ("k" * 10_000, "10000 bytes"),
        ("a\0b", "NUL"),
        ("\0", "NUL"),
        ("x\ud83d", "lone surrogate"),
        ("\udc97" * 2000, "lone surrogate"),
    ],
)
def test_a_name_that_some_store_cannot_hold_is_refused(check: Callable[[str], None], name: str, why: str) -> None:
    """ANY-VALID, case 66: refused as `ValueError`, in words that can be printed."""
    with pytest.raises(ValueError, match=why) as refused:
        check(name)
    str(refused.value).encode()
    assert len(str(refused.value)) < 1200


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize("name", [b"bytes", 1, ["list"], Word.KEY])
def test_a_name_is_a_str_and_no_subclass(check: Callable[[object], None], name: object) -> None:
    """ANY-VALID: a subclass of str may be stored, formatted and compared as something else."""
    with pytest.raises(TypeError, match="must be a str"):
        check(name)


@given(st.text(max_size=1200))
def test_the_verdict_on_a_name_depends_on_its_bytes_alone(name: str) -> None:
    """ANY-VALID: non-empty, no NUL, at most 1 000 bytes of UTF-8, and nothing else matters."""
    passes = 0 < len(name.encode()) <= 1000 and "\0" not in name
    try:
        keys.check_workflow(name)
    except ValueError:
        assert not passes
    else:
        assert passes


def test_no_message_id_passes() -> None:
    """CKP-APPEND-ONCE: `once` may be left out."""
    keys.check_once(None)


# ----------------------------------------------------------------------------------------------------------- reserved keys


@pytest.mark.parametrize("key", RESERVED)
def test_a_checkpointer_takes_reserved_keys(key: str) -> None:
    """CKP-KEY-RESERVED: the engine and `fork` write them."""
    keys.check_key("w", key)
    assert keys.is_reserved(key)


@pytest.mark.parametrize("key", RESERVED)
@pytest.mark.parametrize("allow_input", [False, True])
def test_workflows_and_clients_do_not(key: str, allow_input: bool) -> None:
    """CKP-KEY-RESERVED: refused naming workflow and key, as a `ValueError` too."""
    with pytest.raises(ReservedKey, match="'shop/1' is reserved") as refused:
        keys.check_open_key("shop/1", key, allow_input=allow_input)
    assert (refused.value.workflow, refused.value.key) == ("shop/1", key)
    assert isinstance(refused.value, ValueError)


def test_input_belongs_to_start() -> None:
    """ANY-VALID: `input` is reserved for `start` and `run.input`."""
    keys.check_key("w", "input")
    keys.check_open_key("w", "input", allow_input=True)
    with pytest.raises(ReservedKey):
        keys.check_open_key("w", "input")


@pytest.mark.parametrize("key", ["inbox", "Inbox:1", " inbox:", "until", "started:", "outcome", "inputs", "my inbox:"])
def test_a_key_that_only_resembles_a_reserved_one_is_free(key: str) -> None:
    """CKP-KEY-RESERVED: only the prefixes as written are reserved."""
    keys.check_open_key("w", key)
    assert not keys.is_reserved(key)


def test_a_reserved_key_has_room_for_the_longest_key() -> None:
    """ANY-VALID: 1 032 bytes with a reserved prefix."""
    for prefix in (keys.UNTIL, keys.START, keys.FAILED, keys.OUTCOME):
        keys.check_key("w", prefix + "k" * (1032 - len(prefix)))
        with pytest.raises(ValueError, match="1033 bytes of UTF-8, and the limit is 1032"):
            keys.check_key("w", prefix + "k" * (1033 - len(prefix)))


@pytest.mark.parametrize(
    "key",
    [
        "inbox:",
        "inbox:1",
        "inbox:" + "0" * 19,
        "inbox:" + "0" * 21,
        "inbox:" + "a" * 20,
        "inbox:" + "²" * 20,
        "inbox:" + "٣" * 20,
        "inbox:-" + "0" * 19,
        "inbox:+" + "0" * 19,
        "inbox: " + "0" * 19,
        "inbox:1_" + "0" * 18,
        f"inbox:{2**53:020d}",
        "inbox:" + "9" * 20,
    ],
)
def test_an_inbox_key_is_twenty_digits_below_2_to_the_53(key: str) -> None:
    """CKP-KEY-RESERVED, CKP-APPEND-KEY: nothing else passes for an inbox key."""
    with pytest.raises(ValueError, match="20 digits below"):
        keys.check_key("w", key)


@given(st.integers(min_value=0, max_value=2**53 - 1), st.integers(min_value=0, max_value=2**53 - 1))
def test_inbox_keys_sort_as_their_numbers(one: int, other: int) -> None:
    """CKP-APPEND-SORTED: keys sort as the numbers do, and give them back."""
    keys.check_key("w", keys.inbox_key(one))
    assert keys.inbox_number(keys.inbox_key(one)) == one
    assert (keys.inbox_key(one) < keys.inbox_key(other)) == (one < other)


# ---------------------------------------------------------------------------------------------- durations, moments, counts


@pytest.mark.parametrize("duration", [timedelta(microseconds=1), timedelta(seconds=1), timedelta(days=365_000)])
def test_a_duration_may_be_anything_up_to_a_thousand_years(duration: timedelta) -> None:
    """ANY-VALID: from a microsecond on."""
    keys.check_duration(duration, "budget")
    assert keys.check_wait(duration) == duration


@pytest.mark.parametrize(
    "duration", [timedelta(0), timedelta(microseconds=-1), timedelta.min, timedelta.max, timedelta(days=365_000, microseconds=1)]
)
def test_a_duration_outside_is_refused(duration: timedelta) -> None:
    """ANY-VALID: zero, less, and absurdly long ones are refused by name."""
    with pytest.raises(ValueError, match="budget"):
        keys.check_duration(duration, "budget")


@pytest.mark.parametrize("duration", [1, 1.5, "1 s", None])
def test_a_duration_is_a_timedelta(duration: timedelta) -> None:
    """ANY-VALID: a bare number does not say its unit."""
    with pytest.raises(TypeError, match="budget must be a timedelta"):
        keys.check_duration(duration, "budget")
    with pytest.raises(TypeError, match="wait must be a timedelta"):
        keys.check_wait(duration)


def test_a_wait_may_be_zero_or_less() -> None:
    """ANY-VALID: a wait of less than zero does not wait, and one for ever waits a thousand years."""
    assert keys.check_wait(timedelta(0)) == timedelta(0)
    assert keys.check_wait(timedelta.min) == timedelta(0)
    assert keys.check_wait(timedelta.max) == keys.MAX_DURATION


def test_a_moment_comes_back_in_utc() -> None:
    """ANY-CLOCK: an aware instant is the same instant in UTC."""
    moment = datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    checked = keys.check_moment(moment, "when")
    assert checked == moment
    assert checked.tzinfo is UTC


@pytest.mark.parametrize("moment", [datetime(2024, 5, 1), datetime(2024, 5, 1, tzinfo=Nowhere())])
def test_a_naive_moment_is_refused(moment: datetime) -> None:
    """ANY-VALID, case 97: a time without an offset is no instant."""
    with pytest.raises(ValueError, match="is naive: give it a time zone"):
        keys.check_moment(moment, "when")


@pytest.mark.parametrize(
    ("moment", "passes"),
    [
        (datetime.min.replace(tzinfo=UTC), True),
        (datetime.max.replace(tzinfo=UTC), True),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=-1))), True),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), False),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=1))), True),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), False),
    ],
)
def test_a_moment_is_within_the_years_1_to_9999_in_utc(moment: datetime, passes: bool) -> None:
    """ANY-VALID: an instant that UTC cannot write is refused as `ValueError`, not as an overflow."""
    if passes:
        assert keys.check_moment(moment, "when") == moment
    else:
        with pytest.raises(ValueError, match="outside the years 1 to 9999"):
            keys.check_moment(moment, "when")


@pytest.mark.parametrize("moment", [date(2024, 5, 1), "2024-05-01T00:00:00Z", 1714521600])
def test_a_moment_is_a_datetime(moment: datetime) -> None:
    """ANY-VALID: nothing else is taken for an instant."""
    with pytest.raises(TypeError, match="when must be a datetime"):
        keys.check_moment(moment, "when")


def test_counts_have_their_least_values() -> None:
    """ANY-VALID: attempts and limits count from one, lapses and skips from zero."""
    keys.check_skip(0)
    keys.check_limit(1)
    keys.check_count(1, 0)
    refusals: list[tuple[Callable[..., None], tuple[int, ...]]] = [
        (keys.check_skip, (-1,)),
        (keys.check_limit, (0,)),
        (keys.check_count, (0, 0)),
        (keys.check_count, (1, -1)),
    ]
    for check, numbers in refusals:
        with pytest.raises(ValueError):
            check(*numbers)
