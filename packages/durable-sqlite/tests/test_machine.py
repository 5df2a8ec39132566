"""Two `SqliteDurable` on one file do what the reference says, whatever is asked of which and in whatever order."""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, invariant, multiple, rule

from durable_core import reference
from durable_core.codec import JsonCodec
from durable_core.contract import Delivery, Entry, Listed, Pass, Recorded, Turn
from durable_core.errors import Fenced
from durable_core.keys import OUTCOME
from durable_core.reference import FENCED, State
from durable_sqlite import EffectCursor, SqliteDurable, _tx

T = TypeVar("T")

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=10.5)
NOTHING = timedelta(0)

workflows = st.sampled_from(["v", "w", "x"])
keys = st.sampled_from(["a", "b", "inbox:00000000000000000005", OUTCOME])
open_keys = st.sampled_from(["a", "b", "input"])
values = st.sampled_from([None, 0, "", [1, 2], {"k": 1.5}])
counts = st.integers(min_value=1, max_value=3)
senders = st.sampled_from([None, "m1", "m2"])
# The clock goes on by whole seconds and everything else lasts some seconds and a half: the store's clock never stands still, and
# so no instant is ever compared with its equal.
durations = st.sampled_from([timedelta(seconds=number + 0.5) for number in (1, 4, 9, 10, 11, 25)])
advances = st.sampled_from([timedelta(seconds=number) for number in (1, 4, 9, 10, 11, 25)])


def about(moment: datetime) -> datetime:
    """Give an instant without the microseconds that the store's clock went on by itself."""
    return moment - timedelta(microseconds=moment.microsecond % 100_000)


