"""The worker: takes what may run, lets the bodies run, and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from signal import Signals
from typing import Generic, TypeVar

from durable_core._retry import Retry
from durable_core._shift import Shift
from durable_core._signals import signals_call
from durable_core._timed import Timed, monotonic_of
from durable_core._turns import Settings
from durable_core._unknown import Unknown
from durable_core.contract import Durable
from durable_core.errors import Misconfigured
from durable_core.keys import check_duration, check_limit, check_wait
from durable_core.observer import Observer
from durable_core.resume import BUDGET
from durable_core.run import Run

__all__ = ["Retry", "Timed", "Worker"]

E = TypeVar("E")

_LIMIT = 50
_GRACE = timedelta(seconds=30)
_RETRY = Retry()


class Worker(Generic[E]):
    """Advances the workflows of one queue.

    At most `limit` passes run at once. `budget` is how long a pass may hold its workflow between two steps, at least a lease.
    `retry` says when what failed comes back; `give_up_on` are exceptions that bury at once, besides `GiveUp` and what the same
    pass would raise again. After `lapses_alone` lapses alone in a process a workflow is buried. `grace` is how long a drained
    worker lets its passes go on. `observer` is called with the events of `durable_core.observer`, in the event loop.

    [RUN-WORK] The part of an id before the first `/`, or all of it, names the body. Turns are renewed three times per liveness
        window; a body whose claim is lost ends within a third of it. The worker survives an outage of the store. A body's
        `CancelledError`, or any other `BaseException` but `KeyboardInterrupt`, is that body's failure.
    [RUN-WORK-RETRY] A failure comes back, with exponential backoff and jitter, up to a limit; then the workflow is buried with
        the reason, in at most 4 000 characters. `GiveUp`, `give_up_on`, what is the same on every pass and mistakes of code bury
        at once: an exception group does when all its leaves would.
    [RUN-WORK-SUSPECT] From the third lapse on a workflow runs as the only pass of its process.
    [RUN-WORK-UNKNOWN] A name without a body is handed back, with a delay that doubles to a minute, and never buried.

    Raises: `ValueError` for a budget shorter than the store's lease, a limit or lapses below 1, durations of zero or less; a
    grace time of zero is allowed.
    """

    def __init__(
        self,
        durable: Durable[E],
        *,
        limit: int = _LIMIT,
        budget: timedelta = BUDGET,
        retry: Retry = _RETRY,
        observer: Observer | None = None,
        give_up_on: Sequence[type[BaseException]] = (),
        lapses_alone: int = 3,
        grace: timedelta = _GRACE,
    ) -> None:
        lease = durable.scheduler.lease
        check_limit(limit)
        check_duration(budget, "budget")
        if budget < lease:
            raise ValueError(
                f"the budget of a pass is {budget}, and the store's lease {lease}: a pass would end before it lapses"
            )
        if lapses_alone < 1:
            raise ValueError(f"lapses_alone must be at least 1, and is {lapses_alone}")
        if grace < timedelta(0):
            raise ValueError(f"grace must not be negative, and is {grace}")
        self._settings = Settings(
            limit=limit,
            budget=budget,
            lease=lease,
            retry=retry,
            give_up_on=tuple(give_up_on),
            lapses_alone=lapses_alone,
            grace=check_wait(grace, "grace"),
            observer=observer,
            monotonic=monotonic_of(durable),
        )
        self._durable = durable
        self._unknown = Unknown()
        self._drained = False
        self._shift: Shift[E] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        state = "drained" if self._drained else "idle" if self._shift is None else "at work"
        return f"<Worker {state}, limit {self._settings.limit}, on {self._durable!r}>"

    async def run(
        self, bodies: Mapping[str, Callable[[Run[E]], Awaitable[object]]], /, *, signals: Sequence[Signals] = ()
    ) -> None:
        """Work until `drain()`, or one of `signals`, and return once everything is answered.

        [RUN-WORK-DRAIN] Nothing more is taken; passes go on for the grace time and are handed back at its end, as the same
            attempt. A second signal hands back at once, and so does a cancellation, which is raised afterwards; then only a step
            that is `at_most_once` is waited for, within the grace time: a third signal or second cancellation ends that too.
            Signal handlers are set, and put back, only for `signals`; outside the main thread there are none.

        Raises: `Misconfigured` and `SchemaMismatch` when the store does, and for a worker that runs already.
        """
        shift = self._began(bodies, settling=False)
        try:
            with signals_call(shift.asked_again, signals):
                await shift.run()
        finally:
            self._ended()

    @asynccontextmanager
    async def running(self, bodies: Mapping[str, Callable[[Run[E]], Awaitable[object]]], /) -> AsyncGenerator[None]:
        """Work beside the block, and drain at its end: for the lifespan of an application, and for scripts. [RUN-WORK-DRAIN]

        A block that raises has the work handed back at once.

        Raises: as `run`, at the end of the block.
        """
        task = asyncio.create_task(self.run(bodies))
        try:
            yield
        except BaseException:
            task.cancel()
            await asyncio.wait((task,))
            raise
        self.drain()
        await task

    async def settle(self, bodies: Mapping[str, Callable[[Run[E]], Awaitable[object]]], /) -> None:
        """Work until nothing is ready; what is due later is not waited for. For tests. [RUN-SETTLE]

        Raises: what the store raises, and `Misconfigured` for a worker that runs already.
        """
        shift = self._began(bodies, settling=True)
        try:
            await shift.run()
        finally:
            self._ended()

    def drain(self) -> None:
        """Have `run` take no more and return; from any thread, any number of times, also before `run`. [RUN-WORK-DRAIN]"""
        self._drained = True
        loop, shift = self._loop, self._shift
        if loop is not None and shift is not None:
            try:
                loop.call_soon_threadsafe(shift.drain)
            except RuntimeError:  # the loop is closed, and `run` with it
                pass

    def _began(self, bodies: Mapping[str, Callable[[Run[E]], Awaitable[object]]], *, settling: bool) -> Shift[E]:
        if self._shift is not None:
            raise Misconfigured("this worker runs already: one `run` or `settle` at a time")
        self._loop = asyncio.get_running_loop()
        self._shift = Shift(self._durable, self._settings, bodies, self._unknown, settling=settling)
        if self._drained:
            self._shift.drain()
        return self._shift

    def _ended(self) -> None:
        self._shift = self._loop = None
