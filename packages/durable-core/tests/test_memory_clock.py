"""The clocks of the memory double."""

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from durable_core._clock import ManualClock, SystemClock, later

START = datetime(2024, 3, 30, 23, 30, tzinfo=timezone(timedelta(hours=2)))


def test_manual_clock_stands_still_until_it_is_advanced() -> None:
    """What it says is UTC, and `monotonic` passes as `now` does."""
    clock = ManualClock(START)
    assert (clock.now(), clock.now().tzinfo, clock.monotonic()) == (START, UTC, 0.0)
    clock.advance(timedelta(hours=24, microseconds=1))
    assert clock.now() - START == timedelta(hours=24, microseconds=1)
    assert clock.monotonic() == 86_400.000001
    assert repr(clock) == "ManualClock(2024-03-31T21:30:00.000001+00:00)"


def test_manual_clock_refuses_to_go_back_and_naive_starts() -> None:
    """Time passes forwards."""
    for duration in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(ValueError):
            ManualClock().advance(duration)
    with pytest.raises(ValueError):
        ManualClock(datetime(2024, 1, 1))


def test_manual_clock_stops_at_the_end_of_the_calendar() -> None:
    """There is no later instant."""
    clock = ManualClock(datetime(9999, 12, 31, tzinfo=UTC))
    clock.advance(timedelta(days=365))
    assert clock.now() == datetime.max.replace(tzinfo=UTC) == later(clock.now(), timedelta(days=1))


def test_manual_clock_wakes_its_subscribers_after_it_moved() -> None:
    """Until they unsubscribe, which they may do twice."""
    clock, seen = ManualClock(START), list[datetime]()
    unsubscribe = clock.subscribe(lambda: seen.append(clock.now()))
    clock.advance(timedelta(seconds=1))
    unsubscribe()
    unsubscribe()
    clock.advance(timedelta(seconds=1))
    assert seen == [START + timedelta(seconds=1)]


def test_manual_clock_may_be_advanced_by_many_threads() -> None:
    """No advance is lost."""
    clock = ManualClock(START)

    def advance() -> None:
        for _ in range(100):
            clock.advance(timedelta(seconds=1))

    threads = [threading.Thread(target=advance) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == START + timedelta(seconds=1_000)


def test_system_clock_never_goes_back_and_bounds_its_timers() -> None:
    """It is anchored once and carried on by the monotonic clock; no timer is longer than an hour."""
    clock = SystemClock()
    instants = [clock.now() for _ in range(1_000)]
    assert instants == sorted(instants)
    assert instants[0].utcoffset() == timedelta(0)
    assert clock.timer(1.5) == 1.5
    assert clock.timer(1e12) == 3_600.0
    clock.subscribe(lambda: None)()
