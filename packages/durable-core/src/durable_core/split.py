"""`SplitDurable`: any checkpointer and any scheduler as one, by ordered writes where one commit is not to be had."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Generic, Protocol, TypeVar, runtime_checkable

from durable_core.contract import (
    Checkpointer,
    Delivery,
    Description,
    Durable,
    E_contra,
    Entry,
    Failed,
    Finished,
    Pass,
    Recorded,
    Scheduler,
    Turn,
    Word,
)
from durable_core.errors import Fenced, NotEncodable
from durable_core.keys import (
    OUTCOME,
    check_duration,
    check_limit,
    check_moment,
    check_once,
    check_open_key,
    check_wait,
    check_workflow,
)

E = TypeVar("E")

_ZERO = timedelta(0)
_WORDS: Final[Sequence[Word]] = ("no", "unknown", "yes")
_FIRST_PAUSE, _LONGEST_PAUSE, _SHORTEST_PAUSE = 0.02, 1.0, 0.005  # seconds between two looks of a watch
_TIDYING = 5.0  # seconds that a `begin` which failed or was cancelled may spend on giving back what it took


@runtime_checkable
class _Timed(Protocol):
    @property
    def monotonic(self) -> Callable[[], float]: ...


@dataclass(frozen=True, slots=True)
class _SplitTurn(Turn):
    """`claimed` is when the claim's reply arrived, in seconds of the durable's `monotonic`."""

    claimed: float


class SplitDurable(Generic[E_contra]):
    """Any two stores as one: each transition is several writes, in the order of DUR-SPLIT-ORDER, and asking again heals a crash.

    What two stores cannot do, and one datastore can:

    * A crash, an error or a cancellation between two writes is seen: a value without its wakeup (`arrive`, `deliver`: ask again),
      an outcome whose claim and delivery have to lapse (`finish`), records without a wakeup (`delete`: ask again). No value is
      lost.
    * [DUR-TURN-FENCED] `finish` looks whether the turn has ended and then writes: it is `Fenced` after an earlier end of the turn
      and after another claim, but not by an end of the same turn that runs at the same time. And one that landed is `Fenced` when
      it is repeated after another `begin` has looked at the workflow, since that took a claim.
    * A workflow whose claim is held comes back after half a lease, not when the claim is released. [DUR-BEGIN]
    * There are two clocks: a due instant goes over as a duration, and `holder.at` is never before `delivery.due`. [ANY-CLOCK]
    * `result` and `watch` read the records, and `watch` looks at growing intervals of at most a second, which `describe` states.
    """

    def __init__(self, checkpointer: Checkpointer[E_contra], scheduler: Scheduler) -> None:
        self._checkpointer, self._scheduler = checkpointer, scheduler

    def __repr__(self) -> str:
        return f"SplitDurable({self._checkpointer!r}, {self._scheduler!r})"

    @property
    def checkpointer(self) -> Checkpointer[E_contra]:
        """The half that keeps records."""
        return self._checkpointer

    @property
    def scheduler(self) -> Scheduler:
        """The half that keeps wakeups."""
        return self._scheduler

    @property
    def monotonic(self) -> Callable[[], float]:
        """Seconds that pass as the checkpointer's clock does."""
        return self._checkpointer.monotonic if isinstance(self._checkpointer, _Timed) else time.monotonic

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        """Record a value, then let the workflow run. [DUR-ARRIVE]"""
        check_open_key(workflow, key, allow_input=True)
        recorded = await self._checkpointer.supply(workflow, key, value)
        await self._scheduler.make_ready(workflow)
        return recorded

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """Add a message to the inbox, then let the workflow run. Repeated without `once` it adds another. [DUR-DELIVER]"""
        check_workflow(workflow)
        check_once(once)
        entry = await self._checkpointer.append(workflow, value, once=once)
        await self._scheduler.make_ready(workflow)
        return entry

    async def delete(self, workflow: str, /) -> int:
        """Forget the wakeup, then the records. [DUR-DELETE]"""
        check_workflow(workflow)
        await self._scheduler.cancel(workflow)
        return await self._checkpointer.discard(workflow)

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        """Take, claim and load up to `limit` workflows, waiting for the first only. [DUR-BEGIN]

        An error after the first turn ends the batch and is left for the next call to meet. What was taken and cannot be given to
        the caller goes back with its counts unchanged, as far as the stores answer.
        """
        wait = check_wait(wait)
        check_duration(budget, "budget")
        check_limit(limit)
        began, turns = self.monotonic(), list[Turn]()
        try:
            while len(turns) < limit:
                waited = timedelta(seconds=self.monotonic() - began)
                delivery = await self._scheduler.next_ready(_ZERO if turns else max(wait - waited, _ZERO))
                if delivery is None:
                    break
                turn = await self._turn(delivery, budget)
                if turn is not None:
                    turns.append(turn)
        except Exception:
            if not turns:
                raise
        except BaseException:
            await _tidied([partial(self.hand_back, turn, _ZERO) for turn in turns])
            raise
        return turns

    async def renew(self, turn: Turn, /) -> Turn | None:
        """Renew the claim, then the delivery. [DUR-KEEP]"""
        check_workflow(turn.holder.workflow)
        if not await self._checkpointer.renew(turn.holder, self._scheduler.lease):
            return None
        return replace(turn, delivery=await self._scheduler.renew(turn.delivery))

    async def finish(self, turn: Turn, value: object, /) -> Recorded:
        """Record the outcome, release, answer. [DUR-FINISH] [DUR-TURN-FENCED]"""
        holder = turn.holder
        check_workflow(holder.workflow)
        await self._check_finish(holder, value)
        recorded = await self._checkpointer.record(holder, OUTCOME, value)
        await self._checkpointer.release(holder)
        await self._scheduler.done(turn.delivery)
        return recorded

    async def pause(self, turn: Turn, due: datetime | None, /) -> None:
        """Release, then answer, with the next wakeup when there is a due time. [DUR-PAUSE]"""
        check_workflow(turn.holder.workflow)
        moment = None if due is None else check_moment(due, "due")
        await self._checkpointer.release(turn.holder)
        if moment is None:
            await self._scheduler.done(turn.delivery)
        else:
            await self._scheduler.wake_at(turn.delivery, await self._over_there(turn, moment))

    async def fail(self, turn: Turn, reason: str, again_in: timedelta | None, /) -> None:
        """Release, then answer with the attempt one higher, or bury. [DUR-FAIL]"""
        check_workflow(turn.holder.workflow)
        if again_in is not None:
            check_duration(again_in, "again_in")
        await self._checkpointer.release(turn.holder)
        if again_in is None:
            await self._scheduler.bury(turn.delivery, reason)
        else:
            when = _later(await self._scheduler.now(), again_in)
            await self._scheduler.wake_at(turn.delivery, when, attempt=turn.delivery.attempt + 1)

    async def hand_back(self, turn: Turn, again_in: timedelta, /) -> None:
        """Release, then answer with the counts unchanged. [DUR-HAND-BACK]"""
        check_workflow(turn.holder.workflow)
        if again_in != _ZERO:
            check_duration(again_in, "again_in")
        await self._checkpointer.release(turn.holder)
        await self._put_back(turn.delivery, again_in)

    async def result(self, workflow: str, /) -> Finished[object] | Failed | None:
        """Give how the workflow ended. [DUR-RESULT]"""
        check_workflow(workflow)
        records = await self._checkpointer.load(workflow)
        if OUTCOME in records:
            return Finished(records[OUTCOME])
        reason = await self._scheduler.buried(workflow)
        return None if reason is None else Failed(reason)

    async def watch(self, workflow: str, wait: timedelta, /) -> None:
        """Return once the workflow has a result or lost its records, or after `wait`. [DUR-RESULT]"""
        check_workflow(workflow)
        wait = check_wait(wait)
        began, pause, seen = self.monotonic(), _FIRST_PAUSE, 0
        while True:
            # From the last record seen, by CKP-LOAD-PREFIX: where it is gone there was a discard.
            latest = await self._checkpointer.load(workflow, skip=max(seen - 1, 0))
            if OUTCOME in latest or (seen and not latest) or await self._scheduler.buried(workflow) is not None:
                return
            left = wait.total_seconds() - (self.monotonic() - began)
            if left <= 0:
                return
            await asyncio.sleep(min(pause, max(left, _SHORTEST_PAUSE)))
            pause, seen = min(pause * 2, _LONGEST_PAUSE), max(seen - 1, 0) + len(latest)

    async def describe(self, /) -> Description:
        """Say what the two are, with the weaker word of each. [DUR-DESCRIBE]"""
        one, other = await self._checkpointer.describe(), await self._scheduler.describe()
        return Description(
            product=f"{one.product} + {other.product}",
            version=f"{one.version} + {other.version}",
            survives_kill=_weaker(one.survives_kill, other.survives_kill),
            survives_power_cut=_weaker(one.survives_power_cut, other.survives_power_cut),
            survives_failover=_weaker(one.survives_failover, other.survives_failover),
            transacts=one.transacts,
            undoes=one.undoes,
            interleaves=one.interleaves,
            co_commits=False,
            joins=False,
            lists=False,
            poll=max(one.poll, other.poll, timedelta(seconds=_LONGEST_PAUSE)),
        )

    async def _turn(self, delivery: Delivery, budget: timedelta) -> Turn | None:
        """Claim and load what was taken. A finished workflow is answered for, a contended one put back."""
        workflow, lease, holder = delivery.workflow, self._scheduler.lease, None
        try:
            holder = await self._checkpointer.claim(workflow, budget, lease)
            claimed = self.monotonic()
            if holder is None:
                await self._put_back(delivery, lease / 2)
                return None
            records = await self._checkpointer.load(workflow)
            if OUTCOME in records:
                await self._checkpointer.release(holder)
                await self._scheduler.done(delivery)
                return None
        except BaseException:
            release = [] if holder is None else [partial(self._checkpointer.release, holder)]
            await _tidied([*release, partial(self._put_back, delivery, lease / 2)])
            raise
        return _SplitTurn(replace(holder, at=max(holder.at, delivery.due)), delivery, records, claimed)

    async def _put_back(self, delivery: Delivery, again_in: timedelta) -> None:
        when = _later(await self._scheduler.now(), again_in)
        await self._scheduler.wake_at(delivery, when, attempt=delivery.attempt, lapses=delivery.lapses)

    async def _check_finish(self, holder: Pass, value: object) -> None:
        """Refuse what cannot be encoded, and a turn that has ended otherwise than by the finish that is repeated here.

        `extend` says whether the claim is held, be it lapsed; of a claim that is not, `record` will say whether it is superseded.
        """
        try:
            self._checkpointer.roundtrip(value)
        except NotEncodable as refused:
            raise NotEncodable(refused.reason, holder.workflow, OUTCOME) from refused
        if await self._checkpointer.extend(holder, self._scheduler.lease, self._scheduler.lease):
            return
        if OUTCOME not in await self._checkpointer.load(holder.workflow):
            raise Fenced(holder.workflow, holder.token, OUTCOME)

    async def _over_there(self, turn: Turn, due: datetime) -> datetime:
        """Give a due instant of the pass's clock by the scheduler's clock; that of a foreign turn is taken as it is."""
        if not isinstance(turn, _SplitTurn):
            return due
        passed = timedelta(seconds=max(self.monotonic() - turn.claimed, 0.0))
        return _later(await self._scheduler.now(), max(due - _later(turn.holder.at, passed), _ZERO))


async def _tidied(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Make each call, whatever becomes of the others, within a time."""
    try:
        async with asyncio.timeout(_TIDYING):
            for call in calls:
                try:
                    await call()
                except Exception:
                    continue
    except TimeoutError:
        pass


def _later(now: datetime, duration: timedelta) -> datetime:
    try:
        return now + duration
    except OverflowError:
        return datetime.max.replace(tzinfo=now.tzinfo)


def _weaker(one: Word, other: Word) -> Word:
    return one if _WORDS.index(one) <= _WORDS.index(other) else other


def _held_to_protocol(split: SplitDurable[E]) -> Durable[E]:  # pyright: ignore[reportUnusedFunction]
    return split
