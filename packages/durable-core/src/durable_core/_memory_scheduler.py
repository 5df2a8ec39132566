"""The memory double's scheduler."""

from __future__ import annotations

from datetime import datetime, timedelta

from durable_core import reference
from durable_core._memory import Memory, description, let_others_run
from durable_core.contract import Delivery, Description, Scheduler
from durable_core.keys import check_count, check_duration, check_moment, check_queue, check_wait, check_workflow

LEASE = timedelta(seconds=60)


class MemoryScheduler:
    """A scheduler over a `Memory`, by default one of its own, of one queue."""

    def __init__(self, memory: Memory | None = None, *, queue: str = "default", lease: timedelta = LEASE) -> None:
        check_queue(queue)
        check_duration(lease, "lease")
        self.memory: Memory = Memory() if memory is None else memory
        self.queue = queue
        self._lease = lease

    def __repr__(self) -> str:
        return f"MemoryScheduler({self.memory!r}, queue={self.queue!r}, lease={self._lease!r})"

    @property
    def lease(self) -> timedelta:
        """How long a taken delivery is nobody else's without a `renew`."""
        return self._lease

    async def now(self, /) -> datetime:
        """Give the clock, UTC."""
        return self.memory.clock.now()

    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        """Let the workflow run. [SCH-READY-EVENTUALLY] [SCH-READY-COALESCE]"""
        check_workflow(workflow)
        await let_others_run()
        self.memory.change(workflow, self.queue, lambda state, now: (reference.make_ready(state, now, revive), None))

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        """Take the next wakeup that is due. [SCH-NEXT-WAIT] [SCH-NEXT-OLDEST]"""
        wait = check_wait(wait)
        await let_others_run()
        return await self.memory.next_ready(self.queue, wait, self._lease)

    async def renew(self, delivery: Delivery, /) -> Delivery:
        """Keep the delivery for another lease. [SCH-RENEW-NAME] [SCH-RENEW-SILENT]"""
        check_workflow(delivery.workflow)
        await let_others_run()
        return self.memory.change(
            delivery.workflow, self.queue, lambda state, now: reference.renew_delivery(state, now, delivery, self._lease)
        )

    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        """Answer, and set the next wakeup. [SCH-WAKE-ANSWERS] [SCH-WAKE-COUNT]"""
        check_workflow(delivery.workflow)
        check_count(attempt, lapses)
        moment = check_moment(when, "when")
        await let_others_run()
        self.memory.change(
            delivery.workflow,
            self.queue,
            lambda state, now: (reference.wake_at(state, now, delivery, moment, attempt, lapses), None),
        )

    async def done(self, delivery: Delivery, /) -> None:
        """Answer. [SCH-DONE-ANSWERS] [SCH-DONE-NEWER]"""
        check_workflow(delivery.workflow)
        await let_others_run()
        self.memory.change(delivery.workflow, self.queue, lambda state, now: (reference.done(state, now, delivery), None))

    async def bury(self, delivery: Delivery, reason: str, /) -> None:
        """Answer, and set the workflow aside. [SCH-BURY-KEEPS]"""
        check_workflow(delivery.workflow)
        await let_others_run()
        self.memory.change(delivery.workflow, self.queue, lambda state, _: (reference.bury(state, delivery, reason), None))

    async def buried(self, workflow: str, /) -> str | None:
        """Give the reason why the workflow is buried."""
        check_workflow(workflow)
        await let_others_run()
        return reference.buried(self.memory.see(workflow, self.queue))

    async def cancel(self, workflow: str, /) -> None:
        """Forget the workflow's wakeup. [SCH-CANCEL-ALL]"""
        check_workflow(workflow)
        await let_others_run()
        self.memory.change(workflow, self.queue, lambda state, _: (reference.cancel(state), None))

    async def describe(self, /) -> Description:
        """Say what this is. [DUR-DESCRIBE]"""
        return description()


_held_to_protocol: type[Scheduler] = MemoryScheduler
