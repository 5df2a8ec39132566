"""The memory double's checkpointer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import cast

from durable_core import reference
from durable_core._memory import Memory, MemoryEffect, description, let_others_run
from durable_core._reference_records import Record, Records
from durable_core.codec import JsonCodec, decoded_for, encoded_for, roundtripped
from durable_core.contract import CheckpointCodec, Checkpointer, Description, Encoded, Entry, Pass, Recorded, Torn, Written
from durable_core.errors import EffectTorn, Fenced, Misconfigured
from durable_core.keys import INBOX, check_duration, check_key, check_once, check_skip, check_workflow


class MemoryCheckpointer:
    """A checkpointer over a `Memory`, by default one of its own.

    An effect is a plain function over `data`, the double's own dict; what it did there is undone when it raises or its record is
    refused.
    """

    def __init__(self, memory: Memory | None = None, *, codec: CheckpointCodec[Encoded] | None = None) -> None:
        self.memory: Memory = Memory() if memory is None else memory
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
        return description()

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


_held_to_protocol: type[Checkpointer[MemoryEffect]] = MemoryCheckpointer
