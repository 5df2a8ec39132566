"""Mutants of load."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from durable_conformance.harness import Opening
from durable_conformance.mutants.double import DoubleCheckpointer, DoubleScheduler, Machine
from durable_conformance.mutants.harness import DoubleHarness
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.states import Record, listed, with_records
from durable_core import reference
from durable_core.contract import Entry, Pass, Recorded, Torn
from durable_core.reference import Ledger, State

A = TypeVar("A")


@mutant("N001", "CKP-LOAD-EMPTY", "load of an unknown id leaves a row, which discard then counts")
class LoadLeavesARow(DoubleCheckpointer):
    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        loaded = await super().load(workflow, skip=skip)
        if not loaded:
            with self.vault.transaction() as content:
                content.counters[f"row of {workflow}"] = 1
        return loaded

    async def discard(self, workflow: str, /) -> int:
        with self.vault.transaction() as content:
            row = content.counters.pop(f"row of {workflow}", 0)
        return await super().discard(workflow) or row


@mutant("N002", "CKP-LOAD-EMPTY", "an unknown id is a KeyError")
class UnknownRaises(DoubleCheckpointer):
    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        loaded = await super().load(workflow)
        if not loaded:
            raise KeyError(workflow)
        return dict(list(loaded.items())[skip:])


class Ordered(Machine):
    """Gives records in another order."""

    @staticmethod
    def sorted(records: list[Record]) -> list[Record]:
        return records

    @classmethod
    def load(cls, state: State, skip: int = 0) -> Mapping[str, object]:
        return {record.key: record.value for record in cls.sorted(listed(state))[skip:]}


@mutant("M50", "CKP-LOAD-ORDER", "load sorted by key")
class ByKey(Ordered):
    @staticmethod
    def sorted(records: list[Record]) -> list[Record]:
        return sorted(records, key=lambda one: one.key)


@mutant("M51", "CKP-LOAD-ORDER", "order left to a hash, once it is large or has a long value")
class ByHash(Ordered):
    @staticmethod
    def sorted(records: list[Record]) -> list[Record]:
        large = len(records) > 512 or any(len(str(one.value)) > 64 for one in records)
        return sorted(records, key=lambda one: one.key[::-1]) if large else records


@mutant("M52", "CKP-LOAD-ORDER", "heap order: a record that is written again moves")
class HeapOrder(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, reference.Answer]:
        state, answer = reference.record(state, now, holder, key, encoded)
        if isinstance(answer, Recorded) and not answer.first:
            state = with_records(state, sorted(listed(state), key=lambda one: one.key == key))
        return state, answer


@mutant("M54", "CKP-LOAD-ORDER", "order by a timestamp with ties")
class ByTime(Ordered):
    @staticmethod
    def sorted(records: list[Record]) -> list[Record]:
        return sorted(records, key=lambda one: (one.at.replace(microsecond=0), one.key))


@mutant("M55", "CKP-LOAD-ORDER", "one counter per method: entries and other records are ordered apart")
class CounterPerMethod(Ordered):
    @staticmethod
    def sorted(records: list[Record]) -> list[Record]:
        places: dict[bool, int] = {}
        order: list[tuple[int, bool, Record]] = []
        for one in records:
            entry = one.key.startswith("inbox:")
            places[entry] = places.get(entry, 0) + 1
            order.append((places[entry], entry, one))
        return [one for *_, one in sorted(order, key=lambda part: part[:2])]


@mutant("M56", "CKP-LOAD-ORDER", "position taken from what the pass had loaded")
class PositionOfSnapshot(DoubleCheckpointer):
    snapshot = 10**9

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        loaded = await super().load(workflow, skip=skip)
        self.snapshot = len(loaded)
        return loaded

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        place = self.snapshot
        recorded = await super().record(holder, key, value)

        def move(state: State, now: datetime) -> tuple[State, None]:
            records = listed(state)
            return with_records(state, [*records[:place], records[-1], *records[place:-1]]), None

        if place < 10**9:
            await self.change(holder.workflow, move)
        return recorded


@mutant("N003", "CKP-LOAD-ORDER", "skip leaves out from the end")
class SkipsTheEnd(Machine):
    @staticmethod
    def load(state: State, skip: int = 0) -> Mapping[str, object]:
        return dict(list(reference.load(state).items())[: -skip or None])


@mutant("N004", "CKP-LOAD-ORDER", "an effect's record goes to the front")
class EffectsFirst(Machine):
    @staticmethod
    def transact(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, reference.Answer]:
        state, answer = reference.transact(state, now, holder, key, encoded)
        return with_records(state, sorted(listed(state), key=lambda one: one.key != key)), answer


@mutant("M57", "CKP-LOAD-PREFIX", "position drawn before the commit can be seen")
class PositionDrawnEarly(DoubleCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        place = len(await super().load(workflow))
        for _ in range(4):
            await asyncio.sleep(0)

        def insert(state: State, now: datetime) -> tuple[State, reference.Answer]:
            before = len(state.ledger.records)
            state, answer = self.machine.supply(state, now, key, self.codec.encode(value))
            records = listed(state)
            if len(records) > before:
                state = with_records(state, [*records[:place], records[-1], *records[place:-1]])
            return state, answer

        return self.stored(None, workflow, key, await self.change(workflow, insert))


@mutant("N005", "CKP-LOAD-PREFIX", "a losing write moves the record to the front")
class LoserMoves(Machine):
    @staticmethod
    def supply(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
        known = key in state.ledger.records
        state, answer = reference.supply(state, now, key, encoded)
        return (with_records(state, sorted(listed(state), key=lambda one: one.key != key)) if known else state), answer


@mutant("M94", "CKP-LOAD-CODEC", "objects kept by identity instead of encodings")
class KeepsObjects(DoubleCheckpointer):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self._objects: dict[tuple[str, str], object] = {}

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        recorded = await super().record(holder, key, value)
        self._objects.setdefault((holder.workflow, key), value)
        return recorded

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        loaded = await super().load(workflow, skip=skip)
        return {key: self._objects.get((workflow, key), value) for key, value in loaded.items()}


@mutant("M95", "CKP-LOAD-CODEC", "load hands out the object that it keeps")
class HandsOutItsOwn(DoubleCheckpointer):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self._loaded: dict[str, dict[str, object]] = {}

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        loaded = await super().load(workflow, skip=skip)
        for key, value in self._loaded.setdefault(workflow, loaded).items():
            if key in loaded:
                loaded[key] = value
        self._loaded[workflow] = loaded
        return loaded


@mutant("N006", "CKP-LOAD-CODEC", "record gives back the value that it was handed")
class GivesBackTheValue(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        recorded = await super().record(holder, key, value)
        return Recorded(value, True) if recorded.first else recorded


@mutant("N007", "CKP-LOAD-CODEC", "an entry comes back as it was handed in")
class EntryAsHandedIn(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        return replace(await super().append(workflow, value, once=once), value=value)


@mutant("M10", "CKP-LOAD-ISOLATED", "one claim for all workflows")
class OneClaimForAll(DoubleCheckpointer):
    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        with self.vault.transaction() as content:
            states = [content.state(name, self.queue) for name in content.ledgers]
        if any(reference.held_until(state, self.time()) for state in states):
            return None
        return await super().claim(workflow, budget, alive)


@mutant("M77", "CKP-LOAD-ISOLATED", "discard by prefix")
class DiscardsByPrefix(DoubleCheckpointer):
    async def discard(self, workflow: str, /) -> int:
        with self.vault.transaction() as content:
            for name in [name for name in content.ledgers if name.startswith(workflow) and name != workflow]:
                content.ledgers[name] = Ledger(issued=content.ledgers[name].issued)
        return await super().discard(workflow)


@mutant("M93", "CKP-LOAD-ISOLATED", "braces in an id break the store's own tag")
class BracesBreak(DoubleCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        if "{" in workflow:
            raise LookupError("keys in a request don't hash to the same slot")
        return await super().supply(workflow, key, value)


class Folded(DoubleCheckpointer):
    """Takes two ids for one."""

    def fold(self, workflow: str, key: str) -> tuple[str, str]:
        return workflow, key

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        return await super().supply(*self.fold(workflow, key), value)

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        return await super().load(self.fold(workflow, "")[0], skip=skip)


@mutant("M96", "CKP-LOAD-ISOLATED", "id and key run together: a:b and c is a and b:c")
class RunTogether(DoubleCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        owner, _, rest = workflow.partition(":")
        return await super().supply(owner, f"{rest}:{key}" if rest else key, value)

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        owner, _, rest = workflow.partition(":")
        loaded = await super().load(owner)
        front = f"{rest}:" if rest else ""
        return {key[len(front) :]: value for key, value in loaded.items() if key.startswith(front)}


@mutant("M97", "CKP-LOAD-ISOLATED", "ids folded: case, trailing space, Unicode normalisation")
class FoldedIds(Folded):
    def fold(self, workflow: str, key: str) -> tuple[str, str]:
        return unicodedata.normalize("NFKC", workflow).casefold().rstrip(), key


@mutant("N008", "CKP-LOAD-ISOLATED", "ids are patterns where a workflow is cancelled")
class CancelsByPattern(DoubleScheduler):
    async def cancel(self, workflow: str, /) -> None:
        import fnmatch

        with self.vault.transaction() as content:
            known = [name for name in content.queue(self.queue).wakeups if fnmatch.fnmatchcase(name, workflow)]
        for name in {workflow, *known}:
            await super().cancel(name)


@mutant("N009", "CKP-LOAD-SHARED", "a cache per instance, which another's write does not reach")
class CachePerInstance(DoubleCheckpointer):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self._cache: dict[str, dict[str, object]] = {}

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        if workflow not in self._cache:
            self._cache[workflow] = await super().load(workflow)
        return dict(list(self._cache[workflow].items())[skip:])

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        with suppress(KeyError):
            del self._cache[holder.workflow]
        return await super().record(holder, key, value)


@mutant("N010", "CKP-LOAD-SHARED", "a restart loses the order")
class RestartReorders(DoubleHarness):
    async def restart(self, at: Opening, /) -> None:
        with self.vault_at(at).transaction() as content:
            for workflow in content.ledgers:
                state = content.state(workflow, at.queue)
                content.put(with_records(state, sorted(listed(state), key=lambda one: one.key)), at.queue)
