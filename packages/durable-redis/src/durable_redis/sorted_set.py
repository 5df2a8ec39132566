"""The wakeups of workflows in Redis: one set a queue, in which each workflow's score says when to look at it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from durable_core.contract import Delivery, Description, Scheduler
from durable_core.keys import check_count, check_duration, check_moment, check_queue, check_wait, check_workflow
from durable_redis._bell import Bell
from durable_redis._coding import Reply, micros, micros_at, moment, number, parts, text
from durable_redis._connection import Connection, nonce
from durable_redis._describe import describe
from durable_redis._scripts import Variant
from durable_redis._waiting import Partitions
from durable_redis._wire import Argument, Client
from durable_redis.keys import Partitioned, Queue, check_namespace, check_partitions

LEASE = timedelta(seconds=60)


class RedisScheduler:
    """A `Scheduler`: the clauses of `durable_core.contract.Scheduler` hold, each operation is one script.

    An idle taker waits on a bell and does not poll. `queue` divides wakeups only. Every method may raise what redis-py raises
    when the server cannot be reached; a call that was lost on its way is repeated, and gives the same answer. [ANY-REPEAT]
    """

    variant: Variant = "set"
    parts = "zdxn"

    def __init__(
        self,
        client: Client,
        *,
        namespace: str = "durable",
        partitions: int = 1,
        queue: str = "default",
        lease: timedelta = LEASE,
    ) -> None:
        check_namespace(namespace)
        check_partitions(partitions)
        self._set_up(Connection(client), Partitioned(namespace, partitions), queue, lease)

    @classmethod
    def within(cls, connection: Connection, layout: Partitioned, queue: str, lease: timedelta) -> RedisScheduler:
        """Give the half of a durable, whose records share its partitions."""
        made = cls.__new__(cls)
        made._set_up(connection, layout, queue, lease)
        made._indexed = True
        return made

    def _set_up(self, connection: Connection, layout: Partitioned, queue: str, lease: timedelta) -> None:
        check_queue(queue)
        check_duration(lease, "lease")
        self.connection: Connection = connection
        self.layout: Partitioned = layout
        self.queue: str = queue
        self._lease = lease
        self._indexed = False  # where there is a catalog, it lists what only waits to run
        self.places: Sequence[Queue] = [layout.queue(queue, place, self.parts) for place in range(layout.partitions)]
        self.bell: Bell = Bell(connection, [place.bell for place in self.places], lease)
        self.partitions: Partitions = Partitions(self.bell, layout.partitions)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.layout!r}, queue={self.queue!r})"

    async def prepare(self) -> None:
        """Connect, and refuse a server that cannot keep the contract. Raises: `Misconfigured`."""
        await self.connection.check_server()

    async def aclose(self) -> None:
        """Stop listening, and end what is under way. The client stays open: it is the application's."""
        await self.bell.aclose()
        await self.connection.aclose()

    @property
    def lease(self) -> timedelta:
        """How long a taken delivery is nobody else's without a `renew`."""
        return self._lease

    async def now(self, /) -> datetime:
        """Give the store's clock, UTC: the server's. [ANY-CLOCK]"""
        reply = await self.connection.run("now", [self.places[0].states])
        return moment(number(reply))

    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        """Let the workflow run as soon as it can. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]"""
        queue = self.place_of(workflow)
        keys = (*queue.keys, queue.index) if self._indexed else queue.keys
        await self._run("make_ready", keys, workflow, "1" if revive else "", "1" if self._indexed else "")

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        """Take the next wakeup that is due. [SCH-NEXT-WAIT] [SCH-NEXT-OLDEST] [SCH-NEXT-ONE] [SCH-NEXT-LAPSED] [SCH-NEXT-DEEP]"""
        seconds = check_wait(wait).total_seconds()
        return await self.partitions.first(self._looked, seconds, None)

    async def _looked(self, place: int) -> tuple[Delivery | None, float | None]:
        return await self.connection.heard(self._take(place), self._take_back)

    async def _take(self, place: int) -> tuple[Delivery | None, float | None]:
        receipt = nonce()
        reply = await self.connection.run(
            "next_ready", self.places[place].keys, receipt, micros(self._lease), variant=self.variant
        )
        again, *taken = parts(reply)
        if not taken:
            return None, seconds_of(again)
        workflow, attempt, lapses, due = taken
        return Delivery(text(workflow), receipt, number(attempt), number(lapses), moment(number(due))), None

    async def _take_back(self, taken: tuple[Delivery | None, float | None]) -> None:
        delivery, _ = taken
        if delivery is not None:
            await self.wake_at(delivery, delivery.due, attempt=delivery.attempt, lapses=delivery.lapses)

    async def renew(self, delivery: Delivery, /) -> Delivery:
        """Keep the delivery for another lease; its receipt stays. [SCH-RENEW-NAME] [SCH-RENEW-SILENT]"""
        await self._answer("renew_delivery", delivery, micros(self._lease))
        return delivery

    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        """Answer, and set the next wakeup. [SCH-WAKE-ANSWERS] [SCH-WAKE-COUNT] [SCH-WAKE-NOT-BEFORE] [SCH-WAKE-NEWER]"""
        check_workflow(delivery.workflow)
        at = micros_at(check_moment(when, "when"))
        check_count(attempt, lapses)
        await self._answer("wake_at", delivery, at, attempt, lapses)

    async def done(self, delivery: Delivery, /) -> None:
        """Answer, with nothing further to do. [SCH-DONE-ANSWERS] [SCH-DONE-NEWER] [SCH-DONE-STALE] [SCH-DONE-CANCELLED]"""
        await self._answer("done", delivery)

    async def bury(self, delivery: Delivery, reason: str, /) -> None:
        """Answer, and set the workflow aside. [SCH-BURY-KEEPS] [SCH-BURY-CANCELLED] [SCH-BURY-STALE]"""
        await self._answer("bury", delivery, storable(reason))

    async def buried(self, workflow: str, /) -> str | None:
        """Give the reason why the workflow is buried, or `None`."""
        reason = await self._run("buried", [self.place_of(workflow).states], workflow)
        return None if reason is None else text(reason)

    async def cancel(self, workflow: str, /) -> None:
        """Forget the workflow's wakeups. [SCH-CANCEL-ALL]"""
        await self._run("cancel", self.place_of(workflow).keys, workflow)

    async def describe(self, /) -> Description:
        """Say what the store promises now. [DUR-DESCRIBE]"""
        return await describe(self.connection, lists=False, co_commits=False, poll=timedelta(seconds=self.bell.block))

    def place_of(self, workflow: str) -> Queue:
        """Give the keys of the queue in the partition of a workflow."""
        check_workflow(workflow)
        return self.places[self.layout.place(workflow)]

    async def _answer(self, name: str, delivery: Delivery, *arguments: Argument) -> None:
        queue = self.place_of(delivery.workflow)
        await self._run(name, queue.keys, delivery.workflow, receipt_of(delivery), *arguments)

    async def _run(self, name: str, keys: Sequence[bytes], workflow: str, *arguments: Argument) -> Reply:
        return await self.connection.run(name, keys, workflow.encode(), *arguments, variant=self.variant)


def receipt_of(delivery: Delivery) -> str:
    """Give the receipt; for one that no delivery of this store can have, one that is never current. [SCH-DONE-STALE]"""
    receipt = delivery.receipt
    return receipt if receipt.isascii() and receipt.replace(".", "").isalnum() else "?"


def seconds_of(again: Reply) -> float | None:
    """Give in how many seconds to look again, or `None`: only a change can tell."""
    return None if again == b"" else number(again) / 1e6


def storable(reason: str) -> bytes:
    """Give a reason that UTF-8 can hold."""
    return reason.encode("utf-8", "backslashreplace")


_: type[Scheduler] = RedisScheduler
