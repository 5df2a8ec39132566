"""`SplitDurable` dies before or after each of its store calls, and asking again heals it. [DUR-SPLIT-ORDER]"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import TypeVar

import pytest

from durable_core._clock import ManualClock
from durable_core.contract import (
    Checkpointer,
    Delivery,
    Description,
    Entry,
    Finished,
    Pass,
    Recorded,
    Scheduler,
    Turn,
    Written,
)
from durable_core.memory import Memory, MemoryCheckpointer, MemoryEffect, MemoryScheduler
from durable_core.split import SplitDurable

T = TypeVar("T")

LEASE = timedelta(seconds=10)
BUDGET = timedelta(seconds=60)
ZERO = timedelta(0)
YEAR = timedelta(days=365)


class Crash(Exception):
    """The store did not answer."""


class Fuse:
    """Fails the n-th call of both stores, before it is made or after it was; and if `dead` every later one."""

    def __init__(self) -> None:
        self.calls, self.at, self.after, self.dead = 0, 0, False, False
        self.made: list[str] = []

    def set(self, at: int, after: bool, dead: bool) -> None:
        self.calls, self.at, self.after, self.dead = 0, at, after, dead
        self.made.clear()

    @property
    def burnt(self) -> bool:
        return 0 < self.at <= self.calls

    async def through(self, name: str, call: Coroutine[object, object, T]) -> T:
        self.calls += 1
        ours = self.calls == self.at
        if (ours and not self.after) or (self.dead and self.burnt and not ours):
            call.close()
            raise Crash
        answer = await call
        self.made.append(name)
        if ours:
            raise Crash
        return answer


class FusedCheckpointer:
    """A checkpointer behind a fuse."""

    def __init__(self, store: MemoryCheckpointer, fuse: Fuse) -> None:
        self.store, self.fuse = store, fuse

    @property
    def monotonic(self) -> Callable[[], float]:
        return self.store.monotonic

    def roundtrip(self, value: object, /) -> object:
        return self.store.roundtrip(value)

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        return await self.fuse.through("load", self.store.load(workflow, skip=skip))

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        return await self.fuse.through("record", self.store.record(holder, key, value))

    async def transact(self, holder: Pass, key: str, effect: MemoryEffect, /) -> object:
        return await self.fuse.through("transact", self.store.transact(holder, key, effect))

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        return await self.fuse.through("supply", self.store.supply(workflow, key, value))

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        return await self.fuse.through("append", self.store.append(workflow, value, once=once))

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        return await self.fuse.through("claim", self.store.claim(workflow, budget, alive))

    async def extend(self, holder: Pass, budget: timedelta, alive: timedelta, /) -> bool:
        return await self.fuse.through("extend", self.store.extend(holder, budget, alive))

    async def renew(self, holder: Pass, alive: timedelta, /) -> bool:
        return await self.fuse.through("renew claim", self.store.renew(holder, alive))

    async def release(self, holder: Pass, /) -> None:
        await self.fuse.through("release", self.store.release(holder))

    async def history(self, workflow: str, /) -> dict[str, Written]:
        return await self.fuse.through("history", self.store.history(workflow))

    async def discard(self, workflow: str, /) -> int:
        return await self.fuse.through("discard", self.store.discard(workflow))

    async def describe(self, /) -> Description:
        return await self.store.describe()


class FusedScheduler:
    """A scheduler behind a fuse."""

    def __init__(self, store: MemoryScheduler, fuse: Fuse) -> None:
        self.store, self.fuse = store, fuse

    @property
    def lease(self) -> timedelta:
        return self.store.lease

    async def now(self, /) -> datetime:
        return await self.fuse.through("now", self.store.now())

    async def make_ready(self, workflow: str, /, *, revive: bool = False) -> None:
        await self.fuse.through("make_ready", self.store.make_ready(workflow, revive=revive))

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        return await self.fuse.through("next_ready", self.store.next_ready(wait))

    async def renew(self, delivery: Delivery, /) -> Delivery:
        return await self.fuse.through("renew delivery", self.store.renew(delivery))

    async def wake_at(self, delivery: Delivery, when: datetime, /, *, attempt: int = 1, lapses: int = 0) -> None:
        await self.fuse.through("wake_at", self.store.wake_at(delivery, when, attempt=attempt, lapses=lapses))

    async def done(self, delivery: Delivery, /) -> None:
        await self.fuse.through("done", self.store.done(delivery))

    async def bury(self, delivery: Delivery, reason: str, /) -> None:
        await self.fuse.through("bury", self.store.bury(delivery, reason))

    async def buried(self, workflow: str, /) -> str | None:
        return await self.fuse.through("buried", self.store.buried(workflow))

    async def cancel(self, workflow: str, /) -> None:
        await self.fuse.through("cancel", self.store.cancel(workflow))

    async def describe(self, /) -> Description:
        return await self.store.describe()


_checkpointer: type[Checkpointer[MemoryEffect]] = FusedCheckpointer
_scheduler: type[Scheduler] = FusedScheduler


class World:
    """Two stores, the pair over them behind a fuse, and one workflow."""

    def __init__(self) -> None:
        self.fuse, self.clock = Fuse(), ManualClock()
        self.checkpointer = MemoryCheckpointer(Memory(self.clock))
        self.scheduler = MemoryScheduler(Memory(self.clock), lease=LEASE)
        self.durable: SplitDurable[MemoryEffect] = SplitDurable(
            FusedCheckpointer(self.checkpointer, self.fuse), FusedScheduler(self.scheduler, self.fuse)
        )

    async def begun(self) -> Turn:
        [turn] = await self.durable.begin(ZERO, BUDGET)
        return turn

    async def started(self) -> Turn:
        await self.durable.arrive("w", "input", 1)
        return await self.begun()

    async def nothing_due(self) -> bool:
        """Nor ever again, unless somebody wakes it."""
        self.clock.advance(YEAR)
        return await self.scheduler.next_ready(ZERO) is None


HOW = [
    pytest.param(after, dead, id=f"{'after' if after else 'before'}-{'dead' if dead else 'alive'}")
    for after in (False, True)
    for dead in (False, True)
]


async def crashed_everywhere(
    after: bool,
    dead: bool,
    prepare: Callable[[World], Awaitable[T]],
    act: Callable[[World, T], Awaitable[object]],
    check: Callable[[World, T], Awaitable[None]],
) -> int:
    """Run `act` in a new world for each call that it makes, with a crash there, and `check` what is left; gives how many."""
    for at in range(1, 50):
        world = World()
        prepared = await prepare(world)
        world.fuse.set(at, after, dead)
        try:
            await act(world, prepared)
        except Crash:
            pass
        burnt = world.fuse.burnt
        world.fuse.set(0, False, False)
        if not burnt:
            return at - 1
        await check(world, prepared)
    raise AssertionError("it makes calls for ever")


async def nothing(world: World) -> None:
    """Begin in an empty world."""


@pytest.mark.parametrize(("after", "dead"), HOW)
async def test_arrive_records_before_it_wakes_and_the_repeat_heals(after: bool, dead: bool) -> None:
    """Case 88: there is never a wakeup without its value. [DUR-SPLIT-ORDER] [DUR-ARRIVE]"""

    async def check(world: World, _: None) -> None:
        if await world.scheduler.next_ready(ZERO) is not None:
            assert await world.checkpointer.load("w") == {"k": 1}
        assert await world.durable.arrive("w", "k", 1) == Recorded(1, True)
        world.clock.advance(LEASE)
        assert (await world.begun()).records == {"k": 1}

    assert await crashed_everywhere(after, dead, nothing, lambda world, _: world.durable.arrive("w", "k", 1), check) == 2


@pytest.mark.parametrize(("after", "dead"), HOW)
async def test_deliver_once_appends_before_it_wakes_and_the_repeat_heals(after: bool, dead: bool) -> None:
    """One entry, and a wakeup for it. [DUR-SPLIT-ORDER] [DUR-DELIVER] [CKP-APPEND-ONCE]"""

    async def check(world: World, _: None) -> None:
        entry = await world.durable.deliver("w", "m", once="id")
        assert (await world.begun()).records == {entry.key: "m"}

    async def act(world: World, _: None) -> None:
        await world.durable.deliver("w", "m", once="id")

    assert await crashed_everywhere(after, dead, nothing, act, check) == 2


@pytest.mark.parametrize(("after", "dead"), HOW)
async def test_delete_repeated_leaves_nothing_for_a_new_life(after: bool, dead: bool) -> None:
    """Case 92: cancel before discard, so what is left between the two is not woken. [DUR-SPLIT-ORDER] [DUR-DELETE]"""

    async def check(world: World, turn: Turn) -> None:
        await world.durable.pause(turn, world.clock.now())
        await world.durable.delete("w")
        assert (await world.checkpointer.load("w"), await world.nothing_due()) == ({}, True)
        await world.durable.arrive("w", "input", "new")
        assert (await world.begun()).records == {"input": "new"}

    assert await crashed_everywhere(after, dead, World.started, lambda world, _: world.durable.delete("w"), check) == 2


@pytest.mark.parametrize(("after", "dead"), HOW)
async def test_begin_interrupted_comes_back_whole(after: bool, dead: bool) -> None:
    """After a lease at most. [DUR-SPLIT-ORDER] [DUR-BEGIN]"""

    async def prepare(world: World) -> None:
        await world.durable.arrive("w", "input", 1)

    async def check(world: World, _: None) -> None:
        world.clock.advance(LEASE)
        turn = await world.begun()
        assert (turn.records, turn.delivery.lapses <= 1) == ({"input": 1}, True)
        await world.durable.finish(turn, 1)
        assert await world.nothing_due()

    assert await crashed_everywhere(after, dead, prepare, lambda world, _: world.durable.begin(ZERO, BUDGET), check) == 3


@pytest.mark.parametrize("at", [2, 3])
@pytest.mark.parametrize("after", [False, True])
async def test_begin_that_meets_an_error_gives_back_what_it_took(after: bool, at: int) -> None:
    """Its counts are unchanged, so that an outage of one store buries nobody. [DUR-BEGIN]"""
    world = World()
    await world.durable.arrive("w", "input", 1)
    world.fuse.set(at, after, dead=False)
    with pytest.raises(Crash):
        await world.durable.begin(ZERO, BUDGET)
    world.fuse.set(0, False, False)
    world.clock.advance(LEASE)
    turn = await world.begun()
    assert (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)


async def test_begin_keeps_the_turns_it_has_when_a_later_one_fails() -> None:
    """The error is met by the next call. [DUR-BEGIN]"""
    world = World()
    for workflow in "ab":
        await world.durable.arrive(workflow, "input", 1)
    world.fuse.set(5, False, dead=False)
    assert [turn.holder.workflow for turn in await world.durable.begin(ZERO, BUDGET, limit=2)] == ["a"]


async def test_begin_cancelled_hands_back_the_turns_it_has() -> None:
    """At once, with their counts. [DUR-BEGIN] [DUR-HAND-BACK]"""
    world, loaded = World(), asyncio.Event()
    for workflow in "ab":
        await world.durable.arrive(workflow, "input", 1)

    class Stuck(FusedCheckpointer):
        async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
            if workflow == "b":
                loaded.set()
                await asyncio.Event().wait()
            return await super().load(workflow, skip=skip)

    stuck: SplitDurable[MemoryEffect] = SplitDurable(Stuck(world.checkpointer, world.fuse), world.scheduler)
    beginning = asyncio.ensure_future(stuck.begin(ZERO, BUDGET, limit=2))
    await loaded.wait()
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    assert (await world.begun()).holder.workflow == "a"
    world.clock.advance(LEASE / 2)
    turn = await world.begun()
    assert (turn.holder.workflow, turn.delivery.attempt, turn.delivery.lapses) == ("b", 1, 0)


@pytest.mark.parametrize(("after", "dead"), HOW)
@pytest.mark.parametrize("repeated", [True, False], ids=["repeated", "left"])
async def test_finish_interrupted_lands_once(after: bool, dead: bool, repeated: bool) -> None:
    """Repeated it gives what landed; left alone, claim and delivery lapse, and a recorded outcome stands. [DUR-FINISH]"""

    async def check(world: World, turn: Turn) -> None:
        landed = "outcome:" in await world.checkpointer.load("w")
        if repeated:
            assert await world.durable.finish(turn, "done") == Recorded("done", True)
            assert await world.checkpointer.claim("w", BUDGET, LEASE) is not None
        else:
            world.clock.advance(LEASE)
            turns = await world.durable.begin(ZERO, BUDGET)
            assert len(turns) == (not landed)
            for turn in turns:
                await world.durable.finish(turn, "done")
        assert (await world.durable.result("w"), await world.nothing_due()) == (Finished("done"), True)

    async def act(world: World, turn: Turn) -> None:
        await world.durable.finish(turn, "done")

    assert await crashed_everywhere(after, dead, World.started, act, check) == 4


ENDS: list[tuple[str, Callable[[World, Turn], Awaitable[object]], int]] = [
    ("pause", lambda world, turn: world.durable.pause(turn, None), 2),
    ("pause until", lambda world, turn: world.durable.pause(turn, world.clock.now() + LEASE / 4), 3),
    ("fail", lambda world, turn: world.durable.fail(turn, "why", LEASE / 4), 3),
    ("hand back", lambda world, turn: world.durable.hand_back(turn, ZERO), 3),
]


@pytest.mark.parametrize(("after", "dead"), HOW)
@pytest.mark.parametrize(("act", "calls"), [pytest.param(act, calls, id=name) for name, act, calls in ENDS])
async def test_other_ends_interrupted_can_be_repeated(
    act: Callable[[World, Turn], Awaitable[object]], calls: int, after: bool, dead: bool
) -> None:
    """A value that came meanwhile is met, and no two turns are out at once. [DUR-PAUSE] [DUR-FAIL] [DUR-HAND-BACK]"""

    async def check(world: World, turn: Turn) -> None:
        await act(world, turn)
        await world.durable.arrive("w", "answer", 2)
        turns = await world.durable.begin(ZERO, BUDGET, limit=2)
        assert [turn.records for turn in turns] == [{"input": 1, "answer": 2}]

    assert await crashed_everywhere(after, dead, World.started, act, check) == calls


@pytest.mark.parametrize(("after", "dead"), HOW)
@pytest.mark.parametrize(("act", "calls"), [pytest.param(act, calls, id=name) for name, act, calls in ENDS])
async def test_other_ends_interrupted_and_left_lapse(
    act: Callable[[World, Turn], Awaitable[object]], calls: int, after: bool, dead: bool
) -> None:
    """What was not answered comes back, and a value that came meanwhile is met. [SCH-READY-EVENTUALLY]"""

    async def check(world: World, turn: Turn) -> None:
        await world.durable.arrive("w", "answer", 2)
        world.clock.advance(LEASE)
        turns = await world.durable.begin(ZERO, BUDGET, limit=2)
        assert [turn.records for turn in turns] == [{"input": 1, "answer": 2}]

    assert await crashed_everywhere(after, dead, World.started, act, check) == calls


async def test_order_of_the_writes() -> None:
    """Record before queue; record, release, answer; release before answer; cancel before discard; take, claim, load."""
    world = World()
    made = world.fuse.made

    async def calls(act: Awaitable[T]) -> tuple[T, list[str]]:
        made.clear()
        answer = await act
        return answer, [name for name in made if name != "now"]

    assert (await calls(world.durable.arrive("w", "k", 1)))[1] == ["supply", "make_ready"]
    assert (await calls(world.durable.deliver("w", 1)))[1] == ["append", "make_ready"]
    [turn], begun = await calls(world.durable.begin(ZERO, BUDGET))
    assert begun == ["next_ready", "claim", "load"]
    assert (await calls(world.durable.renew(turn)))[1] == ["renew claim", "renew delivery"]
    assert (await calls(world.durable.pause(turn, world.clock.now())))[1] == ["release", "wake_at"]
    assert (await calls(world.durable.hand_back(await world.begun(), ZERO)))[1] == ["release", "wake_at"]
    assert (await calls(world.durable.fail(await world.begun(), "why", None)))[1] == ["release", "bury"]
    await world.scheduler.make_ready("w", revive=True)
    assert (await calls(world.durable.finish(await world.begun(), 1)))[1] == ["extend", "record", "release", "done"]
    assert (await calls(world.durable.delete("w")))[1] == ["cancel", "discard"]


async def test_watch_asks_at_growing_intervals_and_reads_no_record_twice() -> None:
    """It is no busy loop, and its cost does not grow with the history. [DUR-RESULT]"""
    world = World()
    for number in range(100):
        await world.checkpointer.supply("w", f"k{number}", number)
    seen, looked = list[int](), asyncio.Event()

    class Counting(FusedCheckpointer):
        async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
            records = await super().load(workflow, skip=skip)
            seen.append(len(records))
            if len(seen) == 3:
                looked.set()
            return records

    durable: SplitDurable[MemoryEffect] = SplitDurable(Counting(world.checkpointer, world.fuse), world.scheduler)
    watching = asyncio.ensure_future(durable.watch("w", YEAR))
    await looked.wait()
    await world.checkpointer.supply("w", "outcome:", 1)
    await watching
    assert seen[:3] == [100, 1, 1]
    assert seen[-1] == 2
