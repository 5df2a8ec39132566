"""One pass: load, call the body, and fold what it reached into an outcome."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeGuard, TypeVar, cast

from durable_core._pulse import Pulse
from durable_core._settle import Settle
from durable_core._work import is_closing
from durable_core.contract import Checkpointer, E_contra, Pass
from durable_core.errors import Contended, DurableError, Fenced, Misconfigured, NotEncodable, Suspended, Swallowed
from durable_core.keys import OUTCOME, check_duration
from durable_core.outcome import Completed, Outcome, Wait, folded
from durable_core.run import Run

if TYPE_CHECKING:
    from durable_core.observer import Observer

E = TypeVar("E")
T = TypeVar("T")

BUDGET = timedelta(minutes=15)
ALIVE = timedelta(minutes=1)


async def resume(
    checkpointer: Checkpointer[E],
    holder: Pass,
    body: Callable[[Run[E]], Awaitable[T]],
    *,
    budget: timedelta = BUDGET,
    alive: timedelta = ALIVE,
    records: Mapping[str, object] | None = None,
    observer: Observer | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Outcome[T]:
    """Advance a workflow by one pass, and give how it ended.

    `holder` is what `claim(workflow, budget, alive)` gave; the same two durations go here. Nothing renews the claim meanwhile
    but the steps themselves, and nothing records the outcome or releases: that is the `Worker`'s work, or the caller's.

    [RUN-RESUME-OUTCOME] It returns `Completed(value)`, the value as it crossed the codec, `Sleeping` or `Blocked`, naming all
        that the pass waits for, the same on every pass; the earliest deadline wins, ties go to the least key. A lost claim wins
        over everything; failures propagate without the suspensions that came along. On a workflow with an outcome it returns
        that without calling the body.
    [RUN-SUSPEND-BASE] `Fenced`, `Contended` and `Suspended` are `BaseException`s: `except Exception` does not absorb them.
    [RUN-SUSPEND-NOTED] From the moment the pass suspends its waits stand: a body that returns afterwards, or that returns
        having hidden a `Fenced` or `Contended`, is `Swallowed` with all keys named, whatever hid it.

    Raises: `Fenced`, `Contended`, `Swallowed`, `NotEncodable` for the body's value, and whatever the body raises.
    """
    check_duration(budget, "budget")
    check_duration(alive, "alive")
    arrived = monotonic()
    pulse = Pulse(holder, budget, alive, monotonic, arrived, arrived)
    found = await checkpointer.load(holder.workflow) if records is None else records
    return await Advance(checkpointer, pulse, found, observer).outcome(body)


class Advance(Generic[E_contra]):
    """A pass under way: `resume` and the worker's turn are both made of it."""

    def __init__(
        self,
        checkpointer: Checkpointer[E_contra],
        pulse: Pulse,
        records: Mapping[str, object],
        observer: Observer | None,
    ) -> None:
        self._workflow = pulse.holder.workflow
        self._checkpointer, self._pulse, self._records = checkpointer, pulse, records
        self._settle = Settle(self._workflow, pulse.now, pulse.alive.total_seconds())
        self._run = Run(checkpointer, pulse, self._settle, records, observer)

    def __repr__(self) -> str:
        return f"<Advance of {self._workflow!r}: {self._settle!r}>"

    @property
    def at_work(self) -> tuple[str, ...]:
        """The keys of the steps whose effects are running."""
        return self._run.at_work

    def when_unguarded(self, call: Callable[[], object]) -> None:
        """Have `call` called, once, as soon as no `at_most_once` step is under way."""
        self._run.when_unguarded(call)

    def lose(self) -> None:
        """End the body, because the claim is lost; `outcome` raises `Fenced`."""
        self._settle.lose(Fenced(self._workflow, self._pulse.holder.token))
        self._settle.stop_body()

    async def outcome(self, body: Callable[[Run[E_contra]], Awaitable[T]]) -> Outcome[T]:
        """Call the body and give how the pass ended. Cancelling this cancels the body, and waits for its calls."""
        if OUTCOME in self._records:
            return Completed(cast(T, self._records[OUTCOME]))  # as `_crossed`
        task: asyncio.Task[T] = asyncio.create_task(self._called(body))
        self._settle.began(task)
        held: tuple[Wait, ...] = ()
        try:
            try:
                await _waited(task)
                if _has_returned(task) and not self._settle.noted:
                    held = await self._settle.drained()
            finally:
                await _uninterrupted(self._settle.end)
            return self._verdict(task, held)
        finally:
            self._settle.forget()
            if task.done() and not task.cancelled():
                task.exception()  # whoever cancelled the pass is told of the cancellation, and the loop need not complain
            del task  # what a body raised holds this frame, which would hold it

    async def _called(self, body: Callable[[Run[E_contra]], Awaitable[T]]) -> T:
        task = asyncio.current_task()
        try:
            answer = body(self._run)
            if not inspect.isawaitable(answer):
                raise Misconfigured(f"the body of workflow {self._workflow!r} is a plain function: write `async def`")
            value = await answer
        except SystemExit as left:
            raise DurableError(f"the body of workflow {self._workflow!r} raised SystemExit({left})") from left
        except GeneratorExit as left:
            if is_closing(task):
                raise
            raise DurableError(f"the body of workflow {self._workflow!r} raised GeneratorExit") from left
        finally:
            del task
        self._settle.returned()
        return value

    def _verdict(self, task: asyncio.Task[T], held: tuple[Wait, ...]) -> Outcome[T]:
        error: BaseException | None = None
        try:
            if _has_returned(task):
                error = self._hidden(held) or self._settle.failure()
                if error is None:
                    return Completed(self._crossed(task.result()))
            else:
                error = self._settle.lost_now() or (None if task.cancelled() else _without_suspensions(task.exception()))
                if error is None and self._settle.noted:
                    return folded(self._settle.noted)
            raise error or DurableError(f"the body of workflow {self._workflow!r} was cancelled, or suspended, by itself")
        finally:
            del task, error

    def _hidden(self, held: tuple[Wait, ...]) -> BaseException | None:
        """A body that returned may not have hidden a wait or a lost claim. [RUN-SUSPEND-NOTED]"""
        settle = self._settle
        waits = sorted({wait.key for wait in (*settle.noted, *held)})
        if settle.lost is not None:
            if not settle.lost_seen:
                return settle.lost_now()
            keys = waits if settle.lost.key is None else sorted({*waits, settle.lost.key})
            return Swallowed(self._workflow, keys, "the loss of its claim, at")
        return Swallowed(self._workflow, waits, "the wait for") if waits else None

    def _crossed(self, value: T) -> T:
        """Type the value that crossed the codec as the body's own: whoever reads it from the store names a parser."""
        try:
            return cast(T, self._checkpointer.roundtrip(value))
        except NotEncodable as refused:
            raise NotEncodable(refused.reason, self._workflow, OUTCOME) from refused


