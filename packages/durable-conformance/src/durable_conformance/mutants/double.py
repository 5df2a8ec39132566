# ruff: noqa: D102 - a part of a store is documented where the protocol has it, and a mutant by its text
"""The store that mutants are made of: the reference machine over a vault, with a seam wherever a store can go wrong.

A mutant overrides one method: of `Machine`, what happens to one workflow's state; of the three stores, what happens around it.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from durable_conformance.mutants.vault import Content, Vault
from durable_core import reference
from durable_core.codec import decoded_for, encoded_for, roundtripped
from durable_core.contract import (
    CheckpointCodec,
    Client,
    Delivery,
    Description,
    Entry,
    Failed,
    Finished,
    Listed,
    Pass,
    Recorded,
    Torn,
    Turn,
    Written,
)
from durable_core.contract import State as ListedState
from durable_core.errors import EffectTorn, Fenced, Misconfigured
from durable_core.keys import (
    OUTCOME,
    check_count,
    check_duration,
    check_key,
    check_limit,
    check_moment,
    check_once,
    check_open_key,
    check_skip,
    check_wait,
    check_workflow,
)
from durable_core.reference import Refusal, State

A = TypeVar("A")
ZERO = timedelta(0)
Effect: TypeAlias = Callable[["Hand"], object]


class Machine:
    """The reference machine's functions, each open to be overridden."""

    record = staticmethod(reference.record)
    transact = staticmethod(reference.transact)
    tear = staticmethod(reference.tear)
    mend = staticmethod(reference.mend)
    ask = staticmethod(reference.ask)
    supply = staticmethod(reference.supply)
    append = staticmethod(reference.append)
    claim = staticmethod(reference.claim)
    extend = staticmethod(reference.extend)
    renew = staticmethod(reference.renew)
    release = staticmethod(reference.release)
    discard = staticmethod(reference.discard)
    load = staticmethod(reference.load)
    history = staticmethod(reference.history)
    make_ready = staticmethod(reference.make_ready)
    next_ready = staticmethod(reference.next_ready)
    renew_delivery = staticmethod(reference.renew_delivery)
    wake_at = staticmethod(reference.wake_at)
    done = staticmethod(reference.done)
    bury = staticmethod(reference.bury)
    buried = staticmethod(reference.buried)
    cancel = staticmethod(reference.cancel)
    arrive = staticmethod(reference.arrive)
    deliver = staticmethod(reference.deliver)
    delete = staticmethod(reference.delete)
    begin = staticmethod(reference.begin)
    renew_turn = staticmethod(reference.renew_turn)
    finish = staticmethod(reference.finish)
    pause = staticmethod(reference.pause)
    fail = staticmethod(reference.fail)
    hand_back = staticmethod(reference.hand_back)
    result = staticmethod(reference.result)
    workflows = staticmethod(reference.workflows)
    sweep = staticmethod(reference.sweep)


class Hand:
    """What an effect is handed: the datastore's counters, to be kept when the effect ends well."""

    def __init__(self, counters: Mapping[str, int]) -> None:
        self.changes: dict[str, int] = {}
        self.broken = False

    def add(self, counter: str) -> None:
        """Add one to a counter."""
        self.changes[counter] = self.changes.get(counter, 0) + 1

    def commit(self) -> None:
        """Refuse: the transaction is the store's."""
        self.broken = True
        raise Misconfigured("an effect does not end the transaction that it was handed")

    def refuse(self) -> None:
        """Fail as a database does: what happened in the transaction cannot be kept any more."""
        self.broken = True
        raise ZeroDivisionError("the database refused a statement")


@dataclass
class Link:
    """A connection to the vault, whose client repeats what it got no reply to."""

    vault: Vault
    losing: int = 0
    lost: int = 0


