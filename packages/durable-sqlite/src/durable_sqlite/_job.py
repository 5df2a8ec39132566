"""A call on its way to the store's thread and back."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Generic, TypeVar, cast

from durable_core.errors import DurableError, Interruption
from durable_sqlite._tx import Tx

T_co = TypeVar("T_co", covariant=True)


class Refused(Exception):
    """Undoes a transaction whose only call has refused."""


class Kind(Enum):
    """How the thread makes a call."""

    READ = auto()  # outside any transaction, in one statement
    WRITE = auto()  # in one transaction with whatever else is waiting; it refuses before it writes
    ALONE = auto()  # in a transaction of its own
    WAIT = auto()  # when something is due for it, and then like WRITE


class Job(Generic[T_co]):
    """A call, and then its answer. `future` belongs to `loop`; without one nobody waits.

    `take_back` undoes an answer that nobody was there to hear.
    """

    __slots__ = ("args", "context", "done", "error", "future", "kind", "loop", "take_back", "value", "work")

    value: T_co | None

    def __init__(
        self,
        kind: Kind,
        work: Callable[..., T_co | None],
        args: tuple[object, ...],
        loop: asyncio.AbstractEventLoop | None = None,
        take_back: Callable[[Tx, T_co], object] | None = None,
    ) -> None:
        self.kind, self.work, self.args = kind, work, args
        self.loop = loop
        self.future: asyncio.Future[None] | None = None if loop is None else loop.create_future()
        self.take_back = take_back
        self.done = False
        self.error: BaseException | None = None
        self.context: contextvars.Context | None = None

    def __repr__(self) -> str:
        return f"<Job {self.kind.name} {getattr(self.work, '__name__', self.work)}>"

    def make(self, tx: Tx) -> None:
        """Make the call; a refusal, which comes before anything is written, is its answer. One that waits may get none yet."""
        tx.tick()
        self.error = None
        try:
            value = self.work(tx, *self.args)
        except (Interruption, DurableError) as refused:
            self.fail(refused)
            return
        if value is not None or self.kind is not Kind.WAIT:
            self.value, self.done = value, True

    def fail(self, error: BaseException) -> None:
        """Let an error be the answer."""
        self.error, self.done = error, True

    def again(self) -> None:
        """Forget the answer: the transaction that it was made in is gone."""
        self.error, self.done = None, False

    @property
    def abandoned(self) -> bool:
        """Say whether its caller was cancelled."""
        return self.future is not None and self.future.cancelled()

    def result(self) -> T_co:
        """Give the answer, or raise the error."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # it holds this frame, which holds it
        return cast("T_co", self.value)  # None only where the call gave it, or is not done


class Wait(Job[T_co]):
    """A call that waits while `work` has nothing to give (`None`), until `deadline`, a reading of the monotonic clock.

    `look` is a read that says when `work` may have something: an instant of the store's clock, or `None`: only a change can tell.
    `nothing` is the answer at the deadline.
    """

    __slots__ = ("deadline", "look", "nothing")

    def __init__(
        self,
        work: Callable[[Tx], T_co | None],
        look: Callable[[Tx], int | None],
        nothing: T_co,
        deadline: float,
        loop: asyncio.AbstractEventLoop,
        take_back: Callable[[Tx, T_co], object] | None = None,
    ) -> None:
        super().__init__(Kind.WAIT, work, (), loop, take_back)
        self.look, self.nothing, self.deadline = look, nothing, deadline


def settle(jobs: Iterable[Job[object]], unheard: Callable[[Job[object]], None]) -> None:
    """Wake the callers, in their loop; those that were cancelled meanwhile are handed to `unheard`."""
    for job in jobs:
        future = job.future
        if future is None:
            continue
        if not future.done():
            future.set_result(None)
        elif future.cancelled():
            unheard(job)
