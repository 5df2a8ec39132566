"""The records of one workflow as an immutable value that is cheap to grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from durable_core.keys import INBOX, inbox_number


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `value` is an encoding, or `Torn`, and `once` the sender's id of an entry."""

    key: str
    value: object
    at: datetime
    once: str | None = None


class _Log:
    """What views share. It only grows, and a key that stands at or past a view's length is not there for that view."""

    __slots__ = ("index", "items", "onces")

    def __init__(self, items: list[Record]) -> None:
        self.items: list[Record] = items
        self.index: dict[str, int] = {record.key: position for position, record in enumerate(items)}
        self.onces: dict[str, int] = {record.once: position for position, record in enumerate(items) if record.once is not None}


class Records(Mapping[str, object]):
    """Every key with its encoding, in first-recorded order.

    A value: nothing changes it, and equal ones hash equal. Growing the latest one is O(1) and shares what is there; growing an
    older one copies. It may be read from any thread while another grows it. `inbox` is the highest number of an inbox key, or
    zero.
    """

    __slots__ = ("_hash", "_length", "_log", "inbox")

    def __init__(self, log: _Log | None = None, length: int = 0, inbox: int = 0, hashed: int = 0) -> None:
        self._log = _Log([]) if log is None else log
        self._length = length
        self._hash = hashed
        self.inbox: int = inbox

    def __repr__(self) -> str:
        return f"<{self._length} records>"

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return (record.key for record in self.since(0))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._log.index.get(key, self._length) < self._length

    def __getitem__(self, key: str) -> object:
        return self.record(key).value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Records):
            return NotImplemented
        if self._length != other._length or self._hash != other._hash:
            return False
        return self._log is other._log or self.since(0) == other.since(0)

    def __hash__(self) -> int:
        return self._hash

    def record(self, key: str) -> Record:
        """Give the record of a key. Raises: `KeyError`."""
        position = self._log.index[key]
        if position >= self._length:
            raise KeyError(key)
        return self._log.items[position]

    def since(self, skip: int) -> Sequence[Record]:
        """Give all but the first `skip` records."""
        return self._log.items[skip : self._length]

    def sent(self, once: str) -> Record | None:
        """Give the entry that a sender's id made."""
        position = self._log.onces.get(once, self._length)
        return self._log.items[position] if position < self._length else None

    def with_record(self, record: Record) -> Records:
        """Give these and one more, whose key is not here."""
        log = self._log
        if not self._length or len(log.items) != self._length:
            log = _Log(log.items[: self._length])
        log.items.append(record)
        log.index[record.key] = self._length
        if record.once is not None:
            log.onces[record.once] = self._length
        inbox = max(self.inbox, inbox_number(record.key)) if record.key.startswith(INBOX) else self.inbox
        return Records(log, self._length + 1, inbox, hash((self._hash, record.key)))

    def with_value(self, key: str, value: object) -> Records:
        """Give these with another value under a key that is here, in its place and of its time."""
        items = list(self.since(0))
        position = self._log.index[key]
        items[position] = Record(key, value, items[position].at, items[position].once)
        return Records(_Log(items), self._length, self.inbox, self._hash)
