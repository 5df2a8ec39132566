"""A hypothesis state machine that makes the same calls of a store and of the reference machine, and compares the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

import hypothesis
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule, run_state_machine_as_test

from durable_conformance.bench import LONG, NOW, Bench
from durable_conformance.expect import Broken, answers
from durable_conformance.linear import EPOCH
from durable_conformance.watchdog import Stuck, Watchdog
from durable_core import reference
from durable_core.contract import Delivery, Entry, Failed, Finished, Pass, Recorded, Turn
from durable_core.errors import Fenced
from durable_core.reference import FENCED, State

T = TypeVar("T")
Opened = Callable[[AsyncExitStack], Awaitable[Bench]]

_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)

WORKFLOWS = st.sampled_from(("a", "b"))
KEYS = st.sampled_from(("k", "l", "outcome:"))
VALUES = st.sampled_from((None, 1, True, "text", [1], {"a": 1, "b": 2}, {"b": 2, "a": 1}))
WINDOWS = st.sampled_from((timedelta(seconds=10), timedelta(seconds=30), LONG))
STEPS = st.sampled_from((timedelta(seconds=4), timedelta(seconds=10), timedelta(seconds=31)))
MOMENTS = st.sampled_from((-LONG, timedelta(seconds=9), LONG))


class Compared(RuleBasedStateMachine):
    """A store and the reference, side by side. Each run has a datastore and an event loop of its own."""

    opened: Opened
    patience: timedelta

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._exits = AsyncExitStack()
        self.bench = self.run(self._open())
        self.states: dict[str, State] = {}

    async def _open(self) -> Bench:
        return await type(self).opened(self._exits)

    def teardown(self) -> None:
        """Close the store."""
        self.run(self._exits.aclose())
        self._runner.close()

    def run(self, call: Coroutine[object, object, T]) -> T:
        """Run one call of the store to its end. Raises: `Stuck`."""
        dog = Watchdog(type(self).patience)
        try:
            with dog.watching(self._runner.get_loop()):
                return self._runner.run(call)
        finally:
            if dog.seen:  # whatever became of the interruption: no shorter program is looked for, each would take as long
                raise Stuck(dog.seen)

    def name(self, workflow: str) -> str:
        """Give the id that a workflow has in the store."""
        return f"{workflow}-{self.bench.at.name}"

    def state(self, workflow: str) -> State:
        """Give a workflow as the reference has it."""
        name = self.name(workflow)
        return self.states.get(name, State(name))

    def keep(self, state: State) -> None:
        """Keep what the reference made of a workflow."""
        self.states[state.workflow] = state

    @property
    def now(self) -> datetime:
        """The time of both; where the store's clock cannot be moved nothing lapses, and it stands still for the reference."""
        clock = self.bench.at.clock
        return EPOCH if clock is None else clock.now()

    def ask(self, call: Coroutine[object, object, T], what: str) -> T | reference.Refusal:
        """Make a call of the store; a refusal is an answer."""

        async def asked() -> T | reference.Refusal:
            try:
                return await call
            except Fenced:
                return FENCED

        return self.run(answers(asked(), what))

    def agree(self, seen: object, promised: object, what: str) -> None:
        """Ask that the store answered as the reference did."""
        if seen != promised or type(seen) is not type(promised):
            raise Broken(f"{what} answers as the reference machine does: {promised!r}", repr(seen))

    def decoded(self, encoded: object) -> object:
        """Give what the store makes of a value: the reference holds what was handed in, as the codec has it."""
        return self.bench.checkpointer.roundtrip(encoded)

    def recorded(self, answer: reference.Answer) -> object:
        """Give an answer of the reference as the store would."""
        return replace(answer, value=self.decoded(_value(answer.value))) if isinstance(answer, Recorded) else answer


def _text(value: object) -> str:
    """Encode a value as the reference compares it."""
    from durable_core.codec import JsonCodec

    return JsonCodec().encode(value)


def _value(encoded: object) -> object:
    from durable_core.codec import JsonCodec

    return JsonCodec().decode(str(encoded))


