"""Waiting for something to take, in one partition or in many."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from durable_redis._bell import Bell

T = TypeVar("T")

_NEVER = float("inf")
_MOST = 3_600.0  # seconds that a timer is set for at most


class Partitions:
    """Looks into partitions in turn, each time beginning with another. [SCH-NEXT-WAIT]"""

    def __init__(self, bell: Bell, count: int) -> None:
        self._bell, self._count = bell, count
        self._first = 0

    async def first(self, look: Callable[[int], Awaitable[tuple[T | None, float | None]]], wait: float, nothing: T) -> T:
        """Give what the first partition had that had anything.

        `look` gives that, or `None` and in how many seconds to look there again (`None`: only a change can tell). A partition is
        looked into once, and then when its bell has rung or its time has come.
        """
        deadline = time.monotonic() + wait
        due = [0.0] * self._count
        seen = list(self._bell.heard)
        while True:
            self._first = (self._first + 1) % self._count
            for step in range(self._count):
                place = (self._first + step) % self._count
                if due[place] <= time.monotonic():
                    found, again = await look(place)
                    if found is not None:
                        return found
                    due[place] = _NEVER if again is None else time.monotonic() + again
            left = deadline - time.monotonic()
            if left <= 0:
                return nothing
            await self._bell.wait(seen, min(left, max(min(due) - time.monotonic(), 0.0005), _MOST))
            for place, count in enumerate(self._bell.heard):
                if count != seen[place]:
                    seen[place], due[place] = count, 0.0
