"""How a turn is answered, as values: what follows from how its pass ended, and the call that says so to the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from durable_core._retry import Kinds, Retry, is_final, reason_of
from durable_core.contract import Delivery, Durable, Turn
from durable_core.outcome import Blocked, Completed, Outcome, Sleeping

E = TypeVar("E")

AT_ONCE = timedelta(0)


@dataclass(frozen=True, slots=True)
class Finish:
    """The workflow has an outcome."""

    value: object
    ending: str = "completed"


@dataclass(frozen=True, slots=True)
class Pause:
    """The workflow waits."""

    due: datetime | None
    ending: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The attempt failed: the workflow comes back, or is buried when `again_in` is `None`."""

    reason: str
    again_in: timedelta | None
    error: BaseException | None = None
    ending: str = "failed"


@dataclass(frozen=True, slots=True)
class HandBack:
    """The attempt does not count."""

    reason: str
    again_in: timedelta = AT_ONCE
    ending: str = "handed back"


Answer: TypeAlias = Finish | Pause | Fail | HandBack


def answer_to(outcome: Outcome[object]) -> Answer:
    """Give the answer to a pass that ended in an outcome."""
    match outcome:
        case Completed(value):
            return Finish(value)
        case Sleeping(due=due):
            return Pause(due, "sleeping")
        case Blocked():
            return Pause(None, "blocked")


def answer_to_failure(error: BaseException, delivery: Delivery, retry: Retry, give_up_on: Kinds) -> Fail:
    """Give the answer to a pass that raised. [RUN-WORK-RETRY]"""
    again_in = None if is_final(error, give_up_on) else retry.again_in(failures(delivery))
    return Fail(reason_of(error), again_in, error)


def failures(delivery: Delivery) -> int:
    """Give how many attempts failed in a row, when this one does: those that were never answered say nothing of the body."""
    return max(1, delivery.attempt - delivery.lapses)


async def send(durable: Durable[E], turn: Turn, answer: Answer) -> None:
    """Say it to the store. Raises: `Fenced`, `NotEncodable`, and the store's own errors."""
    match answer:
        case Finish(value):
            await durable.finish(turn, value)
        case Pause(due):
            await durable.pause(turn, due)
        case Fail(reason, again_in):
            await durable.fail(turn, reason, again_in)
        case HandBack(again_in=again_in):
            await durable.hand_back(turn, again_in)
