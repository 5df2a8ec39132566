"""One timer that gives a sign of life for every turn of a worker, three times per liveness window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

from durable_core._live import Live
from durable_core._outage import Outage
from durable_core.contract import Durable
from durable_core.errors import Fenced
from durable_core.observer import log

E = TypeVar("E")


class Heartbeat(Generic[E]):
    """Renews turns, and ends the passes of those that are lost. [RUN-WORK]

    A renewal that is not answered is asked again; it ends the pass only when the whole window is over. `look` is how often to
    look where real time says nothing about the store's clock, and `None` where it does.
    """

    def __init__(
        self, durable: Durable[E], lease: timedelta, monotonic: Callable[[], float], outage: Outage, look: float | None
    ) -> None:
        self._durable, self._monotonic, self._outage, self._look = durable, monotonic, outage, look
        self._loop = asyncio.get_running_loop()
        self._lease, self._third = lease.total_seconds(), lease.total_seconds() / 3
        self._live: dict[Live, None] = {}
        self._renewals: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Heartbeat of {len(self._live)} turns, {len(self._renewals)} renewals under way>"

    def add(self, live: Live) -> None:
        """Begin to renew a turn."""
        self._live[live] = None
        if self._timer is None:
            self._arm()

    def remove(self, live: Live) -> None:
        """End to renew it."""
        self._live.pop(live, None)

    async def end(self) -> None:
        """End the renewals that are under way."""
        if self._timer is not None:
            self._timer.cancel()
        for renewal in self._renewals:
            renewal.cancel()
        if self._renewals:
            await asyncio.wait(self._renewals)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._live:
            left = min(live.due for live in self._live) - self._monotonic()
            self._timer = self._loop.call_later(max(left, 0.0) if self._look is None else self._look, self._tick)

    def _tick(self) -> None:
        late = 0.0 if self._timer is None else self._loop.time() - self._timer.when()
        if late >= self._third:
            log.warning(
                "the event loop was blocked for %.3f s, and turns are renewed every %.3f s: use in_thread for what blocks",
                late,
                self._third,
                extra={"durable_blocked": late, "durable_lease": self._lease},
            )
        now = self._monotonic()
        for live in list(self._live):
            if live.due <= now:
                # After a blocked loop an answer may be here already, unread.
                live.due = now + self._third / 4 if late >= self._third / 2 and live.asked else self._seen(live, now)
        self._timer = None
        self._arm()

    def _seen(self, live: Live, now: float) -> float:
        """Renew the turn, or give it up; gives when to look at it again."""
        if live.is_answering or (live.asked and live.pulse.window_left <= 0):
            live.lose()
        elif not live.lost:
            if live.renewal is not None:
                live.renewal.cancel()
            live.asked = True
            live.renewal = asyncio.create_task(self._renew(live))
            self._renewals.add(live.renewal)
            live.renewal.add_done_callback(self._renewals.discard)
            if live.pulse.window_left > 0:
                return now + min(self._third, live.pulse.window_left)
        return now + self._third

    async def _renew(self, live: Live) -> None:
        sent = self._monotonic()
        try:
            renewed = await self._durable.renew(live.turn)
        except Fenced:
            renewed = None
        except Exception as error:
            self._try_again(live, self._outage.lost("renew", error))
            return
        finally:
            if live.renewal is asyncio.current_task():
                live.renewal = None
        self._outage.answered("renew")
        if renewed is not None:
            live.turn, live.asked = renewed, False
            live.pulse.confirm(sent)
            if not live.is_answering:
                live.due = sent + self._third
        elif not live.is_answering:  # then the answer itself finds out
            live.lose()

    def _try_again(self, live: Live, delay: float) -> None:
        left = live.pulse.window_left
        if live in self._live and not live.is_answering and not live.lost:
            live.due = self._monotonic() + (min(delay, left) if left > 0 else delay)
            self._arm()
