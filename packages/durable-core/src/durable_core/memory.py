"""The memory double: the contract's reference behind `await`, with the codec applied. For tests; nothing survives the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from durable_core import reference
from durable_core._clock import Clock
from durable_core._memory import Memory, MemoryEffect, description, let_others_run
from durable_core._memory_checkpointer import MemoryCheckpointer
from durable_core._memory_scheduler import LEASE, MemoryScheduler
from durable_core._reference_records import Records
from durable_core.contract import (
    Catalog,
    CheckpointCodec,
    Description,
    Durable,
    Encoded,
    Entry,
    Failed,
    Finished,
    Listed,
    Recorded,
    State,
    Turn,
)
from durable_core.errors import Misconfigured
from durable_core.keys import (
    INBOX,
    OUTCOME,
    check_duration,
    check_limit,
    check_moment,
    check_once,
    check_open_key,
    check_wait,
    check_workflow,
)

__all__ = ["Memory", "MemoryCheckpointer", "MemoryDurable", "MemoryEffect", "MemoryScheduler"]

_STATES = ("ready", "running", "sleeping", "blocked", "buried", "finished")


class MemoryDurable:
    """Durable workflows in memory, for tests: exclusion, fencing, rollback and refusals as in the real stores.

    `clock` is its clock: the system's, or a `ManualClock`; `codec` is by default `JsonCodec()`. A second instance on the same
    `memory` sees the same workflows, in the same queue or in another. It needs no opening; `async with` works. Any number of
    threads and event loops may use it at once.

    [DUR-CO-COMMIT] Each transition is one step under one lock. An await that is cancelled was done as a whole or not at all.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        queue: str = "default",
        lease: timedelta = LEASE,
        codec: CheckpointCodec[Encoded] | None = None,
        memory: Memory | None = None,
    ) -> None:
        if clock is not None and memory is not None:
            raise Misconfigured("a memory has a clock: give one of the two")
        self.memory: Memory = Memory(clock) if memory is None else memory
        self._checkpointer = MemoryCheckpointer(self.memory, codec=codec)
        self._scheduler = MemoryScheduler(self.memory, queue=queue, lease=lease)
        self._queue, self._lease = queue, lease

    def __repr__(self) -> str:
        return f"MemoryDurable({self.memory!r}, queue={self._queue!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        pass

    async def prepare(self) -> None:
        """Do nothing: there is no schema."""

    @property
    def checkpointer(self) -> MemoryCheckpointer:
        """The half that keeps records."""
        return self._checkpointer

    @property
    def scheduler(self) -> MemoryScheduler:
        """The half that keeps wakeups."""
        return self._scheduler

    @property
    def data(self) -> dict[str, object]:
        """The dict that effects work on."""
        return self.memory.data

    @property
    def monotonic(self) -> Callable[[], float]:
        """Seconds that pass as this store's clock does."""
        return self.memory.clock.monotonic

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record a value and let the workflow run. [DUR-ARRIVE]"""
        check_open_key(workflow, key, allow_input=True)
        encoded = self._checkpointer.encoded(workflow, key, value)
        await let_others_run()
        answer = self.memory.change(workflow, self._queue, lambda state, now: reference.arrive(state, now, key, encoded))
        return self._checkpointer.recorded(workflow, key, answer)

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox and let the workflow run. [DUR-DELIVER]"""
        check_workflow(workflow)
        check_once(once)
        encoded = self._checkpointer.encoded(workflow, INBOX, value)
        await let_others_run()
        entry = self.memory.change(workflow, self._queue, lambda state, now: reference.deliver(state, now, encoded, once))
        return self._checkpointer.entry(workflow, entry)

    async def delete(self, workflow: str, /) -> int:
        """Forget the workflow. [DUR-DELETE]"""
        check_workflow(workflow)
        await let_others_run()
        return self.memory.change(workflow, self._queue, lambda state, _: reference.delete(state))

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        """Take, claim and load up to `limit` workflows. [DUR-BEGIN] [DUR-BEGIN-FRESH]"""
        wait = check_wait(wait)
        check_duration(budget, "budget")
        check_limit(limit)
        await let_others_run()
        turns = await self.memory.begin(self._queue, wait, self._lease, budget, limit)
        return [Turn(turn.holder, turn.delivery, self._view(turn)) for turn in turns]

    async def renew(self, turn: Turn, /) -> Turn | None:
        """Give a sign of life for the turn. [DUR-KEEP]"""
        check_workflow(turn.holder.workflow)
        await let_others_run()
        return self.memory.change(
            turn.holder.workflow, self._queue, lambda state, now: reference.renew_turn(state, now, turn, self._lease)
        )

    async def finish(self, turn: Turn, value: object, /) -> Recorded:
        """End the workflow with its outcome. [DUR-FINISH] [DUR-TURN-FENCED]"""
        workflow = turn.holder.workflow
        check_workflow(workflow)
        encoded = self._checkpointer.encoded(workflow, OUTCOME, value)
        await let_others_run()
        answer = self.memory.change(workflow, self._queue, lambda state, now: reference.finish(state, now, turn, encoded))
        return self._checkpointer.recorded(workflow, OUTCOME, answer, turn.holder)

    async def pause(self, turn: Turn, due: datetime | None, /) -> None:
        """End the pass while the workflow waits. [DUR-PAUSE]"""
        check_workflow(turn.holder.workflow)
        moment = None if due is None else check_moment(due, "due")
        await let_others_run()
        self.memory.change(
            turn.holder.workflow, self._queue, lambda state, now: (reference.pause(state, now, turn, moment), None)
        )

    async def fail(self, turn: Turn, reason: str, again_in: timedelta | None, /) -> None:
        """End the pass as a failed attempt. [DUR-FAIL]"""
        check_workflow(turn.holder.workflow)
        if again_in is not None:
            check_duration(again_in, "again_in")
        await let_others_run()
        self.memory.change(
            turn.holder.workflow, self._queue, lambda state, now: (reference.fail(state, now, turn, reason, again_in), None)
        )

    async def hand_back(self, turn: Turn, again_in: timedelta, /) -> None:
        """End the pass untouched. [DUR-HAND-BACK]"""
        check_workflow(turn.holder.workflow)
        if again_in != timedelta(0):
            check_duration(again_in, "again_in")
        await let_others_run()
        self.memory.change(
            turn.holder.workflow, self._queue, lambda state, now: (reference.hand_back(state, now, turn, again_in), None)
        )

    async def result(self, workflow: str, /) -> Finished[object] | Failed | None:
        """Give how the workflow ended. [DUR-RESULT]"""
        check_workflow(workflow)
        await let_others_run()
        result = reference.result(self.memory.see(workflow, self._queue))
        if not isinstance(result, Finished):
            return result
        return Finished(self._checkpointer.decoded(workflow, OUTCOME, result.value))

    async def watch(self, workflow: str, wait: timedelta, /) -> None:
        """Return once the workflow has a result, or after `wait`. [DUR-RESULT]"""
        check_workflow(workflow)
        wait = check_wait(wait)
        await let_others_run()
        await self.memory.watch(workflow, self._queue, wait)

    async def describe(self, /) -> Description:
        """Say what this is. [DUR-DESCRIBE]"""
        return description()

    async def workflows(
        self, /, *, prefix: str = "", state: State | None = None, after: str | None = None, limit: int = 100
    ) -> Sequence[Listed]:
        """Give a page of workflows, in the order of their ids. [CAT-LIST]"""
        check_limit(limit)
        if state is not None and state not in _STATES:
            raise ValueError(f"state must be one of {', '.join(_STATES)}, and is {state!r}")
        await let_others_run()
        return reference.workflows(self.memory.states(self._queue), self.memory.clock.now(), prefix, state, after, limit)

    async def sweep(self, finished_before: datetime, /) -> int:
        """Discard what finished before an instant. [CAT-SWEEP]"""
        moment = check_moment(finished_before, "finished_before")
        await let_others_run()
        return self.memory.sweep(moment)

    def _view(self, turn: Turn) -> Mapping[str, object] | None:
        records = turn.records
        return self._checkpointer.view(turn.holder.workflow, records) if isinstance(records, Records) else records


_held_to_protocol: type[Durable[MemoryEffect]] = MemoryDurable
_held_to_catalog: type[Catalog] = MemoryDurable
