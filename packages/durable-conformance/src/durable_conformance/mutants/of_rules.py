# ruff: noqa: D106 - a part of a store is documented where the protocol has it, and a mutant by its text
"""Mutants of the rules that hold everywhere, of the codec, and of what a store says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, TypeVar

from durable_conformance.harness import Opening, Stores
from durable_conformance.mutants.double import (
    DoubleCheckpointer,
    DoubleDurable,
    DoubleScheduler,
    Effect,
    Hand,
    Link,
    Machine,
)
from durable_conformance.mutants.harness import DoubleApplication, DoubleHarness, SplitHarness
from durable_conformance.mutants.of_transact import NeverCheckpointer, NeverHarness
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.states import with_wakeup
from durable_conformance.mutants.vault import Content
from durable_core import reference
from durable_core.codec import JsonCodec
from durable_core.contract import Checkpointer, Delivery, Description, Entry, Listed, Pass, Recorded, Turn
from durable_core.errors import Fenced, NotEncodable
from durable_core.reference import State
from durable_core.split import SplitDurable

A = TypeVar("A")
HOUR = timedelta(hours=1)

# ----------------------------------------------------------------------------------------------------------- ANY-CLOCK


@mutant("N120", "ANY-CLOCK", "a pass begins by a clock that is an hour ahead")
class PassAnHourAhead(DoubleCheckpointer):
    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        holder = await super().claim(workflow, budget, alive)
        return holder and replace(holder, at=holder.at + HOUR)


@mutant("N121", "ANY-CLOCK", "a turn begins before its delivery was due")
class TurnBeforeItsDue(DoubleDurable):
    def given(self, turn: Turn) -> Turn:
        return super().given(replace(turn, holder=replace(turn.holder, at=turn.holder.at - HOUR)))


# ---------------------------------------------------------------------------------------------------------- ANY-REPEAT


@mutant("N122", "ANY-REPEAT", "a second release is an error")
class SecondReleaseRaises(DoubleCheckpointer):
    async def release(self, holder: Pass, /) -> None:
        if not await self.renew(holder, HOUR):
            raise Fenced(holder.workflow, holder.token)
        await super().release(holder)


@mutant("N123", "ANY-REPEAT", "a repeated claim is granted to the same instance")
class RepeatedClaimIsGranted(DoubleCheckpointer):
    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        return await super().claim(workflow, budget, alive) or Pass(workflow, 1, self.time())


@mutant("N124", "ANY-REPEAT", "a second wake_at adds a wakeup")
class SecondWakeAdds(Machine):
    @staticmethod
    def wake_at(state: State, now: datetime, delivery: Delivery, when: datetime, attempt: int = 1, lapses: int = 0) -> State:
        taken = state.wakeup is not None and state.wakeup.receipt == delivery.receipt
        if not taken and state.wakeup is not None and state.wakeup.reason is None:
            return with_wakeup(state, replace(state.wakeup, attempt=state.wakeup.attempt + 1))
        return reference.wake_at(state, now, delivery, when, attempt, lapses)


@mutant("N125", "ANY-REPEAT", "a repeated end answers for what came after it")
class RepeatedEndAnswersAgain(Machine):
    @staticmethod
    def pause(state: State, now: datetime, turn: Turn, due: datetime | None) -> State:
        if state.wakeup is None:
            return reference.make_ready(state, now)
        return reference.pause(state, now, turn, due)


@mutant("N126", "ANY-REPEAT", "the nonce is ignored by the pair")
class PairWithoutNonce(DoubleHarness):
    def built(self, at: Opening, link: Link) -> DoubleDurable:
        durable = super().built(at, link)
        durable.remembers = durable.scheduler.remembers = False
        return durable


@mutant("N127", "ANY-REPEAT", "a take or an answer whose reply was lost is carried out again, and counted")
class AnswerCountedTwice(DoubleScheduler):
    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        lost = self.link.losing > 0
        await super().wake_at(delivery, when, attempt=attempt + lost, lapses=lapses)


@mutant("N128", "ANY-REPEAT", "an effect whose reply was lost is applied again")
class EffectAppliedAgain(DoubleCheckpointer):
    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        lost = self.link.lost
        value = await super().transact(holder, key, effect)
        if self.link.lost > lost:
            with self.vault.transaction() as content:
                for counter in content.counters:
                    content.counters[counter] += 1
        return value


# ----------------------------------------------------------------------------------------------------------- ANY-VALID


@mutant("N129", "ANY-VALID", "an id that is too long is cut")
class CutsLongIds(DoubleCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        return await super().supply(workflow[:900], key[:900], value)


@mutant("N130", "ANY-VALID", "an empty id is taken by make_ready")
class TakesAnEmptyId(DoubleScheduler):
    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        await super().make_ready(workflow or "default", revive=revive)


@mutant("N131", "ANY-VALID", "an id with a slash is refused")
class RefusesASlash(DoubleDurable):
    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        if "/" in key:
            raise ValueError("no slashes")
        return await super().arrive(workflow, key, value)


@mutant("N132", "ANY-VALID", "a reserved key of more than 1 000 bytes is refused")
class ReservedTooShort(DoubleCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        if len(key) > 1_000:
            raise ValueError("too long")
        return await super().supply(workflow, key, value)


@mutant("N133", "ANY-VALID", "a naive instant is taken for UTC")
class NaiveIsUtc(DoubleScheduler):
    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        aware = when if when.tzinfo else when.replace(tzinfo=UTC)
        await super().wake_at(delivery, aware, attempt=attempt, lapses=lapses)


@mutant("N134", "ANY-VALID", "a budget of zero is taken")
class BudgetOfZero(DoubleCheckpointer):
    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        return await super().claim(workflow, max(budget, timedelta(seconds=1)), alive)


# ------------------------------------------------------------------------------------------------------ ANY-POSITIONAL


@mutant("N135", "ANY-POSITIONAL", "a method is inherited from the protocol, and returns None")
class Inherits(DoubleHarness):
    def built(self, at: Opening, link: Link) -> DoubleDurable:
        durable = super().built(at, link)
        part = type("Inheriting", (type(durable.checkpointer),), {"extend": Checkpointer.extend})
        durable.checkpointer.__class__ = part
        return durable


@mutant("N136", "ANY-POSITIONAL", "a parameter must be given by name")
class ByNameOnly(DoubleHarness):
    def built(self, at: Opening, link: Link) -> DoubleDurable:
        durable = super().built(at, link)

        async def renew(self: DoubleCheckpointer, holder: Pass, *, alive: timedelta = HOUR) -> bool:
            return await DoubleCheckpointer.renew(self, holder, alive)

        durable.checkpointer.__class__ = type("ByName", (type(durable.checkpointer),), {"renew": renew})
        return durable


# -------------------------------------------------------------------------------------------------------- KEY-RESERVED


@mutant("M65", "CKP-KEY-RESERVED", "an inbox key that is no twenty digits is taken")
class TakesAnyInboxKey(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        if key.startswith("inbox:") and len(key) != 26:
            key = "inbox:" + "1".zfill(20)
        return await super().record(holder, key, value)


@mutant("N137", "CKP-KEY-RESERVED", "reserved keys are refused by record")
class RefusesReservedKeys(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        if ":" in key:
            raise ValueError("reserved")
        return await super().record(holder, key, value)


@mutant("N138", "CKP-KEY-RESERVED", "load hides reserved keys")
class HidesReservedKeys(DoubleCheckpointer):
    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        loaded = await super().load(workflow, skip=skip)
        return {key: value for key, value in loaded.items() if not key.startswith(("start:", "until:"))}


# --------------------------------------------------------------------------------------------------------------- codec


class Coding(DoubleHarness):
    """The double with another codec."""

    codec: type[JsonCodec] = JsonCodec

    def built(self, at: Opening, link: Link) -> DoubleDurable:
        return super().built(replace(at, codec=at.codec or self.codec()), link)


def coded(id: str, clause: str, text: str) -> Callable[[type[JsonCodec]], type[JsonCodec]]:
    """Make a mutant of a codec."""

    def register(codec: type[JsonCodec]) -> type[JsonCodec]:
        mutant(id, clause, text)(type(codec.__name__, (Coding,), {"codec": codec, "name": f"mutant {id}"}))
        return codec

    return register


@coded("N140", "CDC-ROUND", "a float without a fraction comes back an int")
class FloatsBecomeInts(JsonCodec):
    def decode(self, encoded: str, /) -> object:
        return json.loads(encoded, parse_float=lambda text: int(float(text)) if float(text).is_integer() else float(text))


@coded("N141", "CDC-ROUND", "True comes back 1")
class TrueBecomesOne(JsonCodec):
    def decode(self, encoded: str, /) -> object:
        value = super().decode(encoded)
        return int(value) if isinstance(value, bool) else value


@coded("N142", "CDC-ROUND", "large integers come back as doubles do")
class IntsAreDoubles(JsonCodec):
    def decode(self, encoded: str, /) -> object:
        return json.loads(encoded, parse_int=lambda text: int(float(text)) if len(text) < 300 else int(text))


@coded("M98", "CDC-SAME", "the encoding depends on the order of a mapping")
class OrderMatters(JsonCodec):
    def encode(self, value: object, /) -> str:
        super().encode(value)
        return json.dumps(value, ensure_ascii=False)


@coded("M99", "CDC-REFUSE", "lossy encodings are accepted")
class Lossy(JsonCodec):
    def encode(self, value: object, /) -> str:
        try:
            return super().encode(value)
        except NotEncodable:
            if type(value) in (int, list):
                raise
            return json.dumps(value, default=str, skipkeys=True)


@coded("N143", "CDC-REFUSE", "NaN and infinities are encoded, and not JSON")
class Constants(JsonCodec):
    def encode(self, value: object, /) -> str:
        return json.dumps(value) if isinstance(value, float) else super().encode(value)

    def decode(self, encoded: str, /) -> object:
        return None if encoded in ("NaN", "Infinity", "-Infinity") else super().decode(encoded)


@coded("N144", "CDC-REFUSE", "a refusal does not say which part")
class NamesNoPart(JsonCodec):
    def encode(self, value: object, /) -> str:
        try:
            return super().encode(value)
        except NotEncodable:
            raise NotEncodable("this value cannot be encoded") from None


@coded("N145", "CDC-REFUSE", "a refusal is a TypeError")
class RefusesWithTypeError(JsonCodec):
    def encode(self, value: object, /) -> str:
        return json.dumps(value, allow_nan=False, sort_keys=True)


# ------------------------------------------------------------------------------------------------------------ describe


class SaysItTransacts(NeverCheckpointer):
    """Says that it has effects, and has none."""

    def description(self) -> Description:
        return replace(super().description(), transacts=True)


@mutant("N146", "DUR-DESCRIBE", "says that a failed effect is undone, and it stays")
class SaysItUndoes(DoubleCheckpointer):
    async def apply(self, effect: Effect, hand: Hand) -> object:
        try:
            return await super().apply(effect, hand)
        except Exception:
            await self.request(lambda content: self.keep(content, hand))
            raise


@mutant("N147", "DUR-DESCRIBE", "says that it has effects, and refuses them")
class DeclaresEffects(DoubleHarness):
    checkpointer = SaysItTransacts


@mutant("N148", "DUR-DESCRIBE", "says that it has no effects, and runs them", NeverHarness)
class DeclaresNoEffects(NeverCheckpointer):
    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        return (await self.record(holder, key, "ran")).value


@mutant("N149", "DUR-DESCRIBE", "lists, and says that it does not")
class ListsInSilence(DoubleDurable):
    def description(self) -> Description:
        return replace(super().description(), lists=False)


@mutant("N150", "DUR-DESCRIBE", "says that it lists, and does not")
class ListsNothing(DoubleDurable):
    def listed(self, content: Content, prefix: str, state: object, after: str | None, limit: int) -> Sequence[Listed]:
        return []


@mutant("N151", "DUR-DESCRIBE", "says that it joins, and loses what was joined")
class JoinsNothing(DoubleHarness):
    class transaction(DoubleApplication):
        async def commit(self) -> None:
            await self.rollback()


@mutant("N152", "DUR-DESCRIBE", "a word that is none of the three")
class AnotherWord(DoubleCheckpointer):
    def description(self) -> Description:
        return replace(super().description(), survives_kill="maybe", version="")  # type: ignore[arg-type]


class StrongerSplit(SplitDurable[Effect]):
    """Promises what only one of its halves does."""

    async def describe(self, /) -> Description:
        return replace(await super().describe(), survives_kill="yes", poll=timedelta(0))


@mutant("N153", "DUR-DESCRIBE", "a pair promises what only one of its halves does")
class PairPromisesMore(SplitHarness):
    def given(self, durable: DoubleDurable) -> Stores[Effect]:
        return StrongerSplit(durable.checkpointer, durable.scheduler)


# --------------------------------------------------------------------------------------------------------------- split


class QueueFirst(SplitDurable[Effect]):
    """Wakes first and records second."""

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        await self.scheduler.make_ready(workflow)
        return await self.checkpointer.supply(workflow, key, value)

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        await self.scheduler.make_ready(workflow)
        return await self.checkpointer.append(workflow, value, once=once)


@mutant("M113", "DUR-SPLIT-ORDER", "wakes first and records second")
class WakesFirst(SplitHarness):
    def given(self, durable: DoubleDurable) -> Stores[Effect]:
        return QueueFirst(durable.checkpointer, durable.scheduler)


class AnswersFirst(SplitDurable[Effect]):
    """Answers for the delivery before the outcome is recorded, and before the release."""

    async def finish(self, turn: Turn, value: object, /) -> Recorded:
        await self.scheduler.done(turn.delivery)
        await self.checkpointer.release(turn.holder)
        return await self.checkpointer.record(turn.holder, "outcome:", value)

    async def pause(self, turn: Turn, due: datetime | None, /) -> None:
        await (self.scheduler.done(turn.delivery) if due is None else self.scheduler.wake_at(turn.delivery, due))
        await self.checkpointer.release(turn.holder)


@mutant("N154", "DUR-SPLIT-ORDER", "answers first, and records and releases afterwards")
class AnswersBeforeTheRecord(SplitHarness):
    def given(self, durable: DoubleDurable) -> Stores[Effect]:
        return AnswersFirst(durable.checkpointer, durable.scheduler)


class DiscardsFirst(SplitDurable[Effect]):
    """Discards first and cancels second, and not at all when the workflow is empty."""

    async def delete(self, workflow: str, /) -> int:
        count = await self.checkpointer.discard(workflow)
        if count:
            await self.scheduler.cancel(workflow)
        return count

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        recorded = await self.checkpointer.supply(workflow, key, value)
        if recorded.first and workflow not in self.seen:
            self.seen.add(workflow)
            await self.scheduler.make_ready(workflow)
        return recorded

    seen: ClassVar[set[str]] = set()


@mutant("N155", "DUR-SPLIT-ORDER", "what died half way is not healed by asking again")
class NotHealed(SplitHarness):
    def given(self, durable: DoubleDurable) -> Stores[Effect]:
        return DiscardsFirst(durable.checkpointer, durable.scheduler)
