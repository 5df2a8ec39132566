"""The datastore of the memory double: all workflows under one lock, the dict of the effects, and who sleeps until when."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from durable_core import reference
from durable_core._clock import Clock, SystemClock, later
from durable_core._memory_queue import Queue, Sleeper
from durable_core.contract import Delivery, Description, Pass, Recorded, Turn
from durable_core.errors import Misconfigured
from durable_core.reference import Answer, Ledger, State

T = TypeVar("T")
MemoryEffect: TypeAlias = Callable[[dict[str, object]], object]

_EMPTY = Ledger()
_EFFECT_PATIENCE = 5.0  # seconds for which a thread waits for another one's effect


class Memory:
    """What several memory stores share, as several real ones share a database.

    Any number of threads and event loops may use it at once. `clock` is its clock, by default the system's. `data` is the dict
    that effects work on.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.data: dict[str, object] = {}
        self._lock = threading.Lock()
        self._ledgers: dict[str, Ledger] = {}
        self._queues: dict[str, Queue] = {}
        self._watchers: dict[str, set[Sleeper]] = {}
        self._token = 0
        self._receipt = 0
        self._effects = threading.Lock()
        self._effect_thread: int | None = None

    def __repr__(self) -> str:
        return f"<Memory of {len(self._ledgers)} workflows>"

    # ---------------------------------------------------------------------------------------------------- one workflow

    def see(self, workflow: str, queue: str | None = None) -> State:
        """Give the state of a workflow, with its wakeup in a queue."""
        with self._lock:
            return self._state(workflow, queue)

    def change(self, workflow: str, queue: str | None, step: Callable[[State, datetime], tuple[State, T]]) -> T:
        """Take one step of the reference."""
        with self._lock:
            now = self.clock.now()
            before = self._state(workflow, queue)
            after, answer = step(before, now)
            self._keep(before, after, queue, now)
            return answer

    def claim(self, workflow: str, budget: timedelta, alive: timedelta) -> Pass | None:
        """Grant a pass under the next token of the store. [CKP-CLAIM-RISING]"""

        def step(state: State, now: datetime) -> tuple[State, Pass | None]:
            after, holder = reference.claim(state, now, budget, alive, self._token + 1)
            self._token += holder is not None
            return after, holder

        return self.change(workflow, None, step)

    def transact(self, holder: Pass, key: str, effect: MemoryEffect, encode: Callable[[object], object]) -> Answer:
        """Apply an effect and record what it gives, or leave both undone. [CKP-TRANSACT-ATOMIC] [CKP-TRANSACT-FENCED]

        The effect runs outside the lock, so that it may use the store; what it did is undone when meanwhile it lost the key or
        the claim.
        """
        with self._effect_at_work(holder.workflow, key):
            found = self.change(holder.workflow, None, lambda state, now: reference.recall(state, now, holder, key))
            if found is not None:
                return found
            before, stands = self._copied(holder.workflow, key), False
            try:
                encoded = encode(effect(self.data))
                answer = self.change(
                    holder.workflow, None, lambda state, now: reference.transact(state, now, holder, key, encoded)
                )
                stands = isinstance(answer, Recorded) and answer.first
            finally:
                if not stands:
                    self.data.clear()
                    self.data.update(before)
            return answer

    # -------------------------------------------------------------------------------------------------------- a queue

    async def next_ready(self, queue: str, wait: timedelta, lease: timedelta) -> Delivery | None:
        """Take the next wakeup that is due. [SCH-NEXT-WAIT] [SCH-NEXT-OLDEST]"""

        def look(now: datetime) -> Delivery | None:
            while (workflow := self._queue(queue).pop(now)) is not None:
                before = self._state(workflow, queue)
                after, delivery = reference.next_ready(before, now, lease, self._next_receipt())
                self._keep(before, after, queue, now)
                if delivery is not None:
                    return delivery
            return None

        return await self._found(lambda: self._queue(queue).sleepers, wait, look, lambda: self._queue(queue).next_due())

    async def begin(self, queue: str, wait: timedelta, lease: timedelta, budget: timedelta, limit: int) -> list[Turn]:
        """Take, claim and load up to `limit` workflows. [DUR-BEGIN] [DUR-BEGIN-FRESH]"""

        def look(now: datetime) -> list[Turn] | None:
            turns: list[Turn] = []
            while len(turns) < limit and (workflow := self._queue(queue).pop(now)) is not None:
                turn = self._begin(workflow, queue, now, lease, budget)
                if turn is not None:
                    turns.append(turn)
            return turns or None

        turns = await self._found(lambda: self._queue(queue).sleepers, wait, look, lambda: self._queue(queue).next_due())
        return turns or []

    async def watch(self, workflow: str, queue: str, wait: timedelta) -> None:
        """Return once the workflow has a result, or after `wait`. [DUR-RESULT]"""

        def look(_: datetime) -> bool | None:
            return True if reference.result(self._state(workflow, queue)) is not None else None

        try:
            await self._found(lambda: self._watchers.setdefault(workflow, set()), wait, look, lambda: None)
        finally:
            with self._lock:
                if not self._watchers.get(workflow, True):
                    del self._watchers[workflow]

    # -------------------------------------------------------------------------------------------------- all workflows

    def states(self, queue: str) -> list[State]:
        """Give the state of every workflow that has something in the store or the queue."""
        with self._lock:
            return [self._state(workflow, queue) for workflow in self._ledgers.keys() | self._queue(queue).wakeups.keys()]

    def sweep(self, finished_before: datetime) -> int:
        """Discard what finished before an instant and is not waited for in any queue. [CAT-SWEEP]"""
        with self._lock:
            now = self.clock.now()
            woken = {workflow for queue in self._queues.values() for workflow in queue.wakeups}
            swept = 0
            for workflow in self._ledgers.keys() - woken:
                before = self._state(workflow, None)
                after, gone = reference.sweep(before, now, finished_before)
                self._keep(before, after, None, now)
                swept += gone
            return swept

    # -------------------------------------------------------------------------------------------- under the lock only

    def _queue(self, queue: str) -> Queue:
        found = self._queues.get(queue)
        if found is None:
            found = self._queues[queue] = Queue()
        return found

    def _state(self, workflow: str, queue: str | None) -> State:
        wakeup = None if queue is None else self._queue(queue).wakeups.get(workflow)
        return State(workflow, self._ledgers.get(workflow, _EMPTY), wakeup)

    def _keep(self, before: State, after: State, queue: str | None, now: datetime) -> None:
        if after is before:
            return
        workflow = before.workflow
        if after.ledger is not before.ledger:
            self._keep_ledger(workflow, before.ledger, after.ledger, now)
        if queue is not None and after.wakeup is not before.wakeup:
            self._queue(queue).put(workflow, after.wakeup, now)
        for watcher in self._watchers.get(workflow, ()):
            watcher.wake()

    def _keep_ledger(self, workflow: str, before: Ledger, after: Ledger, now: datetime) -> None:
        """An empty ledger goes: tokens are drawn from one counter, so it need not remember them. [CKP-DISCARD-UNKNOWN]"""
        if after.records or after.claim is not None:
            self._ledgers[workflow] = after
        else:
            self._ledgers.pop(workflow, None)
        if before.claim is not None and before.claim.held and (after.claim is None or not after.claim.held):
            for queue in self._queues.values():
                queue.unpark(workflow, now)

    def _begin(self, workflow: str, queue: str, now: datetime, lease: timedelta, budget: timedelta) -> Turn | None:
        before = self._state(workflow, queue)
        after, turn = reference.begin(before, now, lease, budget, self._next_receipt(), self._token + 1)
        self._token += turn is not None
        self._keep(before, after, queue, now)
        held_until = reference.held_until(after, now)
        if turn is None and after is before and held_until is not None:
            self._queue(queue).park(workflow, held_until, now)
        return turn

    def _next_receipt(self) -> str:
        self._receipt += 1
        return str(self._receipt)

    # --------------------------------------------------------------------------------------------------------- waiting

    async def _found(
        self,
        sleepers: Callable[[], set[Sleeper]],
        wait: timedelta,
        look: Callable[[datetime], T | None],
        again: Callable[[], datetime | None],
    ) -> T | None:
        """Look until something is found or the wait is over; in between, sleep among the `sleepers` until woken or `again`.

        The three functions are called under the lock.
        """
        with self._lock:
            now = self.clock.now()
            found, deadline = look(now), later(now, wait)
        if found is not None or now >= deadline:
            return found
        with self._asleep(sleepers) as sleeper:
            while True:
                sleeper.rest()
                with self._lock:
                    now = self.clock.now()
                    found, due = look(now), again()
                if found is not None or now >= deadline:
                    return found
                until = deadline if due is None else min(due, deadline)
                await sleeper.sleep(self.clock.timer((until - now).total_seconds()))

    @contextmanager
    def _asleep(self, sleepers: Callable[[], set[Sleeper]]) -> Generator[Sleeper]:
        sleeper = Sleeper()
        unsubscribe = self.clock.subscribe(sleeper.wake)
        with self._lock:
            place = sleepers()
            place.add(sleeper)
        try:
            yield sleeper
        finally:
            with self._lock:
                place.discard(sleeper)
            unsubscribe()

    # --------------------------------------------------------------------------------------------------------- effects

    @contextmanager
    def _effect_at_work(self, workflow: str, key: str) -> Generator[None]:
        """One effect at a time; one inside another would be undone with it, and its record would stay."""
        thread = threading.get_ident()
        inside = self._effect_thread == thread
        if inside or not self._effects.acquire(timeout=_EFFECT_PATIENCE):
            raise Misconfigured(
                f"the effect {key!r} of workflow {workflow!r} cannot begin while another effect of this memory is at work: "
                "an effect must neither begin another one nor take long"
            )
        self._effect_thread = thread
        try:
            yield
        finally:
            self._effect_thread = None
            self._effects.release()

    def _copied(self, workflow: str, key: str) -> dict[str, object]:
        try:
            return copy.deepcopy(self.data)
        except Exception as refused:
            raise Misconfigured(
                f"the effect {key!r} of workflow {workflow!r} cannot begin: its dict holds what cannot be copied, "
                f"so it could not be undone: {type(refused).__name__}: {refused}"
            ) from refused


async def let_others_run() -> None:
    """Let the event loop turn once, as any store that has a network does: what follows is done as a whole or not at all."""
    await asyncio.sleep(0)


def description() -> Description:
    """Say what the double is. [DUR-DESCRIBE]"""
    from importlib import metadata  # dear to import, and seldom asked for

    try:
        version = metadata.version("durable-core")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return Description(
        product="memory",
        version=version,
        survives_kill="no",
        survives_power_cut="no",
        survives_failover="no",
        transacts=True,
        undoes=True,
        interleaves=False,
        co_commits=True,
        joins=False,
        lists=True,
        poll=timedelta(0),
    )
