"""The clocks that the memory double can live by: the system's, and one that a test moves by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from durable_core.keys import check_duration, check_moment

_LATEST = datetime.max.replace(tzinfo=UTC)
_LONGEST_TIMER = 3_600.0  # some event loops count a timer in 32 bits of milliseconds


class Clock(Protocol):
    """What a store in memory lives by."""

    def now(self) -> datetime:
        """Give the time, UTC; it never goes back."""
        ...

    def monotonic(self) -> float:
        """Give the seconds since some instant; they pass as `now` does."""
        ...

    def timer(self, seconds: float, /) -> float | None:
        """Give after how many seconds of real time to look again, or `None`: not before the clock wakes its subscribers."""
        ...

    def subscribe(self, wake: Callable[[], object], /) -> Callable[[], None]:
        """Have `wake` called, from any thread, whenever the clock jumps; gives the function that ends this."""
        ...


def later(now: datetime, duration: timedelta) -> datetime:
    """Give `now + duration`, or the last instant there is."""
    try:
        return now + duration
    except OverflowError:
        return _LATEST


class SystemClock:
    """The system's clock, read once and carried on by its monotonic one, so that it never goes back."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._at = datetime.now(UTC)  # noqa: TID251 - this is a store's clock

    def __repr__(self) -> str:
        return "SystemClock()"

    def now(self) -> datetime:
        """Give the time, UTC."""
        return self._at + timedelta(seconds=time.monotonic() - self._began)

    def monotonic(self) -> float:
        """Give the seconds of `time.monotonic`."""
        return time.monotonic()

    def timer(self, seconds: float, /) -> float | None:
        """Give `seconds`, or an hour where that is less."""
        return min(seconds, _LONGEST_TIMER)

    def subscribe(self, wake: Callable[[], object], /) -> Callable[[], None]:
        """Do nothing: this clock does not jump."""
        return _nothing


class ManualClock:
    """A clock for tests that stands still until `advance` is called, and then wakes what sleeps on it; threads may share it.

    `start` is an aware datetime. Raises: `ValueError` for a naive one.
    """

    def __init__(self, start: datetime = datetime(2024, 1, 1, tzinfo=UTC)) -> None:
        self._start = check_moment(start, "start")
        self._now = self._start
        self._lock = threading.Lock()
        self._subscribers: dict[object, Callable[[], object]] = {}

    def __repr__(self) -> str:
        return f"ManualClock({self._now.isoformat()})"

    def now(self) -> datetime:
        """Give the time, UTC."""
        return self._now

    def monotonic(self) -> float:
        """Give the seconds since `start`."""
        return (self._now - self._start).total_seconds()

    def advance(self, duration: timedelta, /) -> None:
        """Let more than zero time pass, and wake what sleeps on this clock.

        Raises: `ValueError` for zero and less, and for more than a thousand years.
        """
        check_duration(duration, "what a clock is advanced by")
        with self._lock:
            self._now = later(self._now, duration)
            subscribers = tuple(self._subscribers.values())
        for wake in subscribers:
            wake()

    def timer(self, seconds: float, /) -> float | None:
        """Give `None`: real time says nothing about this clock."""
        return None

    def subscribe(self, wake: Callable[[], object], /) -> Callable[[], None]:
        """Have `wake` called after every `advance`, in its thread."""
        token = object()
        with self._lock:
            self._subscribers[token] = wake

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers.pop(token, None)

        return unsubscribe


def _nothing() -> None:
    pass
