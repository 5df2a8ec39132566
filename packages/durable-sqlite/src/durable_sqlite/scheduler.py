"""The wakeups of workflows in a SQLite file."""

from __future__ import annotations

from datetime import datetime, timedelta

from durable_core.contract import Delivery, Description, Scheduler
from durable_core.errors import Misconfigured
from durable_core.keys import check_count, check_duration, check_moment, check_queue, check_wait, check_workflow
from durable_sqlite import _claims, _wakeups
from durable_sqlite._tx import Tx, micros, micros_at, moment
from durable_sqlite.connection import SqliteConnection

LEASE = timedelta(seconds=60)


class SqliteScheduler:
    """A `Scheduler`: the clauses of `durable_core.contract.Scheduler` hold.

    A wakeup made in this process is seen at once, one made in another process after some tens of milliseconds. `queue` divides
    wakeups only. Every method may raise `sqlite3.Error` for what is wrong with the file, and `Misconfigured` once the store is
    closed.
    """

    def __init__(self, connection: SqliteConnection, *, queue: str = "default", lease: timedelta = LEASE) -> None:
        if not isinstance(connection, SqliteConnection):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misconfigured(f"SqliteScheduler takes a SqliteConnection, and not {type(connection).__name__}")
        check_queue(queue)
        check_duration(lease, "lease")
        self.connection: SqliteConnection = connection
        self.queue: str = queue
        self._lease = lease

    def __repr__(self) -> str:
        return f"SqliteScheduler({self.connection!r}, queue={self.queue!r})"

    @property
    def lease(self) -> timedelta:
        """How long a taken delivery is nobody else's without a `renew`."""
        return self._lease

    async def now(self, /) -> datetime:
        """Give the store's clock, UTC: the machine's. [ANY-CLOCK]"""
        return self.connection.now()

    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        """Let the workflow run as soon as it can. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]"""
        check_workflow(workflow)
        await self.connection.write(_wakeups.make_ready, workflow, self.queue, revive)

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        """Take the next wakeup that is due. [SCH-NEXT-WAIT] [SCH-NEXT-OLDEST] [SCH-NEXT-ONE] [SCH-NEXT-LAPSED] [SCH-NEXT-DEEP]"""
        wait = check_wait(wait)
        return await self.connection.wait(self._take, self._next_due, None, wait, self._take_back)

    def _next_due(self, tx: Tx) -> int | None:
        """Say when there may be something to take."""
        return _wakeups.next_due(tx, self.queue)

    def _take(self, tx: Tx) -> Delivery | None:
        for row in _wakeups.due(tx, self.queue, 1):
            receipt = _claims.number(tx)
            attempt, lapses = _wakeups.take(tx, self.queue, row, receipt, micros(self._lease))
            return Delivery(row.workflow, str(receipt), attempt, lapses, moment(row.due))
        return None

    def _take_back(self, tx: Tx, delivery: Delivery | None) -> None:
        """Put back what was taken for a caller who was cancelled meanwhile."""
        if delivery is not None:
            receipt = number_of(delivery)
            _wakeups.wake_at(tx, delivery.workflow, self.queue, receipt, tx.now, delivery.attempt, delivery.lapses)

    async def renew(self, delivery: Delivery, /) -> Delivery:
        """Keep the delivery for another lease; its receipt stays. [SCH-RENEW-NAME] [SCH-RENEW-SILENT]"""
        check_workflow(delivery.workflow)
        receipt, lease = number_of(delivery), micros(self._lease)
        await self.connection.write(_wakeups.renew, delivery.workflow, self.queue, receipt, lease)
        return delivery

    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        """Answer, and set the next wakeup. [SCH-WAKE-ANSWERS] [SCH-WAKE-COUNT] [SCH-WAKE-NOT-BEFORE] [SCH-WAKE-NEWER]"""
        check_workflow(delivery.workflow)
        at = micros_at(check_moment(when, "when"))
        check_count(attempt, lapses)
        await self.connection.write(_wakeups.wake_at, delivery.workflow, self.queue, number_of(delivery), at, attempt, lapses)

    async def done(self, delivery: Delivery, /) -> None:
        """Answer, with nothing further to do. [SCH-DONE-ANSWERS] [SCH-DONE-NEWER] [SCH-DONE-STALE] [SCH-DONE-CANCELLED]"""
        check_workflow(delivery.workflow)
        await self.connection.write(_wakeups.done, delivery.workflow, self.queue, number_of(delivery))

    async def bury(self, delivery: Delivery, reason: str, /) -> None:
        """Answer, and set the workflow aside. [SCH-BURY-KEEPS] [SCH-BURY-CANCELLED] [SCH-BURY-STALE]"""
        check_workflow(delivery.workflow)
        await self.connection.write(_wakeups.bury, delivery.workflow, self.queue, number_of(delivery), storable(reason))

    async def buried(self, workflow: str, /) -> str | None:
        """Give the reason why the workflow is buried, or `None`."""
        check_workflow(workflow)
        return await self.connection.read(_wakeups.buried, workflow, self.queue)

    async def cancel(self, workflow: str, /) -> None:
        """Forget the workflow's wakeups. [SCH-CANCEL-ALL]"""
        check_workflow(workflow)
        await self.connection.write(_wakeups.cancel, workflow, self.queue)

    async def describe(self, /) -> Description:
        """Say what the store promises now. [DUR-DESCRIBE]"""
        return await self.connection.describe()


def number_of(delivery: Delivery) -> int:
    """Give the receipt's number; one that no delivery of this store can have is 0, which is never current. [SCH-DONE-STALE]"""
    receipt = delivery.receipt
    return int(receipt) if receipt.isascii() and receipt.isdigit() and len(receipt) < 19 else 0


def storable(reason: str) -> str:
    """Give a reason that UTF-8 can hold."""
    return reason.encode("utf-8", "backslashreplace").decode()


_: type[Scheduler] = SqliteScheduler
