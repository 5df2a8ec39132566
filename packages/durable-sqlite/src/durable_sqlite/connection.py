"""The file, and the one thread and connection through which a store works on it."""

from __future__ import annotations

import asyncio
import contextvars
import os
import time
import weakref
from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Literal, Self, TypeAlias, TypeVar, TypeVarTuple

from durable_core.contract import Description
from durable_core.errors import Misconfigured
from durable_core.keys import check_duration
from durable_sqlite import _processes
from durable_sqlite._database import Database
from durable_sqlite._describe import describe
from durable_sqlite._job import Job, Kind, Wait
from durable_sqlite._tx import Tx, moment
from durable_sqlite._writer import Writer

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Synchronous: TypeAlias = Literal["NORMAL", "FULL", "EXTRA"]
BUSY_TIMEOUT = timedelta(seconds=5)


class SqliteConnection:
    """One SQLite file, opened in WAL mode by a thread of its own, with the first call or `prepare`.

    `synchronous`: with `"FULL"` an acknowledged write survives a power cut; with `"NORMAL"` a power cut takes back the last
    commits, and a killed process none; `"EXTRA"` is as `"FULL"` here. `busy_timeout`: how long to wait for other writers of the
    file, after which `sqlite3.OperationalError` says that it is locked. `create=False`: neither file nor schema is made, only
    verified. Any number of event loops and threads may share it; after a fork it is refused in the child.

    Raises: `ValueError` for a duration of zero or less, `Misconfigured` for a path that is no file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "FULL",
        busy_timeout: timedelta = BUSY_TIMEOUT,
        create: bool = True,
    ) -> None:
        name = os.fspath(path)
        if not name or name == ":memory:" or name.startswith("file:"):
            raise Misconfigured(
                f"{name!r} is not the path of a file: for a store in memory take durable_core.memory.MemoryDurable"
            )
        if synchronous not in ("NORMAL", "FULL", "EXTRA"):
            raise Misconfigured(f"synchronous is 'FULL', 'NORMAL' or 'EXTRA', and not {synchronous!r}")
        check_duration(busy_timeout, "busy_timeout")
        self.path: str = os.path.realpath(name)
        self._database = Database(self.path, synchronous=synchronous, busy_timeout=busy_timeout, create=create)
        self._writer = Writer(self._database)
        weakref.finalize(self, self._writer.close)

    def __repr__(self) -> str:
        return f"SqliteConnection({self.path!r})"

    async def prepare(self) -> None:
        """Open the file and create or verify the schema.

        Raises: `sqlite3.Error` as SQLite has it, `SchemaMismatch`, `Misconfigured` on a network file system.
        """
        await self.read(_nothing)

    async def aclose(self) -> None:
        """Do what was asked for, then close the file. Calls that wait end as if their wait were over; later ones are refused."""
        thread = self._writer.close()
        if thread is not None:
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, thread.join))

    async def __aenter__(self) -> Self:
        await self.prepare()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def describe(self) -> Description:
        """Say what the file is and promises, as it is configured now. [DUR-DESCRIBE]"""
        return await self.read(describe)

    def nudge(self) -> None:
        """Have whoever waits for work in this file, in this process, look now."""
        self._writer.nudge()
        _processes.nudge(self._writer)

    def now(self) -> datetime:
        """Give the store's clock: the machine's. [ANY-CLOCK]"""
        self._writer.refuse_closed()
        return moment(self._database.now())

    # ------------------------------------------------------------------------------------------ for the stores on top

    async def read(self, work: Callable[[Tx, *Ts], T], *args: *Ts) -> T:
        """Give what a read gives; it is one statement."""
        return await self._done(Job(Kind.READ, work, args, asyncio.get_running_loop()))

    async def write(self, work: Callable[[Tx, *Ts], T], *args: *Ts, take_back: Callable[[Tx, T], object] | None = None) -> T:
        """Give what a write gives once it is committed; it refuses before it writes, and is made again where it was undone."""
        return await self._done(Job(Kind.WRITE, work, args, asyncio.get_running_loop(), take_back))

    async def alone(self, work: Callable[[Tx, *Ts], T], *args: *Ts) -> T:
        """Give what a call gives in a transaction of its own, in a copy of the caller's context."""
        job = Job(Kind.ALONE, work, args, asyncio.get_running_loop())
        job.context = contextvars.copy_context()
        return await self._done(job)

    async def wait(
        self,
        work: Callable[[Tx], T | None],
        look: Callable[[Tx], int | None],
        nothing: T,
        wait: timedelta,
        take_back: Callable[[Tx, T], object] | None = None,
    ) -> T:
        """Give what a write gives as soon as that is not `None`, or `nothing` when the wait is over."""
        deadline = time.monotonic() + wait.total_seconds()
        return await self._done(Wait(work, look, nothing, deadline, asyncio.get_running_loop(), take_back))

    async def _done(self, job: Job[T]) -> T:
        self._writer.submit(job)
        assert job.future is not None
        try:
            await job.future
        except asyncio.CancelledError:
            if not job.future.cancelled():  # it was answered, and cancelled before it ran on
                self._writer.unheard(job)
            raise
        return job.result()


def _nothing(_tx: Tx) -> None:
    return None
