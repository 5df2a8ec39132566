"""What every operation of the store is given: an open transaction, and the store's clock as it was read inside it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


class Tx:
    """A transaction on one connection, with one cursor that all its statements share.

    `now` is the store's clock in microseconds. An operation that may have made a wakeup due sets `ready`; one that may have
    changed how a workflow ended sets `ended`.
    """

    __slots__ = ("connection", "ended", "execute", "now", "ready")

    def __init__(self, connection: sqlite3.Connection) -> None:
        cursor = connection.cursor()
        cursor.row_factory = None
        self.connection: sqlite3.Connection = connection
        self.execute: Callable[..., sqlite3.Cursor] = cursor.execute
        self.now: int = 0
        self.ready: bool = False
        self.ended: bool = False

    def __repr__(self) -> str:
        return f"<Tx at {self.now}>"

    def tick(self) -> None:
        """Read the clock: the machine's, which here never stands still and never goes back. [ANY-CLOCK]"""
        self.now = max(self.now + 1, clock())


def clock() -> int:
    """Read the machine's clock."""
    return time.time_ns() // 1_000


def micros(duration: timedelta) -> int:
    """Give a duration in microseconds."""
    return duration // _MICROSECOND


def micros_at(moment: datetime) -> int:
    """Give an aware instant in microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(at: int) -> datetime:
    """Give the instant of so many microseconds since 1970, or the last one there is."""
    return _EPOCH + timedelta(microseconds=min(at, _LATEST))
