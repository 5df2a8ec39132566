"""How sure a pass may be that it still holds its workflow, by monotonic time alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from durable_core.contract import Checkpointer, Pass
from durable_core.errors import Fenced


class Pulse:
    """The last confirmed sign of life and the granted budget of one pass. [RUN-STEP-BUDGET] [RUN-STEP-FRESH] [RUN-CLOCK]

    Both count from when a call was *sent*: the store granted no later than the reply and no earlier than the request. `arrived`
    is when the claim's reply came, so that `now()` is never ahead of the store.
    """

    def __init__(
        self, holder: Pass, budget: timedelta, alive: timedelta, monotonic: Callable[[], float], sent: float, arrived: float
    ) -> None:
        self.holder: Pass = holder
        self.budget: timedelta = budget
        self.alive: timedelta = alive
        self._monotonic, self._arrived = monotonic, arrived
        self._last = sent
        self._end = sent + budget.total_seconds()
        self._window, self._half = alive.total_seconds(), budget.total_seconds() / 2
        self._asking = asyncio.Lock()

    def __repr__(self) -> str:
        now = self._monotonic()
        return (
            f"<Pulse of {self.holder.workflow!r}, last sign {now - self._last:.3f} s ago, {self._end - now:.3f} s of budget left>"
        )

    @property
    def spent(self) -> bool:
        """Whether the granted budget is over."""
        return self._monotonic() >= self._end

    @property
    def window_left(self) -> float:
        """Seconds until the last confirmed sign of life is a whole window old; negative afterwards."""
        return self._last + self._window - self._monotonic()

    def monotonic(self) -> float:
        """Give the time that `confirm` and `wrote` count in."""
        return self._monotonic()

    def now(self) -> datetime:
        """Give the engine's clock, never ahead of the store's."""
        return self.holder.at + timedelta(seconds=max(0.0, self._monotonic() - self._arrived))

    def confirm(self, sent: float) -> None:
        """Note that the store accepted a renewal that was sent then."""
        self._last = max(self._last, sent)

    def wrote(self, sent: float) -> None:
        """Note that the store accepted a write; it may have kept a sign of life younger than a third of the window."""
        self.confirm(sent - self._window / 3)

    async def ready(self, checkpointer: Checkpointer, key: str, within: timedelta | None) -> None:
        """Make sure, until it returns, that the claim is held, and covers the effect that is about to run."""
        while self._is_short(within) or self.window_left < 0:
            async with self._asking:  # many branches at once need one answer
                if self._is_short(within):
                    await self._extend(checkpointer, key, within)
                elif self.window_left < 0:
                    await self._renew(checkpointer, key)

    def _is_short(self, within: timedelta | None) -> bool:
        return self._end - self._monotonic() < (self._half if within is None else within.total_seconds())

    async def _extend(self, checkpointer: Checkpointer, key: str, within: timedelta | None) -> None:
        # A window more than `within`, because the effect starts after the reply and is covered from the request.
        granted = self.budget if within is None else max(self.budget, within + self.alive)
        sent = self._monotonic()
        if not await checkpointer.extend(self.holder, granted, self.alive):
            raise Fenced(self.holder.workflow, self.holder.token, key)
        self.confirm(sent)
        self._end = max(self._end, sent + granted.total_seconds())

    async def _renew(self, checkpointer: Checkpointer, key: str) -> None:
        sent = self._monotonic()
        if not await checkpointer.renew(self.holder, self.alive):
            raise Fenced(self.holder.workflow, self.holder.token, key)
        self.confirm(sent)
