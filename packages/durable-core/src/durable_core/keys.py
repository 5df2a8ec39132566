"""What an id, a key, a duration and an instant may be: one verdict for all stores. [ANY-VALID]"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from durable_core.errors import ReservedKey

MAX_BYTES = 1_000
MAX_RESERVED_BYTES = 1_032
MAX_DURATION = timedelta(days=365_000)
MAX_INBOX = 2**53

INBOX = "inbox:"
UNTIL = "until:"
START = "start:"
FAILED = "failed:"
OUTCOME = "outcome:"
INPUT = "input"

_PREFIXES = (INBOX, UNTIL, START, FAILED, OUTCOME)
_DIGITS = 20
_ZERO = timedelta(0)


def check_name(name: str, what: str, limit: int = MAX_BYTES) -> None:
    """Refuse a name that is empty, too long, or that some store could not hold."""
    if type(name) is not str:  # a subclass may be bound, formatted and compared as something else
        raise TypeError(f"{what} must be a str and no subclass of it, not {type(name).__name__}")
    if not name:
        raise ValueError(f"{what} must not be empty")
    if "\0" in name:
        raise ValueError(f"{what} {name[:80]!r} must not contain NUL")
    if name.isascii():
        size = len(name)
    else:
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise ValueError(f"{what} {name[:80]!r} must not contain a lone surrogate") from None
    if size > limit:
        raise ValueError(f"{what} {name[:80]!r}... has {size} bytes of UTF-8, and the limit is {limit}")


def check_workflow(workflow: str) -> None:
    """Refuse a workflow id that some store could not hold."""
    check_name(workflow, "workflow id")


def _is_plain(name: str) -> bool:
    """Say whether a name is what nearly every name is, and needs no closer look."""
    return type(name) is str and 0 < len(name) <= MAX_BYTES and name.isascii() and "\0" not in name


def is_reserved(key: str) -> bool:
    """Say whether the key begins with a prefix that belongs to the library."""
    return key.startswith(_PREFIXES)


def check_key(workflow: str, key: str) -> None:
    """Refuse a key that a checkpointer's own methods do not take; reserved ones they do. [CKP-KEY-RESERVED]"""
    if _is_plain(workflow) and _is_plain(key) and not key.startswith(INBOX):
        return
    check_workflow(workflow)
    what = f"the key of workflow {workflow[:80]!r}"
    if type(key) is str and is_reserved(key):
        check_name(key, what, MAX_RESERVED_BYTES)
        if key.startswith(INBOX):
            inbox_number(key)
    else:
        check_name(key, what)


def check_open_key(workflow: str, key: str, *, allow_input: bool = False) -> None:
    """Refuse a key that a workflow or a client may not use, with `ReservedKey` where it belongs to the library."""
    if not _is_plain(workflow):
        check_workflow(workflow)
    check_own_key(workflow, key, allow_input=allow_input)


def check_own_key(workflow: str, key: str, *, allow_input: bool = False) -> None:
    """Refuse what `check_open_key` does, of a workflow whose id was looked at before."""
    if (
        type(key) is not str or not 0 < len(key) <= MAX_BYTES or not key.isascii() or "\0" in key
    ):  # as `_is_plain`: every step asks
        check_name(key, f"the key of workflow {workflow[:80]!r}")
    if (":" in key and key.startswith(_PREFIXES)) or (key == INPUT and not allow_input):
        raise ReservedKey(workflow, key)


def check_once(once: str | None) -> None:
    """Refuse a sender's message id that some store could not hold."""
    if once is not None:
        check_name(once, "once")


def check_queue(queue: str) -> None:
    """Refuse a queue name that some store could not hold."""
    check_name(queue, "queue name")


def check_duration(duration: timedelta, what: str) -> None:
    """Refuse a duration that is zero or less, or longer than a thousand years."""
    if not isinstance(duration, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} must be a timedelta, not {type(duration).__name__}")
    if duration <= _ZERO:
        raise ValueError(f"{what} must be more than zero, and is {duration}")
    if duration > MAX_DURATION:
        raise ValueError(f"{what} is {duration}, and the limit is {MAX_DURATION.days} days")


def check_wait(wait: timedelta, what: str = "wait") -> timedelta:
    """Give how long to wait: zero for less than zero, at most a thousand years."""
    if not isinstance(wait, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} must be a timedelta, not {type(wait).__name__}")
    return min(max(wait, _ZERO), MAX_DURATION)


def check_moment(moment: datetime, what: str) -> datetime:
    """Refuse a naive instant, and give an aware one in UTC."""
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} must be a datetime, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise ValueError(f"{what} {moment.isoformat()} is naive: give it a time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{what} {moment.isoformat()} is outside the years 1 to 9999 in UTC") from None


def check_skip(skip: int) -> None:
    """Refuse a negative number of records to leave out."""
    if skip < 0:
        raise ValueError(f"skip must not be negative, and is {skip}")


def check_limit(limit: int) -> None:
    """Refuse to ask for fewer than one."""
    if limit < 1:
        raise ValueError(f"limit must be at least 1, and is {limit}")


def check_count(attempt: int, lapses: int) -> None:
    """Refuse counts that no delivery can have."""
    if attempt < 1:
        raise ValueError(f"attempt counts from 1, and is {attempt}")
    if lapses < 0:
        raise ValueError(f"lapses must not be negative, and is {lapses}")


def inbox_key(number: int) -> str:
    """Give the inbox key of a number below 2^53. [CKP-APPEND-KEY]"""
    return f"{INBOX}{number:0{_DIGITS}d}"


def inbox_number(key: str) -> int:
    """Give the number of an inbox key, or refuse one that is not twenty digits below 2^53."""
    digits = key[len(INBOX) :] if key.startswith(INBOX) else ""
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()) or int(digits) >= MAX_INBOX:
        raise ValueError(f"an inbox key is {INBOX!r} and {_DIGITS} digits below 2^53, and this is {key[:80]!r}")
    return int(digits)
