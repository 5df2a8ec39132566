"""How a case says what was promised and what it saw instead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import TypeVar, cast

from durable_core.codec import shortened
from durable_core.errors import Fenced

T = TypeVar("T")
X = TypeVar("X", bound=BaseException)


good_time: ContextVar[timedelta] = ContextVar("good_time", default=timedelta(seconds=5))
"""How long a call may take that need not wait for anything, on a machine that is busy."""


class Broken(AssertionError):
    """A promise was seen broken: what was promised, and what was seen."""

    def __init__(self, promised: str, seen: str) -> None:
        super().__init__(promised, seen)
        self.promised, self.seen = promised, seen

    def __str__(self) -> str:
        return f"promised: {self.promised}; seen: {self.seen}"


class NotShown(Exception):
    """The case could not show its clause here, and why: neither held nor broken."""


def holds(condition: bool, promised: str, seen: object) -> None:
    """Ask for a condition."""
    if not condition:
        raise Broken(promised, seen if isinstance(seen, str) else shortened(seen, 600))


def same(seen: object, promised: object, what: str) -> None:
    """Ask for an equal value of the same types at every level: 1, 1.0 and True are three values."""
    if not alike(seen, promised):
        raise Broken(f"{what}: {shortened(promised, 600)}", shortened(seen, 600))


def mapping(value: object) -> Mapping[object, object]:
    """Give a value that is known to be a mapping as one."""
    assert isinstance(value, Mapping)
    return cast("Mapping[object, object]", value)  # of whatever it maps, it maps objects


def sequence(value: object) -> Sequence[object]:
    """Give a value that is known to be a list or a tuple as a sequence."""
    assert isinstance(value, (list, tuple))
    return cast("Sequence[object]", value)  # of whatever it holds, it holds objects


def alike(one: object, other: object) -> bool:
    """Say whether two values are equal, type for type at every level; mappings also in their order."""
    if type(one) is not type(other):
        return False
    kind = type(one)
    if issubclass(kind, dict):
        return alike(list(mapping(one).items()), list(mapping(other).items()))
    if issubclass(kind, (list, tuple)):
        firsts, seconds = sequence(one), sequence(other)
        return len(firsts) == len(seconds) and all(alike(a, b) for a, b in zip(firsts, seconds, strict=True))
    return one == other


class NotApplicable(Exception):
    """The store has no such thing, and why."""


async def raises(call: Awaitable[object], kind: type[X], what: str) -> X:
    """Ask for an exception, and give it."""
    try:
        answer = await call
    except kind as raised:
        return raised
    except asyncio.CancelledError:
        raise
    except BaseException as raised:
        if isinstance(raised, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            raise
        raise Broken(f"{what}: raises {kind.__name__}", f"{type(raised).__name__}: {raised}") from raised
    raise Broken(f"{what}: raises {kind.__name__}", f"it answered {shortened(answer)}")


async def fenced(call: Awaitable[object], what: str) -> Fenced:
    """Ask for `Fenced`."""
    return await raises(call, Fenced, what)


async def answers(call: Awaitable[T], what: str, *, times: int = 1) -> T:
    """Ask for an answer in good time, whatever it is: an exception or a silence is what was seen instead.

    `times` is for a call that may take so many times as long as one.
    """
    within = good_time.get() * times
    limit = asyncio.timeout(within.total_seconds())
    try:
        async with limit:
            return await call
    except TimeoutError as late:
        if limit.expired():
            raise Broken(f"{what}: answers", f"no answer in {within.total_seconds():g} s") from late
        raise Broken(f"{what}: answers", f"{type(late).__name__}: {late}") from late
    except Broken:
        raise
    except (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as raised:
        raise Broken(f"{what}: answers", f"{type(raised).__name__}: {raised}") from raised