class SqliteMachine(RuleBasedStateMachine):
    """Each operation goes to one of the two stores and to the model, and the answers are compared."""

    passes: Bundle[Pass] = Bundle("passes")
    deliveries: Bundle[Delivery] = Bundle("deliveries")
    turns: Bundle[Turn] = Bundle("turns")

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(_tx, "clock", self.clock)
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.now, self.ticks = BEGAN, 0
        path = Path(self.folder.name) / "shop.db"
        self.stores = [SqliteDurable.at(path, lease=LEASE, synchronous="NORMAL") for _ in range(2)]
        self.asked = 0
        self.states: dict[str, State] = {}
        self.effects: list[tuple[str, int]] = []
        self.codec = JsonCodec()
        self.ask(
            self.durable.checkpointer.connection.alone(
                lambda tx: tx.execute("CREATE TABLE effect (key TEXT, token INTEGER)").rowcount
            )
        )

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.aclose())
        self.runner.close()
        self.folder.cleanup()
        self.patch.undo()

    # ---------------------------------------------------------------------------------------------------- the means

    def clock(self) -> int:
        self.ticks += 1
        return _tx.micros_at(self.now) + self.ticks

    @property
    def durable(self) -> SqliteDurable:
        """One of the stores, and the other the next time."""
        self.asked += 1
        return self.stores[self.asked % 2]

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
        expected = self.step(workflow, lambda state: reference.supply(state, self.now, key, encoded))
        assert self.ask(self.durable.checkpointer.supply(workflow, key, value)) == self.coded(expected)

    @rule(holder=passes, key=keys, value=values)
    def record(self, holder: Pass, key: str, value: object) -> None:
        encoded = self.codec.encode(value)
        expected = self.step(holder.workflow, lambda state: reference.record(state, self.now, holder, key, encoded))
        assert self.fenced(self.durable.checkpointer.record(holder, key, value)) == self.coded(expected)
        if expected is not FENCED:
            self.sign_of_life(holder.workflow)

    @rule(holder=passes, key=keys, value=values, raises=st.booleans())
    def transact(self, holder: Pass, key: str, value: object, raises: bool) -> None:
        def effect(cursor: EffectCursor) -> object:
            cursor.execute("INSERT INTO effect VALUES (?, ?)", (key, holder.token))
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
        expected = self.step(holder.workflow, lambda state: reference.transact(state, self.now, holder, key, encoded))
        if isinstance(expected, Recorded):
            assert isinstance(expected.value, str)
            assert self.ask(transaction) == self.codec.decode(expected.value)
            self.sign_of_life(holder.workflow)
        else:
            with pytest.raises(Fenced):
                self.ask(transaction)
        if free:
            self.effects.append((key, holder.token))

    @rule(workflow=workflows, value=values, once=senders)
    def append(self, workflow: str, value: object, once: str | None) -> None:
        encoded = self.codec.encode(value)
        expected = self.step(workflow, lambda state: reference.append(state, self.now, encoded, once))
        assert self.ask(self.durable.checkpointer.append(workflow, value, once=once)) == self.coded(expected)

    @rule(target=passes, workflow=workflows, budget=durations, alive=durations)
    def claim(self, workflow: str, budget: timedelta, alive: timedelta) -> Pass | MultipleResults[Pass]:
        holder = self.ask(self.durable.checkpointer.claim(workflow, budget, alive))
        token = None if holder is None else holder.token
        expected = self.step(workflow, lambda state: reference.claim(state, self.now, budget, alive, token))
        assert expected == (None if holder is None else replace(holder, at=about(holder.at)))
        return multiple() if holder is None else holder

    @rule(holder=passes, budget=durations, alive=durations)
    def extend(self, holder: Pass, budget: timedelta, alive: timedelta) -> None:
        expected = self.step(holder.workflow, lambda state: reference.extend(state, self.now, holder, budget, alive))
        assert self.ask(self.durable.checkpointer.extend(holder, budget, alive)) is expected

    @rule(holder=passes, alive=durations)
    def renew_claim(self, holder: Pass, alive: timedelta) -> None:
        expected = self.step(holder.workflow, lambda state: reference.renew(state, self.now, holder, alive))
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
        self.move(workflow, lambda state: reference.make_ready(state, self.now, revive))
        self.ask(self.durable.scheduler.make_ready(workflow, revive=revive))

    @rule(target=deliveries)
    def next_ready(self) -> Delivery | MultipleResults[Delivery]:
        """Which one is the store's choice; none that is due and unclaimed is passed over for nothing."""
        delivery = self.ask(self.durable.scheduler.next_ready(NOTHING))
        if delivery is None:
            assert not self.due_and_free()
            return multiple()
        receipt = delivery.receipt
        expected = self.step(delivery.workflow, lambda state: reference.next_ready(state, self.now, LEASE, receipt))
        assert expected == replace(delivery, due=about(delivery.due))
        return delivery

    @rule(delivery=deliveries)
    def renew_delivery(self, delivery: Delivery) -> None:
        expected = self.step(delivery.workflow, lambda state: reference.renew_delivery(state, self.now, delivery, LEASE))
        assert self.ask(self.durable.scheduler.renew(delivery)) == expected

    @rule(delivery=deliveries, again_in=durations, attempt=counts, lapses=counts)
    def wake_at(self, delivery: Delivery, again_in: timedelta, attempt: int, lapses: int) -> None:
        when = self.now + again_in
        self.move(delivery.workflow, lambda state: reference.wake_at(state, self.now, delivery, when, attempt, lapses))
        self.ask(self.durable.scheduler.wake_at(delivery, when, attempt=attempt, lapses=lapses))

    @rule(delivery=deliveries)
    def done(self, delivery: Delivery) -> None:
        self.move(delivery.workflow, lambda state: reference.done(state, self.now, delivery))
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
        expected = self.step(workflow, lambda state: reference.arrive(state, self.now, key, encoded))
        assert self.ask(self.durable.arrive(workflow, key, value)) == self.coded(expected)

    @rule(workflow=workflows, value=values, once=senders)
    def deliver(self, workflow: str, value: object, once: str | None) -> None:
        encoded = self.codec.encode(value)
        expected = self.step(workflow, lambda state: reference.deliver(state, self.now, encoded, once))
        assert self.ask(self.durable.deliver(workflow, value, once=once)) == self.coded(expected)

    @rule(workflow=workflows)
    def delete(self, workflow: str) -> None:
        expected = self.step(workflow, reference.delete)
        assert self.ask(self.durable.delete(workflow)) == expected

    @rule(target=turns, budget=durations, limit=counts)
    def begin(self, budget: timedelta, limit: int) -> MultipleResults[Turn]:
        """It takes the longest due first, and answers for the finished ones that it meets on the way."""
        due = self.due_and_free()
        turns = self.ask(self.durable.begin(NOTHING, budget, limit=limit))
        assert {turn.delivery.workflow for turn in turns} <= {state.workflow for state in due}
        assert len(turns) == min(limit, len(due))
        for turn in turns:
            self.began(turn, budget)
        awake = {listed.workflow for listed in self.ask(self.durable.workflows()) if listed.attempt is not None}
        for workflow, state in list(self.states.items()):
            if OUTCOME in state.ledger.records and self.is_due(state) and workflow not in awake:
                self.states[workflow] = reference.cancel(state)
        if len(turns) < limit:
            assert not any(OUTCOME in state.ledger.records for state in self.states.values() if self.is_due(state))
        return multiple(*turns)

    def began(self, turn: Turn, budget: timedelta) -> None:
        token, receipt = turn.holder.token, turn.delivery.receipt
        expected = self.step(turn.holder.workflow, lambda state: reference.begin(state, self.now, LEASE, budget, receipt, token))
        assert expected is not None
        assert expected.holder == replace(turn.holder, at=about(turn.holder.at))
        assert expected.delivery == replace(turn.delivery, due=about(turn.delivery.due))
        assert turn.records is not None
        assert list(turn.records) == list(self.state(turn.holder.workflow).ledger.records)

    @rule(turn=turns)
    def renew_turn(self, turn: Turn) -> None:
        expected = self.step(turn.holder.workflow, lambda state: reference.renew_turn(state, self.now, turn, LEASE))
        assert self.ask(self.durable.renew(turn)) == expected

    @rule(turn=turns, value=values)
    def finish(self, turn: Turn, value: object) -> None:
        encoded = self.codec.encode(value)
        expected = self.step(turn.holder.workflow, lambda state: reference.finish(state, self.now, turn, encoded))
        assert self.fenced(self.durable.finish(turn, value)) == self.coded(expected)

    @rule(turn=turns, again_in=st.none() | durations)
    def pause(self, turn: Turn, again_in: timedelta | None) -> None:
        due = None if again_in is None else self.now + again_in
        self.move(turn.holder.workflow, lambda state: reference.pause(state, self.now, turn, due))
        self.ask(self.durable.pause(turn, due))

    @rule(turn=turns, again_in=st.none() | durations)
    def fail(self, turn: Turn, again_in: timedelta | None) -> None:
        self.move(turn.holder.workflow, lambda state: reference.fail(state, self.now, turn, "why", again_in))
        self.ask(self.durable.fail(turn, "why", again_in))

    @rule(turn=turns, again_in=st.just(NOTHING) | durations)
    def hand_back(self, turn: Turn, again_in: timedelta) -> None:
        self.move(turn.holder.workflow, lambda state: reference.hand_back(state, self.now, turn, again_in))
        self.ask(self.durable.hand_back(turn, again_in))

    @rule(duration=advances)
    def advance(self, duration: timedelta) -> None:
        self.now, self.ticks = self.now + duration, 0

    @rule(ago=durations)
    def sweep(self, ago: timedelta) -> None:
        before, swept = self.now - ago, 0
        for workflow in list(self.states):
            swept += self.step(workflow, lambda state: reference.sweep(state, self.now, before))
        assert self.ask(self.durable.sweep(before)) == swept

    # --------------------------------------------------------------------------------------------------- what holds

    def sign_of_life(self, workflow: str) -> None:
        """Follow the store where it leaves a young sign of life out. [CKP-RECORD-LIVE]"""
        state = self.state(workflow)
        claim = state.ledger.claim
        if claim is None or not claim.held:
            return
        rows = self.ask(
            self.durable.checkpointer.connection.read(
                lambda tx: tx.execute("SELECT seen FROM workflow_claim WHERE workflow = ?", (workflow,)).fetchall()
            )
        )
        seen = about(_tx.moment(rows[0][0]))
        assert self.now - seen < claim.alive / 3
        self.states[workflow] = replace(state, ledger=replace(state.ledger, claim=replace(claim, seen=seen)))

    def is_due(self, state: State) -> bool:
        due = reference.due_at(state)
        return due is not None and due <= self.now

    def due_and_free(self) -> list[State]:
        """Those that `begin` makes turns of."""
        return [
            state
            for state in self.states.values()
            if self.is_due(state) and OUTCOME not in state.ledger.records and reference.held_until(state, self.now) is None
        ]

    @invariant()
    def reads_agree(self) -> None:
        for workflow, state in self.states.items():
            history = self.ask(self.durable.checkpointer.history(workflow))
            expected = reference.history(state)
            assert [(key, self.codec.encode(written.value), about(written.at)) for key, written in history.items()] == [
                (key, written.value, written.at) for key, written in expected.items()
            ]
            loaded = self.ask(self.durable.checkpointer.load(workflow))
            assert list(loaded.items()) == [(key, written.value) for key, written in history.items()]
            assert self.ask(self.durable.scheduler.buried(workflow)) == reference.buried(state)

    @invariant()
    def listings_agree(self) -> None:
        def roughly(moment: datetime | None) -> datetime | None:
            return None if moment is None else about(moment)

        def listed(one: Listed) -> Listed:
            first, last, due, held = map(roughly, (one.first, one.last, one.due, one.held_until))
            return replace(one, first=first, last=last, due=due, held_until=held)

        expected = reference.workflows(self.states.values(), self.now)
        assert [listed(one) for one in self.ask(self.durable.workflows())] == list(expected)

    @invariant()
    def effects_are_applied_once(self) -> None:
        rows = self.ask(
            self.durable.checkpointer.connection.read(lambda tx: tx.execute("SELECT key, token FROM effect").fetchall())
        )
        assert rows == self.effects


SqliteMachine.TestCase.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestSqliteMachine = SqliteMachine.TestCase
