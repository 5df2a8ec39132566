"""What a worker and its passes tell an observer: small events, and one callable that takes them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

log: logging.Logger = logging.getLogger("durable_core")
log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class PassBegan:
    """A pass is about to call the body."""

    workflow: str
    token: int
    attempt: int


@dataclass(frozen=True, slots=True)
class PassEnded:
    """A pass ended; `ending` is one of completed, sleeping, blocked, failed, lost, handed back."""

    workflow: str
    token: int
    ending: str


@dataclass(frozen=True, slots=True)
class StepRecorded:
    """A call of the pass wrote its record; `first` as in `Recorded`."""

    workflow: str
    token: int
    key: str
    first: bool


@dataclass(frozen=True, slots=True)
class StepReplayed:
    """A call of the pass found its record."""

    workflow: str
    token: int
    key: str


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """The pass no longer holds its workflow."""

    workflow: str
    token: int


@dataclass(frozen=True, slots=True)
class PutBack:
    """The work was handed back untouched."""

    workflow: str
    reason: str
    again_in: timedelta


@dataclass(frozen=True, slots=True)
class Retried:
    """The attempt failed and comes back."""

    workflow: str
    reason: str
    attempt: int
    again_in: timedelta


@dataclass(frozen=True, slots=True)
class Buried:
    """The workflow was set aside for an operator."""

    workflow: str
    reason: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StoreLost:
    """The store does not answer; said once an outage."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreBack:
    """The store answers again."""


Event: TypeAlias = (
    PassBegan | PassEnded | StepRecorded | StepReplayed | ClaimLost | PutBack | Retried | Buried | StoreLost | StoreBack
)
Observer: TypeAlias = Callable[[Event], object]


def notify(observer: Observer | None, event: Event) -> None:
    """Tell the observer; one that raises is logged and never breaks a pass."""
    if observer is None:
        return
    try:
        observer(event)
    except Exception:
        log.exception("an observer raised", extra={"durable_event": type(event).__name__})
