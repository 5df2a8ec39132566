"""An observer is told, and cannot break what it observes."""

from __future__ import annotations

import logging

import pytest

from durable_core.observer import Event, StepRecorded, StoreBack, notify


def test_an_observer_gets_the_event() -> None:
    """The event arrives as it is."""
    told: list[Event] = []
    notify(told.append, StepRecorded("w", 1, "k", True))
    assert told == [StepRecorded("w", 1, "k", True)]


def test_nobody_needs_to_observe() -> None:
    """Without an observer nothing happens."""
    notify(None, StoreBack())


def test_an_observer_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A broken observer never breaks a pass; the log says which event it broke on."""

    def broken(event: Event) -> None:
        raise RuntimeError("no disk")

    with caplog.at_level(logging.ERROR, "durable_core"):
        notify(broken, StoreBack())
    assert "an observer raised" in caplog.text
    assert "no disk" in caplog.text


def test_an_interruption_passes_through_an_observer() -> None:
    """Only an `Exception` is held back: what ends the process still does."""

    def leaving(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        notify(leaving, StoreBack())
