"""Mutants of transact."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from datetime import datetime
from functools import partial

from durable_conformance.harness import Opening
from durable_conformance.mutants.double import DoubleCheckpointer, Effect, Hand, Machine
from durable_conformance.mutants.harness import DoubleEffects, DoubleHarness
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.states import listed, with_claim, with_records
from durable_conformance.mutants.vault import Content
from durable_core import reference
from durable_core.codec import encoded_for
from durable_core.contract import Description, Pass, Recorded, Torn
from durable_core.errors import Fenced, Misconfigured
from durable_core.reference import Answer, State


@mutant("M86", "CKP-TRANSACT-ONCE", "whether the key is recorded is asked outside the commit")
class AsksOutside(DoubleCheckpointer):
    def commit(self, content: Content, holder: Pass, key: str, encoded: str, hand: Hand) -> Answer:
        answer = super().commit(content, holder, key, encoded, hand)
        if isinstance(answer, Recorded) and not answer.first:
            self.keep(content, hand)
        return answer


@mutant("N030", "CKP-TRANSACT-ONCE", "applied again by every pass")
class AppliedByEveryPass(DoubleCheckpointer):
    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        value = await super().transact(holder, key, effect)
        if holder.token > 1:
            hand = Hand({})
            await self.apply(effect, hand)
            await self.request(lambda content: self.keep(content, hand))
        return value


@mutant("N031", "CKP-TRANSACT-ONCE", "a restart forgets effects and keeps records")
class RestartForgetsEffects(DoubleHarness):
    async def restart(self, at: Opening, /) -> None:
        with self.vault_at(at).transaction() as content:
            content.counters.clear()


@mutant("M82", "CKP-TRANSACT-ATOMIC", "the effect runs on another connection")
class AnotherConnection(DoubleCheckpointer):
    async def apply(self, effect: Effect, hand: Hand) -> object:
        try:
            return await super().apply(effect, hand)
        finally:
            await self.request(lambda content: self.keep(content, hand))
            hand.changes.clear()


@mutant("M84", "CKP-TRANSACT-ATOMIC", "what an effect wrote before it raised is committed")
class CommitsOnError(DoubleCheckpointer):
    async def apply(self, effect: Effect, hand: Hand) -> object:
        try:
            return await super().apply(effect, hand)
        except BaseException:
            await self.request(lambda content: self.keep(content, hand))
            raise


@mutant("M88", "CKP-TRANSACT-ATOMIC", "an effect's exception is recorded as its result")
class RecordsTheException(DoubleCheckpointer):
    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        try:
            return await super().transact(holder, key, effect)
        except Exception as raised:
            await self.record(holder, key, repr(raised))
            raise


@mutant("M80", "CKP-TRANSACT-ATOMIC", "the effect is committed, and the record in a second commit")
class EffectThenRecord(DoubleCheckpointer):
    def commit(self, content: Content, holder: Pass, key: str, encoded: str, hand: Hand) -> Answer:
        answer = self.machine.ask(content.state(holder.workflow, self.queue), holder, key)
        if answer is None:
            self.keep(content, hand)
        return answer or Recorded(encoded, True)

    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        value = await super().transact(holder, key, effect)
        return (await self.record(holder, key, value)).value


@mutant("M81", "CKP-TRANSACT-ATOMIC", "the record is committed, and the effect in a second commit")
class RecordThenEffect(DoubleCheckpointer):
    def commit(self, content: Content, holder: Pass, key: str, encoded: str, hand: Hand) -> Answer:
        kept = Hand({})
        answer = super().commit(content, holder, key, encoded, kept)
        if not (isinstance(answer, Recorded) and answer.first):
            hand.changes.clear()
        return answer

    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        hands: list[Hand] = []

        def watched(hand: Hand) -> object:
            hands.append(hand)
            return effect(hand)

        value = await super().transact(holder, key, watched)
        for hand in hands:
            await self.request(partial(self.keep, hand=hand))
        return value


@mutant("M90", "CKP-TRANSACT-ATOMIC", "a result goes past the codec, through numbers that are doubles and tables without a type")
class ThroughDoubles(DoubleCheckpointer):
    async def apply(self, effect: Effect, hand: Hand) -> object:
        value = await super().apply(effect, hand)
        if isinstance(value, int) and abs(value) > 2**53:
            return int(float(value))
        return [] if value == {} else value


@mutant("N032", "CKP-TRANSACT-ATOMIC", "an effect whose result is refused stays applied")
class RefusedResultStays(DoubleCheckpointer):
    async def apply(self, effect: Effect, hand: Hand) -> object:
        value = await super().apply(effect, hand)
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            await self.request(lambda content: self.keep(content, hand))
        return value


@mutant("M85", "CKP-TRANSACT-RECORDED", "the effect is applied before it is asked whether the key is recorded")
class AppliesFirst(DoubleCheckpointer):
    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        known = key in await self.load(holder.workflow)
        value = await super().transact(holder, key, effect)
        if known:
            hand = Hand({})
            await self.apply(effect, hand)
            await self.request(lambda content: self.keep(content, hand))
        return value


@mutant("N033", "CKP-TRANSACT-RECORDED", "a superseded pass gets the recorded value")
class StaleGetsTheRecord(Machine):
    @staticmethod
    def ask(state: State, holder: Pass, key: str) -> Answer | None:
        if key in state.ledger.records:
            stored = state.ledger.records[key]
            return stored if isinstance(stored, Torn) else Recorded(stored, False)
        return reference.ask(state, holder, key)


@mutant("M87", "CKP-TRANSACT-FENCED", "effect first, fence second")
class EffectThenFence(DoubleCheckpointer):
    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        try:
            return await super().transact(holder, key, effect)
        except Fenced:
            hand = Hand({})
            await self.apply(effect, hand)
            await self.request(lambda content: self.keep(content, hand))
            raise


@mutant("M20", "CKP-TRANSACT-FENCED", "record asks the fence, transact does not")
class TransactAsksNoFence(Machine):
    @staticmethod
    def ask(state: State, holder: Pass, key: str) -> Answer | None:
        claim = state.ledger.claim
        return reference.ask(state, replace(holder, token=claim.token) if claim else holder, key)

    @staticmethod
    def transact(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        claim = state.ledger.claim
        return reference.transact(state, now, replace(holder, token=claim.token) if claim else holder, key, encoded)


@mutant("M83", "CKP-TRANSACT-FENCED", "the fence is asked before the effect only")
class FenceBeforeOnly(Machine):
    @staticmethod
    def transact(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        claim = state.ledger.claim
        return reference.transact(state, now, replace(holder, token=claim.token) if claim else holder, key, encoded)


@mutant("N034", "CKP-TRANSACT-FENCED", "the workflow is locked while its effect is at work")
class LockedWhileAtWork(DoubleCheckpointer):
    async def apply(self, effect: Effect, hand: Hand) -> object:
        with self.vault.transaction() as content:
            held = [name for name in content.ledgers]
        self.vault.staged.update(dict.fromkeys(held))
        try:
            return await super().apply(effect, hand)
        finally:
            for name in held:
                self.vault.staged.pop(name, None)


@mutant("N035", "CKP-TRANSACT-SUPPLIED", "the effect stands although a supply was first")
class StandsBesideASupply(DoubleCheckpointer):
    def commit(self, content: Content, holder: Pass, key: str, encoded: str, hand: Hand) -> Answer:
        answer = super().commit(content, holder, key, encoded, hand)
        if isinstance(answer, Recorded) and not answer.first:
            self.keep(content, hand)
        return answer


@mutant("N036", "CKP-TRANSACT-SUPPLIED", "a value supplied before is overruled by the effect's")
class OverrulesASupply(DoubleCheckpointer):
    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        def forget(state: State, now: datetime) -> tuple[State, None]:
            return with_records(state, [one for one in listed(state) if one.key != key]), None

        await self.change(holder.workflow, forget)
        return await super().transact(holder, key, effect)


class OpenEffects(DoubleEffects):
    """Effects whose attempt at the transaction goes unnoticed."""

    def commit(self, counter: str, /) -> Effect:
        def effect(hand: Hand) -> object:
            hand.add(counter)
            with self._vault.transaction() as content:
                content.counters[counter] = content.counters.get(counter, 0) + 1
            raise RuntimeError("the transaction is over")

        return effect


@mutant("N037", "CKP-TRANSACT-OWN", "a raw commit inside the effect goes through")
class CommitGoesThrough(DoubleHarness):
    def effects(self, at: Opening, /) -> DoubleEffects:
        return OpenEffects(self.vault_at(at))


@mutant("N038", "CKP-TRANSACT-OWN", "a database error that the effect swallowed becomes a record")
class SwallowedBecomesARecord(DoubleCheckpointer):
    async def apply(self, effect: Effect, hand: Hand) -> object:
        value = effect(hand)
        value = await value if inspect.isawaitable(value) else value
        hand.changes.clear() if hand.broken else None
        return value


@mutant("N039", "CKP-TRANSACT-LIVE", "an effect is no sign of life")
class EffectIsNoSign(Machine):
    @staticmethod
    def transact(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.transact(state, now, holder, key, encoded)
        return with_claim(after, state.ledger.claim), answer


@mutant("N040", "CKP-TRANSACT-LIVE", "an effect lifts the budget")
class EffectLiftsTheBudget(Machine):
    @staticmethod
    def transact(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.transact(state, now, holder, key, encoded)
        claim = after.ledger.claim
        return with_claim(after, claim and replace(claim, until=max(claim.until, now + claim.alive * 2))), answer


class NeverCheckpointer(DoubleCheckpointer):
    """The double without effects."""

    def description(self) -> Description:
        return replace(super().description(), transacts=False, undoes=False, interleaves=False)

    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        raise Misconfigured("this store has no effects")


class NeverHarness(DoubleHarness):
    """The double without effects, and with nothing else that would say otherwise."""

    name = "double without effects"
    offers = DoubleHarness.offers - {"effects"}
    checkpointer = NeverCheckpointer


@mutant("N041", "CKP-TRANSACT-NEVER", "an effect handed to a store without effects is recorded as a value", NeverHarness)
class RecordsTheEffect(NeverCheckpointer):
    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        return (await self.record(holder, key, str(effect))).value


@mutant("N042", "CKP-TRANSACT-NEVER", "a store without effects runs whatever can be called", NeverHarness)
class RunsWhateverComes(NeverCheckpointer):
    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        if callable(effect):
            effect(Hand({}))
        raise Misconfigured("this store has no effects")


class TearingCheckpointer(DoubleCheckpointer):
    """The double that cannot undo: an effect that fails half way tears its key."""

    def description(self) -> Description:
        return replace(super().description(), undoes=False, interleaves=False)

    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        asked = await self.change(holder.workflow, lambda state, now: (state, self.machine.ask(state, holder, key)))
        if asked is not None:
            return self.stored(holder, holder.workflow, key, asked).value
        hand = Hand({})
        try:
            value = await self.apply(effect, hand)
            encoded = encoded_for(self.codec, holder.workflow, key, value)
        except Exception as raised:
            if hand.changes:
                reason = f"{type(raised).__name__}: {raised}"
                await self.request(lambda content: self.torn(content, holder, key, reason, hand))
            raise
        answer = await self.request(lambda content: self.commit(content, holder, key, encoded, hand))
        return self.stored(holder, holder.workflow, key, answer).value

    def torn(self, content: Content, holder: Pass, key: str, reason: str, hand: Hand) -> None:
        """Keep what the effect had done, and the mark."""
        state, _ = self.machine.tear(content.state(holder.workflow, self.queue), self.time(), holder, key, reason)
        content.put(state, self.queue)
        self.keep(content, hand)

    async def mend(self, workflow: str, key: str, value: object, /) -> bool:
        """Replace a mark by what was found to be true."""
        encoded = encoded_for(self.codec, workflow, key, value)
        return await self.change(workflow, lambda state, now: self.machine.mend(state, key, encoded))


class TearingHarness(DoubleHarness):
    """The double that cannot undo."""

    name = "double that cannot undo"
    checkpointer = TearingCheckpointer


@mutant("M89", "CKP-TRANSACT-TORN", "a half applied effect is reported as a clean failure", TearingHarness)
class CleanFailure(TearingCheckpointer):
    def torn(self, content: Content, holder: Pass, key: str, reason: str, hand: Hand) -> None:
        self.keep(content, hand)


@mutant("N043", "CKP-TRANSACT-TORN", "a torn key is reported as done", TearingHarness)
class TornIsDone(TearingCheckpointer):
    def torn(self, content: Content, holder: Pass, key: str, reason: str, hand: Hand) -> None:
        self.commit(content, holder, key, "null", hand)


@mutant("N044", "CKP-TRANSACT-TORN", "a failure before the first write tears as well", TearingHarness)
class TearsTooEarly(TearingCheckpointer):
    async def apply(self, effect: Effect, hand: Hand) -> object:
        try:
            return await super().apply(effect, hand)
        except Exception:
            hand.changes.setdefault("touched", 1)
            raise


@mutant("N045", "CKP-TRANSACT-TORN", "mend replaces whatever is there", TearingHarness)
class MendsAnything(TearingCheckpointer):
    async def mend(self, workflow: str, key: str, value: object, /) -> bool:
        await super().mend(workflow, key, value)
        return True


@mutant("N046", "CKP-TRANSACT-TORN", "the mark goes to the end when it is mended", TearingHarness)
class MendMoves(Machine):
    @staticmethod
    def mend(state: State, key: str, encoded: object) -> tuple[State, bool]:
        after, mended = reference.mend(state, key, encoded)
        return with_records(after, sorted(listed(after), key=lambda one: one.key == key)), mended
