"""What happened in a life without a crash, and a watch that makes the same things happen again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from durable_core._memory import MemoryEffect
from durable_core._watched import Branch
from durable_core.errors import DurableError

Count: TypeAlias = Callable[[], int]


@dataclass(slots=True, eq=False)
class Attempt:
    """One run of an effect: what it gave, and how many records there were when it began and ended.

    `passed_over` is that number when the body, after it had failed, went on to another name.
    """

    key: str
    branch: Branch | None
    life: int
    began: int
    effect: Callable[[], Awaitable[object]] | None
    ended: int | None = None
    kind: Literal["value", "raised", "unfinished"] = "unfinished"
    value: object = None
    error: BaseException | None = None
    passed_over: int | None = None


class Story:
    """The watch of the life without a crash. `count` gives how many records there are."""

    def __init__(self) -> None:
        self.count: Count = lambda: 0
        self.attempts: dict[str, list[Attempt]] = {}
        self.asked_last: dict[str, None] = {}
        self.is_concurrent = False
        self.again: list[str] = []
        self._passes = 0
        self._root: Branch | None = None
        self._branches: dict[str, Branch] = {}

    def __repr__(self) -> str:
        return f"<Story of {sum(map(len, self.attempts.values()))} effects in {self._passes} passes>"

    def begin(self) -> None:
        """A pass begins."""
        self._passes += 1
        self.asked_last, self._root = {}, None

    def asked(self, key: str, branch: Branch, /) -> None:
        """The body asked for a name."""
        if self._root is None:
            self._root = branch
        self.is_concurrent = self.is_concurrent or branch is not self._root
        self.asked_last[key] = None
        self._branches[key] = branch
        for attempt in self._failed():
            if attempt.key != key and attempt.branch is not None and branch.is_above(attempt.branch):
                attempt.passed_over = self.count()

    async def ran(self, key: str, effect: Callable[[], Awaitable[object]], /) -> object:
        """A step's effect runs."""
        attempt = self._began(key, effect)
        try:
            attempt.value = await effect()
            attempt.kind = "value"
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            attempt.kind, attempt.error = "raised", error
            raise
        finally:
            attempt.ended = self.count()
        return attempt.value

    def applied(self, key: str, effect: MemoryEffect, data: dict[str, object], /) -> object:
        """An effect of the store is applied."""
        attempt = self._began(key, None)
        try:
            attempt.value = effect(data)
            attempt.kind = "value"
        except BaseException as error:
            attempt.kind, attempt.error = "raised", error
            raise
        finally:
            attempt.ended = self.count()
        return attempt.value

    def _began(self, key: str, effect: Callable[[], Awaitable[object]] | None) -> Attempt:
        attempt = Attempt(key, self._branches.get(key), self._passes, self.count(), effect)
        made = self.attempts.setdefault(key, [])
        if any(is_behind(earlier, attempt.began) and earlier.life != self._passes for earlier in made):
            self.again.append(key)
        made.append(attempt)
        return attempt

    def _failed(self) -> list[Attempt]:
        """Give what failed in this pass, recorded nothing, and was not passed over yet."""
        return [
            made[-1]
            for made in self.attempts.values()
            if made[-1].life == self._passes
            and made[-1].ended is not None
            and made[-1].kind != "value"
            and made[-1].passed_over is None
        ]


def is_behind(attempt: Attempt, records: int) -> bool:
    """Say whether the body had gone on, and recorded something, after an attempt failed, when there were so many records."""
    return attempt.passed_over is not None and attempt.passed_over < records


@dataclass(slots=True)
class Again:
    """The watch of a life that goes on after a crash: every effect gives what it gave in the story, and none runs."""

    story: Story
    crashed_at: int
    landed: frozenset[str] = frozenset()
    faults: list[str] = field(default_factory=list[str])
    asked_last: dict[str, None] = field(default_factory=dict[str, None])
    is_concurrent: bool = False
    _made: dict[str, int] = field(default_factory=dict[str, int])
    _root: Branch | None = None

    def begin(self) -> None:
        """A pass begins."""
        self.asked_last, self._root = {}, None

    def asked(self, key: str, branch: Branch, /) -> None:
        """The body asked for a name."""
        if self._root is None:
            self._root = branch
        self.is_concurrent = self.is_concurrent or branch is not self._root
        self.asked_last[key] = None

    async def ran(self, key: str, effect: Callable[[], Awaitable[object]], /) -> object:
        """A step's effect would run."""
        attempt = self._next(key)
        if attempt.kind == "unfinished":
            await asyncio.get_running_loop().create_future()
        return _given(attempt)

    def applied(self, key: str, effect: MemoryEffect, data: dict[str, object], /) -> object:
        """An effect of the store would be applied."""
        return _given(self._next(key))

    def _next(self, key: str) -> Attempt:
        made = self.story.attempts.get(key)
        if made is None:
            self.faults.append(f"it ran the step {key!r}, which it did not without the crash")
            raise DurableError(f"step {key!r} has no place in the story")
        past = [attempt for attempt in made if attempt.ended is not None and attempt.ended < self.crashed_at]
        if any(is_behind(attempt, self.crashed_at) for attempt in past):
            self.faults.append(ran_again(key))
        number = self._made.get(key, 0)
        self._made[key] = number + 1
        return made[min(len(past) + number, len(made) - 1)]


def ran_again(key: str) -> str:
    """Say what is wrong with a failure that the body goes by and that is not recorded."""
    return (
        f"the effect of step {key!r} failed, the body went on to something else, and on a later pass the effect ran again: "
        f"declare what it raises, step({key!r}, …, failures=(…,)), or do not go on"
    )


def _given(attempt: Attempt) -> object:
    if attempt.error is not None:
        raise attempt.error
    return attempt.value
