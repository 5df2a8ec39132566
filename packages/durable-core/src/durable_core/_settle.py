"""Calls at work, waits held, and the moment at which a pass suspends or ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from durable_core.errors import AwaitingMessage, AwaitingTime, AwaitingValue, Fenced, Suspended
from durable_core.outcome import Wait

# One level of nested task groups takes at most four turns of the loop to unwind; these hold past twenty and sixty levels.
_TURNS_ALONE = 96
_TURNS_SHARED = 256
_DAY = 86_400.0


class Ended(asyncio.CancelledError):
    """Ends, quietly, a task that still uses the run of a pass that is over. [RUN-CLOSED]"""


class _Held:
    """A wait that holds its branch."""

    __slots__ = ("future", "task", "timer", "wait")

    def __init__(self, wait: Wait, task: asyncio.Task[object], future: asyncio.Future[None]) -> None:
        self.wait, self.task, self.future = wait, task, future
        self.timer: asyncio.TimerHandle | None = None


class Settle:
    """Counts the calls of one pass. [RUN-SUSPEND-SETTLE] [RUN-SUSPEND-NOTED] [RUN-CLOSED]

    A call is at work from `enter` to `leave`, but while it holds. When nothing is at work and something is held, the loop is
    given the turns that deeply nested groups need; if nothing moved by then, the pass suspends.
    """

    def __init__(self, workflow: str, clock: Callable[[], datetime]) -> None:
        self._loop = asyncio.get_running_loop()
        self._workflow, self._clock = workflow, clock
        self._inside: dict[asyncio.Task[object], int] = {}
        self._working = 0
        self._held: dict[_Held, None] = {}
        self._moves = self._seen = self._left = 0
        self._watching = self._shared = self._returned = self._ended = False
        self._quiet: asyncio.Future[None] | None = None
        self._body: asyncio.Task[object] | None = None
        self._failures: dict[str, Exception] = {}
        self.noted: tuple[Wait, ...] = ()
        self.lost: Fenced | None = None
        self.lost_seen = False

    def __repr__(self) -> str:
        state = "ended" if self._ended else "lost" if self.lost else "suspended" if self.noted else "open"
        return f"<Settle {state}, {self._working} at work, {len(self._held)} held>"

    def began(self, body: asyncio.Task[object]) -> None:
        """Learn which task is the body's own."""
        self._body = body

    def refuse_ended(self) -> None:
        """End the task of a caller that came after the end of the pass, or from another event loop."""
        if self._ended:
            raise Ended(f"the pass of workflow {self._workflow!r} is over")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                f"the run of workflow {self._workflow!r} belongs to another event loop: call it from the body's own"
            )

    def refuse_suspended(self) -> None:
        """Refuse to start an effect once the pass is suspended or has lost its workflow."""
        if self.lost is not None:
            self.lost_seen = True
            raise _copy(self.lost)
        if self.noted:
            raise _suspension(self._workflow, self.noted[0])

    def enter(self) -> asyncio.Task[object]:
        """Begin a call."""
        task = _current()
        self._working += 1
        self._moves += 1
        self._inside[task] = self._inside.get(task, 0) + 1
        if task is not self._body:
            self._shared = True
        return task

    def leave(self, task: asyncio.Task[object], key: str, error: BaseException | None = None) -> None:
        """End a call; an error that ends one after the body returned is the body's."""
        self._working -= 1
        self._moves += 1
        if self._inside[task] > 1:
            self._inside[task] -= 1
        else:
            del self._inside[task]
        if isinstance(error, Fenced):
            self.lose(error)
            self.lost_seen = True
        elif self._returned and isinstance(error, Exception):
            self._failures[key] = error
        elif error is None:
            self._failures.pop(key, None)
        if not self._working:
            self._watch()

    async def hold(self, wait: Wait, task: asyncio.Task[object]) -> None:
        """Hold the branch: returns, at work again, when the deadline of the wait passes, and raises when the pass suspends or is lost."""
        self.refuse_suspended()
        held = _Held(wait, task, self._loop.create_future())
        self._held[held] = None
        self._working -= 1
        self._arm(held)
        self._watch()
        try:
            await held.future
        finally:
            self._resume(held)
            if held.timer is not None:
                held.timer.cancel()

    def lose(self, why: Fenced) -> None:
        """Note that the workflow is lost: every held wait raises, and every other call of the pass is cancelled."""
        if self.lost is not None:
            return
        self.lost = why
        spared = {asyncio.current_task(), self._body}
        for held in list(self._held):
            self.lost_seen = True
            self._fail(held, _copy(why))
            spared.add(held.task)
        for task in list(self._inside):
            if task not in spared:
                task.cancel()

    def returned(self) -> None:
        """The body returned: a call that fails from now on fails in its stead."""
        self._returned = True

    async def drained(self) -> tuple[Wait, ...]:
        """Wait until no call is at work, and give the waits that are still held, or raise what a late call raised."""
        if self._working or self._held or self._shared:
            self._quiet = self._loop.create_future()
            self._watch()
            await self._quiet
        if self.lost is None and self._failures:
            raise _joined(list(self._failures.values()))
        return tuple(held.wait for held in self._held)

    async def end(self) -> None:
        """Close the run: cancel the tasks that are inside a call and wait for those calls to end."""
        self._ended = True
        for task in list(self._inside):
            task.cancel()
        while self._inside:
            self._quiet = self._loop.create_future()
            self._watch()
            await self._quiet

    def _resume(self, held: _Held) -> None:
        """Take a wait that ends out of the held ones; its call is at work again."""
        if self._held.pop(held, self) is None:
            self._working += 1
            self._moves += 1

    def _fail(self, held: _Held, error: BaseException) -> None:
        self._resume(held)
        if not held.future.done():
            held.future.set_exception(error)

    def _arm(self, held: _Held) -> None:
        if held.wait.due is None:
            return
        left = (held.wait.due - self._clock()) / timedelta(seconds=1)
        if left <= 0:
            self._resume(held)
            if not held.future.done():
                held.future.set_result(None)
        else:
            held.timer = self._loop.call_later(min(left, _DAY), self._arm, held)

    def _watch(self) -> None:
        """Begin to count turns, when nothing is at work and somebody wants to know."""
        if self._working or self._watching:
            return
        if self._quiet is not None or (self._held and not self.noted):
            self._watching = True
            self._seen = -1
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._working:
            self._watching = False
            return
        if self._seen != self._moves:
            self._seen = self._moves
            self._left = 1 if self._ended else _TURNS_SHARED if self._shared else _TURNS_ALONE
        self._left -= 1
        if self._left > 0:
            self._loop.call_soon(self._turn)
            return
        self._watching = False
        if self._quiet is not None:
            quiet, self._quiet = self._quiet, None
            if not quiet.done():
                quiet.set_result(None)
        elif self._held and not self.noted:
            self._suspend()

    def _suspend(self) -> None:
        self.noted = tuple(held.wait for held in self._held)
        for held in list(self._held):
            self._fail(held, _suspension(self._workflow, held.wait))


def _suspension(workflow: str, wait: Wait) -> Suspended:
    if wait.kind == "message":
        return AwaitingMessage(workflow, wait.key)
    if wait.kind == "time" and wait.due is not None:
        return AwaitingTime(workflow, wait.key, wait.due)
    return AwaitingValue(workflow, wait.key)


def _copy(lost: Fenced) -> Fenced:
    return Fenced(lost.workflow, lost.token, lost.key)


def _joined(failures: list[Exception]) -> Exception:
    return failures[0] if len(failures) == 1 else ExceptionGroup("several calls failed after the body had returned", failures)


def _current() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a run is used from inside a task")
    return task
