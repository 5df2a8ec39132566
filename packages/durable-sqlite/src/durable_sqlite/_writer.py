"""The store's thread: it works on the file, and commits what is waiting together. [CKP-RECORD-CONCURRENT]"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from enum import Enum, auto

from durable_core.errors import Misconfigured
from durable_sqlite import _processes, _tx
from durable_sqlite._database import Database
from durable_sqlite._job import Job, Kind, Refused, Wait, settle
from durable_sqlite._tx import Tx
from durable_sqlite._watch import POLL, FileWatch

_GROUP = 256  # calls in one transaction at most


class _Signal(Enum):
    NUDGE = auto()
    STOP = auto()


class Writer:
    """Runs jobs in one thread, on one connection that is opened with the first of them.

    What is waiting when a transaction ends goes into the next one, each call atomic by itself: a call refuses before it writes,
    and when one fails otherwise the transaction is undone and each of its calls is made again alone. Nothing is answered before
    its commit.
    """

    def __init__(self, database: Database) -> None:
        self.path = database.path
        self._database = database
        self._box: queue.SimpleQueue[Job[object] | _Signal] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ident: int | None = None
        self._closed: str | None = None
        self._stopping = False
        self._watch = FileWatch(self.path)
        self._waits: list[Wait[object]] = []
        self._next_due: int | None = None
        self._look = False

    def __repr__(self) -> str:
        return f"<Writer {self.path!r}{', ' + self._closed if self._closed else ''}>"

    # ----------------------------------------------------------------------------------------- called from anywhere

    def submit(self, job: Job[object]) -> None:
        """Hand a job over; its future is set when done. Raises: `Misconfigured` when the store is closed, or busy with it."""
        self.refuse_closed()
        if self._thread is None:
            self._start()
        elif self._ident == threading.get_ident():
            raise Misconfigured(f"an effect called the store {self.path!r} that it runs in, and would wait for itself")
        self._box.put(job)

    def nudge(self) -> None:
        """Have those that wait look again."""
        self._box.put(_Signal.NUDGE)

    def close(self) -> threading.Thread | None:
        """Take no more jobs; gives the thread, which ends when it has done those it has."""
        with self._starting:
            if self._closed is None:
                self._closed = "is closed"
                self._box.put(_Signal.STOP)
            return self._thread

    def forked(self) -> None:
        """Leave everything alone: there is no such thread here, and the connection is that of the process it was forked from."""
        self._closed = "was opened before this process was forked: open it again here"
        self._starting = threading.Lock()
        self._thread = None
        self._database.forked()

    def refuse_closed(self) -> None:
        """Refuse when the store is closed, with `Misconfigured`."""
        if self._closed is not None:
            raise Misconfigured(f"the store {self.path!r} {self._closed}")

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and self._closed is None:
                _processes.add(self)
                self._thread = threading.Thread(target=self._run, name=f"durable-sqlite {self.path}", daemon=True)
                self._thread.start()

    # --------------------------------------------------------------------------------------------- called in the thread

    def _run(self) -> None:
        self._ident = threading.get_ident()
        while not self._stopping:
            batch = self._gather()
            try:
                self._round(batch)
            except BaseException as error:  # a fault of ours: somebody waits for an answer all the same
                self._fail([*batch, *self._waits], error)
                self._waits = []
        _processes.remove(self)
        self._database.close()
        self._reply(self._over(float("inf")))
        self._fail(self._gather(), Misconfigured(f"the store {self.path!r} is closed"))

    def _gather(self) -> list[Job[object]]:
        """Take what is waiting, or sleep until there is something to do."""
        batch: list[Job[object]] = []
        try:
            item = self._box.get(timeout=self._patience())
            while True:
                if isinstance(item, Job):
                    batch.append(item)
                elif item is _Signal.NUDGE:
                    self._look = True
                else:
                    self._stopping = True
                if len(batch) >= _GROUP or self._box.empty():
                    return batch
                item = self._box.get()
        except queue.Empty:
            return batch

    def _patience(self) -> float | None:
        """Say how long to sleep at most, in seconds."""
        if self._stopping:
            return 0.0
        if not self._waits:
            return None
        if self._look:
            return 0.0
        seconds = min(POLL, min(wait.deadline for wait in self._waits) - time.monotonic())
        if self._next_due is not None:
            seconds = min(seconds, (self._next_due - _tx.clock()) / 1e6)
        return max(seconds, 0.0)

    def _round(self, batch: Sequence[Job[object]]) -> None:
        """Do what there is to do: reads first, then one transaction for all the writes, then those that want one of their own."""
        if self._waits:
            self._waits = [wait for wait in self._waits if not wait.abandoned]
        writes: list[Job[object]] = []
        alone: list[Job[object]] = []
        for job in batch:
            if job.abandoned:
                continue
            if job.kind is Kind.WRITE:
                writes.append(job)
            elif job.kind is Kind.READ:
                self._read(job)
            elif isinstance(job, Wait):
                self._wait(job)
            else:
                alone.append(job)
        if self._waits:
            writes += self._due()
        if writes:
            self._group(writes, give=True)
        self._answer(batch)
        for job in alone:
            self._alone(job)
            self._reply((job,))

    # ---------------------------------------------------------------------------------------------------- transactions

    def _read(self, job: Job[object]) -> None:
        try:
            job.make(self._database.opened())
        except Exception as error:
            job.fail(error)
            self._database.doubt(error)

    def _group(self, jobs: Sequence[Job[object]], *, give: bool) -> None:
        """Make calls in one transaction; with `give`, those that wait for what they do are served in it too."""
        begun = again = False
        try:
            with self._database as tx:
                begun = True
                for job in jobs:
                    job.make(tx)
                if give and self._waits and (tx.ready or tx.ended):
                    for wait in self._waits:
                        if not wait.done:
                            wait.make(tx)
        except Exception as error:
            self._database.doubt(error)
            if begun and (give or len(jobs) > 1):
                again = True
            elif len(jobs) == 1:
                jobs[0].fail(error)
            else:
                for job in jobs:
                    job.fail(another(error))
        else:
            self._committed(tx)
        if again:
            self._one_by_one(jobs)

    def _one_by_one(self, jobs: Sequence[Job[object]]) -> None:
        """Make each call again alone: nothing of the transaction is left, and only one of them need be at fault."""
        for job in (*jobs, *self._waits):
            job.again()
        self._look = True
        for job in jobs:
            self._group((job,), give=False)

    def _alone(self, job: Job[object]) -> None:
        """Make a call in a transaction of its own; whatever it raises undoes it, and is its answer."""
        try:
            with self._database as tx:
                if job.context is None:
                    job.make(tx)
                else:
                    job.context.run(job.make, tx)
                if job.error is not None:
                    raise Refused
        except Refused:
            pass
        except BaseException as error:
            job.fail(error)
            self._database.doubt(error)
        else:
            self._committed(tx)

    def _committed(self, tx: Tx) -> None:
        if tx.ready or tx.ended:
            self._look = True
            _processes.nudge(self)

    # --------------------------------------------------------------------------------------------------------- waiting

    def _wait(self, wait: Wait[object]) -> None:
        if not self._waits:
            self._watch.begin()
            self._next_due = None
        self._waits.append(wait)
        self._look = True

    def _due(self) -> list[Wait[object]]:
        """Give those that wait and for which there may be something, if it is time to look."""
        overdue = self._next_due is not None and self._database.now() >= self._next_due
        if not (self._watch.poll() or overdue or self._look):
            return []
        self._look, self._next_due = False, None
        try:
            tx = self._database.opened()
            tx.tick()
            return [wait for wait in self._waits if self._look_for(wait, tx)]
        except Exception as error:
            for wait in self._waits:
                wait.fail(another(error))
            self._database.doubt(error)
            return []

    def _look_for(self, wait: Wait[object], tx: Tx) -> bool:
        at = wait.look(tx)
        if at is None:
            return False
        if at <= tx.now:
            self._look = True  # again afterwards: it may get nothing, and then it is to be known when to look next
            return True
        if self._next_due is None or at < self._next_due:
            self._next_due = at
        return False

    # --------------------------------------------------------------------------------------------------------- answers

    def _answer(self, jobs: Sequence[Job[object]]) -> None:
        """Reply to all that are done, and to those whose wait is over."""
        answered = [job for job in jobs if job.done and job.kind is not Kind.WAIT]
        if self._waits:
            answered += self._over(time.monotonic())
        self._reply(answered)

    def _over(self, now: float) -> list[Job[object]]:
        over: list[Job[object]] = []
        waits: list[Wait[object]] = []
        for wait in self._waits:
            if not wait.done and wait.deadline <= now:
                wait.value, wait.done = wait.nothing, True
            (over if wait.done else waits).append(wait)
        self._waits = waits
        return over

    def _reply(self, jobs: Iterable[Job[object]]) -> None:
        """Wake the callers, with one call for each event loop."""
        loops: dict[asyncio.AbstractEventLoop, list[Job[object]]] = {}
        for job in jobs:
            if job.loop is not None:
                loops.setdefault(job.loop, []).append(job)
        for loop, answered in loops.items():
            try:
                loop.call_soon_threadsafe(settle, answered, self.unheard)
            except RuntimeError:  # the loop is closed, and nobody hears
                for job in answered:
                    self.unheard(job)

    def unheard(self, job: Job[object]) -> None:
        """Take back what nobody was there to hear."""
        if job.take_back is not None and job.error is None:
            self._box.put(Job(Kind.WRITE, job.take_back, (job.value,)))

    def _fail(self, jobs: Sequence[Job[object]], error: BaseException) -> None:
        for job in jobs:
            if not job.done:
                job.fail(another(error))
        self._reply(jobs)


def another(error: BaseException) -> BaseException:
    """Give an error for one more caller: an exception that is raised in two places gathers the traces of both."""
    if not isinstance(error, sqlite3.Error):
        return error
    other = type(error)(*error.args)
    for name in ("sqlite_errorcode", "sqlite_errorname", "__notes__"):
        if hasattr(error, name):
            setattr(other, name, getattr(error, name))
    other.__cause__ = error
    return other