def _has_returned(task: asyncio.Task[T]) -> bool:
    return not task.cancelled() and task.exception() is None


def _without_suspensions(error: BaseException | None) -> BaseException | None:
    """Give what a body raised without the suspensions that came along; a lost workflow wins over failures."""
    if error is None:
        return None
    for leaf in leaves(error):
        if isinstance(leaf, (Fenced, Contended)):
            return leaf
    if is_group(error):
        return error.split(Suspended)[1]
    return None if isinstance(error, Suspended) else error


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Give the exceptions that an exception stands for: itself, or the leaves of a group."""
    if is_group(error):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    """Say whether the exception is a group."""
    return isinstance(error, BaseExceptionGroup)


async def _waited(task: asyncio.Task[T]) -> None:
    """Wait for the task; a cancellation is passed on to it, and raised once it is done."""
    cancelled: asyncio.CancelledError | None = None
    try:
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
                task.cancel()
        if cancelled is not None:
            raise cancelled
    finally:
        del task, cancelled


async def _uninterrupted(ending: Callable[[], Awaitable[None]]) -> None:
    """Bring an ending to its end however often it is cancelled, then raise the last cancellation."""
    cancelled: asyncio.CancelledError | None = None
    try:
        while True:
            try:
                await ending()
                break
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
    finally:
        del cancelled
