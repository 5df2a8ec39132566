"""Mutants of record."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

from durable_conformance.harness import Opening
from durable_conformance.mutants.double import DoubleCheckpointer, Machine
from durable_conformance.mutants.harness import DoubleHarness
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.states import listed, with_claim, with_records
from durable_core import reference
from durable_core.codec import encoded_for
from durable_core.contract import Pass, Recorded, Torn
from durable_core.errors import NotEncodable
from durable_core.reference import FENCED, Answer, State


def current(state: State, holder: Pass) -> Pass:
    """Give a pass that the reference takes for the current one."""
    claim = state.ledger.claim
    return holder if claim is None else replace(holder, token=claim.token)


@mutant("M43", "CKP-RECORD-DURABLE", "acknowledged before the commit, which comes later")
class AcknowledgesEarly(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        task = asyncio.ensure_future(self.later(holder, key, value))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return Recorded(self.roundtrip(value), True)

    async def later(self, holder: Pass, key: str, value: object) -> Recorded:
        await asyncio.sleep(0.01)
        return await super().record(holder, key, value)


@mutant("N011", "CKP-RECORD-DURABLE", "a restart loses the last record of each workflow")
class RestartLosesTheLast(DoubleHarness):
    async def restart(self, at: Opening, /) -> None:
        with self.vault_at(at).transaction() as content:
            for workflow in list(content.ledgers):
                state = content.state(workflow, at.queue)
                content.put(with_records(state, listed(state)[:-1]), at.queue)


@mutant("M01", "CKP-RECORD-ONCE", "last writer wins")
class LastWriterWins(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        state = with_records(state, [one for one in listed(state) if one.key != key])
        return reference.record(state, now, holder, key, encoded)


@mutant("M02", "CKP-RECORD-ONCE", "the loser gets its own value back")
class LoserKeepsItsOwn(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        state, answer = reference.record(state, now, holder, key, encoded)
        return state, replace(answer, value=encoded) if isinstance(answer, Recorded) else answer


@mutant("M07", "CKP-RECORD-ONCE", "looks, lets the loop turn, then writes")
class LooksThenWrites(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        if key in await self.load(holder.workflow):
            return await super().record(holder, key, value)

        def write(state: State, now: datetime) -> tuple[State, Answer]:
            state = with_records(state, [one for one in listed(state) if one.key != key])
            return self.machine.record(state, now, holder, key, self.codec.encode(value))

        return self.stored(holder, holder.workflow, key, await self.change(holder.workflow, write))


@mutant("N012", "CKP-RECORD-ONCE", "the loser gets the driver's error")
class LoserGetsAnError(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        recorded = await super().record(holder, key, value)
        if not recorded.first:
            raise RuntimeError("UNIQUE constraint failed")
        return recorded


class Comparing(Machine):
    """Says `first` in another way."""

    @classmethod
    def first(cls, stored: object, encoded: object, first: bool) -> bool:
        return first

    @classmethod
    def record(cls, state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        new = key not in state.ledger.records
        state, answer = reference.record(state, now, holder, key, encoded)
        if isinstance(answer, Recorded):
            answer = replace(answer, first=cls.first(answer.value, encoded, new))
        return state, answer


@mutant("M03", "CKP-RECORD-FIRST", "always first")
class AlwaysFirst(Comparing):
    @classmethod
    def first(cls, stored: object, encoded: object, first: bool) -> bool:
        return True


@mutant("M04", "CKP-RECORD-FIRST", "never first")
class NeverFirst(Comparing):
    @classmethod
    def first(cls, stored: object, encoded: object, first: bool) -> bool:
        return False


@mutant("N013", "CKP-RECORD-FIRST", "a tie is a loss")
class TieIsALoss(Comparing):
    """`first` says whether this call made the record."""


@mutant("M05", "CKP-RECORD-FIRST", "compares what was handed in with what is decoded")
class ComparesValues(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        recorded = await super().record(holder, key, value)
        return replace(recorded, first=recorded.value == value)


@mutant("M06", "CKP-RECORD-FIRST", "compares decoded values, so that 1, True and 1.0 are one")
class ComparesDecoded(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        recorded = await super().record(holder, key, value)
        return replace(recorded, first=recorded.value == self.roundtrip(value))


@mutant("M16", "CKP-RECORD-FENCED", "tokens compared as text")
class TokensAsText(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        claim = state.ledger.claim
        if claim is not None and str(holder.token) < str(claim.token):
            return state, FENCED
        return reference.record(state, now, current(state, holder), key, encoded)


@mutant("M17", "CKP-RECORD-FENCED", "the fence stands only while a rival is live")
class FenceFallsWithRelease(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        live = reference.held_until(state, now) is not None
        return reference.record(state, now, holder if live else current(state, holder), key, encoded)


@mutant("M18", "CKP-RECORD-FENCED", "refuses the current pass as well")
class RefusesTheCurrent(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        return (state, FENCED) if holder.token > 1 else reference.record(state, now, holder, key, encoded)


@mutant("M19", "CKP-RECORD-FENCED", "accepts the pass before the last")
class AcceptsTheOneBefore(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        near = holder.token == state.ledger.issued - 1
        return reference.record(state, now, current(state, holder) if near else holder, key, encoded)


@mutant("N014", "CKP-RECORD-FENCED", "accepts a token above the last one issued")
class AcceptsAbove(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        above = holder.token > state.ledger.issued
        return reference.record(state, now, current(state, holder) if above else holder, key, encoded)


@mutant("N015", "CKP-RECORD-FENCED", "accepts whoever comes when the claim is lost")
class AcceptsWithoutAClaim(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        if state.ledger.claim is None and state.ledger.issued:
            state, _ = reference.claim(state, now, timedelta(days=1), timedelta(days=1))
            holder = current(state, holder)
        return reference.record(state, now, holder, key, encoded)


@mutant("M21", "CKP-RECORD-FENCED", "the fence is asked only for new keys")
class FenceForNewKeys(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        known = key in state.ledger.records
        return reference.record(state, now, current(state, holder) if known else holder, key, encoded)


@mutant("M23", "CKP-RECORD-FENCED", "a fenced write raises and has written")
class FencedHasWritten(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.record(state, now, holder, key, encoded)
        if answer is FENCED:
            after, _ = reference.supply(state, now, key, encoded)
        return after, answer


@mutant("M24", "CKP-RECORD-FENCED", "a fenced write renews the rival's window")
class FencedRenews(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.record(state, now, holder, key, encoded)
        claim = state.ledger.claim
        if answer is FENCED and claim is not None:
            after = with_claim(state, replace(claim, seen=now))
        return after, answer


@mutant("M25", "CKP-RECORD-FENCED", "a fenced write moves the last entry's number down to where it shows")
class FencedMovesEntries(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.record(state, now, holder, key, encoded)
        if answer is FENCED:
            after = with_records(state, sorted(listed(state), key=lambda one: one.key.startswith("inbox:"), reverse=True))
        return after, answer


@mutant("N016", "CKP-RECORD-FENCED", "a fenced write ends the rival's claim")
class FencedEndsTheRivals(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.record(state, now, holder, key, encoded)
        claim = state.ledger.claim
        if answer is FENCED and claim is not None:
            after = with_claim(state, replace(claim, held=False))
        return after, answer


@mutant("N017", "CKP-RECORD-FENCED", "a pass that lapsed is accepted although another has claimed since")
class LapsedIsAccepted(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        old = now - holder.at >= timedelta(seconds=10)
        return reference.record(state, now, current(state, holder) if old else holder, key, encoded)


@mutant("M22", "CKP-RECORD-LAPSED", "lapse alone fences, though nobody has claimed since")
class LapseFences(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        if reference.held_until(state, now) is None:
            return state, FENCED
        return reference.record(state, now, holder, key, encoded)


@mutant("M30", "CKP-RECORD-LIVE", "a record is no sign of life")
class RecordIsNoSign(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.record(state, now, holder, key, encoded)
        return with_claim(after, state.ledger.claim), answer


@mutant("N018", "CKP-RECORD-LIVE", "a losing record is no sign of life")
class LosingIsNoSign(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.record(state, now, holder, key, encoded)
        return (state if key in state.ledger.records else after), answer


@mutant("N019", "CKP-RECORD-LIVE", "a record lifts the budget")
class RecordLiftsTheBudget(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.record(state, now, holder, key, encoded)
        claim = after.ledger.claim
        if isinstance(answer, Recorded) and claim is not None:
            after = with_claim(after, replace(claim, until=max(claim.until, now + claim.alive)))
        return after, answer


@mutant("M53", "CKP-RECORD-STILL", "a losing write moves the key to the end")
class LoserMovesToTheEnd(Machine):
    @staticmethod
    def supply(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
        after, answer = reference.supply(state, now, key, encoded)
        return with_records(after, sorted(listed(after), key=lambda one: one.key == key)), answer


@mutant("N020", "CKP-RECORD-STILL", "a losing write moves the time")
class LoserMovesTheTime(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.record(state, now, holder, key, encoded)
        return with_records(after, [replace(one, at=now) if one.key == key else one for one in listed(after)]), answer


@mutant("N021", "CKP-RECORD-CONCURRENT", "one refused item fails the group")
class OneFailsTheGroup(DoubleCheckpointer):
    spoilt = 0

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        try:
            encoded_for(self.codec, holder.workflow, key, value)
        except NotEncodable:
            type(self).spoilt = 3
            raise
        if type(self).spoilt:
            type(self).spoilt -= 1
            raise RuntimeError("current transaction is aborted")
        return await super().record(holder, key, value)


class Group:
    """A flush that several callers share."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiting: list[tuple[Pass, str, object]] = []


