"""The wakeups of workflows in Postgres."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from durable_core.contract import Delivery, Description, Scheduler
from durable_core.keys import check_count, check_duration, check_moment, check_queue, check_wait, check_workflow
from durable_postgres import sql
from durable_postgres._bell import READY, Bell
from durable_postgres._describe import describe
from durable_postgres._pool import UNREACHABLE, Connections, Pool, span

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look(Generic[T]):
    """What a look at the queue gave: something taken, or in how many seconds there may be."""

    taken: T | None = None
    due: float | None = None


LEASE = timedelta(seconds=60)
_NOW = timedelta(0)
_LEAST_PAUSE, _LONGEST_BUSY = 0.002, 0.25  # seconds before what is due, and somebody is at, is looked at again
_LONGEST_PEEK = 0.03  # and the longest such pause of a caller who does not wait
_ANSWERING = 2.0  # seconds that a take may still need once its caller is cancelled


class PostgresScheduler:
    """A `Scheduler`: the clauses of `durable_core.contract.Scheduler` hold.

    A wakeup made in this process is seen at once; one made elsewhere by a NOTIFY where that arrives, else at the next look, which
    `describe()` states. Every method may raise `psycopg.Error` and `psycopg_pool.PoolTimeout`.
    """

    def __init__(self, pool: Pool, *, schema: str | None = None, queue: str = "default", lease: timedelta = LEASE) -> None:
        check_queue(queue)
        check_duration(lease, "lease")
        self.pool: Pool = pool
        self.schema: str | None = schema
        self.queue: str = queue
        self._lease = lease
        self.connections: Connections = Connections(pool, schema)
        self.bell: Bell = Bell(self.connections)

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
        return moment.replace(tzinfo=UTC)

    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        """Let the workflow run as soon as it can. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]"""
        check_workflow(workflow)
        await self.connections.call(sql.MAKE_READY, (workflow, self.queue, revive))
        self.bell.ready()

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        """Take the next wakeup that is due. [SCH-NEXT-WAIT] [SCH-NEXT-OLDEST] [SCH-NEXT-ONE] [SCH-NEXT-LAPSED] [SCH-NEXT-DEEP]"""
        return await self.waiting(self._take, self._take_back, check_wait(wait))

    async def _take(self) -> Look[Delivery]:
        row = (await self.connections.call(sql.NEXT_READY, (self.queue, span(self._lease))))[0]
        match row:
            case (str(workflow), int(receipt), int(attempt), int(lapses), datetime() as due, datetime()):
                return Look(Delivery(workflow, str(receipt), attempt, lapses, due.replace(tzinfo=UTC)))
            case (_, _, _, _, due, moment):
                return Look(due=seconds_until(due, moment))
            case _:
                raise AssertionError(row)

    async def _take_back(self, delivery: Delivery) -> None:
        """Put back what was taken for a caller who was cancelled meanwhile."""
        await self._answer(delivery, None, _NOW, delivery.attempt, delivery.lapses, None)

    async def waiting(
        self,
        take: Callable[[], Coroutine[object, object, Look[T]]],
        take_back: Callable[[T], Awaitable[None]],
        wait: timedelta,
        topic: str = READY,
    ) -> T | None:
        """Take, or wait for a ring or the next due instant and take again. What a cancelled caller did not hear is taken back."""
        deadline, busy = time.monotonic() + wait.total_seconds(), _LEAST_PAUSE
        with self.bell.topic(topic) as heard:
            while True:
                mark = heard.rings
                look = await _heard(take(), take_back)
                left = deadline - time.monotonic()
                if look.taken is not None:
                    return look.taken
                if look.due is not None and look.due <= 0:  # it is there, and somebody is at it
                    if left <= 0 and busy > _LONGEST_PEEK:
                        return None
                    await asyncio.sleep(busy)
                    busy = min(busy * 2, _LONGEST_BUSY)
                elif left <= 0:
                    return None
                else:
                    await self.bell.heard(heard, mark, left if look.due is None else min(left, look.due))
                    busy = _LEAST_PAUSE

    async def renew(self, delivery: Delivery, /) -> Delivery:
        """Keep the delivery for another lease; its receipt stays. [SCH-RENEW-NAME] [SCH-RENEW-SILENT]"""
        check_workflow(delivery.workflow)
        await self.connections.call(sql.RENEW, (delivery.workflow, self.queue, number_of(delivery), span(self._lease)))
        return delivery

    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        """Answer, and set the next wakeup. [SCH-WAKE-ANSWERS] [SCH-WAKE-COUNT] [SCH-WAKE-NOT-BEFORE] [SCH-WAKE-NEWER]"""
        check_workflow(delivery.workflow)
        at = check_moment(when, "when")
        check_count(attempt, lapses)
        await self._answer(delivery, at, None, attempt, lapses, None)

    async def done(self, delivery: Delivery, /) -> None:
        """Answer, with nothing further to do. [SCH-DONE-ANSWERS] [SCH-DONE-NEWER] [SCH-DONE-STALE] [SCH-DONE-CANCELLED]"""
        check_workflow(delivery.workflow)
        await self._answer(delivery, None, None, 1, 0, None)

    async def bury(self, delivery: Delivery, reason: str, /) -> None:
        """Answer, and set the workflow aside. [SCH-BURY-KEEPS] [SCH-BURY-CANCELLED] [SCH-BURY-STALE]"""
        check_workflow(delivery.workflow)
        await self._answer(delivery, None, None, 1, 0, storable(reason))
        self.bell.ended(delivery.workflow)

    async def _answer(
        self, delivery: Delivery, at: datetime | None, delay: timedelta | None, attempt: int, lapses: int, reason: str | None
    ) -> None:
        after = None if delay is None else span(delay)
        params = (delivery.workflow, self.queue, number_of(delivery), at, after, attempt, lapses, reason)
        ((again,),) = await self.connections.call(sql.ANSWER, params)
        if again:
            self.bell.ready()

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

    async def describe(self, /) -> Description:
        """Say what the store promises now. [DUR-DESCRIBE]"""
        return await describe(self.connections, self.bell)

    async def aclose(self) -> None:
        """Stop listening and give back what was borrowed; the pool stays open. A `PostgresDurable` does it for its halves."""
        await self.bell.aclose()
        await self.connections.aclose()


async def _heard(take: Coroutine[object, object, Look[T]], take_back: Callable[[T], Awaitable[None]]) -> Look[T]:
    """Take in a task of its own, so that a cancellation cannot come between the commit and its answer."""
    task: asyncio.Task[Look[T]] = asyncio.get_running_loop().create_task(take)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not (await asyncio.wait((task,), timeout=_ANSWERING))[0]:
            task.cancel()
        elif not task.cancelled() and task.exception() is None:
            taken = task.result().taken
            if taken is not None:
                try:
                    await take_back(taken)
                except UNREACHABLE:
                    pass  # then it lapses
        raise


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