class Ledgers(Compared):
    """The checkpointer's half."""

    passes: Bundle[Pass] = Bundle("passes")

    @rule(target=passes, workflow=WORKFLOWS, budget=WINDOWS, alive=WINDOWS)
    def claim(self, workflow: str, budget: timedelta, alive: timedelta) -> Pass:
        """claim; a refusal gives the pass that the reference knows last, or one that never was."""
        if self.bench.at.clock is None:
            budget = alive = LONG
        given = self.ask(self.bench.checkpointer.claim(self.name(workflow), budget, alive), "claim")
        token = given.token if isinstance(given, Pass) else None
        try:
            state, promised = reference.claim(self.state(workflow), self.now, budget, alive, token)
        except ValueError as refused:
            raise Broken("tokens rise", str(refused)) from refused
        self.agree(given is None, promised is None, "whether claim is refused")
        self.keep(state)
        return given if isinstance(given, Pass) else Pass(self.name(workflow), state.ledger.issued, self.now)

    @rule(holder=passes, key=KEYS, value=VALUES)
    def record(self, holder: Pass, key: str, value: object) -> None:
        """record."""
        seen = self.ask(self.bench.checkpointer.record(holder, key, value), "record")
        state, promised = reference.record(
            self.states.get(holder.workflow, State(holder.workflow)), self.now, holder, key, _text(value)
        )
        self.keep(state)
        self.agree(seen, self.recorded(promised), f"record of {key!r}")

    @rule(workflow=WORKFLOWS, key=KEYS, value=VALUES)
    def supply(self, workflow: str, key: str, value: object) -> None:
        """supply."""
        seen = self.ask(self.bench.checkpointer.supply(self.name(workflow), key, value), "supply")
        state, promised = reference.supply(self.state(workflow), self.now, key, _text(value))
        self.keep(state)
        self.agree(seen, self.recorded(promised), f"supply of {key!r}")

    @rule(workflow=WORKFLOWS, value=VALUES, once=st.sampled_from((None, None, "one", "two")))
    def append(self, workflow: str, value: object, once: str | None) -> None:
        """append."""
        seen = self.ask(self.bench.checkpointer.append(self.name(workflow), value, once=once), "append")
        assert isinstance(seen, Entry)
        try:
            state, promised = reference.append(self.state(workflow), self.now, _text(value), once, int(seen.key[6:]))
        except ValueError as refused:
            raise Broken("entries sort above what is there", str(refused)) from refused
        self.keep(state)
        self.agree(seen, Entry(promised.key, self.decoded(_value(promised.value))), "append")

    @rule(holder=passes, alive=WINDOWS)
    def renew(self, holder: Pass, alive: timedelta) -> None:
        """renew."""
        alive = LONG if self.bench.at.clock is None else alive
        seen = self.ask(self.bench.checkpointer.renew(holder, alive), "renew")
        state, promised = reference.renew(self.states.get(holder.workflow, State(holder.workflow)), self.now, holder, alive)
        self.keep(state)
        self.agree(seen, promised, "renew")

    @rule(holder=passes, budget=WINDOWS, alive=WINDOWS)
    def extend(self, holder: Pass, budget: timedelta, alive: timedelta) -> None:
        """extend."""
        if self.bench.at.clock is None:
            budget = alive = LONG
        seen = self.ask(self.bench.checkpointer.extend(holder, budget, alive), "extend")
        state, promised = reference.extend(
            self.states.get(holder.workflow, State(holder.workflow)), self.now, holder, budget, alive
        )
        self.keep(state)
        self.agree(seen, promised, "extend")

    @rule(holder=passes)
    def release(self, holder: Pass) -> None:
        """release."""
        self.ask(self.bench.checkpointer.release(holder), "release")
        self.keep(reference.release(self.states.get(holder.workflow, State(holder.workflow)), holder))

    @rule(workflow=WORKFLOWS)
    def discard(self, workflow: str) -> None:
        """discard."""
        seen = self.ask(self.bench.checkpointer.discard(self.name(workflow)), "discard")
        state, promised = reference.discard(self.state(workflow))
        self.keep(state)
        self.agree(seen, promised, "discard")

    @rule(workflow=WORKFLOWS, skip=st.integers(0, 3))
    def load(self, workflow: str, skip: int) -> None:
        """load and history."""
        promised = {key: self.decoded(_value(value)) for key, value in reference.load(self.state(workflow)).items()}
        seen = self.ask(self.bench.checkpointer.load(self.name(workflow), skip=skip), "load")
        assert isinstance(seen, dict)
        self.agree(list(seen.items()), list(promised.items())[skip:], f"load that skips {skip}")
        history = self.ask(self.bench.checkpointer.history(self.name(workflow)), "history")
        assert isinstance(history, dict)
        self.agree({key: one.value for key, one in history.items()}, promised, "history")
        if self.bench.at.clock is not None:
            times = {key: one.at for key, one in reference.history(self.state(workflow)).items()}
            self.agree({key: one.at for key, one in history.items()}, times, "the times of history")

    @rule(by=STEPS)
    def advance(self, by: timedelta) -> None:
        """Time passes, where the store's clock can be moved."""
        if self.bench.at.clock is not None:
            self.bench.at.clock.advance(by)


