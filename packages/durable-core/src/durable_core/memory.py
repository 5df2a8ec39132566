"""The memory double: the contract's reference behind `await`, with the codec applied. For tests; nothing survives the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import metadata
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Self, cast

from durable_core import reference
from durable_core._clock import Clock
from durable_core._memory import Memory, MemoryEffect, let_others_run
from durable_core._reference_records import Record, Records
from durable_core.codec import JsonCodec, decoded_for, encoded_for, roundtripped
from durable_core.contract import (
    Catalog,
    CheckpointCodec,
    Checkpointer,
    Delivery,
    Description,
    Durable,
    Encoded,
    Entry,
    Failed,
    Finished,
    Listed,
    Pass,
    Recorded,
    Scheduler,
    State,
    Torn,
    Turn,
    Written,
)
from durable_core.errors import EffectTorn, Fenced, Misconfigured
from durable_core.keys import (
    INBOX,
    OUTCOME,
    check_count,
    check_duration,
    check_key,
    check_limit,
    check_moment,
    check_once,
    check_open_key,
    check_queue,
    check_skip,
    check_wait,
    check_workflow,
)

__all__ = ["Memory", "MemoryCheckpointer", "MemoryDurable", "MemoryEffect", "MemoryScheduler"]

_LEASE = timedelta(seconds=60)
_STATES = ("ready", "running", "sleeping", "blocked", "buried", "finished")


class MemoryCheckpointer:
    """A checkpointer over a `Memory`, by default one of its own.

    An effect is a plain function over `data`, the double's own dict; what it did there is undone when it raises or its record is
    refused.
    """

    def __init__(self, memory: Memory | None = None, *, codec: CheckpointCodec[Encoded] | None = None) -> None:
        self.memory = Memory() if memory is None else memory
        # Only what this codec encoded is ever handed to it, as long as all instances on one memory are given the same one.
        self._codec = cast(CheckpointCodec[object], JsonCodec() if codec is None else codec)

    def __repr__(self) -> str:
        return f"MemoryCheckpointer({self.memory!r}, codec={self._codec!r})"

    @property
    def data(self) -> dict[str, object]:
        """The dict that effects work on."""
        return self.memory.data

    @property
    def monotonic(self) -> Callable[[], float]:
        """Seconds that pass as this store's clock does."""
        return self.memory.clock.monotonic

    def roundtrip(self, value: object, /) -> object:
        """Give `decode(encode(value))`. Raises: `NotEncodable`."""
        return roundtripped(self._codec, value)

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        """Give every record but the first `skip`, decoded. [CKP-LOAD-ORDER] [CKP-LOAD-PREFIX]"""
        check_workflow(workflow)
        check_skip(skip)
        await let_others_run()
        records = self.memory.see(workflow).ledger.records.since(skip)
        return {record.key: self._decoded(workflow, record) for record in records}

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        """Record a value as the holder. [CKP-RECORD-ONCE] [CKP-RECORD-FENCED]"""
        check_key(holder.workflow, key)
        encoded = self.encoded(holder.workflow, key, value)
        await let_others_run()
        answer = self.memory.change(holder.workflow, None, lambda state, now: reference.record(state, now, holder, key, encoded))
        return self.recorded(holder.workflow, key, answer, holder)

    async def transact(self, holder: Pass, key: str, effect: MemoryEffect, /) -> object:
        """Apply an effect and record what it gives. [CKP-TRANSACT-ATOMIC] [CKP-TRANSACT-RECORDED]

        The effect may use the store, and its writes there stand; it may not begin another effect.

        Raises: `Misconfigured` for that, for an effect that is no plain function, and for a dict that cannot be copied.
        """
        check_key(holder.workflow, key)
        given: object = effect
        if not callable(given) or iscoroutinefunction(given):
            raise Misconfigured(
                f"the effect {key!r} of workflow {holder.workflow!r} must be a function over a dict, not {given!r}"
            )
        await let_others_run()
        answer = self.memory.transact(holder, key, effect, lambda value: self.encoded(holder.workflow, key, value))
        return self.recorded(holder.workflow, key, answer, holder).value

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record a value from outside any pass. [CKP-SUPPLY-FREE] [CKP-SUPPLY-ONCE]"""
        check_key(workflow, key)
        encoded = self.encoded(workflow, key, value)
        await let_others_run()
        answer = self.memory.change(workflow, None, lambda state, now: reference.supply(state, now, key, encoded))
        return self.recorded(workflow, key, answer)

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox. [CKP-APPEND-ABOVE] [CKP-APPEND-ONCE]"""
        check_workflow(workflow)
        check_once(once)
        encoded = self.encoded(workflow, INBOX, value)
        await let_others_run()
        entry = self.memory.change(workflow, None, lambda state, now: reference.append(state, now, encoded, once))
        return self.entry(workflow, entry)

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        """Take the workflow for one pass, or give `None`. [CKP-CLAIM-ONE] [CKP-CLAIM-RISING]"""
        check_workflow(workflow)
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        await let_others_run()
        return self.memory.claim(workflow, budget, alive)

    async def extend(self, holder: Pass, budget: timedelta, alive: timedelta, /) -> bool:
        """Grant `budget` from now. [CKP-EXTEND-GRANT] [CKP-HOLD-LOST]"""
        check_workflow(holder.workflow)
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        await let_others_run()
        return self.memory.change(holder.workflow, None, lambda state, now: reference.extend(state, now, holder, budget, alive))

    async def renew(self, holder: Pass, alive: timedelta, /) -> bool:
        """Give a sign of life. [CKP-RENEW-LIVE] [CKP-RENEW-BUDGET]"""
        check_workflow(holder.workflow)
        check_duration(alive, "alive")
        await let_others_run()
        return self.memory.change(holder.workflow, None, lambda state, now: reference.renew(state, now, holder, alive))

    async def release(self, holder: Pass, /) -> None:
        """Give the claim back. [CKP-RELEASE-FREE] [CKP-RELEASE-FINAL]"""
        check_workflow(holder.workflow)
        await let_others_run()
        self.memory.change(holder.workflow, None, lambda state, _: (reference.release(state, holder), None))

    async def history(self, workflow: str, /) -> dict[str, Written]:
        """Give every record with its time. [CKP-HISTORY-SAME] [CKP-HISTORY-TIME]"""
        check_workflow(workflow)
        await let_others_run()
        records = self.memory.see(workflow).ledger.records.since(0)
        return {record.key: Written(self._decoded(workflow, record), record.at) for record in records}

    async def discard(self, workflow: str, /) -> int:
        """Forget every record. [CKP-DISCARD-ALL] [CKP-DISCARD-FENCE]"""
        check_workflow(workflow)
        await let_others_run()
        return self.memory.change(workflow, None, lambda state, _: reference.discard(state))

    async def describe(self, /) -> Description:
        """Say what this is. [DUR-DESCRIBE]"""
        return _description()

    # What MemoryDurable shares with this half.

    def encoded(self, workflow: str, key: str, value: object) -> object:
        """Encode a value. Raises: `NotEncodable`."""
        return encoded_for(self._codec, workflow, key, value)

    def decoded(self, workflow: str, key: str, encoded: object) -> object:
        """Decode what is held. Raises: `NotParsed`."""
        return decoded_for(self._codec, workflow, key, encoded)

    def recorded(self, workflow: str, key: str, answer: reference.Answer, holder: Pass | None = None) -> Recorded:
        """Turn an answer of the reference into this store's. Raises: `Fenced`, `EffectTorn`, `NotParsed`."""
        if isinstance(answer, Torn):
            raise EffectTorn(workflow, key, answer.reason)
        if isinstance(answer, reference.Refusal):
            raise Fenced(workflow, 0 if holder is None else holder.token, key)
        return Recorded(self.decoded(workflow, key, answer.value), answer.first)

    def entry(self, workflow: str, entry: Entry[object]) -> Entry[object]:
        """Decode an entry. Raises: `NotParsed`."""
        return Entry(entry.key, self.decoded(workflow, entry.key, entry.value))

    def view(self, workflow: str, records: Records) -> Mapping[str, object]:
        """Give records that decode on access."""
        return _Decoded(self, workflow, records)

    def _decoded(self, workflow: str, record: Record) -> object:
        return record.value if isinstance(record.value, Torn) else self.decoded(workflow, record.key, record.value)