class Half:
    """What the two halves share."""

    def __init__(self, link: Link, queue: str, lease: timedelta, codec: CheckpointCodec[str], machine: type[Machine]) -> None:
        self.link, self.queue, self.lease, self.codec, self.machine = link, queue, lease, codec, machine
        self.look_at: datetime | None = None
        self.remembers = True

    @property
    def vault(self) -> Vault:
        """The datastore."""
        return self.link.vault

    def time(self) -> datetime:
        """Give the store's clock."""
        return self.vault.time.now()

    async def change(self, workflow: str, act: Callable[[State, datetime], tuple[State, A]]) -> A:
        """Change one workflow in one transaction, when no application's transaction holds it."""
        while workflow in self.vault.staged:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)

        def whole(content: Content) -> A:
            state, answer = act(content.state(workflow, self.queue), self.time())
            content.put(state, self.queue)
            return answer

        return await self.request(whole)

    async def request(self, act: Callable[[Content], A]) -> A:
        """Send a request, and again when the reply is lost, under the nonce of the first."""
        await asyncio.sleep(0)
        nonce = uuid.uuid4().hex
        losing = self.link.losing > 0
        answer = self.answer(nonce, act, keep=losing)
        if losing:
            self.link.losing -= 1
            self.link.lost += 1
            answer = self.answer(nonce, act, keep=False)
        if answer != []:  # a look that found nothing changed nothing
            self.vault.announce()
        return answer

    def answer(self, nonce: str, act: Callable[[Content], A], *, keep: bool) -> A:
        """Carry a request out, or give the answer that it had."""
        with self.vault.transaction() as content:
            if self.remembers and nonce in content.answers:
                answer: A = content.answers[nonce]  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
                return answer
            answer = act(content)
            if keep and self.remembers:
                content.answers[nonce] = answer
            return answer

    def stored(self, holder: Pass | None, workflow: str, key: str, answer: Recorded | Torn | Refusal) -> Recorded:
        """Make of the machine's answer what the contract says."""
        if isinstance(answer, Refusal):
            raise Fenced(workflow, holder.token if holder else 0, key)
        if isinstance(answer, Torn):
            raise EffectTorn(workflow, key, answer.reason)
        return Recorded(decoded_for(self.codec, workflow, key, text(answer.value)), answer.first)

    def decoded(self, workflow: str, encodings: Mapping[str, object]) -> dict[str, object]:
        """Decode records."""
        return {
            key: value if isinstance(value, Torn) else decoded_for(self.codec, workflow, key, text(value))
            for key, value in encodings.items()
        }

    def description(self) -> Description:
        """Say what the double is."""
        return Description(
            product="double",
            version="1",
            survives_kill="yes" if self.vault.durable else "no",
            survives_power_cut="no",
            survives_failover="no",
            transacts=True,
            undoes=True,
            interleaves=True,
            co_commits=True,
            joins=True,
            lists=True,
            poll=timedelta(seconds=self.vault.poll),
        )

    async def describe(self, /) -> Description:
        """Say what the double is."""
        return self.description()


def text(encoding: object) -> str:
    """Give what the codec made of a value."""
    assert isinstance(encoding, str)
    return encoding


