"""A run that tells what its body asks for, and hands every effect to somebody who decides what becomes of it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Protocol, TypeVar, TypeVarTuple

from durable_core._memory import MemoryEffect
from durable_core._thread import ReturnedLate
from durable_core._work import refuse_effect
from durable_core.parsing import Parser
from durable_core.run import Run

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Branch:
    """One task of a body, below the one that made it."""

    __slots__ = ("above", "task")

    def __init__(self, task: asyncio.Task[object] | None, above: Branch | None) -> None:
        self.task, self.above = task, above

    def is_above(self, other: Branch) -> bool:
        """Say whether it is the other one, or waits for it."""
        below: Branch | None = other
        while below is not None:
            if below is self:
                return True
            below = below.above
        return False


_branch: ContextVar[Branch | None] = ContextVar("durable_branch", default=None)


class Watch(Protocol):
    """Who is told."""

    def asked(self, key: str, branch: Branch, /) -> None:
        """The body asked for a name."""
        ...

    async def ran(self, key: str, effect: Callable[[], Awaitable[object]], /) -> object:
        """A step wants its effect to run."""
        ...

    def applied(self, key: str, effect: MemoryEffect, data: dict[str, object], /) -> object:
        """The store is about to apply an effect."""
        ...


class Watched(Run[MemoryEffect]):
    """The run of a pass with somebody beside it."""

    def __init__(self, run: Run[MemoryEffect], watch: Watch) -> None:
        self.__dict__ = run.__dict__  # one run with two faces
        self._watch = watch

    async def step(
        self,
        key: str,
        effect: Callable[[*Ts], Awaitable[object]],
        parse: Parser[T],
        /,
        *args: *Ts,
        within: timedelta | None = None,
        timeout: timedelta | None = None,
        at_most_once: bool = False,
        failures: tuple[type[Exception], ...] = (),
    ) -> T:
        """As `Run.step`; the effect runs as its watch decides."""
        refuse_effect(key, effect)

        async def watched() -> object:
            return await self._watch.ran(key, functools.partial(_in_time, functools.partial(effect, *args)))

        return await super().step(
            key, watched, parse, within=within, timeout=timeout, at_most_once=at_most_once, failures=failures
        )

    async def transact(self, key: str, effect: MemoryEffect, parse: Parser[T], *, within: timedelta | None = None) -> T:
        """As `Run.transact`; the effect is applied as its watch decides."""
        return await super().transact(key, lambda data: self._watch.applied(key, effect, data), parse, within=within)

    def _take(self, key: str, *, allow_input: bool = False) -> None:
        self._watch.asked(key, _current())
        super()._take(key, allow_input=allow_input)


def watched(body: Callable[[Run[MemoryEffect]], Awaitable[T]], watch: Watch) -> Callable[[Run[MemoryEffect]], Awaitable[T]]:
    """Give the body with somebody beside it."""

    async def with_watch(run: Run[MemoryEffect]) -> T:
        _branch.set(Branch(asyncio.current_task(), None))
        return await body(Watched(run, watch))

    return with_watch


def _current() -> Branch:
    task, branch = asyncio.current_task(), _branch.get()
    if branch is None or branch.task is not task:
        branch = Branch(task, branch)
        _branch.set(branch)
    return branch


async def _in_time(effect: Callable[[], Awaitable[object]]) -> object:
    try:
        return await effect()
    except ReturnedLate as late:
        return late.value
