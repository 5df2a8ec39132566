"""Where the double keeps its state: in this process, or in a file that several processes share."""

from __future__ import annotations

import fcntl
import heapq
import os
import pickle
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from durable_core.keys import OUTCOME
from durable_core.reference import Ledger, State, Wakeup
from durable_core.testing import ManualClock


class Time(Protocol):
    """Whatever the store reads the time from."""

    def now(self) -> datetime:
        """Give the time, UTC."""
        ...


class SystemTime:
    """The machine's clock, read past what a child process does to its own `time` module."""

    def now(self) -> datetime:
        """Give the time, UTC."""
        # A process with a wrong clock has changed `time.time` and `datetime`, and not this.
        return datetime.fromtimestamp(time.clock_gettime(time.CLOCK_REALTIME), UTC)


@dataclass
class Queue:
    """The wakeups of one queue; the heap may hold stale places, a wakeup knows its own."""

    wakeups: dict[str, Wakeup] = field(default_factory=dict[str, Wakeup])
    heap: list[tuple[datetime, int, str]] = field(default_factory=list[tuple[datetime, int, str]])
    places: dict[str, int] = field(default_factory=dict[str, int])

    def put(self, workflow: str, wakeup: Wakeup | None, place: int) -> None:
        """Keep a workflow's wakeup, or forget it."""
        if wakeup is None:
            self.wakeups.pop(workflow, None)
            self.places.pop(workflow, None)
            return
        self.wakeups[workflow] = wakeup
        self.places[workflow] = place
        if wakeup.reason is None:
            heapq.heappush(self.heap, (wakeup.due, place, workflow))

    def first(self) -> tuple[datetime, str] | None:
        """Give when the next wakeup is due, and whose it is."""
        while self.heap:
            due, place, workflow = self.heap[0]
            if self.places.get(workflow) == place:
                return due, workflow
            heapq.heappop(self.heap)
        return None


@dataclass
class Content:
    """Everything that one datastore holds."""

    ledgers: dict[str, Ledger] = field(default_factory=dict[str, Ledger])
    queues: dict[str, Queue] = field(default_factory=dict[str, Queue])
    counters: dict[str, int] = field(default_factory=dict[str, int])
    answers: dict[str, object] = field(default_factory=dict[str, object])
    serial: int = 0
    touched: int = 0
    retention: timedelta | None = None
    expiring: dict[str, datetime] = field(default_factory=dict[str, datetime])
    now: datetime = datetime.min

    def next(self) -> int:
        """Give a number that was not given before."""
        self.serial += 1
        return self.serial

    def queue(self, name: str) -> Queue:
        """Give one queue."""
        return self.queues.setdefault(name, Queue())

    def state(self, workflow: str, queue: str) -> State:
        """Give one workflow as the reference machine knows it."""
        self.touched += 1
        return State(workflow, self.ledgers.get(workflow, Ledger()), self.queue(queue).wakeups.get(workflow))

    def put(self, state: State, queue: str) -> None:
        """Keep what the reference machine made of a workflow."""
        self.ledgers[state.workflow] = state.ledger
        self.expire(state)
        if state.wakeup is not self.queue(queue).wakeups.get(state.workflow):
            self.queue(queue).put(state.workflow, state.wakeup, self.next())

    def expire(self, state: State) -> None:
        """Let a finished workflow go when its retention is over, unless somebody holds it."""
        claim = state.ledger.claim
        if claim is not None and claim.held:
            self.expiring.pop(state.workflow, None)
        elif self.retention is not None and OUTCOME in state.ledger.records:
            self.expiring.setdefault(state.workflow, self.now + self.retention)

    def purge(self, now: datetime) -> None:
        """Forget the records whose time is over."""
        self.now = now
        for workflow in [workflow for workflow, until in self.expiring.items() if until <= now]:
            del self.expiring[workflow]
            self.ledgers[workflow] = Ledger(issued=self.ledgers[workflow].issued)


class Vault:
    """One datastore in memory. Instances on it share it; a transaction has it alone.

    `staged` are the workflows that an application's open transaction holds.
    """

    durable = False
    poll = 0.0
    content: type[Content] = Content

    def __init__(self, clock: Time) -> None:
        self.time = clock
        self.asked = 0
        self.staged: dict[str, object] = {}
        self._content = self.content()
        self._lock = threading.RLock()
        self._wakers: set[Callable[[], object]] = set()
        if isinstance(clock, ManualClock):
            clock.subscribe(self.announce)

    @property
    def manual(self) -> bool:
        """Whether time passes by hand."""
        return isinstance(self.time, ManualClock)

    @property
    def touched(self) -> int:
        """How many workflows were looked at."""
        with self.transaction() as content:
            return content.touched

    @contextmanager
    def transaction(self) -> Generator[Content]:
        """Give the content, alone."""
        with self._lock:
            self.asked += 1
            self._content.purge(self.time.now())
            yield self._content

    def announce(self) -> None:
        """Wake what waits for a change."""
        for wake in list(self._wakers):
            wake()

    @contextmanager
    def listening(self, wake: Callable[[], object]) -> Generator[float | None]:
        """Have `wake` called after every change; gives how often to look besides, in seconds."""
        self._wakers.add(wake)
        try:
            yield None
        finally:
            self._wakers.discard(wake)


class FileVault(Vault):
    """One datastore in a file, which any process may open."""

    durable = True
    poll = 0.005

    def __init__(self, clock: Time, path: Path) -> None:
        super().__init__(clock)
        self.path = path

    @contextmanager
    def transaction(self) -> Generator[Content]:
        """Give the content, alone among all processes, and keep it when the block ends well."""
        with self._lock, open(self.path.with_suffix(".lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.asked += 1
            content: Content = pickle.loads(self.path.read_bytes()) if self.path.exists() else self.content()
            content.purge(self.time.now())
            yield content
            self.write(content)

    def write(self, content: Content) -> None:
        """Replace the file in one step."""
        fresh = self.path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(pickle.dumps(content))
        os.replace(fresh, self.path)

    @contextmanager
    def listening(self, wake: Callable[[], object]) -> Generator[float | None]:
        """Look again every few milliseconds."""
        with super().listening(wake):
            yield self.poll
