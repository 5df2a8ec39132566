"""Mutants of supply and append."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, cast

from durable_conformance.harness import Opening
from durable_conformance.mutants.double import DoubleCheckpointer, DoubleDurable, Effect, Hand, Machine
from durable_conformance.mutants.harness import DoubleHarness
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.states import Record, listed, with_claim, with_records
from durable_core import reference
from durable_core.contract import Entry, Pass, Recorded, Torn
from durable_core.errors import Fenced
from durable_core.keys import inbox_key
from durable_core.reference import State


@mutant("M44", "CKP-SUPPLY-FREE", "refused while a pass is live")
class RefusedWhileLive(DoubleCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        with self.vault.transaction() as content:
            if reference.held_until(content.state(workflow, self.queue), self.time()):
                raise Fenced(workflow, 0, key)
        return await super().supply(workflow, key, value)


@mutant("M45", "CKP-SUPPLY-FREE", "renews the claim")
class SupplyRenews(Machine):
    @staticmethod
    def supply(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
        after, answer = reference.supply(state, now, key, encoded)
        claim = after.ledger.claim
        return with_claim(after, claim and replace(claim, seen=now)), answer


@mutant("N050", "CKP-SUPPLY-FREE", "ends the claim")
class SupplyEndsTheClaim(Machine):
    @staticmethod
    def supply(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
        after, answer = reference.supply(state, now, key, encoded)
        claim = after.ledger.claim
        return with_claim(after, claim and replace(claim, held=False)), answer


class HeldWhileAtWork(DoubleCheckpointer):
    """Holds somebody up while an effect is at work."""

    async def apply(self, effect: Effect, hand: Hand) -> object:
        with self.vault.transaction() as content:
            content.counters["at work"] = 1
        try:
            return await super().apply(effect, hand)
        finally:
            with self.vault.transaction() as content:
                content.counters["at work"] = 0

    async def idle(self) -> None:
        """Wait until no effect is at work."""
        while True:
            with self.vault.transaction() as content:
                if not content.counters.get("at work"):
                    return
            await asyncio.sleep(0.001)


@mutant("N051", "CKP-SUPPLY-FREE", "held up by a long effect")
class SupplyHeldUp(HeldWhileAtWork):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        await self.idle()
        return await super().supply(workflow, key, value)


@mutant("N052", "CKP-APPEND-FREE", "held up by a long effect")
class AppendHeldUp(HeldWhileAtWork):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        await self.idle()
        return await super().append(workflow, value, once=once)


@mutant("M47", "CKP-SUPPLY-ONCE", "overwrites")
class Overwrites(Machine):
    @staticmethod
    def supply(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
        state = with_records(state, [replace(one, value=encoded) if one.key == key else one for one in listed(state)])
        return reference.supply(state, now, key, encoded)


@mutant("M48", "CKP-SUPPLY-ONCE", "overwrites what a pass recorded")
class OverwritesAPass(DoubleCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        encoded = self.codec.encode(value)

        def write(state: State, now: datetime) -> tuple[State, Recorded | Torn]:
            claim = state.ledger.claim
            if claim is not None and claim.held:
                state = with_records(state, [replace(one, value=encoded) if one.key == key else one for one in listed(state)])
            return self.machine.supply(state, now, key, encoded)

        return self.stored(None, workflow, key, await self.change(workflow, write))


@mutant("M49", "CKP-SUPPLY-ONCE", "loses in silence: gives its own value")
class LosesInSilence(Machine):
    @staticmethod
    def supply(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
        after, answer = reference.supply(state, now, key, encoded)
        return after, replace(answer, value=encoded) if isinstance(answer, Recorded) else answer


@mutant("N053", "CKP-SUPPLY-ONCE", "looks, lets the loop turn, then writes")
class SupplyLooksThenWrites(DoubleCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        if key in await self.load(workflow):
            return await super().supply(workflow, key, value)

        def write(state: State, now: datetime) -> tuple[State, Recorded | Torn]:
            state = with_records(state, [one for one in listed(state) if one.key != key])
            return self.machine.supply(state, now, key, self.codec.encode(value))

        return self.stored(None, workflow, key, await self.change(workflow, write))


@mutant("N054", "CKP-SUPPLY-ONCE", "overrules an effect's record")
class OverrulesAnEffect(DoubleCheckpointer):
    effects: ClassVar[dict[tuple[str, str], bool]] = {}

    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        value = await super().transact(holder, key, effect)
        self.effects[holder.workflow, key] = True
        return value

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        if self.effects.pop((workflow, key), False):
            return Recorded(value, True)
        return await super().supply(workflow, key, value)


@mutant("N055", "CKP-SUPPLY-DURABLE", "answers before its commit")
class AnswersBeforeItsCommit(DoubleCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        task = asyncio.ensure_future(self.later(workflow, key, value))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return Recorded(self.roundtrip(value), True)

    async def later(self, workflow: str, key: str, value: object) -> Recorded:
        await asyncio.sleep(0.01)
        return await super().supply(workflow, key, value)


@mutant("N056", "CKP-SUPPLY-DURABLE", "a restart loses what was supplied, or whose claim was live")
class RestartLosesSupplies(DoubleHarness):
    async def restart(self, at: Opening, /) -> None:
        with self.vault_at(at).transaction() as content:
            content.ledgers.clear()


# -------------------------------------------------------------------------------------------------------------- append


class Numbering(Machine):
    """Chooses another number for an entry."""

    @classmethod
    def number(cls, state: State, encoded: object) -> int | None:
        return None

    @classmethod
    def append(
        cls, state: State, now: datetime, encoded: object, once: str | None = None, number: int | None = None
    ) -> tuple[State, Entry[object]]:
        return reference.append(state, now, encoded, once, cls.number(state, encoded))


class Naming(Machine):
    """Gives an entry another key."""

    @classmethod
    def name(cls, number: int) -> str:
        return inbox_key(number)

    @classmethod
    def append(
        cls, state: State, now: datetime, encoded: object, once: str | None = None, number: int | None = None
    ) -> tuple[State, Entry[object]]:
        after, entry = reference.append(state, now, encoded, once)
        key = cls.name(int(entry.key[6:]))
        records = listed(after)
        if len(after.ledger.records) > len(state.ledger.records):
            records[-1] = replace(records[-1], key=key)
            after = with_loose_records(after, records)
        return after, Entry(key, entry.value)


def with_loose_records(state: State, records: list[Record]) -> State:
    """Give the state with records whose inbox keys need not be well formed."""
    built = with_records(state, [replace(one, key=f"k{place}") for place, one in enumerate(records)])
    log = built.ledger.records._log  # pyright: ignore[reportPrivateUsage]
    for place, one in enumerate(records):
        log.items[place] = one
    log.index = {one.key: place for place, one in enumerate(records)}
    built.ledger.records.inbox = len(records)
    return built


@mutant("N057", "CKP-APPEND-KEY", "nineteen digits")
class NineteenDigits(Naming):
    @classmethod
    def name(cls, number: int) -> str:
        return f"inbox:{number:019d}"


@mutant("N058", "CKP-APPEND-KEY", "numbers at and above 2^53")
class AboveTheLimit(Naming):
    @classmethod
    def name(cls, number: int) -> str:
        return f"inbox:{2**53 + number:020d}"


@mutant("M61", "CKP-APPEND-SORTED", "numbers without padding")
class WithoutPadding(Naming):
    @classmethod
    def name(cls, number: int) -> str:
        return f"inbox:{number}"


@mutant("M46", "CKP-APPEND-FREE", "needs a claim")
class AppendNeedsAClaim(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        with self.vault.transaction() as content:
            if reference.held_until(content.state(workflow, self.queue), self.time()) is None:
                raise Fenced(workflow, 0)
        return await super().append(workflow, value, once=once)


@mutant("N059", "CKP-APPEND-FREE", "renews the claim")
class AppendRenews(Machine):
    @staticmethod
    def append(
        state: State, now: datetime, encoded: object, once: str | None = None, number: int | None = None
    ) -> tuple[State, Entry[object]]:
        after, entry = reference.append(state, now, encoded, once, number)
        claim = after.ledger.claim
        return with_claim(after, claim and replace(claim, seen=now)), entry


@mutant("N060", "CKP-APPEND-FREE", "an id that was discarded takes no message")
class DiscardedTakesNone(DoubleCheckpointer):
    async def discard(self, workflow: str, /) -> int:
        with self.vault.transaction() as content:
            content.counters[f"gone {workflow}"] = 1
        return await super().discard(workflow)

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        with self.vault.transaction() as content:
            if content.counters.get(f"gone {workflow}"):
                raise LookupError("no such workflow")
        return await super().append(workflow, value, once=once)


@mutant("M58", "CKP-APPEND-DISTINCT", "the key is max+1, read outside the write")
class MaxPlusOne(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        number = 1 + sum(key.startswith("inbox:") for key in await self.load(workflow))
        recorded = await self.supply(workflow, inbox_key(number), value)
        return Entry(inbox_key(number), recorded.value)


@mutant("M59", "CKP-APPEND-DISTINCT", "the key comes from the value")
class KeyFromValue(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        return await super().append(workflow, value, once=once or self.codec.encode(value))


@mutant("M60", "CKP-APPEND-DISTINCT", "equal neighbours are one")
class EqualNeighbours(Machine):
    @staticmethod
    def append(
        state: State, now: datetime, encoded: object, once: str | None = None, number: int | None = None
    ) -> tuple[State, Entry[object]]:
        records = listed(state)
        if records and records[-1].key.startswith("inbox:") and records[-1].value == encoded:
            return state, Entry(records[-1].key, encoded)
        return reference.append(state, now, encoded, once, number)


@mutant("M62", "CKP-APPEND-SORTED", "a counter per instance")
class CounterPerInstance(DoubleCheckpointer):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        with self.vault.transaction() as content:
            self._mine = content.next()
        self._last = 0

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        self._last += 1
        key = inbox_key(self._last * 1000 - self._mine)
        return Entry(key, (await self.supply(workflow, key, value)).value)


@mutant("M64", "CKP-APPEND-SORTED", "key and position from separate counters")
class SeparateCounters(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        with self.vault.transaction() as content:
            number = content.counters[f"inbox {workflow}"] = content.counters.get(f"inbox {workflow}", 0) + 1
        for _ in range(number % 3):
            await asyncio.sleep(0)
        return Entry(inbox_key(number), (await self.supply(workflow, inbox_key(number), value)).value)


@mutant("N061", "CKP-APPEND-ABOVE", "numbers entries by counting records")
class CountsRecords(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        encoded = self.codec.encode(value)

        def write(state: State, now: datetime) -> tuple[State, str]:
            key = inbox_key(len(state.ledger.records) + 1)
            return self.machine.supply(state, now, key, encoded)[0], key

        return Entry(await self.change(workflow, write), self.roundtrip(value))


@mutant("N062", "CKP-APPEND-ABOVE", "goes by the entry that was written last")
class GoesByTheLast(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        encoded = self.codec.encode(value)

        def write(state: State, now: datetime) -> tuple[State, str]:
            entries = [one.key for one in listed(state) if one.key.startswith("inbox:")]
            key = inbox_key(int(entries[-1][6:]) + 1 if entries else 1)
            return self.machine.supply(state, now, key, encoded)[0], key

        return Entry(await self.change(workflow, write), self.roundtrip(value))


@mutant("N063", "CKP-APPEND-ONCE", "a repeat adds an entry")
class RepeatAdds(Machine):
    @staticmethod
    def append(
        state: State, now: datetime, encoded: object, once: str | None = None, number: int | None = None
    ) -> tuple[State, Entry[object]]:
        return reference.append(state, now, encoded, None, number)


@mutant("N064", "CKP-APPEND-ONCE", "a repeat gives the second value")
class RepeatGivesItsOwn(Machine):
    @staticmethod
    def append(
        state: State, now: datetime, encoded: object, once: str | None = None, number: int | None = None
    ) -> tuple[State, Entry[object]]:
        state, entry = reference.append(state, now, encoded, once, number)
        return state, replace(entry, value=encoded)


@mutant("N065", "CKP-APPEND-ONCE", "the id is kept as a record")
class IdIsARecord(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        entry = await super().append(workflow, value, once=once)
        if once is not None:
            await self.supply(workflow, once, entry.key)
        return entry


@mutant("N066", "CKP-APPEND-ONCE", "the id is asked for outside the write")
class IdAskedOutside(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        with self.vault.transaction() as content:
            sent = cast("Entry[object] | None", content.answers.get(f"{workflow} {once}"))  # kept below
        if once is not None and sent is not None:
            return Entry(sent.key, self.codec.decode(str(sent.value)))
        await asyncio.sleep(0)
        entry = await super().append(workflow, value)
        with self.vault.transaction() as content:
            content.answers[f"{workflow} {once}"] = Entry(entry.key, self.codec.encode(entry.value))
        return entry


@mutant("N067", "CKP-APPEND-ONCE", "the id is one for all workflows")
class IdForAll(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        with self.vault.transaction() as content:
            sent = cast("Entry[object] | None", content.answers.get(f"once {once}"))  # kept below
        if once is not None and sent is not None:
            return Entry(sent.key, self.codec.decode(str(sent.value)))
        entry = await super().append(workflow, value, once=once)
        with self.vault.transaction() as content:
            content.answers[f"once {once}"] = Entry(entry.key, self.codec.encode(entry.value))
        return entry


@mutant("N068", "CKP-APPEND-REPEAT", "the nonce is ignored")
class IgnoresTheNonce(DoubleCheckpointer):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self.remembers = False


@mutant("N069", "CKP-APPEND-REPEAT", "the nonce is forgotten after eight appends")
class ForgetsAfterEight(DoubleCheckpointer):
    appended = 0

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        self.appended += 1
        self.remembers = self.appended <= 8
        return await super().append(workflow, value, once=once)


@mutant("N070", "CKP-APPEND-REPEAT", "the nonce is ignored by deliver")
class DeliverIgnoresTheNonce(DoubleDurable):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self.remembers = False


@mutant("M63", "CKP-APPEND-RECORD", "entries are kept outside load")
class EntriesOutsideLoad(DoubleCheckpointer):
    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        loaded = await super().load(workflow, skip=skip)
        return {key: value for key, value in loaded.items() if not key.startswith("inbox:")}


@mutant("M66", "CKP-APPEND-RECORD", "load consumes entries")
class LoadConsumes(DoubleCheckpointer):
    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        loaded = await super().load(workflow, skip=skip)

        def consume(state: State, now: datetime) -> tuple[State, None]:
            return with_records(state, [one for one in listed(state) if not one.key.startswith("inbox:")]), None

        await self.change(workflow, consume)
        return loaded


@mutant("N071", "CKP-APPEND-CURSOR", "an entry takes its number before its commit can be seen")
class NumberDrawnEarly(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        with self.vault.transaction() as content:
            last = max(
                (int(key[6:]) for key in content.ledgers.get(workflow, reference.Ledger()).records if key.startswith("inbox:")),
                default=0,
            )
            number = content.counters[f"inbox {workflow}"] = max(last, content.counters.get(f"inbox {workflow}", 0)) + 1
        for _ in range(number * 7 % 5):
            await asyncio.sleep(0)
        return Entry(inbox_key(number), (await self.supply(workflow, inbox_key(number), value)).value)


@mutant("N072", "CKP-APPEND-CURSOR", "entries are numbered by their place, below one that was copied")
class NumberedByPlace(DoubleCheckpointer):
    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        encoded = self.codec.encode(value)

        def write(state: State, now: datetime) -> tuple[State, str]:
            key = inbox_key(1 + sum(one.key.startswith("inbox:") for one in listed(state)))
            return self.machine.supply(state, now, key, encoded)[0], key

        return Entry(await self.change(workflow, write), self.roundtrip(value))
