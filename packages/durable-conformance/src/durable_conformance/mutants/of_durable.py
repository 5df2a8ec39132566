"""Mutants of the durable's transitions, of joined clients and of the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from durable_conformance.harness import Opening
from durable_conformance.mutants.double import DoubleDurable, Link, Machine
from durable_conformance.mutants.harness import DoubleApplication, DoubleHarness
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.states import listed, with_records, with_wakeup
from durable_conformance.mutants.vault import Content
from durable_core import reference
from durable_core.contract import Entry, Failed, Finished, Listed, Pass, Recorded, Torn, Turn
from durable_core.contract import State as ListedState
from durable_core.errors import NotEncodable
from durable_core.keys import OUTCOME
from durable_core.reference import Answer, State, Wakeup

NOW = timedelta(0)

# -------------------------------------------------------------------------------------------------------------- client


@mutant("M115", "DUR-ARRIVE", "wakes nobody when the value lost")
class LoserWakesNobody(Machine):
    @staticmethod
    def arrive(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
        known = key in state.ledger.records
        after, answer = reference.arrive(state, now, key, encoded)
        return with_wakeup(after, state.wakeup) if known else after, answer


@mutant("N210", "DUR-ARRIVE", "supplies, and wakes nobody")
class ArriveWakesNobody(Machine):
    @staticmethod
    def arrive(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
        return reference.supply(state, now, key, encoded)


@mutant("N211", "DUR-ARRIVE", "wakes before it is known whether the value can be stored")
class WakesBeforeEncoding(DoubleDurable):
    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        await self.scheduler.make_ready(workflow)
        return await super().arrive(workflow, key, value)


@mutant("N212", "DUR-DELIVER", "appends, and wakes nobody")
class DeliverWakesNobody(Machine):
    @staticmethod
    def deliver(
        state: State, now: datetime, encoded: object, once: str | None = None, number: int | None = None
    ) -> tuple[State, Entry[object]]:
        return reference.append(state, now, encoded, once, number)


@mutant("N213", "DUR-DELIVER", "`once` is not handed on")
class OnceNotHandedOn(DoubleDurable):
    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        return await super().deliver(workflow, value)


@mutant("M117", "DUR-DELETE", "clears the records, leaves the queue")
class LeavesTheQueue(Machine):
    @staticmethod
    def delete(state: State) -> tuple[State, int]:
        return reference.discard(state)


@mutant("N214", "DUR-DELETE", "clears the queue, leaves the records")
class LeavesTheRecords(Machine):
    @staticmethod
    def delete(state: State) -> tuple[State, int]:
        return reference.cancel(state), len(state.ledger.records)


@mutant("N215", "DUR-DELETE", "the pass of the old life still holds the new one")
class OldLifeHolds(Machine):
    @staticmethod
    def delete(state: State) -> tuple[State, int]:
        return with_records(reference.cancel(state), []), len(state.ledger.records)


# --------------------------------------------------------------------------------------------------------------- begin


class Beginning(Machine):
    """Begins in another way."""

    @classmethod
    def began(cls, before: State, after: State, turn: Turn | None, now: datetime, lease: timedelta) -> tuple[State, Turn | None]:
        return after, turn

    @classmethod
    def begin(
        cls, state: State, now: datetime, lease: timedelta, budget: timedelta, receipt: str, token: int | None = None
    ) -> tuple[State, Turn | None]:
        after, turn = reference.begin(state, now, lease, budget, receipt, token)
        return cls.began(state, after, turn, now, lease)


@mutant("N216", "DUR-BEGIN", "a finished workflow gets a turn")
class FinishedGetsATurn(Machine):
    @staticmethod
    def begin(
        state: State, now: datetime, lease: timedelta, budget: timedelta, receipt: str, token: int | None = None
    ) -> tuple[State, Turn | None]:
        hidden = with_records(state, [one for one in listed(state) if one.key != OUTCOME])
        after, turn = reference.begin(hidden, now, lease, budget, receipt, token)
        return with_records(after, listed(state)), turn


@mutant("N217", "DUR-BEGIN", "a held workflow costs an attempt")
class HeldCosts(Beginning):
    @classmethod
    def began(cls, before: State, after: State, turn: Turn | None, now: datetime, lease: timedelta) -> tuple[State, Turn | None]:
        if turn is None and after.wakeup is not None and after.wakeup.due <= now:
            return with_wakeup(after, replace(after.wakeup, attempt=after.wakeup.attempt + 1)), None
        return after, turn


@mutant("N218", "DUR-BEGIN", "polls for a held claim")
class PollsForAHeldClaim(DoubleHarness):
    def built(self, at: Opening, link: Link) -> DoubleDurable:
        durable = super().built(at, link)
        durable.scheduler.until_due = lambda: 0.002  # type: ignore[method-assign]
        return durable


@mutant("N219", "DUR-BEGIN", "a held workflow comes back after an hour")
class HeldIsForgotten(Beginning):
    @classmethod
    def began(cls, before: State, after: State, turn: Turn | None, now: datetime, lease: timedelta) -> tuple[State, Turn | None]:
        if turn is None and after.wakeup is not None:
            return with_wakeup(after, replace(after.wakeup, due=now + timedelta(hours=1))), None
        return after, turn


@mutant("N220", "DUR-BEGIN", "claims with its budget for a window")
class ClaimsWithTheBudget(Beginning):
    @classmethod
    def began(cls, before: State, after: State, turn: Turn | None, now: datetime, lease: timedelta) -> tuple[State, Turn | None]:
        claim = after.ledger.claim
        if turn is not None and claim is not None:
            after = replace(after, ledger=replace(after.ledger, claim=replace(claim, alive=claim.until - now)))
        return after, turn


@mutant("N221", "DUR-BEGIN", "more than the limit")
class MoreThanTheLimit(DoubleDurable):
    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        return await super().begin(wait, budget, limit=limit + 1)


@mutant("N222", "DUR-BEGIN", "a turn without the claim")
class TurnWithoutAClaim(Beginning):
    @classmethod
    def began(cls, before: State, after: State, turn: Turn | None, now: datetime, lease: timedelta) -> tuple[State, Turn | None]:
        return replace(after, ledger=before.ledger), turn


@mutant("N223", "DUR-BEGIN", "sleeps past what becomes due")
class SleepsPast(DoubleHarness):
    def built(self, at: Opening, link: Link) -> DoubleDurable:
        durable = super().built(at, link)
        durable.scheduler.until_due = lambda: 3600.0  # type: ignore[method-assign]
        return durable


@mutant("N224", "DUR-BEGIN", "is not woken when a claim is released")
class ReleaseWakesNobody(DoubleHarness):
    def built(self, at: Opening, link: Link) -> DoubleDurable:
        durable = super().built(at, link)

        async def release(holder: Pass, /) -> None:
            with self.vault_at(at).transaction() as content:
                content.put(reference.release(content.state(holder.workflow, at.queue), holder), at.queue)

        durable.checkpointer.release = release  # type: ignore[method-assign]
        return durable


@mutant("N225", "DUR-BEGIN-FRESH", "loads before the claim is granted")
class LoadsBeforeTheClaim(DoubleDurable):
    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        with self.vault.transaction() as content:
            before = {name: content.ledgers.get(name, reference.Ledger()).records for name in content.queue(self.queue).wakeups}
        for _ in range(2):
            await asyncio.sleep(0)
        turns = await super().begin(wait, budget, limit=limit)
        return [replace(turn, records=self.decoded(turn.holder.workflow, before.get(turn.holder.workflow, {}))) for turn in turns]


@mutant("N226", "DUR-BEGIN-REPEAT", "a repeated begin takes a second delivery")
class RepeatedBeginTakesMore(DoubleHarness):
    def built(self, at: Opening, link: Link) -> DoubleDurable:
        durable = super().built(at, link)
        durable.scheduler.remembers = False
        return durable


@mutant("N227", "DUR-BEGIN-REPEAT", "a repeated begin counts a lapse")
class RepeatedBeginCounts(DoubleHarness):
    def built(self, at: Opening, link: Link) -> DoubleDurable:
        durable = super().built(at, link)
        take = durable.take

        def counted(content: Content, budget: timedelta, limit: int) -> Sequence[Turn]:
            lost = 1 if link.losing else 0
            turns = take(content, budget, limit)
            return [replace(turn, delivery=replace(turn.delivery, lapses=turn.delivery.lapses + lost)) for turn in turns]

        durable.take = counted  # type: ignore[method-assign]
        return durable


# ------------------------------------------------------------------------------------------------------ renew and ends


@mutant("N228", "DUR-KEEP", "renews the delivery although the claim is lost")
class RenewsThoughLost(Machine):
    @staticmethod
    def renew_turn(state: State, now: datetime, turn: Turn, lease: timedelta) -> tuple[State, Turn | None]:
        state, _ = reference.renew_delivery(state, now, turn.delivery, lease)
        return reference.renew_turn(state, now, turn, lease)


@mutant("N229", "DUR-KEEP", "renews the claim only")
class RenewsTheClaimOnly(Machine):
    @staticmethod
    def renew_turn(state: State, now: datetime, turn: Turn, lease: timedelta) -> tuple[State, Turn | None]:
        state, held = reference.renew(state, now, turn.holder, lease)
        return state, turn if held else None


@mutant("N230", "DUR-KEEP", "renews the delivery only")
class RenewsTheDeliveryOnly(Machine):
    @staticmethod
    def renew_turn(state: State, now: datetime, turn: Turn, lease: timedelta) -> tuple[State, Turn | None]:
        after, kept = reference.renew_turn(state, now, turn, lease)
        return replace(after, ledger=state.ledger), kept


@mutant("N231", "DUR-FINISH", "records, and neither releases nor answers")
class FinishOnlyRecords(Machine):
    @staticmethod
    def finish(state: State, now: datetime, turn: Turn, encoded: object) -> tuple[State, Answer]:
        return reference.record(state, now, turn.holder, OUTCOME, encoded)


@mutant("N232", "DUR-FINISH", "a value that is refused leaves the claim released")
class RefusedReleases(DoubleDurable):
    async def finish(self, turn: Turn, value: object, /) -> Recorded:
        try:
            return await super().finish(turn, value)
        except NotEncodable:
            await self.checkpointer.release(turn.holder)
            raise


@mutant("N233", "DUR-FINISH", "a wakeup that came before it runs the workflow again")
class NewerRunsAgain(Machine):
    @staticmethod
    def finish(state: State, now: datetime, turn: Turn, encoded: object) -> tuple[State, Answer]:
        newer = state.wakeup is not None and state.wakeup.newer
        after, answer = reference.finish(state, now, turn, encoded)
        return with_wakeup(after, Wakeup(now)) if newer else after, answer

    @staticmethod
    def begin(
        state: State, now: datetime, lease: timedelta, budget: timedelta, receipt: str, token: int | None = None
    ) -> tuple[State, Turn | None]:
        hidden = with_records(state, [one for one in listed(state) if one.key != OUTCOME])
        after, turn = reference.begin(hidden, now, lease, budget, receipt, token)
        return with_records(after, listed(state)), turn


@mutant("N234", "DUR-PAUSE", "drops the due time")
class DropsTheDue(Machine):
    @staticmethod
    def pause(state: State, now: datetime, turn: Turn, due: datetime | None) -> State:
        return reference.pause(state, now, turn, None)


@mutant("N235", "DUR-PAUSE", "leaves the claim held")
class PauseHolds(Machine):
    @staticmethod
    def pause(state: State, now: datetime, turn: Turn, due: datetime | None) -> State:
        return replace(reference.pause(state, now, turn, due), ledger=state.ledger)


@mutant("N236", "DUR-PAUSE", "without a due time the delivery is left to lapse")
class PauseLeavesIt(Machine):
    @staticmethod
    def pause(state: State, now: datetime, turn: Turn, due: datetime | None) -> State:
        return reference.release(state, turn.holder) if due is None else reference.pause(state, now, turn, due)


@mutant("N237", "DUR-FAIL", "keeps the count")
class FailKeepsTheCount(Machine):
    @staticmethod
    def fail(state: State, now: datetime, turn: Turn, reason: str, again_in: timedelta | None) -> State:
        if again_in is None:
            return reference.fail(state, now, turn, reason, None)
        return reference.hand_back(state, now, turn, again_in)


@mutant("N238", "DUR-FAIL", "buries although a delay was given")
class FailBuries(Machine):
    @staticmethod
    def fail(state: State, now: datetime, turn: Turn, reason: str, again_in: timedelta | None) -> State:
        return reference.fail(state, now, turn, reason, None)


@mutant("N239", "DUR-FAIL", "without a delay it is tried again at once")
class FailTriesAgain(Machine):
    @staticmethod
    def fail(state: State, now: datetime, turn: Turn, reason: str, again_in: timedelta | None) -> State:
        return reference.fail(state, now, turn, reason, again_in or NOW)


@mutant("N240", "DUR-HAND-BACK", "costs an attempt")
class HandBackCosts(Machine):
    @staticmethod
    def hand_back(state: State, now: datetime, turn: Turn, again_in: timedelta) -> State:
        return reference.fail(state, now, turn, "", again_in)


@mutant("N241", "DUR-HAND-BACK", "answers nothing when the claim was lost")
class HandBackNeedsTheClaim(Machine):
    @staticmethod
    def hand_back(state: State, now: datetime, turn: Turn, again_in: timedelta) -> State:
        held = reference.renew(state, now, turn.holder, timedelta(seconds=1))[1]
        return reference.hand_back(state, now, turn, again_in) if held else state


# --------------------------------------------------------------------------------------------------------- TURN-FENCED


@mutant("N242", "DUR-TURN-FENCED", "a superseded finish answers for the rival's delivery")
class SupersededFinishAnswers(Machine):
    @staticmethod
    def finish(state: State, now: datetime, turn: Turn, encoded: object) -> tuple[State, Answer]:
        after, answer = reference.finish(state, now, turn, encoded)
        return reference.cancel(after) if answer is reference.FENCED else after, answer


@mutant("N243", "DUR-TURN-FENCED", "a repeated finish is fenced")
class RepeatedFinishIsFenced(Machine):
    @staticmethod
    def finish(state: State, now: datetime, turn: Turn, encoded: object) -> tuple[State, Answer]:
        claim = state.ledger.claim
        if claim is None or not claim.held:
            return state, reference.FENCED
        return reference.finish(state, now, turn, encoded)


@mutant("N244", "DUR-TURN-FENCED", "pause by a superseded pass releases the rival's claim")
class SupersededPauseReleases(Machine):
    @staticmethod
    def pause(state: State, now: datetime, turn: Turn, due: datetime | None) -> State:
        claim = state.ledger.claim
        holder = replace(turn.holder, token=claim.token) if claim else turn.holder
        return reference.pause(state, now, replace(turn, holder=holder), due)


@mutant("N245", "DUR-TURN-FENCED", "bury by a superseded pass buries the rival's")
class SupersededBuries(Machine):
    @staticmethod
    def fail(state: State, now: datetime, turn: Turn, reason: str, again_in: timedelta | None) -> State:
        wakeup = state.wakeup
        if again_in is None and wakeup is not None and wakeup.receipt is not None:
            turn = replace(turn, delivery=replace(turn.delivery, receipt=wakeup.receipt))
        return reference.fail(state, now, turn, reason, again_in)


@mutant("N246", "DUR-TURN-FENCED", "a finish after another end lands")
class FinishAfterAnEndLands(Machine):
    @staticmethod
    def finish(state: State, now: datetime, turn: Turn, encoded: object) -> tuple[State, Answer]:
        state, answer = reference.record(state, now, turn.holder, OUTCOME, encoded)
        return reference.release(state, turn.holder) if answer is not reference.FENCED else state, answer


@mutant("N247", "DUR-TURN-FENCED", "where the claim is lost the delivery is not answered")
class LostIsNotAnswered(Machine):
    @staticmethod
    def pause(state: State, now: datetime, turn: Turn, due: datetime | None) -> State:
        held = reference.renew(state, now, turn.holder, timedelta(seconds=1))[1]
        return reference.pause(state, now, turn, due) if held else state


# -------------------------------------------------------------------------------------------------------------- result


@mutant("N248", "DUR-RESULT", "None for a buried workflow")
class BuriedIsNone(Machine):
    @staticmethod
    def result(state: State) -> Finished[object] | Failed | None:
        ended = reference.result(state)
        return None if isinstance(ended, Failed) else ended


@mutant("N249", "DUR-RESULT", "an outcome of None is taken for none")
class NoneIsNone(Machine):
    @staticmethod
    def result(state: State) -> Finished[object] | Failed | None:
        ended = reference.result(state)
        return None if isinstance(ended, Finished) and ended.value == "null" else ended


@mutant("N250", "DUR-RESULT", "watch spins")
class WatchSpins(DoubleDurable):
    async def watch(self, workflow: str, wait: timedelta, /) -> None:
        ends = asyncio.get_running_loop().time() + wait.total_seconds()
        while await self.result(workflow) is None and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)


@mutant("N251", "DUR-RESULT", "watch sleeps all of its wait")
class WatchSleeps(DoubleDurable):
    async def watch(self, workflow: str, wait: timedelta, /) -> None:
        await asyncio.sleep(wait.total_seconds())


# ----------------------------------------------------------------------------------------------------------- CO-COMMIT


@mutant("M114", "DUR-CO-COMMIT", "two commits behind one name, for a client")
class TwoCommits(DoubleDurable):
    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        recorded = await self.checkpointer.supply(workflow, key, value)
        await self.scheduler.make_ready(workflow)
        return recorded


@mutant("N252", "DUR-CO-COMMIT", "two commits behind one name, for a worker")
class TwoCommitsOfAWorker(DoubleDurable):
    async def pause(self, turn: Turn, due: datetime | None, /) -> None:
        await self.checkpointer.release(turn.holder)
        await (self.scheduler.done(turn.delivery) if due is None else self.scheduler.wake_at(turn.delivery, due))


@mutant("N253", "DUR-CO-COMMIT", "a begin that takes, then claims")
class TakesThenClaims(DoubleDurable):
    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        delivery = await self.scheduler.next_ready(wait)
        if delivery is None:
            return []
        holder = await self.checkpointer.claim(delivery.workflow, budget, self.lease)
        if holder is None:
            return []
        return [Turn(holder, delivery, await self.checkpointer.load(delivery.workflow))]


@mutant("M116", "DUR-CO-COMMIT", "halves that share nothing are accepted")
class AcceptsAnyHalves(DoubleHarness):
    @asynccontextmanager
    async def mismatched(self, at: Opening, /) -> AsyncGenerator[Callable[[], object]]:
        yield object


@mutant("N254", "DUR-CO-COMMIT", "two workers get one workflow, and the second overwrites what the first ended")
class TwoWorkersOneTurn(DoubleDurable):
    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        turns = list(await super().begin(wait, budget, limit=limit))
        return turns + turns[:1]


# -------------------------------------------------------------------------------------------------------------- joined


@mutant("N255", "DUR-JOINED", "the wakeup is seen before the application commits")
class WakesBeforeTheCommit(DoubleApplication):
    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        recorded = await super().arrive(workflow, key, value)
        with self._store.vault.transaction() as content:
            content.put(reference.make_ready(content.state(workflow, self._store.queue), self._store.time()), self._store.queue)
        return recorded


@mutant("N256", "DUR-JOINED", "the wakeup stays after a rollback")
class WakesAfterARollback(DoubleApplication):
    async def rollback(self) -> None:
        with self._store.vault.transaction() as content:
            for workflow in self._staged:
                content.put(
                    reference.make_ready(content.state(workflow, self._store.queue), self._store.time()), self._store.queue
                )
        await super().rollback()


@mutant("N257", "DUR-JOINED", "calls of one transaction do not see each other")
class CallsDoNotSeeEachOther(DoubleApplication):
    def state(self, workflow: str) -> State:
        kept = self._staged.pop(workflow, None)
        state = super().state(workflow)
        return state if kept is None else replace(state, wakeup=kept.wakeup)


@mutant("N258", "DUR-JOINED", "a commit wakes nobody")
class CommitWakesNobody(DoubleApplication):
    async def commit(self) -> None:
        self._staged = {name: with_wakeup(state, None) for name, state in self._staged.items()}
        await super().commit()


@mutant("N259", "DUR-JOINED", "reserved keys are taken")
class TakesReservedKeys(DoubleApplication):
    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        return await super().arrive(workflow, key.replace(":", "-"), value)


# ------------------------------------------------------------------------------------------------------------- catalog


class Listing(DoubleDurable):
    """Lists in another way."""

    def shown(self, one: Listed) -> Listed:
        return one

    def listed(self, content: Content, prefix: str, state: ListedState | None, after: str | None, limit: int) -> Sequence[Listed]:
        return [self.shown(one) for one in super().listed(content, prefix, state, after, limit)]


@mutant("N260", "CAT-LIST", "a sleeper is shown as blocked")
class SleepersBlocked(Listing):
    def shown(self, one: Listed) -> Listed:
        return replace(one, state="blocked") if one.state == "sleeping" else one


@mutant("N261", "CAT-LIST", "a finished workflow that was made ready is shown as ready")
class FinishedIsReady(Listing):
    def shown(self, one: Listed) -> Listed:
        return replace(one, state="ready") if one.state == "finished" and one.due is not None else one


@mutant("N262", "CAT-LIST", "the prefix is a pattern")
class PrefixIsAPattern(DoubleDurable):
    def listed(self, content: Content, prefix: str, state: ListedState | None, after: str | None, limit: int) -> Sequence[Listed]:
        import re

        pattern = re.escape(prefix).replace("%", ".*").replace("_", ".")
        found = super().listed(content, "", state, after, 1_000_000)
        return [one for one in found if re.match(pattern, one.workflow)][:limit]


@mutant("N263", "CAT-LIST", "a page begins with the last of the one before")
class PageRepeats(DoubleDurable):
    def listed(self, content: Content, prefix: str, state: ListedState | None, after: str | None, limit: int) -> Sequence[Listed]:
        found = super().listed(content, prefix, state, None, 1_000_000)
        return [one for one in found if after is None or one.workflow >= after][:limit] if limit > 1 else found[:limit]


@mutant("N264", "CAT-LIST", "pages go by place, so that what is written meanwhile shifts them")
class PagesByPlace(DoubleDurable):
    def listed(self, content: Content, prefix: str, state: ListedState | None, after: str | None, limit: int) -> Sequence[Listed]:
        found = list(super().listed(content, prefix, state, None, 1_000_000))[::-1]
        places = [place for place, one in enumerate(found) if one.workflow == after]
        seen = content.counters.get("seen", 0) if places else 0
        content.counters["seen"] = seen + limit
        return found[seen : seen + limit]


@mutant("N265", "CAT-LIST", "listing takes what is ready")
class ListingTakes(DoubleDurable):
    def listed(self, content: Content, prefix: str, state: ListedState | None, after: str | None, limit: int) -> Sequence[Listed]:
        for name, wakeup in list(content.queue(self.queue).wakeups.items()):
            if wakeup.receipt is None and wakeup.reason is None:
                content.put(with_wakeup(content.state(name, self.queue), replace(wakeup, attempt=wakeup.attempt + 1)), self.queue)
        return super().listed(content, prefix, state, after, limit)


@mutant("N266", "CAT-LIST", "lists ids that have nothing")
class ListsTheEmpty(DoubleDurable):
    def listed(self, content: Content, prefix: str, state: ListedState | None, after: str | None, limit: int) -> Sequence[Listed]:
        found = list(super().listed(content, prefix, state, after, limit))
        known = {one.workflow for one in found}
        for name in content.ledgers:
            if name.startswith(prefix) and name not in known and state is None and (after is None or name > after):
                found.append(Listed(name, "blocked", 0, None, None, None, None, None, None))
        return found[:limit]


class Sweeping(Machine):
    """Sweeps more than it should."""

    @classmethod
    def spared(cls, state: State) -> State:
        return state

    @classmethod
    def sweep(cls, state: State, now: datetime, finished_before: datetime) -> tuple[State, bool]:
        after, gone = reference.sweep(cls.spared(state), now, finished_before)
        return (after, True) if gone else (state, False)


@mutant("N267", "CAT-SWEEP", "sweeps a finished workflow that is ready again")
class SweepsTheWoken(Sweeping):
    @classmethod
    def spared(cls, state: State) -> State:
        return with_wakeup(state, None)


@mutant("N268", "CAT-SWEEP", "sweeps one that is claimed")
class SweepsTheClaimed(Sweeping):
    @classmethod
    def spared(cls, state: State) -> State:
        return replace(state, ledger=replace(state.ledger, claim=None))


@mutant("N269", "CAT-SWEEP", "sweeps one that is blocked")
class SweepsTheBlocked(Machine):
    @staticmethod
    def sweep(state: State, now: datetime, finished_before: datetime) -> tuple[State, bool]:
        if state.wakeup is None and state.ledger.records and reference.held_until(state, now) is None:
            return reference.discard(state)[0], True
        return reference.sweep(state, now, finished_before)


@mutant("N270", "CAT-SWEEP", "sweeps the first ten only")
class SweepsTen(DoubleDurable):
    def swept(self, content: Content, before: datetime) -> int:
        swept = 0
        for workflow in list(content.ledgers):
            state, gone = self.machine.sweep(content.state(workflow, self.queue), self.time(), before)
            if gone and swept < 10:
                content.put(state, self.queue)
                swept += 1
        return swept


@mutant("N271", "CAT-SWEEP", "an unfinished workflow expires")
class UnfinishedExpires(Machine):
    @staticmethod
    def sweep(state: State, now: datetime, finished_before: datetime) -> tuple[State, bool]:
        records = listed(state)
        if records and now - records[-1].at > timedelta(days=365):
            return reference.discard(state)[0], True
        return reference.sweep(state, now, finished_before)