@mutant("N022", "CKP-RECORD-CONCURRENT", "a cancelled caller cancels the flush that it shares")
class CancelsTheFlush(DoubleCheckpointer):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self._group = Group()

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        group = self._group
        group.waiting.append((holder, key, value))
        if group.task is None:
            group.task = asyncio.ensure_future(self.flush(group))
        await group.task
        return Recorded((await self.load(holder.workflow)).get(key), True)

    async def flush(self, group: Group) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self._group = Group()
        for holder, key, value in group.waiting:
            await super().record(holder, key, value)


@mutant("N023", "CKP-RECORD-CONCURRENT", "an open transaction of the application holds every workflow")
class TransactionHoldsAll(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        while self.vault.staged:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
        return await super().record(holder, key, value)


@mutant("N024", "CKP-RECORD-CONCURRENT", "of many at once some are dropped")
class DropsSome(DoubleCheckpointer):
    at_work = 0

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        self.at_work += 1
        try:
            if self.at_work > 20:
                return Recorded(self.roundtrip(value), True)
            return await super().record(holder, key, value)
        finally:
            self.at_work -= 1


@mutant("N025", "CKP-RECORD-REFUSED", "the row is written before the value is encoded")
class WritesBeforeEncoding(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        try:
            return await super().record(holder, key, value)
        except NotEncodable:
            await super().record(holder, key, None)
            raise


@mutant("N026", "CKP-RECORD-REFUSED", "the error names neither workflow nor key")
class NamesNothing(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        try:
            return await super().record(holder, key, value)
        except NotEncodable as refused:
            raise NotEncodable(refused.reason) from None


@mutant("N027", "CKP-RECORD-REFUSED", "the claim is released when a value is refused")
class ReleasesOnRefusal(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        try:
            return await super().record(holder, key, value)
        except NotEncodable:
            await self.release(holder)
            raise


@mutant("N028", "CKP-RECORD-REFUSED", "what the codec refuses is recorded as its repr")
class RecordsTheRepr(DoubleCheckpointer):
    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        try:
            return await super().record(holder, key, value)
        except NotEncodable:
            return await super().record(holder, key, repr(value))
