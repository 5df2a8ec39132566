"""Waiting for something to take, in one partition or in many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.exceptions import RedisClusterException, RedisError

from durable_redis._bell import Bell

T = TypeVar("T")

_NEVER = float("inf")
_DOWN = 1.0  # seconds that a partition is left alone which could not be reached
_MOST = 3_600.0  # seconds that a timer is set for at most
_HEAD_START = 8  # turns of the loop for what was given, before the next look; sending makes room for the server's process


class Partitions:
    """Looks into partitions in turn, each time beginning with another. [SCH-NEXT-WAIT]

    One that cannot be reached is left alone for a while, so that the workflows of the others go on.
    """

    def __init__(self, bell: Bell, count: int) -> None:
        self._bell, self._count = bell, count
        self._first = 0
        self._down = [0.0] * count
        self._gave = False

    async def first(self, look: Callable[[int], Awaitable[tuple[T | None, float | None]]], wait: float, nothing: T) -> T:
        """Give what the first partition had that had anything.

        `look` gives that, or `None` and in how many seconds to look there again (`None`: only a change can tell). A partition is
        looked into once, and then when its bell has rung or its time has come. An error is raised when all of them had one.
        """
        deadline = time.monotonic() + wait
        if self._gave:
            self._gave = False
            for _ in range(_HEAD_START):
                await asyncio.sleep(0)
        due = [0.0] * self._count
        seen = list(self._bell.heard)
        while True:
            self._first = (self._first + 1) % self._count
            errors = list[Exception]()
            for step in range(self._count):
                place = (self._first + step) % self._count
                if max(due[place], self._down[place]) > time.monotonic():
                    continue
                try:
                    found, again = await look(place)
                except (RedisError, RedisClusterException, OSError) as error:
                    self._down[place] = time.monotonic() + _DOWN
                    errors.append(error)
                    continue
                self._down[place] = 0.0
                if found is not None:
                    self._gave = True
                    return found
                due[place] = _NEVER if again is None else time.monotonic() + again
            if errors and all(self._down):
                self._down = [0.0] * self._count
                raise errors[-1]
            left = deadline - time.monotonic()
            if left <= 0:
                return nothing
            soonest = min(max(one, down) for one, down in zip(due, self._down, strict=True))
            await self._bell.wait(seen, min(left, max(soonest - time.monotonic(), 0.0005), _MOST))
            for place, count in enumerate(self._bell.heard):
                if count != seen[place]:
                    seen[place], due[place] = count, 0.0
