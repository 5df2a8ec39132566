"""How a pass can end, and the fold that makes one outcome of the waits it reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypeAlias

from durable_core.contract import T, T_co


@dataclass(frozen=True, slots=True)
class Completed(Generic[T_co]):
    """The workflow is finished; the value has crossed the codec."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Sleeping:
    """The workflow waits, until `due` at the latest; `key` is the wait that is due then.

    `waiting` are the sorted keys of all awaited values and sleeps, `listening` those of all receives.
    """

    key: str
    due: datetime
    waiting: tuple[str, ...]
    listening: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Blocked:
    """The workflow waits for somebody else, without a deadline."""

    waiting: tuple[str, ...]
    listening: tuple[str, ...]


Outcome: TypeAlias = Completed[T] | Sleeping | Blocked


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait that a pass reached and could not answer."""

    kind: Literal["value", "message", "time"]
    key: str
    due: datetime | None


def folded(waits: Iterable[Wait]) -> Sleeping | Blocked:
    """Give the outcome of a pass that suspended: the earliest deadline wins, ties go to the least key. [RUN-RESUME-OUTCOME]"""
    reached = sorted(waits, key=lambda wait: wait.key)
    waiting = tuple(wait.key for wait in reached if wait.kind != "message")
    listening = tuple(wait.key for wait in reached if wait.kind == "message")
    dues = [(wait.due, wait.key) for wait in reached if wait.due is not None]
    if not dues:
        return Blocked(waiting, listening)
    due, key = min(dues)
    return Sleeping(key, due, waiting, listening)