class Wakeups(Compared):
    """The scheduler's half."""

    deliveries: Bundle[Delivery] = Bundle("deliveries")

    @rule(workflow=WORKFLOWS, revive=st.booleans())
    def make_ready(self, workflow: str, revive: bool) -> None:
        """make_ready."""
        self.ask(self.bench.scheduler.make_ready(self.name(workflow), revive=revive), "make_ready")
        self.keep(reference.make_ready(self.state(workflow), self.now, revive))

    @rule(target=deliveries)
    def next_ready(self) -> Delivery:
        """next_ready: whatever it gives must be due, as a first, a lapse or a wakeup, and nothing only when nothing is."""
        given = self.ask(self.bench.scheduler.next_ready(NOW), "next_ready")
        if not isinstance(given, Delivery):
            due = [state for state in self.states.values() if reference.next_ready(state, self.now, LONG, "receipt")[1]]
            self.agree([], [state.workflow for state in due], "next_ready, which gives nothing,")
            return Delivery(self.name("a"), "none", 1, 0, self.now)
        before = self.states.get(given.workflow, State(given.workflow))
        state, promised = reference.next_ready(before, self.now, self.bench.scheduler.lease, given.receipt)
        self.keep(state)
        self.agree(replace(given, due=EPOCH), promised and replace(promised, due=EPOCH), "next_ready")
        return given

    @rule(delivery=deliveries)
    def renew(self, delivery: Delivery) -> None:
        """renew."""
        self.ask(self.bench.scheduler.renew(delivery), "renew")
        before = self.states.get(delivery.workflow, State(delivery.workflow))
        self.keep(reference.renew_delivery(before, self.now, delivery, self.bench.scheduler.lease)[0])

    @rule(delivery=deliveries, moment=MOMENTS, attempt=st.integers(1, 4), lapses=st.integers(0, 3))
    def wake_at(self, delivery: Delivery, moment: timedelta, attempt: int, lapses: int) -> None:
        """wake_at."""
        if self.bench.at.clock is None and moment != -LONG:
            moment = LONG
        when = self.run(self.bench.scheduler.now()) + moment
        self.ask(self.bench.scheduler.wake_at(delivery, when, attempt=attempt, lapses=lapses), "wake_at")
        before = self.states.get(delivery.workflow, State(delivery.workflow))
        self.keep(reference.wake_at(before, self.now, delivery, self.now + moment, attempt, lapses))

    @rule(delivery=deliveries)
    def done(self, delivery: Delivery) -> None:
        """done."""
        self.ask(self.bench.scheduler.done(delivery), "done")
        self.keep(reference.done(self.states.get(delivery.workflow, State(delivery.workflow)), self.now, delivery))

    @rule(delivery=deliveries)
    def bury(self, delivery: Delivery) -> None:
        """bury."""
        self.ask(self.bench.scheduler.bury(delivery, "reason"), "bury")
        self.keep(reference.bury(self.states.get(delivery.workflow, State(delivery.workflow)), delivery, "reason"))

    @rule(workflow=WORKFLOWS)
    def buried(self, workflow: str) -> None:
        """buried."""
        self.agree(
            self.ask(self.bench.scheduler.buried(self.name(workflow)), "buried"), reference.buried(self.state(workflow)), "buried"
        )

    @rule(workflow=WORKFLOWS)
    def cancel(self, workflow: str) -> None:
        """cancel."""
        self.ask(self.bench.scheduler.cancel(self.name(workflow)), "cancel")
        self.keep(reference.cancel(self.state(workflow)))

    @rule(by=STEPS)
    def advance(self, by: timedelta) -> None:
        """Time passes, where the store's clock can be moved."""
        if self.bench.at.clock is not None:
            self.bench.at.clock.advance(by)


