"""The wakeups of workflows in Postgres."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from durable_core.contract import Delivery, Description, Scheduler
from durable_core.keys import check_count, check_duration, check_moment, check_queue, check_wait, check_workflow
from durable_postgres import sql
from durable_postgres._bell import Bell
from durable_postgres._describe import describe
from durable_postgres._pool import Connections, Pool

T = TypeVar("T")

LEASE = timedelta(seconds=60)
_LEAST_PAUSE = 0.002  # seconds before what is due and was busy is looked at again


class PostgresScheduler:
    """A `Scheduler`: the clauses of `durable_core.contract.Scheduler` hold.

    A wakeup made in this process is seen at once; one made elsewhere by a NOTIFY where that arrives, else at the next look, which
    `describe()` states. Every method may raise `psycopg.Error` and `psycopg_pool.PoolTimeout`.
    """

    def __init__(self, pool: Pool, *, schema: str | None = None, queue: str = "default", lease: timedelta = LEASE) -> None:
        check_queue(queue)
        check_duration(lease, "lease")
        self.pool, self.schema, self.queue = pool, schema, queue
        self._lease = lease
        self.connections = Connections(pool, schema)
        self.bell = Bell(self.connections)

    def __repr__(self) -> str:
        return f"PostgresScheduler({self.connections!r}, queue={self.queue!r})"

    def share(self, connections: Connections, bell: Bell) -> None:
        """Use the connections and the bell of a checkpointer on the same pool."""
        self.connections, self.bell = connections, bell

    @property
    def lease(self) -> timedelta:
        """How long a taken delivery is nobody else's without a `renew`."""
        return self._lease

    async def now(self, /) -> datetime:
        """Give the server's clock, UTC. [ANY-CLOCK]"""
        ((moment,),) = await self.connections.call(sql.NOW)
        assert isinstance(moment, datetime)
        return moment.astimezone(UTC)

    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        """Let the workflow run as soon as it can. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]"""
        check_workflow(workflow)
        await self.connections.call(sql.MAKE_READY, (workflow, self.queue, revive))
        self.bell.ring()

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        """Take the next wakeup that is due. [SCH-NEXT-WAIT] [SCH-NEXT-OLDEST] [SCH-NEXT-ONE] [SCH-NEXT-LAPSED] [SCH-NEXT-DEEP]"""
        return await self.waiting(self._take, self._take_back, check_wait(wait))

    async def _take(self) -> tuple[Delivery | None, float | None]:
        row = (await self.connections.call(sql.NEXT_READY, (self.queue, self._lease)))[0]
        match row:
            case (str(workflow), int(receipt), int(attempt), int(lapses), datetime() as due, datetime()):
                return Delivery(workflow, str(receipt), attempt, lapses, due.astimezone(UTC)), None
            case (_, _, _, _, due, moment):
                return None, seconds_until(due, moment)
            case _:
                raise AssertionError(row)

    async def _take_back(self, delivery: Delivery) -> None:
        """Put back what was taken for a caller who was cancelled meanwhile."""
        now = await self.now()
        await self.wake_at(delivery, now, attempt=delivery.attempt, lapses=delivery.lapses)

    async def waiting(
        self,
        take: Callable[[], Awaitable[tuple[T | None, float | None]]],
        take_back: Callable[[T], Awaitable[None]],
        wait: timedelta,
    ) -> T | None:
        """Take, or wait for a ring or the next due instant and take again. What a cancelled caller did not hear is taken back."""
        deadline = time.monotonic() + wait.total_seconds()
        while True:
            mark = self.bell.mark()
            taken, due = await self._heard(take, take_back)
            left = deadline - time.monotonic()
            if taken is not None or left <= 0:
                return taken
            pause = left if due is None else min(left, max(due, _LEAST_PAUSE))
            await self.bell.heard(mark, pause)

    async def _heard(
        self, take: Callable[[], Awaitable[tuple[T | None, float | None]]], take_back: Callable[[T], Awaitable[None]]
    ) -> tuple[T | None, float | None]:
        task = asyncio.ensure_future(take())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait((task,))
            if not task.cancelled() and task.exception() is None:
                taken = task.result()[0]
                if taken is not None:
                    await take_back(taken)
            raise

    async def renew(self, delivery: Delivery, /) -> Delivery:
        """Keep the delivery for another lease; its receipt stays. [SCH-RENEW-NAME] [SCH-RENEW-SILENT]"""
        check_workflow(delivery.workflow)
        await self.connections.call(sql.RENEW, (delivery.workflow, self.queue, number_of(delivery), self._lease))
        return delivery

    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        """Answer, and set the next wakeup. [SCH-WAKE-ANSWERS] [SCH-WAKE-COUNT] [SCH-WAKE-NOT-BEFORE] [SCH-WAKE-NEWER]"""
        check_workflow(delivery.workflow)
        at = check_moment(when, "when")
        check_count(attempt, lapses)
        await self._answer(delivery, at, attempt, lapses, None)

    async def done(self, delivery: Delivery, /) -> None:
        """Answer, with nothing further to do. [SCH-DONE-ANSWERS] [SCH-DONE-NEWER] [SCH-DONE-STALE] [SCH-DONE-CANCELLED]"""
        check_workflow(delivery.workflow)
        await self._answer(delivery, None, 1, 0, None)

    async def bury(self, delivery: Delivery, reason: str, /) -> None:
        """Answer, and set the workflow aside. [SCH-BURY-KEEPS] [SCH-BURY-CANCELLED] [SCH-BURY-STALE]"""
        check_workflow(delivery.workflow)
        await self._answer(delivery, None, 1, 0, storable(reason))

    async def _answer(self, delivery: Delivery, at: datetime | None, attempt: int, lapses: int, reason: str | None) -> None:
        receipt = number_of(delivery)
        await self.connections.call(sql.ANSWER, (delivery.workflow, self.queue, receipt, at, None, attempt, lapses, reason))
        self.bell.ring()

    async def buried(self, workflow: str, /) -> str | None:
        """Give the reason why the workflow is buried, or `None`."""
        check_workflow(workflow)
        rows = await self.connections.call(sql.BURIED, (workflow, self.queue))
        reason = rows[0][0] if rows else None
        return reason if isinstance(reason, str) else None

    async def cancel(self, workflow: str, /) -> None:
        """Forget the workflow's wakeups. [SCH-CANCEL-ALL]"""
        check_workflow(workflow)
        await self.connections.call(sql.CANCEL, (workflow, self.queue))
        self.bell.ring()

    async def describe(self, /) -> Description:
        """Say what the store promises now. [DUR-DESCRIBE]"""
        return await describe(self.connections, self.bell)


def number_of(delivery: Delivery) -> int:
    """Give the receipt's number; one that no delivery of this store can have is 0, which is never current. [SCH-DONE-STALE]"""
    receipt = delivery.receipt
    return int(receipt) if receipt.isascii() and receipt.isdigit() and len(receipt) < 19 else 0


def storable(reason: str) -> str:
    """Give a reason that a column of text can hold."""
    return reason.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def seconds_until(due: object, moment: object) -> float | None:
    """Give the seconds between two instants, or `None` where there is no first one."""
    if isinstance(due, datetime) and isinstance(moment, datetime):
        return (due - moment).total_seconds()
    return None


_: type[Scheduler] = PostgresScheduler