class MemoryScheduler:
    """A scheduler over a `Memory`, by default one of its own, of one queue."""

    def __init__(self, memory: Memory | None = None, *, queue: str = "default", lease: timedelta = _LEASE) -> None:
        check_queue(queue)
        check_duration(lease, "lease")
        self.memory = Memory() if memory is None else memory
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
        return _description()


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
        lease: timedelta = _LEASE,
        codec: CheckpointCodec[Encoded] | None = None,
        memory: Memory | None = None,
    ) -> None:
        if clock is not None and memory is not None:
            raise Misconfigured("a memory has a clock: give one of the two")
        self.memory = Memory(clock) if memory is None else memory
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
        return _description()

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


class _Decoded(Mapping[str, object]):
    """Records that cross the codec when they are looked at, anew each time."""

    def __init__(self, checkpointer: MemoryCheckpointer, workflow: str, records: Records) -> None:
        self._checkpointer, self._workflow, self._records = checkpointer, workflow, records

    def __repr__(self) -> str:
        return f"<{len(self._records)} records of {self._workflow!r}>"

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __contains__(self, key: object) -> bool:
        return key in self._records

    def __getitem__(self, key: str) -> object:
        encoded = self._records[key]
        return encoded if isinstance(encoded, Torn) else self._checkpointer.decoded(self._workflow, key, encoded)


def _description() -> Description:
    try:
        version = metadata.version("durable-core")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return Description(
        product="memory",
        version=version,
        survives_kill="no",
        survives_power_cut="no",
        survives_failover="no",
        transacts=True,
        undoes=True,
        interleaves=False,
        co_commits=True,
        joins=False,
        lists=True,
        poll=timedelta(0),
    )


_checkpointer: type[Checkpointer[MemoryEffect]] = MemoryCheckpointer
_scheduler: type[Scheduler] = MemoryScheduler
_durable: type[Durable[MemoryEffect]] = MemoryDurable
_catalog: type[Catalog] = MemoryDurable