class DoubleCheckpointer(Half):
    """The checkpointer's half."""

    def roundtrip(self, value: object, /) -> object:
        return roundtripped(self.codec, value)

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        check_workflow(workflow)
        check_skip(skip)
        return self.decoded(
            workflow, await self.change(workflow, lambda state, now: (state, dict(self.machine.load(state, skip))))
        )

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        check_key(holder.workflow, key)
        encoded = encoded_for(self.codec, holder.workflow, key, value)
        answer = await self.change(holder.workflow, lambda state, now: self.machine.record(state, now, holder, key, encoded))
        return self.stored(holder, holder.workflow, key, answer)

    async def transact(self, holder: Pass, key: str, effect: Effect, /) -> object:
        check_key(holder.workflow, key)
        asked = await self.change(holder.workflow, lambda state, now: (state, self.machine.ask(state, holder, key)))
        if asked is not None:
            return self.stored(holder, holder.workflow, key, asked).value
        hand = Hand({})
        value = await self.apply(effect, hand)
        encoded = encoded_for(self.codec, holder.workflow, key, value)
        answer = await self.request(lambda content: self.commit(content, holder, key, encoded, hand))
        return self.stored(holder, holder.workflow, key, answer).value

    async def apply(self, effect: Effect, hand: Hand) -> object:
        """Run an effect; nothing of the store is held meanwhile."""
        value = effect(hand)
        value = await value if inspect.isawaitable(value) else value
        if hand.broken:
            raise Misconfigured("the effect broke the transaction that it was handed, and went on")
        return value

    def commit(self, content: Content, holder: Pass, key: str, encoded: str, hand: Hand) -> reference.Answer:
        """Keep what an effect did, with its record, unless somebody was first."""
        state, answer = self.machine.transact(content.state(holder.workflow, self.queue), self.time(), holder, key, encoded)
        content.put(state, self.queue)
        if isinstance(answer, Recorded) and answer.first:
            self.keep(content, hand)
        return answer

    def keep(self, content: Content, hand: Hand) -> None:
        """Keep what an effect did."""
        for counter, times in hand.changes.items():
            content.counters[counter] = content.counters.get(counter, 0) + times

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        check_key(workflow, key)
        encoded = encoded_for(self.codec, workflow, key, value)
        answer = await self.change(workflow, lambda state, now: self.machine.supply(state, now, key, encoded))
        return self.stored(None, workflow, key, answer)

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        check_workflow(workflow)
        check_once(once)
        encoded = encoded_for(self.codec, workflow, "inbox:", value)
        entry = await self.change(workflow, lambda state, now: self.machine.append(state, now, encoded, once))
        return Entry(entry.key, decoded_for(self.codec, workflow, entry.key, text(entry.value)))

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        check_workflow(workflow)
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        return await self.change(workflow, lambda state, now: self.machine.claim(state, now, budget, alive))

    async def extend(self, holder: Pass, budget: timedelta, alive: timedelta, /) -> bool:
        check_duration(budget, "budget")
        check_duration(alive, "alive")
        return await self.change(holder.workflow, lambda state, now: self.machine.extend(state, now, holder, budget, alive))

    async def renew(self, holder: Pass, alive: timedelta, /) -> bool:
        check_duration(alive, "alive")
        return await self.change(holder.workflow, lambda state, now: self.machine.renew(state, now, holder, alive))

    async def release(self, holder: Pass, /) -> None:
        await self.change(holder.workflow, lambda state, now: (self.machine.release(state, holder), None))

    async def history(self, workflow: str, /) -> dict[str, Written]:
        check_workflow(workflow)
        written = await self.change(workflow, lambda state, now: (state, self.machine.history(state)))
        values = self.decoded(workflow, {key: one.value for key, one in written.items()})
        return {key: Written(values[key], one.at) for key, one in written.items()}

    async def discard(self, workflow: str, /) -> int:
        check_workflow(workflow)
        return await self.change(workflow, lambda state, now: self.machine.discard(state))


