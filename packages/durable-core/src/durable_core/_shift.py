"""One run of a worker, from taking its first turn until the last one is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from durable_core._answers import AT_ONCE, Fail, HandBack
from durable_core._company import COMPANY
from durable_core._heartbeat import Heartbeat
from durable_core._live import Live
from durable_core._outage import Outage
from durable_core._pulse import Pulse
from durable_core._retry import doubled
from durable_core._thread import executor
from durable_core._turns import Settings, Turns
from durable_core._unknown import Unknown, name_of
from durable_core.contract import Durable, Turn
from durable_core.errors import Misconfigured, SchemaMismatch
from durable_core.run import Run

E = TypeVar("E")
Bodies: TypeAlias = Mapping[str, Callable[[Run[E]], Awaitable[object]]]

SUSPECT = 3
"""From so many lapses in a row on a workflow runs alone."""

_LOOK = 0.02  # how often to look at a clock that a test moves
_CLOSED = 0.05  # how often to look at what other workers of the process do
_DAY = 86_400.0
_PATIENCE = 5.0  # seconds for which a suspect waits for the others to end
_LAST_WORDS = 5.0  # seconds for the answers of a worker that was told to end at once
_OFF = timedelta(seconds=1)
_OFF_MOST = timedelta(minutes=1)


class Shift(Generic[E]):
    """Takes turns and has them advanced, never more than `limit`. [RUN-WORK] [RUN-WORK-SUSPECT] [RUN-WORK-DRAIN]

    With `settling` it ends when nothing is ready, and raises what the store raises. [RUN-SETTLE]
    """

    def __init__(self, durable: Durable[E], settings: Settings, bodies: Bodies[E], unknown: Unknown, *, settling: bool) -> None:
        self._durable, self._settings, self._bodies, self._unknown, self._settling = (
            durable,
            settings,
            dict(bodies),
            unknown,
            settling,
        )
        self._loop = asyncio.get_running_loop()
        self._outage = Outage(settings.lease, settings.observer)
        look = None if settings.monotonic is time.monotonic else _LOOK
        self._heartbeat = Heartbeat(durable, settings.lease, settings.monotonic, self._outage, look)
        self._turns = Turns(durable, settings, self._heartbeat, self._outage)
        self._live: dict[Live, None] = {}
        self._begun: asyncio.Task[Sequence[Turn]] | None = None
        self._sent = 0.0
        self._moved = asyncio.Event()
        self._stopping = self._hurried = self._wary = False
        self._put_off = 0
        self._held: Live | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._broken: BaseException | None = None

    def __repr__(self) -> str:
        state = "handing back" if self._hurried else "draining" if self._stopping else "taking"
        return f"<Shift {state}, {len(self._live)} turns>"

    @property
    def is_quiet(self) -> bool:
        """Whether it neither holds a turn nor asks for one."""
        return not self._live and self._begun is None

    async def run(self) -> None:
        """Work until drained; a cancellation is raised once everything is answered."""
        pool = ThreadPoolExecutor(self._settings.limit, "durable")
        token = executor.set(pool)
        COMPANY.join(self)
        cancelled: asyncio.CancelledError | None = None
        try:
            try:
                await self._take()
            except asyncio.CancelledError as error:
                cancelled = error
                self.hand_back()
            except Exception as error:
                self._break(error)
            cancelled = await self._ended() or cancelled
        finally:
            for timer in self._timers:
                timer.cancel()
            COMPANY.leave(self)
            executor.reset(token)
            pool.shutdown(wait=False)
        if cancelled is not None:
            raise cancelled
        if self._broken is not None:
            raise self._broken

    # Ending, gently and less so

    def drain(self) -> None:
        """Take no more, and end the passes that are left when the grace time is over."""
        if self._stopping:
            return
        self._stopping = True
        self._moved.set()
        if self._begun is not None:
            self._begun.cancel()
        self._later(self._settings.grace.total_seconds(), self._expire)

    def asked_again(self) -> None:
        """Drain; hand back when asked once more."""
        if self._stopping:
            self.hand_back()
        else:
            self.drain()

    def hand_back(self) -> None:
        """Hand back everything; an `at_most_once` step is waited for within the grace time, or until asked once more."""
        if self._hurried:
            self._expire()
            return
        self.drain()
        self._hurried = True
        for live in list(self._live):
            if live.task is not None and not live.is_answering:
                if live.advance is None:
                    live.task.cancel()
                else:
                    live.advance.when_unguarded(live.task.cancel)
        self._later(_LAST_WORDS, self._silence)

    def _expire(self) -> None:
        self.drain()
        self._hurried = True
        for live in list(self._live):
            if live.task is not None and not live.is_answering:
                live.task.cancel()
        self._later(_LAST_WORDS, self._silence)

    def _silence(self) -> None:
        """Give up the answers that take too long; their turns lapse."""
        if self._live:
            now = self._loop.time()
            for live in list(self._live):
                if live.answering_since is not None and now - live.answering_since >= _LAST_WORDS:
                    live.lose()
            self._later(_LAST_WORDS / 5, self._silence)

    def _break(self, error: BaseException) -> None:
        if self._broken is None:
            self._broken = error
        self.drain()

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(seconds, call))

    async def _ended(self) -> asyncio.CancelledError | None:
        """Bring everything to its end however often this is cancelled; gives the last cancellation."""
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                await self._end()
                return cancelled
            except asyncio.CancelledError as error:
                cancelled = error
                self.hand_back()

    async def _end(self) -> None:
        self._stopping = True
        if self._begun is not None:
            self._begun.cancel()
            await asyncio.wait((self._begun,), timeout=_LAST_WORDS)
            self._sort(self._taken())
        if self._held is not None:
            self._hand_over(self._held, HandBack("the worker ends"))
        while self._live:
            await asyncio.wait([live.task for live in self._live if live.task is not None])
        await self._heartbeat.end()

    # Taking

    async def _take(self) -> None:
        while await self._until(self._has_room):
            if COMPANY.is_closed_to(self):
                await asyncio.sleep(_CLOSED)
                continue
            taken = await self._begin()
            if taken is None:
                continue
            if not taken:
                self._wary = False
                if self._settling and not await self._one_ends():
                    return
            suspects = self._sort(taken)
            if suspects:
                await self._be_alone(suspects)

    def _has_room(self) -> bool:
        return len(self._live) < self._settings.limit

    async def _until(self, condition: Callable[[], bool], patience: float | None = None) -> bool:
        """Wait for a condition on the turns, and say whether it holds: not when draining, nor when patience is over."""

        def is_open() -> bool:
            return not self._stopping and not condition()

        if is_open():
            try:
                async with asyncio.timeout(patience):
                    while is_open():
                        self._moved.clear()
                        await self._moved.wait()
            except TimeoutError:
                return condition()
        return not self._stopping

    async def _one_ends(self) -> bool:
        """Wait until one of the turns ends, and say whether there was one."""
        count = len(self._live)
        return count > 0 and await self._until(lambda: len(self._live) < count)

    async def _begin(self) -> list[Live] | None:
        """Take turns, one per free slot; `None` when the store does not answer."""
        settings = self._settings
        wait = AT_ONCE if self._settling else settings.lease / 3
        free = 1 if self._wary else settings.limit - len(self._live)
        self._sent = settings.monotonic()
        self._begun = asyncio.create_task(begun(self._durable, wait, settings.budget, free))
        await asyncio.wait((self._begun,), timeout=(wait + settings.lease).total_seconds())
        if not self._begun.done():
            self._begun.cancel()
            await asyncio.wait((self._begun,), timeout=_LAST_WORDS)
        try:
            return self._taken()
        except Exception as error:
            if self._settling or isinstance(error, (Misconfigured, SchemaMismatch)):
                raise
            await self._rest(self._outage.lost("begin", error))
            return None

    def _taken(self) -> list[Live]:
        """Give what `begin` gave. Raises: what it raised, and `TimeoutError` when it does not end."""
        task, self._begun = self._begun, None
        if task is None:
            return []
        if not task.done() or task.cancelled():
            if self._stopping:
                return []
            raise TimeoutError("begin was not answered within its wait and a lease")
        if self._stopping and task.exception() is not None:
            return []
        turns = task.result()
        self._outage.answered("begin")
        if not self._live:
            self._outage.answered("renew")
        return [self._held_now(turn) for turn in turns]

    def _held_now(self, turn: Turn) -> Live:
        settings, arrived = self._settings, self._settings.monotonic()
        pulse = Pulse(turn.holder, settings.budget, settings.lease, settings.monotonic, self._sent, arrived)
        live = Live(turn, pulse, arrived + settings.lease.total_seconds() / 3)
        self._live[live] = None
        self._heartbeat.add(live)
        return live

    async def _rest(self, seconds: float) -> None:
        await self._until(lambda: False, seconds)

    # Sorting

    def _sort(self, taken: Sequence[Live]) -> list[Live]:
        """Let the bodies of what was taken run, or answer it; gives the suspects."""
        suspects: list[Live] = []
        closed = COMPANY.is_closed_to(self)
        for live in taken:
            delivery = live.turn.delivery
            body = self._bodies.get(name_of(delivery.workflow))
            if self._stopping:
                self._hand_over(live, HandBack("the worker ends"))
            elif closed:
                self._hand_over(live, HandBack("another workflow of this process runs alone", _OFF))
            elif body is None:
                self._hand_over(live, self._unknown.answer(delivery.workflow))
            elif delivery.lapses >= SUSPECT + self._settings.lapses_alone:
                self._hand_over(live, Fail(_killer(delivery.lapses, self._settings.lapses_alone), None))
            elif delivery.lapses >= SUSPECT:
                suspects.append(live)
            else:
                self._wary = False
                self._start(live, self._turns.advance(live, body))
        return suspects

    def _hand_over(self, live: Live, answer: HandBack | Fail) -> None:
        self._start(live, self._turns.answer(live, answer))

    def _start(self, live: Live, work: Coroutine[object, object, None]) -> None:
        if live is self._held:
            self._held = None
        live.task = asyncio.create_task(work)
        live.task.add_done_callback(partial(self._left, live))

    def _left(self, live: Live, task: asyncio.Task[None]) -> None:
        if task.cancelled() and not live.is_answering:  # before it began
            return self._hand_over(live, HandBack("the worker ends"))
        self._live.pop(live, None)
        self._heartbeat.remove(live)
        self._moved.set()
        error = self._turns.interrupted if task.cancelled() else task.exception() or self._turns.interrupted
        if error is not None:
            self._break(error)
            if self._turns.interrupted is not None and not self._hurried:
                self.hand_back()

    # Suspects

    async def _be_alone(self, suspects: list[Live]) -> None:
        """Run the first suspect as the only pass of this process; the others come back. [RUN-WORK-SUSPECT]

        Nobody waits here while a pass runs that lapsed before: when that one kills the process, it is no lapse of the waiting.
        """
        first, *rest = suspects
        self._wary, self._held = True, first
        for live in rest:
            self._hand_over(live, HandBack("another workflow of this process runs alone"))
        if not COMPANY.want(self):
            return self._put_off_to_later(first)
        try:
            if (self._settling or not self._is_risky(first)) and await self._others_end(first):
                await self._run_alone(first)
            elif not self._stopping:
                self._put_off_to_later(first)
        finally:
            if first not in self._live or first.advance is None:
                COMPANY.give_up(self)

    async def _others_end(self, suspect: Live) -> bool:
        """Wait, but not for long, until no other pass runs in this process; other workers may just be asking for turns."""
        third = self._settings.lease.total_seconds() / 3
        others = COMPANY.has_others(self)
        patience = _DAY if self._settling else third * 1.25 if others else min(_PATIENCE, third)
        until = self._loop.time() + patience
        while not self._stopping and (left := until - self._loop.time()) > 0:
            if await self._until(lambda: suspect.lost or self._is_alone(suspect), min(left, _CLOSED) if others else left):
                return True
        return False

    def _is_risky(self, suspect: Live) -> bool:
        return any(live is not suspect and live.turn.delivery.lapses and live.advance is not None for live in self._live)

    def _is_alone(self, suspect: Live) -> bool:
        return list(self._live) == [suspect] and COMPANY.is_alone(self)

    async def _run_alone(self, suspect: Live) -> None:
        self._put_off = 0
        if suspect.lost:
            self._hand_over(suspect, HandBack("the claim was lost", _OFF, "lost"))
        else:
            body = self._bodies[name_of(suspect.turn.delivery.workflow)]
            self._start(suspect, self._turns.advance(suspect, body))
        await self._until(lambda: suspect not in self._live)

    def _put_off_to_later(self, suspect: Live) -> None:
        off = doubled(_OFF, self._put_off, _OFF_MOST)
        self._put_off += 1
        self._wary = False
        self._hand_over(suspect, HandBack("it runs alone, and others are at work", off))


async def begun(durable: Durable[E], wait: timedelta, budget: timedelta, limit: int) -> Sequence[Turn]:
    """Call `begin` as a coroutine of our own, whatever awaitable the store gives."""
    return await durable.begin(wait, budget, limit=limit)


def _killer(lapses: int, alone: int) -> str:
    return (
        f"its last {lapses} passes in a row were never answered, {alone} of them alone in their process: "
        "the body kills its process, or takes it away from the event loop for too long"
    )
