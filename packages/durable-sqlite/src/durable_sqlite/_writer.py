"""The store's thread: it owns the connection, and commits what is waiting together. [CKP-RECORD-CONCURRENT]"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import Enum, auto

from durable_core.errors import Misconfigured
from durable_sqlite import _processes, sql
from durable_sqlite._file import open_file
from durable_sqlite._job import Job, Kind, Wait, settle
from durable_sqlite._turnstile import Turnstile
from durable_sqlite._tx import Tx
from durable_sqlite._watch import POLL, FileWatch

_GROUP = 256  # calls in one transaction at most
_SUSPECT = frozenset(  # after these the connection is opened anew
    (
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_NOMEM,
    )
)
_SAME_FILE = 1.0  # seconds between two looks at whether the file is still the one that was opened


class _Signal(Enum):
    NUDGE = auto()
    STOP = auto()


class Writer:
    """Runs jobs in one thread, on one connection that is opened with the first of them.

    What is waiting when a transaction ends goes into the next one, each call atomic by itself: a call refuses before it writes,
    and when one fails otherwise the transaction is undone and each of its calls is made again alone. Nothing is answered before
    its commit.
    """

    def __init__(self, path: str, *, synchronous: str, busy_timeout: timedelta, create: bool) -> None:
        self.path = path
        self._synchronous, self._busy_timeout, self._create = synchronous, busy_timeout, create
        self._box: queue.SimpleQueue[Job[object] | _Signal] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ident: int | None = None
        self._closed: str | None = None
        self._stopping = False
        self._tx: Tx | None = None
        self._file: tuple[int, int] | None = None
        self._checked = 0.0
        self._turnstile = Turnstile(path + "-turn")
        self._watch = FileWatch(path)
        self._waits: list[Wait[object]] = []
        self._next_due: int | None = None
        self._look = False

    def __repr__(self) -> str:
        return f"<Writer {self.path!r}{', ' + self._closed if self._closed else ''}>"

    # ----------------------------------------------------------------------------------------- called from anywhere

    def submit(self, job: Job[object]) -> None:
        """Hand a job over; its future is set when done. Raises: `Misconfigured` when the store is closed, or busy with it."""
        self._refuse_closed()
        if self._thread is None:
            self._start()
        elif self._ident == threading.get_ident():
            raise Misconfigured(f"an effect called the store {self.path!r} that it runs in, and would wait for itself")
        self._box.put(job)

    def now(self) -> int:
        """Read the store's clock."""
        self._refuse_closed()
        tx = self._tx
        return max(time.time_ns() // 1_000, 0 if tx is None else tx.now)

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
        self._turnstile.close()

    def _refuse_closed(self) -> None:
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
        self._drop()
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
            seconds = min(seconds, (self._next_due - time.time_ns() // 1_000) / 1e6)
        return max(seconds, 0.0)

    def _round(self, batch: Sequence[Job[object]]) -> None:
        """Do what there is to do: reads first, then one transaction for all the writes, then those that want one of their own."""
        if self._waits:
            self._waits = [wait for wait in self._waits if not wait.abandoned]
        jobs = [job for job in batch if not job.abandoned]
        if not jobs and not self._waits:
            return
        writes: list[Job[object]] = []
        for job in jobs:
            if job.kind is Kind.WRITE:
                writes.append(job)
            elif job.kind is Kind.READ:
                self._read(job)
            elif isinstance(job, Wait):
                self._wait(job)
        if self._waits:
            writes += self._due()
        if writes:
            self._group(writes, give=True)
        self._answer(jobs)
        for job in jobs:
            if job.kind is Kind.ALONE:
                self._alone(job)
                self._reply((job,))

    # ---------------------------------------------------------------------------------------------------- transactions

    def _read(self, job: Job[object]) -> None:
        tx = self._opened((job,))
        if tx is None:
            return
        try:
            self._same_file()
            job.make(tx)
        except Exception as error:
            job.fail(error)
            self._after(error)

    def _group(self, jobs: Sequence[Job[object]], *, give: bool) -> None:
        """Make calls in one transaction; with `give`, those that wait for what they do are served in it too."""
        tx = self._opened(jobs)
        if tx is None:
            return
        failed = self._begin(tx)
        if failed is not None:
            for job in jobs:
                job.fail(again(failed))
            return
        try:
            for job in jobs:
                job.make(tx)
            if give and self._waits and (tx.ready or tx.ended):
                for wait in self._waits:
                    if not wait.done:
                        wait.make(tx)
            tx.execute(sql.COMMIT)
        except Exception as error:
            failed = error
            undo(tx)
        finally:
            self._turnstile.leave()
        if failed is not None:
            self._one_by_one(jobs, failed, give=give)
        elif tx.ready or tx.ended:
            self._look = True
            _processes.nudge(self)

    def _begin(self, tx: Tx) -> Exception | None:
        self._turnstile.enter()
        try:
            self._same_file()
            tx.execute(sql.BEGIN)
        except Exception as error:
            self._turnstile.leave()
            self._after(error)
            return error
        tx.ready = tx.ended = False
        return None

    def _one_by_one(self, jobs: Sequence[Job[object]], failed: Exception, *, give: bool) -> None:
        """Make each call again alone: nothing of the transaction is left, and only one of them need be at fault."""
        self._after(failed)
        if len(jobs) == 1 and not give:
            jobs[0].fail(failed)
            return
        for job in (*jobs, *self._waits):
            job.again()
        self._look = True
        for job in jobs:
            self._group((job,), give=False)

    def _alone(self, job: Job[object]) -> None:
        """Make a call in a transaction of its own; whatever it raises undoes it, and is its answer."""
        tx = self._opened((job,))
        if tx is None:
            return
        failed = self._begin(tx)
        if failed is not None:
            job.fail(failed)
            return
        try:
            if job.context is None:
                job.make(tx)
            else:
                job.context.run(job.make, tx)
            tx.execute(sql.COMMIT if job.error is None else sql.ROLLBACK)
        except BaseException as error:
            undo(tx)
            job.fail(error)
            self._after(error)
        finally:
            self._turnstile.leave()

    # --------------------------------------------------------------------------------------------------------- waiting

    def _wait(self, wait: Wait[object]) -> None:
        if not self._waits:
            self._watch.begin()
            self._next_due = None
        self._waits.append(wait)
        self._look = True

    def _due(self) -> list[Wait[object]]:
        """Give those that wait and for which there may be something, if it is time to look."""
        tx = self._opened(self._waits)
        if tx is None:
            return []
        tx.tick()
        overdue = self._next_due is not None and tx.now >= self._next_due
        if not (self._watch.poll() or overdue or self._look):
            return []
        self._look, self._next_due = False, None
        try:
            self._same_file()
            return [wait for wait in self._waits if self._look_for(wait, tx)]
        except Exception as error:
            self._fail(self._waits, error)
            self._after(error)
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
                loop.call_soon_threadsafe(settle, answered, self._unheard)
            except RuntimeError:  # the loop is closed, and nobody hears
                for job in answered:
                    if job.take_back is not None and job.error is None:
                        self._unheard(job)

    def _unheard(self, job: Job[object]) -> None:
        """Take back what nobody was there to hear."""
        assert job.take_back is not None
        self._box.put(Job(Kind.WRITE, job.take_back, (job.value,)))

    def _fail(self, jobs: Sequence[Job[object]], error: BaseException) -> None:
        for job in jobs:
            if not job.done:
                job.fail(again(error))
        self._reply(jobs)

    # ------------------------------------------------------------------------------------------------------------ file

    def _opened(self, jobs: Sequence[Job[object]]) -> Tx | None:
        """Open the file where it is not open; or answer with the reason why that cannot be."""
        if self._tx is None:
            try:
                connection = open_file(self.path, self._synchronous, self._busy_timeout, self._create)
            except BaseException as error:
                self._fail(jobs, error)
                return None
            self._tx = Tx(connection)
            self._file = _identity(self.path)
            self._turnstile.open()
        return self._tx

    def _same_file(self) -> None:
        """Refuse to write to a file that is not there any more, once a second."""
        now = time.monotonic()
        if now - self._checked >= _SAME_FILE:
            if _identity(self.path) != self._file:
                raise sqlite3.OperationalError(f"{self.path!r} was removed or replaced while it was open: open the store again")
            self._checked = now

    def _after(self, error: BaseException) -> None:
        """Open the file anew after an error that may be the connection's."""
        code = error.sqlite_errorcode & 0xFF if isinstance(error, sqlite3.Error) and hasattr(error, "sqlite_errorcode") else None
        if code in _SUSPECT:
            self._drop()

    def _drop(self) -> None:
        tx, self._tx = self._tx, None
        self._turnstile.close()
        if tx is not None:
            try:
                tx.connection.close()
            except sqlite3.Error:
                pass  # nothing more can be done with it


def undo(tx: Tx) -> None:
    """Roll back what is left of a transaction."""
    try:
        if tx.connection.in_transaction:
            tx.execute(sql.ROLLBACK)
    except sqlite3.Error:
        pass  # SQLite has rolled back by itself, or will when the connection is closed


def again(error: BaseException) -> BaseException:
    """Give an error for one more caller: an exception that is raised in two places gathers the traces of both."""
    if not isinstance(error, sqlite3.Error):
        return error
    other = type(error)(*error.args)
    for name in ("sqlite_errorcode", "sqlite_errorname", "__notes__"):
        if hasattr(error, name):
            setattr(other, name, getattr(error, name))
    other.__cause__ = error
    return other


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
