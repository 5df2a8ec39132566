"""Calls at work, waits held, and the moment at which a pass suspends or ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from datetime import datetime
from threading import get_ident
from weakref import WeakSet

from durable_core.errors import (
    AwaitingMessage,
    AwaitingTime,
    AwaitingValue,
    Contended,
    Fenced,
    Interruption,
    Misconfigured,
    Suspended,
)
from durable_core.outcome import Wait

# One level of nested task groups takes at most four turns of the loop to unwind; these hold past twenty and sixty levels.
_TURNS_ALONE = 96
_TURNS_SHARED = 256
_DAY = 86_400.0


class Ended(asyncio.CancelledError):
    """Ends, quietly, a task that still uses the run of a pass that is over. [RUN-CLOSED]"""


class _Inside:
    """The effect that a context belongs to, and the one that this one runs in."""

    __slots__ = ("key", "outer", "settle")

    def __init__(self, settle: Settle, key: str, outer: _Inside | None) -> None:
        self.settle, self.key, self.outer = settle, key, outer


_inside: ContextVar[_Inside | None] = ContextVar("durable_inside_effect", default=None)


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

    def __init__(self, workflow: str, clock: Callable[[], datetime], patience: float) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self._workflow, self._clock, self._patience = workflow, clock, patience
        self._inside: dict[asyncio.Task[object], int] = {}
        self._stopped: set[asyncio.Task[object]] = set()
        self._others: WeakSet[asyncio.Task[object]] = WeakSet()
        self._working = 0
        self._held: dict[_Held, None] = {}
        self._moves = self._seen = self._left = 0
        self._watching = self._shared = self._returned = self._ended = False
        self._quiet: asyncio.Future[None] | None = None
        self._body: asyncio.Task[object] | None = None
        self._hurry: asyncio.TimerHandle | None = None
        self._failures: dict[str, BaseException] = {}
        self.noted: tuple[Wait, ...] = ()
        self.lost: Fenced | Contended | None = None
        self.lost_seen: bool = False

    def __repr__(self) -> str:
        state = "ended" if self._ended else "lost" if self.lost else "suspended" if self.noted else "open"
        return f"<Settle {state}, {self._working} at work, {len(self._held)} held>"

    def began(self, body: asyncio.Task[object]) -> None:
        """Learn which task is the body's own."""
        self._body = body

    def reached(self) -> None:
        """Note that a call was reached; end the task of a caller that came after the end of the pass."""
        if self._ended:
            raise Ended(f"the pass of workflow {self._workflow!r} is over")
        if get_ident() != self._thread:  # where one loop runs at a time, this one or, after its end, another
            raise self._elsewhere()
        self._moves += 1
        task = self._current()
        if task is not self._body:
            self._shared = True
            self._others.add(task)

    def _current(self) -> asyncio.Task[object]:
        task = asyncio.current_task(self._loop)
        if task is None:
            raise self._elsewhere()
        return task

    def _elsewhere(self) -> Misconfigured:
        return Misconfigured(
            f"the run of workflow {self._workflow!r} belongs to another event loop, or is used outside any task: "
            "call it from the body's own loop, inside a task"
        )

    def refuse_suspended(self) -> None:
        """Refuse to start an effect once the pass is suspended or has lost its workflow."""
        if self.lost is not None:
            self.lost_seen = True
            raise _copied(self.lost)
        if self.noted:
            raise _suspension(self._workflow, self.noted[0])

    def into_effect(self, key: str) -> Token[_Inside | None]:
        """Mark this context as an effect's."""
        return _inside.set(_Inside(self, key, _inside.get()))

    def out_of_effect(self, token: Token[_Inside | None]) -> None:
        """Undo `into_effect`."""
        _inside.reset(token)

    def _refuse_inside(self, wait: Wait) -> None:
        """Refuse a wait inside an effect: the effect is at work, so the pass could never suspend."""
        inside = _inside.get()
        while inside is not None and inside.settle is not self:
            inside = inside.outer
        if inside is not None:
            raise Misconfigured(
                f"the effect of step {inside.key!r} of workflow {self._workflow!r} waits for {wait.key!r}: "
                "wait before the step, and hand the effect what came"
            )

    def enter(self) -> asyncio.Task[object]:
        """Begin a call."""
        task = self._current()
        self._working += 1
        self._moves += 1
        self._inside[task] = self._inside.get(task, 0) + 1
        return task

    def leave(self, task: asyncio.Task[object], key: str, error: BaseException | None = None) -> None:
        """End a call; an error that ends one after the body returned is the body's."""
        self._working -= 1
        self._moves += 1
        if self._inside[task] > 1:
            self._inside[task] -= 1
        else:
            del self._inside[task]
            self._stopped.discard(task)
        if error is None:
            self._failures.pop(key, None)
        elif isinstance(error, Interruption):
            task.add_done_callback(_retrieved)
            if isinstance(error, (Fenced, Contended)):
                self.lose(error)
                self.lost_seen = self.lost_seen or not self._returned
        elif self._returned and not isinstance(error, asyncio.CancelledError):
            task.add_done_callback(_retrieved)
            self._failures[key] = error
        if not self._working:
            self._watch()

    async def hold(self, wait: Wait, task: asyncio.Task[object]) -> None:
        """Hold the branch until the deadline of the wait, and be at work again; raises when the pass suspends or is lost."""
        self.refuse_suspended()
        self._refuse_inside(wait)
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
            del held, task  # they hold the suspension, which holds this frame

    def lose(self, why: Fenced | Contended) -> None:
        """Note that the workflow is lost: every held wait raises, and every other call of the pass is cancelled."""
        if self.lost is not None:
            return
        self.lost = _copied(why)
        for held in list(self._held):
            self.lost_seen = self.lost_seen or not self._returned
            self._fail(held, _copied(why))
            self._stopped.add(held.task)
        self._stop(task for task in self._inside if task is not asyncio.current_task())
        self._hasten()

    def stop_body(self) -> None:
        """End the body, wherever it is."""
        if self._body is not None:
            self._stop((self._body,))

    def lost_now(self) -> Fenced | Contended | None:
        """Give the loss, to raise it."""
        return None if self.lost is None else _copied(self.lost)

    def forget(self) -> None:
        """Let go of the body's task."""
        self._body = None

    def returned(self) -> None:
        """The body returned: a call that fails from now on fails in its stead."""
        self._returned = True

    async def drained(self) -> tuple[Wait, ...]:
        """Wait until no call is at work, and give the waits that are still held."""
        if self._working or self._held or not all(task.done() for task in self._others):
            self._quiet = self._loop.create_future()
            self._watch()
            await self._quiet
        return tuple(held.wait for held in self._held)

    def failure(self) -> BaseException | None:
        """Give, once, what calls raised after the body had returned."""
        failures, self._failures = list(self._failures.values()), {}
        if len(failures) > 1:
            return BaseExceptionGroup("several calls failed after the body had returned", failures)
        return failures[0] if failures else None

    async def end(self) -> None:
        """Close the run: cancel the tasks that are inside a call and wait for those calls to end."""
        if self._ended:  # somebody is impatient
            self._stopped.clear()
        self._ended = True
        if self._hurry is not None:
            self._hurry.cancel()
        self._stop(self._inside)
        while self._inside:
            self._quiet = self._loop.create_future()
            self._watch()
            await self._quiet

    def _stop(self, tasks: Iterable[asyncio.Task[object]]) -> None:
        """Cancel tasks, once: a second cancellation would interrupt what an effect does about the first."""
        for task in [task for task in tasks if task not in self._stopped]:
            self._stopped.add(task)
            task.cancel()

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
        left = (held.wait.due - self._clock()).total_seconds()
        if left <= 0:
            self._answer(held)
        else:
            held.timer = self._loop.call_later(min(left, _DAY), self._arm, held)

    def _answer(self, held: _Held) -> None:
        self._resume(held)
        if not held.future.done():
            held.future.set_result(None)

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
        now = self._clock()
        overdue = [held for held in self._held if held.wait.due is not None and held.wait.due <= now]
        for held in overdue:
            self._answer(held)
        if overdue:
            return
        self.noted = tuple(held.wait for held in self._held)
        for held in list(self._held):
            self._fail(held, _suspension(self._workflow, held.wait))
        self._hasten()

    def _hasten(self) -> None:
        """End, after a while, a body that waits for something that cannot come any more: what holds it has raised."""
        self._hurry = self._loop.call_later(self._patience, self.stop_body)


def _suspension(workflow: str, wait: Wait) -> Suspended:
    if wait.kind == "message":
        return AwaitingMessage(workflow, wait.key)
    if wait.kind == "time" and wait.due is not None:
        return AwaitingTime(workflow, wait.key, wait.due)
    return AwaitingValue(workflow, wait.key)


def _copied(lost: Fenced | Contended) -> Fenced | Contended:
    """Give it without its traceback, which holds the frames of the pass."""
    if isinstance(lost, Contended):
        return Contended(lost.workflow, lost.key)
    return Fenced(lost.workflow, lost.token, lost.key)


def _retrieved(task: asyncio.Task[object]) -> None:
    """Take note of what a task raised that nobody may await: the pass itself reports it."""
    if not task.cancelled():
        task.exception()
