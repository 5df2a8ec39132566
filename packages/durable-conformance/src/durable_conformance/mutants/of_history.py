"""Mutants of history and discard."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from durable_conformance.mutants.double import DoubleCheckpointer, Effect, Hand, Machine
from durable_conformance.mutants.registry import mutant
from durable_conformance.mutants.states import listed, with_claim, with_records
from durable_conformance.mutants.vault import Content
from durable_core import reference
from durable_core.contract import Entry, Pass, Recorded, Torn, Written
from durable_core.reference import Answer, Ledger, State


@mutant("M68", "CKP-HISTORY-SAME", "history in another order")
class HistoryByKey(Machine):
    @staticmethod
    def history(state: State) -> dict[str, Written]:
        return dict(sorted(reference.history(state).items()))


@mutant("N110", "CKP-HISTORY-SAME", "what was appended is missing")
class HistoryWithoutEntries(Machine):
    @staticmethod
    def history(state: State) -> dict[str, Written]:
        return {key: one for key, one in reference.history(state).items() if not key.startswith("inbox:")}


@mutant("M67", "CKP-HISTORY-TIME", "a losing write stamps again")
class LoserStamps(Machine):
    @staticmethod
    def record(state: State, now: datetime, holder: Pass, key: str, encoded: object) -> tuple[State, Answer]:
        state, answer = reference.record(state, now, holder, key, encoded)
        return with_records(state, [replace(one, at=now) if one.key == key else one for one in listed(state)]), answer


@mutant("M69", "CKP-HISTORY-TIME", "stamped when it is read")
class StampedAtRead(DoubleCheckpointer):
    async def history(self, workflow: str, /) -> dict[str, Written]:
        now = self.time()
        return {key: Written(one.value, now) for key, one in (await super().history(workflow)).items()}


@mutant("M70", "CKP-HISTORY-TIME", "stamped by the client's clock")
class StampedByTheClient(Machine):
    @staticmethod
    def supply(state: State, now: datetime, key: str, encoded: object) -> tuple[State, Recorded | Torn]:
        return reference.supply(state, datetime.fromtimestamp(time.time(), UTC), key, encoded)  # noqa: TID251 - the mutation


@mutant("M71", "CKP-HISTORY-TIME", "an effect's record is stamped with its beginning")
class StampedWithTheBeginning(DoubleCheckpointer):
    began: datetime | None = None

    async def apply(self, effect: Effect, hand: Hand) -> object:
        self.began = self.time()
        return await super().apply(effect, hand)

    def commit(self, content: Content, holder: Pass, key: str, encoded: str, hand: Hand) -> Answer:
        answer = super().commit(content, holder, key, encoded, hand)
        state, began = content.state(holder.workflow, self.queue), self.began
        if began is not None:
            content.put(
                with_records(state, [replace(one, at=began) if one.key == key else one for one in listed(state)]), self.queue
            )
        return answer


@mutant("M72", "CKP-HISTORY-TIME", "times without a zone")
class NaiveTimes(DoubleCheckpointer):
    async def history(self, workflow: str, /) -> dict[str, Written]:
        return {key: Written(one.value, one.at.replace(tzinfo=None)) for key, one in (await super().history(workflow)).items()}


@mutant("N111", "CKP-HISTORY-TIME", "times in another zone than UTC")
class OtherZone(DoubleCheckpointer):
    async def history(self, workflow: str, /) -> dict[str, Written]:
        zone = timezone(timedelta(hours=2))
        return {key: Written(one.value, one.at.astimezone(zone)) for key, one in (await super().history(workflow)).items()}


@mutant("N112", "CKP-HISTORY-RISING", "the time is taken before the wait for the order")
class TimeTakenEarly(DoubleCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        began, encoded = self.time(), self.codec.encode(value)
        for _ in range(hash(key) % 7):
            await asyncio.sleep(0)
        return self.stored(
            None, workflow, key, await self.change(workflow, lambda state, now: self.machine.supply(state, began, key, encoded))
        )


@mutant("M76", "CKP-DISCARD-ALL", "entries are kept")
class KeepsEntries(Machine):
    @staticmethod
    def discard(state: State) -> tuple[State, int]:
        entries = [one for one in listed(state) if one.key.startswith("inbox:")]
        after, count = reference.discard(state)
        return with_records(after, entries), count - len(entries)


@mutant("N113", "CKP-DISCARD-ALL", "history is kept")
class KeepsHistory(DoubleCheckpointer):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self._history: dict[str, dict[str, Written]] = {}

    async def discard(self, workflow: str, /) -> int:
        self._history[workflow] = await self.history(workflow)
        return await super().discard(workflow)

    async def history(self, workflow: str, /) -> dict[str, Written]:
        return {**self._history.get(workflow, {}), **await super().history(workflow)}


@mutant("N114", "CKP-DISCARD-ALL", "counts wrongly")
class CountsWrongly(Machine):
    @staticmethod
    def discard(state: State) -> tuple[State, int]:
        after, count = reference.discard(state)
        return after, min(count, 1)


@mutant("M79", "CKP-DISCARD-ALL", "the senders' ids outlive the entries")
class IdsOutlive(DoubleCheckpointer):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        self._sent: dict[tuple[str, str], Entry[object]] = {}

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        if once is not None and (workflow, once) in self._sent:
            return self._sent[workflow, once]
        entry = await super().append(workflow, value, once=once)
        if once is not None:
            self._sent[workflow, once] = entry
        return entry


@mutant("M73", "CKP-DISCARD-FENCE", "the claim's row goes, and the counter restarts")
class DiscardRestartsTheCounter(Machine):
    @staticmethod
    def discard(state: State) -> tuple[State, int]:
        return replace(state, ledger=Ledger()), len(state.ledger.records)


@mutant("M74", "CKP-DISCARD-FENCE", "the fence is not raised")
class FenceNotRaised(Machine):
    @staticmethod
    def discard(state: State) -> tuple[State, int]:
        return with_records(state, []), len(state.ledger.records)


@mutant("M78", "CKP-DISCARD-FENCE", "in two steps: delete, then raise the fence")
class DiscardInTwoSteps(DoubleCheckpointer):
    async def discard(self, workflow: str, /) -> int:
        count = await self.change(workflow, lambda state, now: (with_records(state, []), len(state.ledger.records)))
        await asyncio.sleep(0)
        await self.change(workflow, lambda state, now: (with_claim(state, None), None))
        return count


@mutant("N115", "CKP-DISCARD-FENCE", "a discarded pass still renews")
class DiscardedRenews(Machine):
    @staticmethod
    def renew(state: State, now: datetime, holder: Pass, alive: timedelta) -> tuple[State, bool]:
        if state.ledger.claim is None and holder.token == state.ledger.issued:
            return state, True
        return reference.renew(state, now, holder, alive)


@mutant("M75", "CKP-DISCARD-FREE", "the old lease stays in force")
class OldLeaseStays(Machine):
    @staticmethod
    def discard(state: State) -> tuple[State, int]:
        after, count = reference.discard(state)
        claim = state.ledger.claim
        return with_claim(after, claim and replace(claim, token=-1)), count


@mutant("N116", "CKP-DISCARD-UNKNOWN", "an unknown id is an error")
class UnknownIsAnError(DoubleCheckpointer):
    async def discard(self, workflow: str, /) -> int:
        count = await super().discard(workflow)
        if not count:
            raise LookupError(workflow)
        return count


@mutant("N117", "CKP-DISCARD-UNKNOWN", "without records nothing is fenced")
class NothingIsFenced(Machine):
    @staticmethod
    def discard(state: State) -> tuple[State, int]:
        return reference.discard(state) if state.ledger.records else (state, 0)


@mutant("N118", "CKP-DISCARD-UNKNOWN", "leaves a claim behind")
class LeavesAClaim(Machine):
    @staticmethod
    def discard(state: State) -> tuple[State, int]:
        if not state.ledger.records:
            now = datetime.max.replace(tzinfo=UTC)
            claim = reference.Claim(state.ledger.issued + 1, True, now, timedelta(days=1), now)
            return replace(state, ledger=Ledger(claim=claim, issued=claim.token)), 0
        return reference.discard(state)