class DoubleScheduler(Half):
    """The scheduler's half."""

    async def now(self, /) -> datetime:
        return self.time()

    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        check_workflow(workflow)
        await self.change(workflow, lambda state, now: (self.machine.make_ready(state, now, revive), None))

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        deliveries = await self.waited(check_wait(wait), self.take)
        return deliveries[0] if deliveries else None

    def take(self, content: Content) -> Sequence[Delivery]:
        """Take the one that is longest due."""
        self.look_at = None
        queue, now = content.queue(self.queue), self.time()
        first = queue.first()
        if first is None or first[0] > now:
            return []
        state = content.state(first[1], self.queue)
        state, delivery = self.machine.next_ready(state, now, self.lease, f"receipt {content.next()}")
        content.put(state, self.queue)
        return [delivery] if delivery else []

    async def waited(self, wait: timedelta, take: Callable[[Content], Sequence[A]]) -> Sequence[A]:
        """Ask again whenever something may have become ready, for so long."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        ends = time.monotonic() + wait.total_seconds()
        with self.vault.listening(lambda: loop.call_soon_threadsafe(changed.set)) as poll:
            while True:
                changed.clear()
                taken = await self.request(take)
                left = ends - time.monotonic()
                if taken or left <= 0:
                    return taken
                changed.clear()
                await self.sleep(changed, min(left, self.until_due() if poll is None else poll))

    async def sleep(self, changed: asyncio.Event, seconds: float) -> None:
        """Sleep until something changed, or for so long."""
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass

    def until_due(self) -> float:
        """Give the seconds until the passing of time makes something ready, on a clock that passes by itself."""
        with self.vault.transaction() as content:
            first = content.queue(self.queue).first()
        moments = [moment for moment in (self.look_at, first and first[0]) if moment and moment > self.time()]
        if self.vault.manual or not moments:
            return 3600.0
        return max(0.001, (min(moments) - self.time()).total_seconds())

    async def renew(self, delivery: Delivery, /) -> Delivery:
        return await self.change(
            delivery.workflow, lambda state, now: self.machine.renew_delivery(state, now, delivery, self.lease)
        )

    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        when = check_moment(when, "when")
        check_count(attempt, lapses)
        await self.change(
            delivery.workflow, lambda state, now: (self.machine.wake_at(state, now, delivery, when, attempt, lapses), None)
        )

    async def done(self, delivery: Delivery, /) -> None:
        await self.change(delivery.workflow, lambda state, now: (self.machine.done(state, now, delivery), None))

    async def bury(self, delivery: Delivery, reason: str, /) -> None:
        await self.change(delivery.workflow, lambda state, now: (self.machine.bury(state, delivery, reason), None))

    async def buried(self, workflow: str, /) -> str | None:
        check_workflow(workflow)
        return await self.change(workflow, lambda state, now: (state, self.machine.buried(state)))

    async def cancel(self, workflow: str, /) -> None:
        check_workflow(workflow)
        await self.change(workflow, lambda state, now: (self.machine.cancel(state), None))


class DoubleDurable(Half):
    """The pair, each transition in one transaction."""

    def __init__(self, checkpointer: DoubleCheckpointer, scheduler: DoubleScheduler) -> None:
        if checkpointer.link is not scheduler.link:
            raise Misconfigured("the two halves do not share their connection")
        super().__init__(scheduler.link, scheduler.queue, scheduler.lease, checkpointer.codec, scheduler.machine)
        self._checkpointer, self._scheduler = checkpointer, scheduler

    def description(self) -> Description:
        """Say what the halves say, which are one datastore."""
        return self._checkpointer.description()

    @property
    def checkpointer(self) -> DoubleCheckpointer:
        return self._checkpointer

    @property
    def scheduler(self) -> DoubleScheduler:
        return self._scheduler

    async def arrive(self, workflow: str, key: str, value: object, /) -> Recorded:
        check_open_key(workflow, key, allow_input=True)
        encoded = encoded_for(self.codec, workflow, key, value)
        answer = await self.change(workflow, lambda state, now: self.machine.arrive(state, now, key, encoded))
        return self.stored(None, workflow, key, answer)

    async def deliver(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        check_workflow(workflow)
        check_once(once)
        encoded = encoded_for(self.codec, workflow, "inbox:", value)
        entry = await self.change(workflow, lambda state, now: self.machine.deliver(state, now, encoded, once))
        return Entry(entry.key, decoded_for(self.codec, workflow, entry.key, text(entry.value)))

    async def delete(self, workflow: str, /) -> int:
        check_workflow(workflow)
        return await self.change(workflow, lambda state, now: self.machine.delete(state))

    async def begin(self, wait: timedelta, budget: timedelta, /, *, limit: int = 1) -> Sequence[Turn]:
        check_duration(budget, "budget")
        check_limit(limit)
        turns = await self.scheduler.waited(check_wait(wait), lambda content: self.take(content, budget, limit))
        return [self.given(turn) for turn in turns]

    def given(self, turn: Turn) -> Turn:
        """Decode a turn's records."""
        return Turn(turn.holder, turn.delivery, self.decoded(turn.holder.workflow, turn.records or {}))

    def take(self, content: Content, budget: timedelta, limit: int) -> Sequence[Turn]:
        """Take what is due and not held, the longest due first."""
        self.scheduler.look_at = None
        queue, now, turns = content.queue(self.queue), self.time(), list[Turn]()
        held: list[State] = []
        while len(turns) < limit and (first := queue.first()) and first[0] <= now:
            heapq.heappop(queue.heap)
            state = content.state(first[1], self.queue)
            after, turn = self.machine.begin(state, now, self.lease, budget, f"receipt {content.next()}")
            if turn is not None:
                turns.append(turn)
            if turn is None and after.wakeup is not None and after.wakeup.due <= now:
                held.append(after)
            else:
                content.put(after, self.queue)
        for state in held:
            content.put(state, self.queue)
            queue.put(state.workflow, state.wakeup, content.next())
            until = reference.held_until(state, now) or now
            self.scheduler.look_at = min(until, self.scheduler.look_at or until)
        return turns

    async def renew(self, turn: Turn, /) -> Turn | None:
        return await self.change(turn.holder.workflow, lambda state, now: self.machine.renew_turn(state, now, turn, self.lease))

    async def finish(self, turn: Turn, value: object, /) -> Recorded:
        workflow = turn.holder.workflow
        encoded = encoded_for(self.codec, workflow, OUTCOME, value)
        answer = await self.change(workflow, lambda state, now: self.machine.finish(state, now, turn, encoded))
        return self.stored(turn.holder, workflow, OUTCOME, answer)

    async def pause(self, turn: Turn, due: datetime | None, /) -> None:
        due = None if due is None else check_moment(due, "due")
        await self.change(turn.holder.workflow, lambda state, now: (self.machine.pause(state, now, turn, due), None))

    async def fail(self, turn: Turn, reason: str, again_in: timedelta | None, /) -> None:
        await self.change(turn.holder.workflow, lambda state, now: (self.machine.fail(state, now, turn, reason, again_in), None))

    async def hand_back(self, turn: Turn, again_in: timedelta, /) -> None:
        await self.change(turn.holder.workflow, lambda state, now: (self.machine.hand_back(state, now, turn, again_in), None))

    async def ended(self, workflow: str) -> Finished[object] | Failed | None:
        """Look how the workflow ended, without telling anybody."""
        await asyncio.sleep(0)
        with self.vault.transaction() as content:
            return self.machine.result(content.state(workflow, self.queue))

    async def result(self, workflow: str, /) -> Finished[object] | Failed | None:
        check_workflow(workflow)
        ended = await self.ended(workflow)
        if not isinstance(ended, Finished):
            return ended
        return Finished(decoded_for(self.codec, workflow, OUTCOME, text(ended.value)))

    async def watch(self, workflow: str, wait: timedelta, /) -> None:
        ends = time.monotonic() + check_wait(wait).total_seconds()
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        with self.vault.listening(lambda: loop.call_soon_threadsafe(changed.set)) as poll:
            while await self.ended(workflow) is None and (left := ends - time.monotonic()) > 0:
                changed.clear()
                await self.scheduler.sleep(changed, min(left, poll or left))

    def joined(self, connection: Client, /) -> Client:
        """Give the client half, bound to a transaction of the application."""
        return connection

    async def workflows(
        self, /, *, prefix: str = "", state: ListedState | None = None, after: str | None = None, limit: int = 100
    ) -> Sequence[Listed]:
        check_limit(limit)
        return await self.request(lambda content: self.listed(content, prefix, state, after, limit))

    def listed(self, content: Content, prefix: str, state: ListedState | None, after: str | None, limit: int) -> Sequence[Listed]:
        """Give a page."""
        known = {*content.ledgers, *content.queue(self.queue).wakeups}
        states = [content.state(workflow, self.queue) for workflow in known]
        return self.machine.workflows(states, self.time(), prefix, state, after, limit)

    async def sweep(self, finished_before: datetime, /) -> int:
        before = check_moment(finished_before, "finished_before")
        return await self.request(lambda content: self.swept(content, before))

    def swept(self, content: Content, before: datetime) -> int:
        """Discard what finished before an instant."""
        swept = 0
        for workflow in list(content.ledgers):
            state, gone = self.machine.sweep(content.state(workflow, self.queue), self.time(), before)
            content.put(state, self.queue)
            swept += gone
        return swept
