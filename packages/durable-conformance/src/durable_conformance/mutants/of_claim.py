"""Mutants of claim, extend, renew and release."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from durable_conformance.harness import Opening
from durable_conformance.mutants.double import DoubleCheckpointer, Effect, Hand, Machine
from durable_conformance.mutants.harness import DoubleHarness
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.states import with_claim
from durable_conformance.mutants.vault import Content, Vault
from durable_core import reference
from durable_core.contract import Pass, Recorded
from durable_core.errors import Fenced
from durable_core.reference import FENCED, Answer, Ledger, State


@mutant("M08", "CKP-CLAIM-ONE", "looks, lets the loop turn, then takes")
class LooksThenTakes(DoubleCheckpointer):
    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        with self.vault.transaction() as content:
            if reference.held_until(content.state(workflow, self.queue), self.time()):
                return None
        await asyncio.sleep(0)

        def take(state: State, now: datetime) -> tuple[State, Pass | None]:
            return self.machine.claim(with_claim(state, None), now, budget, alive)

        return await self.change(workflow, take)


@mutant("N080", "CKP-CLAIM-ONE", "granted while another pass is live")
class GrantedWhileLive(Machine):
    @staticmethod
    def claim(
        state: State, now: datetime, budget: timedelta, alive: timedelta, token: int | None = None
    ) -> tuple[State, Pass | None]:
        return reference.claim(with_claim(state, None), now, budget, alive, token)


@mutant("N081", "CKP-CLAIM-ONE", "a pass keeps out other instances only")
class OwnInstanceGoesThrough(DoubleCheckpointer):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self._mine: set[str] = set()

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        def take(state: State, now: datetime) -> tuple[State, Pass | None]:
            return self.machine.claim(with_claim(state, None) if workflow in self._mine else state, now, budget, alive)

        holder = await self.change(workflow, take)
        if holder is not None:
            self._mine.add(workflow)
        return holder


class Tokens(DoubleCheckpointer):
    """Draws tokens in another way."""

    def token(self, state: State) -> int:
        return state.ledger.issued + 1

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        def take(state: State, now: datetime) -> tuple[State, Pass | None]:
            drawn = self.token(state)
            if reference.held_until(state, now) is not None:
                return state, None
            below = replace(state, ledger=replace(state.ledger, issued=drawn - 1))
            return self.machine.claim(below, now, budget, alive, drawn)

        return await self.change(workflow, take)


@mutant("M11", "CKP-CLAIM-RISING", "the token comes from the claimant's own counter")
class TokenOfTheClaimant(Tokens):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self._counter = itertools.count(1)

    def token(self, state: State) -> int:
        return next(self._counter)


@mutant("M12", "CKP-CLAIM-RISING", "the same token again after a release")
class SameTokenAgain(Tokens):
    def token(self, state: State) -> int:
        return max(state.ledger.issued, 1)


@mutant("M13", "CKP-CLAIM-RISING", "the counter restarts when the claim lapses")
class RestartsWithLapse(Tokens):
    def token(self, state: State) -> int:
        claim = state.ledger.claim
        return 1 if claim is not None and claim.held else state.ledger.issued + 1


@mutant("M15", "CKP-CLAIM-RISING", "the token is the wall clock, in ticks")
class TokenOfTheClock(Tokens):
    def token(self, state: State) -> int:
        return int(self.time().timestamp())


@mutant("M38", "CKP-CLAIM-RISING", "release deletes the claim's row")
class ReleaseDeletes(Machine):
    @staticmethod
    def release(state: State, holder: Pass) -> State:
        return replace(state, ledger=Ledger(state.ledger.records))


@mutant("N082", "CKP-CLAIM-RISING", "the counter goes with a discard")
class CounterGoesWithDiscard(Machine):
    @staticmethod
    def discard(state: State) -> tuple[State, int]:
        return replace(state, ledger=Ledger()), len(state.ledger.records)


@mutant("M14", "CKP-CLAIM-RISING", "the counter lives in the process")
class CounterInTheProcess(DoubleHarness):
    async def restart(self, at: Opening, /) -> None:
        with self.vault_at(at).transaction() as content:
            for workflow, ledger in content.ledgers.items():
                content.ledgers[workflow] = Ledger(ledger.records)


@mutant("N083", "CKP-CLAIM-RISING", "the counter is lost with the claim's storage")
class CounterLostWithTheClaim(DoubleHarness):
    async def lose_claim(self, at: Opening, workflow: str, /) -> None:
        with self.vault_at(at).transaction() as content:
            content.ledgers[workflow] = Ledger(content.ledgers[workflow].records)


@mutant("M09", "CKP-CLAIM-REFUSED", "a refusal is an exception")
class RefusalRaises(DoubleCheckpointer):
    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        holder = await super().claim(workflow, budget, alive)
        if holder is None:
            raise Fenced(workflow, 0)
        return holder


class Refusing(Machine):
    """Changes something when it refuses."""

    @classmethod
    def refused(cls, state: State, now: datetime, budget: timedelta, alive: timedelta) -> State:
        return state

    @classmethod
    def claim(
        cls, state: State, now: datetime, budget: timedelta, alive: timedelta, token: int | None = None
    ) -> tuple[State, Pass | None]:
        after, holder = reference.claim(state, now, budget, alive, token)
        return (after, holder) if holder else (cls.refused(state, now, budget, alive), None)


@mutant("N084", "CKP-CLAIM-REFUSED", "a refused claim renews the holder's window")
class RefusalRenews(Refusing):
    @classmethod
    def refused(cls, state: State, now: datetime, budget: timedelta, alive: timedelta) -> State:
        claim = state.ledger.claim
        return with_claim(state, claim and replace(claim, seen=now))


@mutant("N085", "CKP-CLAIM-REFUSED", "a refused claim draws a token, which fences the holder")
class RefusalDrawsAToken(Refusing):
    @classmethod
    def refused(cls, state: State, now: datetime, budget: timedelta, alive: timedelta) -> State:
        claim, issued = state.ledger.claim, state.ledger.issued + 1
        return replace(state, ledger=replace(state.ledger, issued=issued, claim=claim and replace(claim, token=issued)))


@mutant("N086", "CKP-CLAIM-REFUSED", "a refused claim leaves its own window in force")
class RefusalLeavesItsWindow(Refusing):
    @classmethod
    def refused(cls, state: State, now: datetime, budget: timedelta, alive: timedelta) -> State:
        claim = state.ledger.claim
        return with_claim(state, claim and replace(claim, alive=min(alive, claim.alive)))


@mutant("N087", "CKP-CLAIM-REFUSED", "a claim waits for the holder's effect")
class WaitsForTheEffect(DoubleCheckpointer):
    async def apply(self, effect: Effect, hand: Hand) -> object:
        with self.vault.transaction() as content:
            content.counters["at work"] = 1
        try:
            return await super().apply(effect, hand)
        finally:
            with self.vault.transaction() as content:
                content.counters["at work"] = 0

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        while True:
            with self.vault.transaction() as content:
                if not content.counters.get("at work"):
                    break
            await asyncio.sleep(0.001)
        return await super().claim(workflow, budget, alive)


class Lapsing(Machine):
    """Grants a claim that lapses at another time."""

    @classmethod
    def granted(cls, claim: reference.Claim, now: datetime, budget: timedelta) -> reference.Claim:
        return claim

    @classmethod
    def claim(
        cls, state: State, now: datetime, budget: timedelta, alive: timedelta, token: int | None = None
    ) -> tuple[State, Pass | None]:
        state, holder = reference.claim(state, now, budget, alive, token)
        claim = state.ledger.claim
        if holder is not None and claim is not None:
            state = with_claim(state, cls.granted(claim, now, budget))
        return state, holder


@mutant("M27", "CKP-CLAIM-LAPSE", "a window longer than the budget is not capped")
class WindowNotCapped(Lapsing):
    @classmethod
    def granted(cls, claim: reference.Claim, now: datetime, budget: timedelta) -> reference.Claim:
        return replace(claim, until=max(claim.until, now + claim.alive))


@mutant("M28", "CKP-CLAIM-LAPSE", "only the budget frees it")
class OnlyTheBudget(Lapsing):
    @classmethod
    def granted(cls, claim: reference.Claim, now: datetime, budget: timedelta) -> reference.Claim:
        return replace(claim, alive=budget)


@mutant("M31", "CKP-CLAIM-LAPSE", "a lapsed claim needs a release")
class NeedsARelease(Lapsing):
    @classmethod
    def granted(cls, claim: reference.Claim, now: datetime, budget: timedelta) -> reference.Claim:
        return replace(claim, alive=timedelta(days=999), until=now + timedelta(days=999))


@mutant("M32", "CKP-CLAIM-LAPSE", "granted slightly early")
class SlightlyEarly(Lapsing):
    @classmethod
    def granted(cls, claim: reference.Claim, now: datetime, budget: timedelta) -> reference.Claim:
        return replace(claim, alive=claim.alive * 0.9, until=now + budget * 0.9)


@mutant("M37", "CKP-CLAIM-CLOCK", "deadlines from the client's clock")
class ClientsClock(DoubleCheckpointer):
    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        def take(state: State, now: datetime) -> tuple[State, Pass | None]:
            return self.machine.claim(state, datetime.fromtimestamp(time.time(), UTC), budget, alive)  # noqa: TID251 - the mutation

        return await self.change(workflow, take)


class Retained(Content):
    """A finished workflow goes when its time is over, whoever claims it."""

    def expire(self, state: State) -> None:
        before = self.expiring.get(state.workflow)
        super().expire(state)
        if before is not None:
            self.expiring[state.workflow] = before


@mutant("N088", "CKP-CLAIM-KEPT", "a claim leaves the old time to live in force")
class TimeToLiveStays(Vault):
    content = Retained


@mutant("N089", "CKP-CLAIM-REPEAT", "a repeated claim is refused")
class RepeatedClaimIsRefused(DoubleCheckpointer):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self.remembers = False


@mutant("N090", "CKP-CLAIM-REPEAT", "a repeat of a refused claim is granted")
class RepeatedRefusalIsGranted(DoubleCheckpointer):
    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        losing = self.link.losing
        holder = await super().claim(workflow, budget, alive)
        if losing and holder is None:
            with self.vault.transaction() as content:
                state, holder = self.machine.claim(
                    with_claim(content.state(workflow, self.queue), None), self.time(), budget, alive
                )
                content.put(state, self.queue)
        return holder


# -------------------------------------------------------------------------------------------------------------- extend


class Extending(Machine):
    """Extends in another way."""

    @classmethod
    def extended(cls, before: reference.Claim, after: reference.Claim, now: datetime, budget: timedelta) -> reference.Claim:
        return after

    @classmethod
    def extend(cls, state: State, now: datetime, holder: Pass, budget: timedelta, alive: timedelta) -> tuple[State, bool]:
        before = state.ledger.claim
        state, given = reference.extend(state, now, holder, budget, alive)
        after = state.ledger.claim
        if given and before is not None and after is not None:
            state = with_claim(state, cls.extended(before, after, now, budget))
        return state, given


@mutant("N091", "CKP-EXTEND-GRANT", "a shorter budget brings the end forward")
class BringsTheEndForward(Extending):
    @classmethod
    def extended(cls, before: reference.Claim, after: reference.Claim, now: datetime, budget: timedelta) -> reference.Claim:
        return replace(after, until=now + budget)


@mutant("N092", "CKP-EXTEND-GRANT", "an extension is no sign of life")
class ExtendIsNoSign(Extending):
    @classmethod
    def extended(cls, before: reference.Claim, after: reference.Claim, now: datetime, budget: timedelta) -> reference.Claim:
        return replace(after, seen=before.seen)


@mutant("N093", "CKP-EXTEND-GRANT", "the budget is added to the old end")
class AddedToTheOldEnd(Extending):
    @classmethod
    def extended(cls, before: reference.Claim, after: reference.Claim, now: datetime, budget: timedelta) -> reference.Claim:
        return replace(after, until=before.until + budget)


@mutant("N094", "CKP-EXTEND-LAPSED", "a lapsed claim cannot be extended")
class LapsedCannotBeExtended(Machine):
    @staticmethod
    def extend(state: State, now: datetime, holder: Pass, budget: timedelta, alive: timedelta) -> tuple[State, bool]:
        if reference.held_until(state, now) is None:
            return state, False
        return reference.extend(state, now, holder, budget, alive)


# --------------------------------------------------------------------------------------------------------------- renew


def as_current(state: State, holder: Pass) -> Pass:
    """Give a pass that the reference takes for the current one."""
    claim = state.ledger.claim
    return holder if claim is None else replace(holder, token=claim.token)


@mutant("M33", "CKP-HOLD-LOST", "a superseded pass renews")
class SupersededRenews(Machine):
    @staticmethod
    def renew(state: State, now: datetime, holder: Pass, alive: timedelta) -> tuple[State, bool]:
        return reference.renew(state, now, as_current(state, holder), alive)


@mutant("M34", "CKP-HOLD-LOST", "renew revives a claim that a rival has taken and released")
class RenewRevives(Machine):
    @staticmethod
    def renew(state: State, now: datetime, holder: Pass, alive: timedelta) -> tuple[State, bool]:
        claim = state.ledger.claim
        if claim is not None and not claim.held:
            return with_claim(state, replace(claim, held=True, token=holder.token, seen=now)), True
        return reference.renew(state, now, holder, alive)


@mutant("M36", "CKP-HOLD-LOST", "a superseded pass moves the rival's budget")
class SupersededExtends(Machine):
    @staticmethod
    def extend(state: State, now: datetime, holder: Pass, budget: timedelta, alive: timedelta) -> tuple[State, bool]:
        after, _ = reference.extend(state, now, as_current(state, holder), budget, alive)
        return after, reference.extend(state, now, holder, budget, alive)[1]


@mutant("N095", "CKP-HOLD-LOST", "a superseded pass gets an exception")
class SupersededRaises(DoubleCheckpointer):
    async def renew(self, holder: Pass, alive: timedelta, /) -> bool:
        if not await super().renew(holder, alive):
            raise Fenced(holder.workflow, holder.token)
        return True


@mutant("N096", "CKP-RENEW-LIVE", "a renewal is no sign of life")
class RenewIsNoSign(Machine):
    @staticmethod
    def renew(state: State, now: datetime, holder: Pass, alive: timedelta) -> tuple[State, bool]:
        return state, reference.renew(state, now, holder, alive)[1]


@mutant("M29", "CKP-RENEW-LIVE", "a renewal keeps the claim past its budget")
class RenewPastTheBudget(Machine):
    @staticmethod
    def renew(state: State, now: datetime, holder: Pass, alive: timedelta) -> tuple[State, bool]:
        state, given = reference.renew(state, now, holder, alive)
        claim = state.ledger.claim
        if given and claim is not None:
            state = with_claim(state, replace(claim, until=max(claim.until, now + alive)))
        return state, given


@mutant("M26", "CKP-RENEW-BUDGET", "a renewal lifts a spent budget")
class RenewLiftsTheBudget(Machine):
    @staticmethod
    def renew(state: State, now: datetime, holder: Pass, alive: timedelta) -> tuple[State, bool]:
        return reference.extend(state, now, holder, alive, alive)


@mutant("N097", "CKP-RENEW-BUDGET", "True although the budget is spent")
class TrueThoughSpent(Machine):
    @staticmethod
    def renew(state: State, now: datetime, holder: Pass, alive: timedelta) -> tuple[State, bool]:
        after, given = reference.renew(state, now, holder, alive)
        claim = state.ledger.claim
        return after, given or (claim is not None and claim.token == holder.token and claim.held)


# ------------------------------------------------------------------------------------------------------------- release


@mutant("M35", "CKP-RELEASE-FREE", "a superseded pass releases the rival's claim")
class SupersededReleases(Machine):
    @staticmethod
    def release(state: State, holder: Pass) -> State:
        return reference.release(state, as_current(state, holder))


@mutant("M39", "CKP-RELEASE-FREE", "release does nothing")
class ReleaseDoesNothing(Machine):
    @staticmethod
    def release(state: State, holder: Pass) -> State:
        return state


@mutant("N098", "CKP-RELEASE-FINAL", "renew after the release makes the claim live again")
class RenewTakesBack(Machine):
    @staticmethod
    def renew(state: State, now: datetime, holder: Pass, alive: timedelta) -> tuple[State, bool]:
        claim = state.ledger.claim
        if claim is not None and claim.token == holder.token:
            state = with_claim(state, replace(claim, held=True))
        return reference.renew(state, now, holder, alive)


@mutant("N099", "CKP-RELEASE-FINAL", "a write after the release takes the workflow back")
class WriteTakesBack(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        state, answer = reference.record(state, now, holder, key, encoded)
        claim = state.ledger.claim
        if isinstance(answer, Recorded) and claim is not None:
            state = with_claim(state, replace(claim, held=True, seen=now))
        return state, answer


@mutant("N100", "CKP-RELEASE-FINAL", "a write after the release says that it landed, and did not")
class SaysItLanded(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        claim = state.ledger.claim
        if claim is not None and claim.token == holder.token and not claim.held:
            return state, Recorded(encoded, True)
        return reference.record(state, now, holder, key, encoded)


@mutant("N101", "CKP-RELEASE-FINAL", "a released pass writes though somebody has claimed since")
class ReleasedWrites(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        known = holder.token <= state.ledger.issued
        return reference.record(state, now, as_current(state, holder), key, encoded) if known else (state, FENCED)