class Turns(Compared):
    """The pair, where each transition is one commit."""

    turns: Bundle[Turn] = Bundle("turns")

    @rule(workflow=WORKFLOWS, key=st.sampled_from(("k", "input")), value=VALUES)
    def arrive(self, workflow: str, key: str, value: object) -> None:
        """arrive."""
        seen = self.ask(self.bench.durable.arrive(self.name(workflow), key, value), "arrive")
        state, promised = reference.arrive(self.state(workflow), self.now, key, _text(value))
        self.keep(state)
        self.agree(seen, self.recorded(promised), f"arrive of {key!r}")

    @rule(workflow=WORKFLOWS)
    def delete(self, workflow: str) -> None:
        """delete."""
        seen = self.ask(self.bench.durable.delete(self.name(workflow)), "delete")
        state, promised = reference.delete(self.state(workflow))
        self.keep(state)
        self.agree(seen, promised, "delete")

    @rule(target=turns)
    def begin(self) -> Turn:
        """begin: a turn of what is due and free, with its records, and nothing only when there is none; what is finished is
        answered for.
        """
        given = self.ask(self.bench.durable.begin(NOW, LONG), "begin")
        lease = self.bench.scheduler.lease
        if isinstance(given, reference.Refusal) or not given:
            due: list[str] = []
            for state in list(self.states.values()):
                after, turn = reference.begin(state, self.now, lease, LONG, "receipt")
                due += [state.workflow] if turn else []
                self.keep(after if turn is None else state)
            self.agree([], due, "begin, which gives nothing,")
            nobody = self.name("a")
            return Turn(Pass(nobody, 0, self.now), Delivery(nobody, "none", 1, 0, self.now), {})
        (turn,) = given
        before = self.states.get(turn.holder.workflow, State(turn.holder.workflow))
        state, promised = reference.begin(before, self.now, lease, LONG, turn.delivery.receipt, turn.holder.token)
        self.keep(state)
        seen = (turn.holder.token, turn.delivery.attempt, turn.delivery.lapses)
        self.agree(seen, promised and (promised.holder.token, promised.delivery.attempt, promised.delivery.lapses), "begin")
        records = turn.records if turn.records is not None else self.run(self.bench.checkpointer.load(turn.holder.workflow))
        loaded = {key: self.decoded(_value(value)) for key, value in reference.load(state).items()}
        self.agree(dict(records), loaded, "the records of a turn")
        return turn

    @rule(turn=turns)
    def renew(self, turn: Turn) -> None:
        """renew."""
        seen = self.ask(self.bench.durable.renew(turn), "renew")
        before = self.states.get(turn.holder.workflow, State(turn.holder.workflow))
        state, promised = reference.renew_turn(before, self.now, turn, self.bench.scheduler.lease)
        self.keep(state)
        self.agree(seen is None, promised is None, "whether renew gives nothing")

    @rule(turn=turns, value=VALUES)
    def finish(self, turn: Turn, value: object) -> None:
        """finish."""
        seen = self.ask(self.bench.durable.finish(turn, value), "finish")
        before = self.states.get(turn.holder.workflow, State(turn.holder.workflow))
        state, promised = reference.finish(before, self.now, turn, _text(value))
        self.keep(state)
        self.agree(seen, self.recorded(promised), "finish")

    @rule(turn=turns, moment=st.sampled_from((None, -LONG, LONG)))
    def pause(self, turn: Turn, moment: timedelta | None) -> None:
        """pause."""
        due = None if moment is None else self.run(self.bench.scheduler.now()) + moment
        self.ask(self.bench.durable.pause(turn, due), "pause")
        before = self.states.get(turn.holder.workflow, State(turn.holder.workflow))
        self.keep(reference.pause(before, self.now, turn, None if moment is None else self.now + moment))

    @rule(turn=turns, again_in=st.sampled_from((None, LONG)))
    def fail(self, turn: Turn, again_in: timedelta | None) -> None:
        """fail."""
        self.ask(self.bench.durable.fail(turn, "reason", again_in), "fail")
        before = self.states.get(turn.holder.workflow, State(turn.holder.workflow))
        self.keep(reference.fail(before, self.now, turn, "reason", again_in))

    @rule(turn=turns, again_in=st.sampled_from((NOW, LONG)))
    def hand_back(self, turn: Turn, again_in: timedelta) -> None:
        """hand_back."""
        self.ask(self.bench.durable.hand_back(turn, again_in), "hand_back")
        before = self.states.get(turn.holder.workflow, State(turn.holder.workflow))
        self.keep(reference.hand_back(before, self.now, turn, again_in))

    @rule(workflow=WORKFLOWS)
    def result(self, workflow: str) -> None:
        """result."""
        promised = reference.result(self.state(workflow))
        if isinstance(promised, Finished):
            promised = Finished(self.decoded(_value(promised.value)))
        seen = self.ask(self.bench.durable.result(self.name(workflow)), "result")
        self.agree(seen, promised, "result")
        assert seen is None or isinstance(seen, (Finished, Failed))

    @rule(by=STEPS)
    def advance(self, by: timedelta) -> None:
        """Time passes, where the store's clock can be moved."""
        if self.bench.at.clock is not None:
            self.bench.at.clock.advance(by)


def driven(machine: type[Compared], opened: Opened, seed: str, patience: timedelta, *, programs: int) -> None:
    """Drive a store and the reference by random programs. Raises: `Broken` at the shortest program in which they differ, and
    `Stuck` at the first whose call keeps the event loop from turning for so long.
    """
    subject = type(machine.__name__, (machine,), {"opened": staticmethod(opened), "patience": patience})
    hypothesis.seed(seed)(subject)
    chosen = hypothesis.settings(
        max_examples=programs,
        stateful_step_count=25,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=_SLOW_IS_FINE,
    )
    run_state_machine_as_test(subject, settings=chosen)
