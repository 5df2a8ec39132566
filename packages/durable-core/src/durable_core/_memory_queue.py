"""Which workflow is due next, and who sleeps until one is: the parts of the memory double that are not the contract's."""

from __future__ import annotations

import asyncio
import heapq
from datetime import datetime

from durable_core.reference import Wakeup


class Sleeper:
    """One task that waits in its event loop and may be woken from any thread."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """End the sleep, or the next one."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # its loop is closed, and nobody sleeps there
            pass

    def rest(self) -> None:
        """Forget earlier wakings; what is looked at afterwards is newer than they were."""
        self._event.clear()

    async def sleep(self, seconds: float | None) -> None:
        """Sleep until woken, or for so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass


class Queue:
    """The wakeups of one queue, the longest due first.

    A heap of hints says when to look at which workflow; a hint that no longer fits its wakeup is dropped when it is met. A
    workflow that is due while its claim is live is parked until the claim ends. Guarded by the lock of the memory it belongs to.
    """

    def __init__(self) -> None:
        self.wakeups: dict[str, Wakeup] = {}
        self.sleepers: set[Sleeper] = set()
        self._hints: list[tuple[datetime, int, str]] = []
        self._parked: set[str] = set()
        self._drawn = 0

    def put(self, workflow: str, wakeup: Wakeup | None, now: datetime) -> None:
        """Set or remove a workflow's wakeup."""
        before = self.wakeups.get(workflow)
        if wakeup is None:
            self.wakeups.pop(workflow, None)
            self._parked.discard(workflow)
            return
        self.wakeups[workflow] = wakeup
        hinted = before is not None and before.reason is None and before.due == wakeup.due
        if wakeup.reason is None and not hinted:
            self._hint(wakeup.due, workflow, now)

    def pop(self, now: datetime) -> str | None:
        """Give the workflow that is due longest; it is put or parked next."""
        while self._hints and self._hints[0][0] <= now:
            hinted, _, workflow = heapq.heappop(self._hints)
            wakeup = self.wakeups.get(workflow)
            if wakeup is not None and wakeup.reason is None and wakeup.due <= hinted:
                self._parked.discard(workflow)
                return workflow
        return None

    def park(self, workflow: str, until: datetime, now: datetime) -> None:
        """Look at a workflow again when its claim ends, at that instant at the latest."""
        self._hint(until, workflow, now)
        self._parked.add(workflow)

    def unpark(self, workflow: str, now: datetime) -> None:
        """Look at a workflow now, if it is parked."""
        if workflow in self._parked:
            self._parked.discard(workflow)
            self._hint(self.wakeups[workflow].due, workflow, now)

    def next_due(self) -> datetime | None:
        """Give when to look again at the latest, unless woken."""
        return self._hints[0][0] if self._hints else None

    def _hint(self, due: datetime, workflow: str, now: datetime) -> None:
        if len(self._hints) > 64 + 4 * len(self.wakeups):
            self._forget_stale_hints()
        self._drawn += 1
        heapq.heappush(self._hints, (due, self._drawn, workflow))
        if due <= now or self._hints[0][1] == self._drawn:
            for sleeper in self.sleepers:
                sleeper.wake()

    def _forget_stale_hints(self) -> None:
        """What was parked is simply looked at again."""
        self._parked.clear()
        live = (workflow for workflow, wakeup in self.wakeups.items() if wakeup.reason is None)
        self._hints = [(self.wakeups[workflow].due, position, workflow) for position, workflow in enumerate(live)]
        self._drawn = len(self._hints)
        heapq.heapify(self._hints)
