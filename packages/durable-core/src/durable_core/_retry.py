"""What becomes of a pass that failed: when it comes back, whether it does, and the reason in words."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from durable_core._work import MAX_MESSAGE, message_of
from durable_core.errors import (
    DuplicateStep,
    EffectTorn,
    GiveUp,
    Misconfigured,
    NotEncodable,
    NotParsed,
    OutcomeUnknown,
    ReservedKey,
    StepFailed,
    Swallowed,
)
from durable_core.keys import check_duration
from durable_core.resume import is_group, leaves

# What is the same on every pass, and mistakes of code.
_FINAL = (
    GiveUp,
    StepFailed,
    OutcomeUnknown,
    EffectTorn,
    DuplicateStep,
    ReservedKey,
    Swallowed,
    NotEncodable,
    Misconfigured,
)

Kinds: TypeAlias = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """When a failed attempt comes back: after `first`, then twice as late each time up to `most`, less up to half by chance.

    After `attempts` failures in a row the workflow is buried. A pass that got further and then waits begins the count anew.

    Raises: `ValueError` for durations of zero or less, for `first` above `most`, and for fewer attempts than one.
    """

    first: timedelta = timedelta(seconds=1)
    most: timedelta = timedelta(minutes=10)
    attempts: int = 20

    def __post_init__(self) -> None:
        check_duration(self.first, "the first delay")
        check_duration(self.most, "the longest delay")
        if self.first > self.most:
            raise ValueError(f"the first delay is {self.first}, and the longest one {self.most}")
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, and is {self.attempts}")

    def again_in(self, failures: int) -> timedelta | None:
        """Give when to try again after so many failures in a row, or `None`: not any more."""
        if failures >= self.attempts:
            return None
        longest = doubled(self.first, failures - 1, self.most)
        return max(longest * random.uniform(0.5, 1), timedelta.resolution)


def doubled(first: timedelta, times: int, most: timedelta) -> timedelta:
    """Give a duration that is doubled so many times, but no longer than `most`."""
    return most if times > 64 or first >= most / 2**times else first * 2**times


def is_final(error: BaseException, give_up_on: Kinds) -> bool:
    """Say whether to try again is of no use; of a group, when that holds for each of its leaves. [RUN-WORK-RETRY]"""
    return all(_is_final(leaf, give_up_on) for leaf in leaves(error))


def _is_final(error: BaseException, give_up_on: Kinds) -> bool:
    if isinstance(error, NotParsed):
        return error.fresh or isinstance(error, give_up_on)
    return isinstance(error, (*_FINAL, *give_up_on))


def reason_of(error: BaseException) -> str:
    """Put an exception into words that every store can hold: at most 4 000 characters, whatever it is. [RUN-WORK-RETRY]"""
    try:
        return clipped(_told(error))
    except BaseException:  # what an exception's own methods raise is no reason to lose a workflow
        return "an exception that cannot be put into words"


def where(error: BaseException) -> str:
    """Give the line that raised it, without what it says."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def clipped(text: str) -> str:
    """Give text of at most 4 000 characters, without NUL and lone surrogates."""
    text = str.encode(text[: MAX_MESSAGE + 1], "utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}..."


def _told(error: BaseException) -> str:
    if isinstance(error, GiveUp):
        return clipped(error.reason)
    name = type(error).__name__
    if not is_group(error):
        message = message_of(error)
        return f"{name}: {message}" if message else name
    told: list[str] = []
    for leaf in leaves(error):
        told.append(reason_of(leaf))
        if len(told) * 2 > MAX_MESSAGE:
            break
    return f"{name}: {message_of(error)}: {'; '.join(told)}"
