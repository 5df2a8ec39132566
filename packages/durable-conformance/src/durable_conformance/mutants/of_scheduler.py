"""Mutants of the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar

from durable_conformance.harness import Opening
from durable_conformance.mutants.double import DoubleScheduler, Machine
from durable_conformance.mutants.harness import DoubleHarness
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.states import with_wakeup
from durable_conformance.mutants.vault import Content
from durable_core import reference
from durable_core.contract import Delivery
from durable_core.reference import State, Wakeup


def taken(state: State, delivery: Delivery) -> Wakeup | None:
    """Give the wakeup that a delivery still names."""
    return state.wakeup if state.wakeup is not None and state.wakeup.receipt == delivery.receipt else None


def current(state: State, delivery: Delivery) -> Delivery:
    """Give a delivery that the reference takes for the current one."""
    wakeup = state.wakeup
    return delivery if wakeup is None or wakeup.receipt is None else replace(delivery, receipt=wakeup.receipt)


# ---------------------------------------------------------------------------------------------------------- make_ready


@mutant("M100", "SCH-READY-EVENTUALLY", "forgets a wakeup while a delivery is out")
class ForgetsInFlight(Machine):
    @staticmethod
    def make_ready(state: State, now: datetime, revive: bool = False) -> State:
        if state.wakeup is not None and state.wakeup.receipt is not None:
            return state
        return reference.make_ready(state, now, revive)


@mutant("M108", "SCH-READY-EVENTUALLY", "a timer is removed before it is queued, and a restart in between loses it")
class TimersLost(DoubleHarness):
    async def restart(self, at: Opening, /) -> None:
        with self.vault_at(at).transaction() as content:
            for workflow in list(content.queue(at.queue).wakeups):
                state = content.state(workflow, at.queue)
                if (
                    state.wakeup is not None
                    and state.wakeup.receipt is None
                    and state.wakeup.attempt > 1
                    and state.wakeup.reason is None
                ):
                    content.put(with_wakeup(state, None), at.queue)


@mutant("N160", "SCH-READY-EVENTUALLY", "revives what is buried, unasked")
class RevivesUnasked(Machine):
    @staticmethod
    def make_ready(state: State, now: datetime, revive: bool = False) -> State:
        return reference.make_ready(state, now, True)


@mutant("N161", "SCH-READY-EVENTUALLY", "a revived workflow keeps its attempt")
class RevivedKeepsItsAttempt(Machine):
    @staticmethod
    def make_ready(state: State, now: datetime, revive: bool = False) -> State:
        after = reference.make_ready(state, now, revive)
        if revive and state.wakeup and after.wakeup and state.wakeup.reason is not None:
            return with_wakeup(after, replace(after.wakeup, attempt=state.wakeup.attempt))
        return after


@mutant("N162", "SCH-READY-EVENTUALLY", "loses the count of what slept")
class LosesTheCount(Machine):
    @staticmethod
    def make_ready(state: State, now: datetime, revive: bool = False) -> State:
        after = reference.make_ready(state, now, revive)
        asleep = state.wakeup is not None and state.wakeup.receipt is None and state.wakeup.reason is None
        return with_wakeup(after, Wakeup(after.wakeup.due)) if asleep and after.wakeup else after


@mutant("N163", "SCH-READY-EVENTUALLY", "an earlier due time is put off until now")
class PutsOffTheDue(Machine):
    @staticmethod
    def make_ready(state: State, now: datetime, revive: bool = False) -> State:
        after = reference.make_ready(state, now, revive)
        ready = after.wakeup is not None and after.wakeup.receipt is None and after.wakeup.reason is None
        return with_wakeup(after, replace(after.wakeup, due=now)) if ready and after.wakeup else after


@mutant("N164", "SCH-READY-EVENTUALLY", "a later due time stays as it was")
class LaterStays(Machine):
    @staticmethod
    def make_ready(state: State, now: datetime, revive: bool = False) -> State:
        return reference.make_ready(state, now, revive) if state.wakeup is None or state.wakeup.receipt or revive else state


@mutant("N165", "SCH-READY-EVENTUALLY", "a first delivery is at attempt two, due in the past")
class FirstIsTheSecond(Machine):
    @staticmethod
    def make_ready(state: State, now: datetime, revive: bool = False) -> State:
        after = reference.make_ready(state, now, revive)
        return with_wakeup(after, Wakeup(now, 2)) if state.wakeup is None else after


@mutant("N166", "SCH-READY-EVENTUALLY", "what was taken when its taker died goes with a wakeup that came since")
class GoesWithTheTaker(Machine):
    @staticmethod
    def next_ready(state: State, now: datetime, lease: timedelta, receipt: str) -> tuple[State, Delivery | None]:
        wakeup = state.wakeup
        if wakeup is not None and wakeup.receipt is not None and wakeup.newer and wakeup.due <= now:
            return with_wakeup(state, None), None
        return reference.next_ready(state, now, lease, receipt)


@mutant("N167", "SCH-READY-COALESCE", "a wakeup during a pass is given out beside the running delivery")
class BesideTheRunning(Machine):
    @staticmethod
    def make_ready(state: State, now: datetime, revive: bool = False) -> State:
        if state.wakeup is not None and state.wakeup.receipt is not None:
            return with_wakeup(state, Wakeup(now))
        return reference.make_ready(state, now, revive)


@mutant("N168", "SCH-READY-COALESCE", "wakeups before a take pile up, two deliveries at once")
class PilesUp(DoubleScheduler):
    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        with self.vault.transaction() as content:
            before = content.queue(self.queue).wakeups.get(workflow)
            again = before is not None and before.receipt is None and before.reason is None
            content.counters[f"piled {workflow}"] = content.counters.get(f"piled {workflow}", 0) + again
        await super().make_ready(workflow, revive=revive)

    def take(self, content: Content) -> Sequence[Delivery]:
        deliveries = super().take(content)
        for delivery in deliveries:
            if content.counters.get(f"piled {delivery.workflow}", 0):
                content.counters[f"piled {delivery.workflow}"] -= 1
                content.put(with_wakeup(content.state(delivery.workflow, self.queue), Wakeup(self.time())), self.queue)
        return deliveries


# ---------------------------------------------------------------------------------------------------------- next_ready


@mutant("N169", "SCH-NEXT-WAIT", "sleeps all of its wait although something became ready")
class SleepsItsWait(DoubleScheduler):
    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        delivery = await super().next_ready(timedelta(0))
        if delivery is None and wait > timedelta(0):
            await asyncio.sleep(wait.total_seconds())
            delivery = await super().next_ready(timedelta(0))
        return delivery


@mutant("N170", "SCH-NEXT-WAIT", "None at once")
class NoneAtOnce(DoubleScheduler):
    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        return await super().next_ready(timedelta(0))


@mutant("N171", "SCH-NEXT-WAIT", "spins")
class Spins(DoubleScheduler):
    async def sleep(self, changed: asyncio.Event, seconds: float) -> None:
        await asyncio.sleep(0)


@mutant("N172", "SCH-NEXT-WAIT", "is woken by what is made ready, and not by what becomes due")
class DeafToTheClock(DoubleScheduler):
    def until_due(self) -> float:
        return 3600.0


@mutant("N173", "SCH-NEXT-WAIT", "waits a second more than it was told")
class WaitsForMore(DoubleScheduler):
    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        return await super().next_ready(max(wait, timedelta(seconds=3)))


@mutant("N174", "SCH-NEXT-OLDEST", "last in, first out")
class LastInFirstOut(DoubleScheduler):
    def take(self, content: Content) -> Sequence[Delivery]:
        queue, now = content.queue(self.queue), self.time()
        ready = [
            (wakeup.due, queue.places[name], name)
            for name, wakeup in queue.wakeups.items()
            if wakeup.due <= now and not wakeup.reason
        ]
        if not ready:
            return []
        state, delivery = self.machine.next_ready(
            content.state(max(ready)[2], self.queue), now, self.lease, f"receipt {content.next()}"
        )
        content.put(state, self.queue)
        return [delivery] if delivery else []


@mutant("M101", "SCH-NEXT-ONE", "looks, lets the loop turn, then takes")
class LooksThenTakes(DoubleScheduler):
    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        with self.vault.transaction() as content:
            first = content.queue(self.queue).first()
        if first is None or first[0] > self.time():
            return await super().next_ready(wait)
        await asyncio.sleep(0)

        def take(content: Content) -> Delivery:
            state = content.state(first[1], self.queue)
            wakeup = state.wakeup or Wakeup(self.time())
            fresh = replace(wakeup, receipt=f"receipt {content.next()}", due=self.time() + self.lease)
            content.put(with_wakeup(state, fresh), self.queue)
            return Delivery(first[1], fresh.receipt or "", fresh.attempt, fresh.lapses, first[0])

        return await self.request(take)


@mutant("M109", "SCH-NEXT-ONE", "two sweepers both queue the same wakeup")
class QueuedTwice(DoubleScheduler):
    def take(self, content: Content) -> Sequence[Delivery]:
        deliveries = super().take(content)
        for delivery in deliveries:
            if not content.counters.get(f"twice {delivery.workflow}"):
                content.counters[f"twice {delivery.workflow}"] = 1
                state = content.state(delivery.workflow, self.queue)
                content.put(with_wakeup(state, Wakeup(self.time())), self.queue)
        return deliveries


@mutant("M103", "SCH-NEXT-ONE", "taken over before the lease is over")
class TakenOverEarly(Machine):
    @staticmethod
    def next_ready(state: State, now: datetime, lease: timedelta, receipt: str) -> tuple[State, Delivery | None]:
        return reference.next_ready(state, now, lease * 0.9, receipt)


@mutant("N175", "SCH-NEXT-ONE", "taken over by the lease of who looks")
class LookersLease(DoubleScheduler):
    def take(self, content: Content) -> Sequence[Delivery]:
        queue, now = content.queue(self.queue), self.time()
        for name, wakeup in list(queue.wakeups.items()):
            began = content.answers.get(f"taken {name}")
            if wakeup.receipt is not None and isinstance(began, datetime) and began + self.lease <= now:
                content.put(with_wakeup(content.state(name, self.queue), replace(wakeup, due=now)), self.queue)
        deliveries = super().take(content)
        for delivery in deliveries:
            content.answers[f"taken {delivery.workflow}"] = now
        return deliveries


@mutant("M102", "SCH-NEXT-LAPSED", "removed when it is taken")
class RemovedWhenTaken(DoubleScheduler):
    def take(self, content: Content) -> Sequence[Delivery]:
        deliveries = super().take(content)
        for delivery in deliveries:
            content.put(with_wakeup(content.state(delivery.workflow, self.queue), None), self.queue)
        return deliveries


@mutant("N176", "SCH-NEXT-LAPSED", "a lapse is not counted")
class LapseNotCounted(Machine):
    @staticmethod
    def next_ready(state: State, now: datetime, lease: timedelta, receipt: str) -> tuple[State, Delivery | None]:
        if state.wakeup is not None and state.wakeup.receipt is not None and state.wakeup.due <= now:
            state = with_wakeup(state, replace(state.wakeup, receipt=None))
        return reference.next_ready(state, now, lease, receipt)


@mutant("N177", "SCH-NEXT-LAPSED", "the same receipt after a lapse")
class SameReceipt(DoubleScheduler):
    def take(self, content: Content) -> Sequence[Delivery]:
        deliveries: list[Delivery] = []
        for delivery in super().take(content):
            receipt = f"receipt of {delivery.workflow}"
            state = content.state(delivery.workflow, self.queue)
            content.put(with_wakeup(state, state.wakeup and replace(state.wakeup, receipt=receipt)), self.queue)
            deliveries.append(replace(delivery, receipt=receipt))
        return deliveries


@mutant("N178", "SCH-NEXT-REPEAT", "a repeated take gives nothing, and the first lapses")
class RepeatedTakeGivesNothing(DoubleScheduler):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self.remembers = False


@mutant("N179", "SCH-NEXT-DEEP", "looks through all sleepers to find one that is due")
class LooksThroughAll(DoubleScheduler):
    def take(self, content: Content) -> Sequence[Delivery]:
        for name in list(content.queue(self.queue).wakeups):
            content.state(name, self.queue)
        return super().take(content)


# --------------------------------------------------------------------------------------------------------------- renew


@mutant("N180", "SCH-RENEW-NAME", "a new receipt at each renewal, and the old delivery is given back")
class OldNameGivenBack(Machine):
    @staticmethod
    def renew_delivery(state: State, now: datetime, delivery: Delivery, lease: timedelta) -> tuple[State, Delivery]:
        after, kept = reference.renew_delivery(state, now, delivery, lease)
        if taken(state, delivery) and after.wakeup:
            after = with_wakeup(after, replace(after.wakeup, receipt=f"{delivery.receipt}'"))
        return after, kept


@mutant("N181", "SCH-RENEW-NAME", "a renewal keeps nothing")
class RenewKeepsNothing(Machine):
    @staticmethod
    def renew_delivery(state: State, now: datetime, delivery: Delivery, lease: timedelta) -> tuple[State, Delivery]:
        return state, delivery


@mutant("N182", "SCH-RENEW-NAME", "a renewal counts as an attempt")
class RenewCounts(Machine):
    @staticmethod
    def renew_delivery(state: State, now: datetime, delivery: Delivery, lease: timedelta) -> tuple[State, Delivery]:
        after, kept = reference.renew_delivery(state, now, delivery, lease)
        return after, replace(kept, attempt=kept.attempt + 1) if taken(state, delivery) else kept


@mutant("M107", "SCH-RENEW-SILENT", "a stale receipt renews what its taker has")
class StaleRenews(Machine):
    @staticmethod
    def renew_delivery(state: State, now: datetime, delivery: Delivery, lease: timedelta) -> tuple[State, Delivery]:
        after, _ = reference.renew_delivery(state, now, current(state, delivery), lease)
        return after, delivery


@mutant("N183", "SCH-RENEW-SILENT", "on a lost delivery it raises")
class LostRaises(DoubleScheduler):
    async def renew(self, delivery: Delivery, /) -> Delivery:
        with self.vault.transaction() as content:
            if taken(content.state(delivery.workflow, self.queue), delivery) is None:
                raise LookupError(delivery.receipt)
        return await super().renew(delivery)


@mutant("N184", "SCH-RENEW-SILENT", "on a cancelled workflow it brings the delivery back")
class RenewBringsBack(Machine):
    @staticmethod
    def renew_delivery(state: State, now: datetime, delivery: Delivery, lease: timedelta) -> tuple[State, Delivery]:
        if state.wakeup is None:
            return with_wakeup(state, Wakeup(now + lease, receipt=delivery.receipt)), delivery
        return reference.renew_delivery(state, now, delivery, lease)


# ------------------------------------------------------------------------------------------------------------- wake_at


class Waking(Machine):
    """Wakes in another way what its receipt still names."""

    @classmethod
    def woken(cls, before: Wakeup, after: Wakeup, now: datetime, when: datetime) -> Wakeup:
        return after

    @classmethod
    def wake_at(cls, state: State, now: datetime, delivery: Delivery, when: datetime, attempt: int = 1, lapses: int = 0) -> State:
        before = taken(state, delivery)
        after = reference.wake_at(state, now, delivery, when, attempt, lapses)
        return after if before is None or after.wakeup is None else with_wakeup(after, cls.woken(before, after.wakeup, now, when))


@mutant("M105", "SCH-WAKE-ANSWERS", "the delivery is left to lapse as well")
class LeftToLapse(DoubleScheduler):
    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        lapse = await self.now() + self.lease
        await super().wake_at(delivery, min(when, lapse), attempt=attempt, lapses=lapses)


@mutant("N185", "SCH-WAKE-ANSWERS", "answers, and sets nothing")
class SetsNothing(Machine):
    @staticmethod
    def wake_at(state: State, now: datetime, delivery: Delivery, when: datetime, attempt: int = 1, lapses: int = 0) -> State:
        return reference.done(state, now, delivery)


@mutant("N186", "SCH-WAKE-COUNT", "always at attempt one")
class AlwaysOne(Waking):
    @classmethod
    def woken(cls, before: Wakeup, after: Wakeup, now: datetime, when: datetime) -> Wakeup:
        return replace(after, attempt=1, lapses=0)


@mutant("N187", "SCH-WAKE-COUNT", "always one more")
class AlwaysOneMore(Waking):
    @classmethod
    def woken(cls, before: Wakeup, after: Wakeup, now: datetime, when: datetime) -> Wakeup:
        return replace(after, attempt=before.attempt + 1)


@mutant("N188", "SCH-WAKE-COUNT", "a lapse adds to the attempt only")
class LapseAddsOne(Machine):
    @staticmethod
    def next_ready(state: State, now: datetime, lease: timedelta, receipt: str) -> tuple[State, Delivery | None]:
        before = state.wakeup
        state, delivery = reference.next_ready(state, now, lease, receipt)
        if delivery and before and before.receipt is not None and state.wakeup:
            return with_wakeup(state, replace(state.wakeup, lapses=before.lapses)), replace(delivery, lapses=before.lapses)
        return state, delivery


@mutant("M112", "SCH-WAKE-NOT-BEFORE", "given out early")
class GivenOutEarly(Waking):
    @classmethod
    def woken(cls, before: Wakeup, after: Wakeup, now: datetime, when: datetime) -> Wakeup:
        return replace(after, due=now + (after.due - now) / 2)


@mutant("N189", "SCH-WAKE-NOT-BEFORE", "a sleeper is woken by nothing but its time")
class SleepsOn(Machine):
    @staticmethod
    def make_ready(state: State, now: datetime, revive: bool = False) -> State:
        asleep = state.wakeup is not None and state.wakeup.receipt is None and state.wakeup.reason is None
        return state if asleep else reference.make_ready(state, now, revive)


@mutant("N190", "SCH-WAKE-NOT-BEFORE", "due times cut to whole minutes")
class WholeMinutes(Waking):
    @classmethod
    def woken(cls, before: Wakeup, after: Wakeup, now: datetime, when: datetime) -> Wakeup:
        return replace(after, due=after.due.replace(second=0, microsecond=0))


@mutant("M104", "SCH-WAKE-NEWER", "overwrites a wakeup that arrived since")
class Overwrites(Waking):
    @classmethod
    def woken(cls, before: Wakeup, after: Wakeup, now: datetime, when: datetime) -> Wakeup:
        return replace(after, due=when)


@mutant("N191", "SCH-WAKE-NEWER", "a newer wakeup loses the count that was passed")
class NewerLosesTheCount(Waking):
    @classmethod
    def woken(cls, before: Wakeup, after: Wakeup, now: datetime, when: datetime) -> Wakeup:
        return Wakeup(after.due) if before.newer else after


@mutant("M110", "SCH-WAKE-CANCELLED", "reinstates a cancelled workflow")
class Reinstates(Machine):
    @staticmethod
    def wake_at(state: State, now: datetime, delivery: Delivery, when: datetime, attempt: int = 1, lapses: int = 0) -> State:
        if state.wakeup is None:
            return with_wakeup(state, Wakeup(when, attempt, lapses))
        return reference.wake_at(state, now, delivery, when, attempt, lapses)


@mutant("N192", "SCH-WAKE-STALE", "a stale receipt moves the new taker's wakeup")
class StaleWakes(Machine):
    @staticmethod
    def wake_at(state: State, now: datetime, delivery: Delivery, when: datetime, attempt: int = 1, lapses: int = 0) -> State:
        return reference.wake_at(state, now, current(state, delivery), when, attempt, lapses)


@mutant("N193", "SCH-WAKE-STALE", "an answered delivery moves what was set since")
class AnsweredMoves(Machine):
    @staticmethod
    def wake_at(state: State, now: datetime, delivery: Delivery, when: datetime, attempt: int = 1, lapses: int = 0) -> State:
        asleep = state.wakeup is not None and state.wakeup.receipt is None and state.wakeup.reason is None
        return (
            with_wakeup(state, Wakeup(when, attempt, lapses))
            if asleep
            else reference.wake_at(state, now, delivery, when, attempt, lapses)
        )


# ---------------------------------------------------------------------------------------------------------- done, bury


@mutant("N194", "SCH-DONE-ANSWERS", "the delivery is left to lapse")
class DoneLeavesIt(Machine):
    @staticmethod
    def done(state: State, now: datetime, delivery: Delivery) -> State:
        return state


@mutant("N195", "SCH-DONE-NEWER", "drops a wakeup that came since")
class DropsTheNewer(Machine):
    @staticmethod
    def done(state: State, now: datetime, delivery: Delivery) -> State:
        return with_wakeup(state, None) if taken(state, delivery) else state


@mutant("N196", "SCH-DONE-NEWER", "the newer wakeup keeps the count")
class NewerKeepsTheCount(Machine):
    @staticmethod
    def done(state: State, now: datetime, delivery: Delivery) -> State:
        before, after = taken(state, delivery), reference.done(state, now, delivery)
        return with_wakeup(after, replace(after.wakeup, attempt=before.attempt)) if before and after.wakeup else after


@mutant("M106", "SCH-DONE-STALE", "a stale receipt removes what its taker has")
class StaleIsDone(Machine):
    @staticmethod
    def done(state: State, now: datetime, delivery: Delivery) -> State:
        return reference.done(state, now, current(state, delivery))


@mutant("N197", "SCH-DONE-CANCELLED", "brings back a wakeup from before the cancel")
class DoneBringsBack(Machine):
    @staticmethod
    def cancel(state: State) -> State:
        if state.wakeup is not None and state.wakeup.receipt is not None and state.wakeup.newer:
            return state
        return reference.cancel(state)


@mutant("N198", "SCH-BURY-KEEPS", "given out again when the lease is over")
class BuriedComesBack(Machine):
    @staticmethod
    def bury(state: State, delivery: Delivery, reason: str) -> State:
        return state


@mutant("N199", "SCH-BURY-KEEPS", "the reason is cut")
class ReasonIsCut(Machine):
    @staticmethod
    def bury(state: State, delivery: Delivery, reason: str) -> State:
        return reference.bury(state, delivery, reason[:255])


@mutant("N200", "SCH-BURY-KEEPS", "a wakeup that came since brings it back")
class NewerUnburies(Machine):
    @staticmethod
    def bury(state: State, delivery: Delivery, reason: str) -> State:
        before = taken(state, delivery)
        if before is not None and before.newer:
            return with_wakeup(state, Wakeup(before.due.replace(year=2000)))
        return reference.bury(state, delivery, reason)


@mutant("N201", "SCH-BURY-CANCELLED", "buries what was cancelled")
class BuriesTheCancelled(Machine):
    @staticmethod
    def bury(state: State, delivery: Delivery, reason: str) -> State:
        if state.wakeup is None:
            return with_wakeup(state, Wakeup(delivery.due, reason=reason))
        return reference.bury(state, delivery, reason)


@mutant("N202", "SCH-BURY-STALE", "a stale receipt buries")
class StaleBuries(Machine):
    @staticmethod
    def bury(state: State, delivery: Delivery, reason: str) -> State:
        return reference.bury(state, current(state, delivery), reason)


@mutant("M111", "SCH-CANCEL-ALL", "misses timers")
class MissesTimers(Machine):
    @staticmethod
    def cancel(state: State) -> State:
        asleep = state.wakeup is not None and state.wakeup.receipt is None and state.wakeup.reason is None
        return state if asleep else reference.cancel(state)


@mutant("N203", "SCH-CANCEL-ALL", "misses the buried")
class MissesTheBuried(Machine):
    @staticmethod
    def cancel(state: State) -> State:
        return state if state.wakeup is not None and state.wakeup.reason is not None else reference.cancel(state)


@mutant("N204", "SCH-CANCEL-ALL", "misses what is taken")
class MissesTheTaken(Machine):
    @staticmethod
    def cancel(state: State) -> State:
        return state if state.wakeup is not None and state.wakeup.receipt is not None else reference.cancel(state)


@mutant("N205", "SCH-CANCEL-ALL", "the count outlives it")
class CountOutlives(DoubleScheduler):
    counts: ClassVar[dict[str, int]] = {}

    async def cancel(self, workflow: str, /) -> None:
        with self.vault.transaction() as content:
            wakeup = content.queue(self.queue).wakeups.get(workflow)
            self.counts[workflow] = wakeup.attempt if wakeup else 1
        await super().cancel(workflow)

    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        await super().make_ready(workflow, revive=revive)
        attempt = self.counts.pop(workflow, 1)
        if attempt > 1:
            with self.vault.transaction() as content:
                state = content.state(workflow, self.queue)
                content.put(with_wakeup(state, state.wakeup and replace(state.wakeup, attempt=attempt)), self.queue)


@mutant("N206", "SCH-QUEUE-NAMED", "one queue for all names")
class OneQueue(DoubleScheduler):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self.queue = "default"


@mutant("N207", "SCH-QUEUE-NAMED", "cancel reaches every queue")
class CancelReachesAll(DoubleScheduler):
    async def cancel(self, workflow: str, /) -> None:
        with self.vault.transaction() as content:
            for name in list(content.queues):
                content.put(with_wakeup(content.state(workflow, name), None), name)
