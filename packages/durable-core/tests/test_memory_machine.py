"""`MemoryDurable` does what the reference says, whatever is asked of it and in whatever order."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, invariant, multiple, rule

from durable_core import reference
from durable_core._clock import ManualClock
from durable_core.codec import JsonCodec
from durable_core.contract import Delivery, Entry, Failed, Finished, Pass, Recorded, Turn
from durable_core.errors import Fenced
from durable_core.keys import OUTCOME, inbox_number
from durable_core.memory import MemoryDurable
from durable_core.reference import FENCED, State

T = TypeVar("T")

LEASE = timedelta(seconds=10)
NOTHING = timedelta(0)

workflows = st.sampled_from(["v", "w", "x"])
keys = st.sampled_from(["a", "b", "inbox:00000000000000000005", OUTCOME])
open_keys = st.sampled_from(["a", "b", "input"])
values = st.sampled_from([None, 0, "", [1, 2], {"k": 1.5}])
durations = st.sampled_from([timedelta(seconds=number) for number in (1, 4, 9, 10, 11, 25)])
counts = st.integers(min_value=1, max_value=3)
senders = st.sampled_from([None, "m1", "m2"])


class MemoryMachine(RuleBasedStateMachine):
    """Each operation goes to the double and to the model, and the answers are compared."""

    passes: Bundle[Pass] = Bundle("passes")
    deliveries: Bundle[Delivery] = Bundle("deliveries")
    turns: Bundle[Turn] = Bundle("turns")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.durable = MemoryDurable(clock=self.clock, lease=LEASE)
        self.states: dict[str, State] = {}
        self.data: dict[str, object] = {}
        self.codec = JsonCodec()

    def teardown(self) -> None:
        self.runner.close()

    # ---------------------------------------------------------------------------------------------------- the means

    def now(self) -> datetime:
        return self.clock.now()

    def ask(self, question: Coroutine[object, object, T]) -> T:
        return self.runner.run(question)

    def fenced(self, question: Coroutine[object, object, Recorded]) -> Recorded | object:
        try:
            return self.ask(question)
        except Fenced:
            return FENCED

    def state(self, workflow: str) -> State:
        return self.states.get(workflow, State(workflow))

    def step(self, workflow: str, step: Callable[[State], tuple[State, T]]) -> T:
        self.states[workflow], answer = step(self.state(workflow))
        return answer

    def move(self, workflow: str, move: Callable[[State], State]) -> None:
        self.states[workflow] = move(self.state(workflow))

    def coded(self, answer: reference.Answer | Entry[object]) -> object:
        if isinstance(answer, Recorded):
            assert isinstance(answer.value, str)
            return Recorded(self.codec.decode(answer.value), answer.first)
        if isinstance(answer, Entry):
            assert isinstance(answer.value, str)
            return Entry(answer.key, self.codec.decode(answer.value))
        return answer

    # ------------------------------------------------------------------------------------------------- checkpointer

    @rule(workflow=workflows, key=keys, value=values)
    def supply(self, workflow: str, key: str, value: object) -> None:
        encoded = self.codec.encode(value)
        expected = self.step(workflow, lambda state: reference.supply(state, self.now(), key, encoded))
        assert self.ask(self.durable.checkpointer.supply(workflow, key, value)) == self.coded(expected)

    @rule(holder=passes, key=keys, value=values)
    def record(self, holder: Pass, key: str, value: object) -> None:
        encoded = self.codec.encode(value)
        expected = self.step(holder.workflow, lambda state: reference.record(state, self.now(), holder, key, encoded))
        assert self.fenced(self.durable.checkpointer.record(holder, key, value)) == self.coded(expected)

    @rule(holder=passes, key=keys, value=values, raises=st.booleans())
    def transact(self, holder: Pass, key: str, value: object, raises: bool) -> None:
        def effect(data: dict[str, object]) -> object:
            data[key] = [data.get(key), holder.token]
            if raises:
                raise ZeroDivisionError
            return value

        free = reference.ask(self.state(holder.workflow), holder, key) is None
        transaction = self.durable.checkpointer.transact(holder, key, effect)
        if free and raises:
            with pytest.raises(ZeroDivisionError):
                self.ask(transaction)
            return
        encoded = self.codec.encode(value)
        expected = self.step(holder.workflow, lambda state: reference.transact(state, self.now(), holder, key, encoded))
        if isinstance(expected, Recorded):
            assert isinstance(expected.value, str)
            assert self.ask(transaction) == self.codec.decode(expected.value)
            assert expected.first is free
        else:
            with pytest.raises(Fenced):
                self.ask(transaction)
        if free:
            self.data[key] = [self.data.get(key), holder.token]

    @rule(workflow=workflows, value=values, once=senders)
    def append(self, workflow: str, value: object, once: str | None) -> None:
        encoded = self.codec.encode(value)
        expected = self.step(workflow, lambda state: reference.append(state, self.now(), encoded, once))
        assert self.ask(self.durable.checkpointer.append(workflow, value, once=once)) == self.coded(expected)

    @rule(target=passes, workflow=workflows, budget=durations, alive=durations)
    def claim(self, workflow: str, budget: timedelta, alive: timedelta) -> Pass | MultipleResults[Pass]:
        holder = self.ask(self.durable.checkpointer.claim(workflow, budget, alive))
        token = None if holder is None else holder.token
        assert holder == self.step(workflow, lambda state: reference.claim(state, self.now(), budget, alive, token))
        return multiple() if holder is None else holder

    @rule(holder=passes, budget=durations, alive=durations)
    def extend(self, holder: Pass, budget: timedelta, alive: timedelta) -> None:
        expected = self.step(holder.workflow, lambda state: reference.extend(state, self.now(), holder, budget, alive))
        assert self.ask(self.durable.checkpointer.extend(holder, budget, alive)) is expected

    @rule(holder=passes, alive=durations)
    def renew_claim(self, holder: Pass, alive: timedelta) -> None:
        expected = self.step(holder.workflow, lambda state: reference.renew(state, self.now(), holder, alive))
        assert self.ask(self.durable.checkpointer.renew(holder, alive)) is expected

    @rule(holder=passes)
    def release(self, holder: Pass) -> None:
        self.move(holder.workflow, lambda state: reference.release(state, holder))
        self.ask(self.durable.checkpointer.release(holder))

    @rule(workflow=workflows)
    def discard(self, workflow: str) -> None:
        expected = self.step(workflow, reference.discard)
        assert self.ask(self.durable.checkpointer.discard(workflow)) == expected

    # ---------------------------------------------------------------------------------------------------- scheduler

    @rule(workflow=workflows, revive=st.booleans())
    def make_ready(self, workflow: str, revive: bool) -> None:
        self.move(workflow, lambda state: reference.make_ready(state, self.now(), revive))
        self.ask(self.durable.scheduler.make_ready(workflow, revive=revive))

    @rule(target=deliveries)
    def next_ready(self) -> Delivery | MultipleResults[Delivery]:
        """Which one is the store's choice; it is due, and none that is due and unclaimed is passed over for ever."""
        delivery = self.ask(self.durable.scheduler.next_ready(NOTHING))
        if delivery is None:
            assert not self.due_and_free()
            return multiple()
        receipt = delivery.receipt
        expected = self.step(delivery.workflow, lambda state: reference.next_ready(state, self.now(), LEASE, receipt))
        assert delivery == expected
        return delivery

    @rule(delivery=deliveries)
    def renew_delivery(self, delivery: Delivery) -> None:
        expected = self.step(delivery.workflow, lambda state: reference.renew_delivery(state, self.now(), delivery, LEASE))
        assert self.ask(self.durable.scheduler.renew(delivery)) == expected

    @rule(delivery=deliveries, again_in=durations, attempt=counts, lapses=counts)
    def wake_at(self, delivery: Delivery, again_in: timedelta, attempt: int, lapses: int) -> None:
        when = self.now() + again_in
        self.move(delivery.workflow, lambda state: reference.wake_at(state, self.now(), delivery, when, attempt, lapses))
        self.ask(self.durable.scheduler.wake_at(delivery, when, attempt=attempt, lapses=lapses))

    @rule(delivery=deliveries)
    def done(self, delivery: Delivery) -> None:
        self.move(delivery.workflow, lambda state: reference.done(state, self.now(), delivery))
        self.ask(self.durable.scheduler.done(delivery))

    @rule(delivery=deliveries)
    def bury(self, delivery: Delivery) -> None:
        self.move(delivery.workflow, lambda state: reference.bury(state, delivery, "why"))
        self.ask(self.durable.scheduler.bury(delivery, "why"))

    @rule(workflow=workflows)
    def cancel(self, workflow: str) -> None:
        self.move(workflow, reference.cancel)
        self.ask(self.durable.scheduler.cancel(workflow))

    # ------------------------------------------------------------------------------------------------------ durable

    @rule(workflow=workflows, key=open_keys, value=values)
    def arrive(self, workflow: str, key: str, value: object) -> None:
        encoded = self.codec.encode(value)
        expected = self.step(workflow, lambda state: reference.arrive(state, self.now(), key, encoded))
        assert self.ask(self.durable.arrive(workflow, key, value)) == self.coded(expected)

    @rule(workflow=workflows, value=values, once=senders)
    def deliver(self, workflow: str, value: object, once: str | None) -> None:
        encoded = self.codec.encode(value)
        expected = self.step(workflow, lambda state: reference.deliver(state, self.now(), encoded, once))
        assert self.ask(self.durable.deliver(workflow, value, once=once)) == self.coded(expected)

    @rule(workflow=workflows)
    def delete(self, workflow: str) -> None:
        expected = self.step(workflow, reference.delete)
        assert self.ask(self.durable.delete(workflow)) == expected

    @rule(target=turns, budget=durations, limit=counts)
    def begin(self, budget: timedelta, limit: int) -> MultipleResults[Turn]:
        """It answers for the finished ones that it meets; one that is still held may wait for the claim to end."""
        now, due = self.now(), self.due_and_free()
        turns = self.ask(self.durable.begin(NOTHING, budget, limit=limit))
        assert {turn.delivery.workflow for turn in turns} <= {state.workflow for state in due}
        assert len(turns) == min(limit, len(due))
        for turn in turns:
            self.began(turn, now, budget)
        for workflow in list(self.states):
            state = self.state(workflow)
            gone = self.durable.memory.see(workflow, "default").wakeup is None
            if gone and OUTCOME in state.ledger.records and self.is_due(state):
                self.states[workflow] = reference.cancel(state)
        if len(turns) < limit:
            left = [state for state in self.states.values() if self.is_due(state) and OUTCOME in state.ledger.records]
            assert all(reference.held_until(state, now) is not None for state in left)
        return multiple(*turns)

    def began(self, turn: Turn, now: datetime, budget: timedelta) -> None:
        token, receipt = turn.holder.token, turn.delivery.receipt
        expected = self.step(turn.holder.workflow, lambda state: reference.begin(state, now, LEASE, budget, receipt, token))
        assert expected is not None
        assert (turn.holder, turn.delivery) == (expected.holder, expected.delivery)
        assert turn.records is not None
        assert list(turn.records) == list(self.state(turn.holder.workflow).ledger.records)

    @rule(turn=turns)
    def renew_turn(self, turn: Turn) -> None:
        expected = self.step(turn.holder.workflow, lambda state: reference.renew_turn(state, self.now(), turn, LEASE))
        assert self.ask(self.durable.renew(turn)) == expected

    @rule(turn=turns, value=values)
    def finish(self, turn: Turn, value: object) -> None:
        encoded = self.codec.encode(value)
        expected = self.step(turn.holder.workflow, lambda state: reference.finish(state, self.now(), turn, encoded))
        assert self.fenced(self.durable.finish(turn, value)) == self.coded(expected)

    @rule(turn=turns, again_in=st.none() | durations)
    def pause(self, turn: Turn, again_in: timedelta | None) -> None:
        due = None if again_in is None else self.now() + again_in
        self.move(turn.holder.workflow, lambda state: reference.pause(state, self.now(), turn, due))
        self.ask(self.durable.pause(turn, due))

    @rule(turn=turns, again_in=st.none() | durations)
    def fail(self, turn: Turn, again_in: timedelta | None) -> None:
        self.move(turn.holder.workflow, lambda state: reference.fail(state, self.now(), turn, "why", again_in))
        self.ask(self.durable.fail(turn, "why", again_in))

    @rule(turn=turns, again_in=st.just(NOTHING) | durations)
    def hand_back(self, turn: Turn, again_in: timedelta) -> None:
        self.move(turn.holder.workflow, lambda state: reference.hand_back(state, self.now(), turn, again_in))
        self.ask(self.durable.hand_back(turn, again_in))

    @rule(duration=durations)
    def advance(self, duration: timedelta) -> None:
        self.clock.advance(duration)

    @rule(ago=durations)
    def sweep(self, ago: timedelta) -> None:
        before, swept = self.now() - ago, 0
        for workflow in list(self.states):
            swept += self.step(workflow, lambda state: reference.sweep(state, self.now(), before))
        assert self.ask(self.durable.sweep(before)) == swept

    # --------------------------------------------------------------------------------------------------- what holds

    def is_due(self, state: State) -> bool:
        due = reference.due_at(state)
        return due is not None and due <= self.now()

    def due_and_free(self) -> list[State]:
        """Those that `begin` makes turns of."""
        return [
            state
            for state in self.states.values()
            if self.is_due(state) and OUTCOME not in state.ledger.records and reference.held_until(state, self.now()) is None
        ]

    @invariant()
    def reads_agree(self) -> None:
        for workflow, state in self.states.items():
            loaded = self.ask(self.durable.checkpointer.load(workflow))
            assert [(key, self.codec.encode(value)) for key, value in loaded.items()] == list(reference.load(state).items())
            history = self.ask(self.durable.checkpointer.history(workflow))
            assert [written.at for written in history.values()] == [written.at for written in reference.history(state).values()]
            assert self.ask(self.durable.scheduler.buried(workflow)) == reference.buried(state)
            result, expected = self.ask(self.durable.result(workflow)), reference.result(state)
            if isinstance(expected, Finished):
                assert result == Finished(loaded[OUTCOME])
            else:
                assert result == expected
                assert not isinstance(result, Failed) or result.reason == "why"

    @invariant()
    def listings_agree(self) -> None:
        expected = reference.workflows(self.states.values(), self.now())
        assert self.ask(self.durable.workflows()) == expected

    @invariant()
    def effects_are_applied_once(self) -> None:
        assert self.durable.data == self.data

    @invariant()
    def inboxes_rise(self) -> None:
        for state in self.states.values():
            appended = [record for record in state.ledger.records.since(0) if record.once is not None]
            assert [inbox_number(record.key) for record in appended] == sorted(inbox_number(record.key) for record in appended)


MemoryMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
TestMemoryMachine = pytest.mark.timeout(900)(MemoryMachine.TestCase)  # so that a failure can be made small
