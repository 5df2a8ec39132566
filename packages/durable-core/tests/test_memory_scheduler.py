"""The memory double's scheduler: who is given out when, and how one waits for it."""

import asyncio
from datetime import datetime, timedelta

import pytest

from durable_core._clock import ManualClock
from durable_core.contract import Delivery
from durable_core.memory import Memory, MemoryCheckpointer, MemoryScheduler

LEASE = timedelta(seconds=10)
SECOND = timedelta(seconds=1)
ZERO = timedelta(0)
YEAR = timedelta(days=365)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryScheduler:
    return MemoryScheduler(Memory(clock), lease=LEASE)


async def taken(store: MemoryScheduler) -> Delivery:
    delivery = await store.next_ready(ZERO)
    assert delivery is not None
    return delivery


async def settled() -> None:
    """Let every task that can go on without the clock do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_ready_during_a_pass_leads_to_exactly_one_further_delivery(store: MemoryScheduler) -> None:
    """Case 86: three wakeups while it is out are one more delivery, at once. [SCH-READY-COALESCE] [SCH-DONE-NEWER]"""
    await store.make_ready("w")
    delivery = await taken(store)
    for _ in range(3):
        await store.make_ready("w")
    assert await store.next_ready(ZERO) is None
    await store.done(delivery)
    again = await taken(store)
    assert (again.attempt, again.lapses, again.receipt != delivery.receipt) == (1, 0, True)
    await store.done(again)
    assert await store.next_ready(ZERO) is None


async def test_backlog_is_one_delivery(store: MemoryScheduler, clock: ManualClock) -> None:
    """Case 90: a wakeup three days past, five more, and a lapsed delivery collapse to one. [SCH-READY-COALESCE]"""
    await store.make_ready("w")
    await store.wake_at(await taken(store), clock.now() + SECOND)
    clock.advance(timedelta(days=3))
    stale = await taken(store)
    for _ in range(5):
        await store.make_ready("w")
    clock.advance(LEASE)
    only = await taken(store)
    assert (only.workflow, only.attempt, only.lapses) == ("w", 2, 1)
    await store.done(only)
    await store.done(stale)
    clock.advance(YEAR)
    assert await store.next_ready(ZERO) is None


async def test_late_answer_changes_nothing_and_an_early_one_ends_it(store: MemoryScheduler, clock: ManualClock) -> None:
    """Case 14: what was answered is not given out, and a stale receipt answers for nobody. [SCH-DONE-ANSWERS] [SCH-DONE-STALE]"""
    await store.make_ready("w")
    await store.done(await taken(store))
    clock.advance(LEASE)
    assert await store.next_ready(ZERO) is None
    await store.make_ready("w")
    old = await taken(store)
    clock.advance(LEASE)
    current = await taken(store)
    for answer in (
        store.done(old),
        store.bury(old, "why"),
        store.wake_at(old, clock.now()),
    ):
        await answer
    assert await store.renew(old) == old
    clock.advance(LEASE - SECOND)
    assert await store.next_ready(ZERO) is None
    await store.done(current)
    clock.advance(LEASE)
    assert await store.next_ready(ZERO) is None


async def test_oldest_goes_first(store: MemoryScheduler, clock: ManualClock) -> None:
    """By due time, and in turn where it is the same. [SCH-NEXT-OLDEST]"""
    for number in range(1_000):
        await store.make_ready(f"w{number}")
        if number % 7 == 0:
            clock.advance(timedelta(milliseconds=1))
    assert [(await taken(store)).workflow for _ in range(1_000)] == [f"w{number}" for number in range(1_000)]


async def test_oldest_goes_first_also_after_it_changed_its_mind(store: MemoryScheduler, clock: ManualClock) -> None:
    """An instant at which a workflow was once due counts no more. [SCH-NEXT-OLDEST]"""
    start = clock.now()
    for workflow in ("w", "v"):
        await store.make_ready(workflow)
    w, v = await taken(store), await taken(store)
    await store.wake_at(w, start + 5 * SECOND)
    clock.advance(SECOND)
    await store.make_ready("w")
    await store.wake_at(await taken(store), start + 8 * SECOND)
    await store.wake_at(v, start + 6 * SECOND)
    clock.advance(YEAR)
    assert [(await taken(store)).workflow for _ in range(2)] == ["v", "w"]


async def test_what_a_take_touches_does_not_grow_with_the_queue(store: MemoryScheduler, clock: ManualClock) -> None:
    """However often a workflow is renewed and woken, what is kept to find it stays small. [SCH-NEXT-DEEP]"""
    for number in range(20):
        await store.make_ready(f"w{number}")
    deliveries = [await taken(store) for _ in range(20)]
    for _ in range(200):
        clock.advance(timedelta(milliseconds=1))
        for delivery in deliveries:
            await store.renew(delivery)
            await store.make_ready(delivery.workflow)
    assert len(store.memory._queue("default")._hints) < 200  # pyright: ignore[reportPrivateUsage]
    for delivery in deliveries:
        await store.wake_at(delivery, clock.now() + YEAR)
    assert sorted([(await taken(store)).workflow for _ in range(20)]) == sorted(delivery.workflow for delivery in deliveries)


async def test_next_wait_is_woken_by_what_becomes_ready(store: MemoryScheduler) -> None:
    """[SCH-NEXT-WAIT]"""
    waiting = asyncio.ensure_future(store.next_ready(YEAR))
    await settled()
    assert not waiting.done()
    await store.make_ready("w")
    delivery = await waiting
    assert delivery is not None
    assert delivery.workflow == "w"


async def test_next_wait_is_woken_by_a_sleeper_whose_time_comes_and_by_a_lapse(
    store: MemoryScheduler, clock: ManualClock
) -> None:
    """Advancing the clock wakes whoever sleeps on it. [SCH-NEXT-WAIT] [SCH-WAKE-NOT-BEFORE] [SCH-NEXT-LAPSED]"""
    await store.make_ready("w")
    await store.wake_at(await taken(store), clock.now() + 2 * SECOND, attempt=3, lapses=1)
    waiting = asyncio.ensure_future(store.next_ready(YEAR))
    for expected in (False, True):
        await settled()
        clock.advance(SECOND)
        await settled()
        assert waiting.done() is expected
    first = await waiting
    assert first is not None
    assert (first.attempt, first.lapses) == (3, 1)
    waiting = asyncio.ensure_future(store.next_ready(YEAR))
    await settled()
    clock.advance(LEASE)
    second = await waiting
    assert second is not None
    assert (second.attempt, second.lapses) == (4, 2)


async def test_next_wait_ends_when_the_wait_is_over(store: MemoryScheduler, clock: ManualClock) -> None:
    """By the store's clock, to the instant; nothing is asked in between. [SCH-NEXT-WAIT]"""
    assert await store.next_ready(-SECOND) is None
    waiting = asyncio.ensure_future(store.next_ready(timedelta(seconds=0.3)))
    await settled()
    clock.advance(timedelta(seconds=0.1))
    await settled()
    assert not waiting.done()
    clock.advance(timedelta(seconds=0.2))
    assert await waiting is None


async def test_next_wait_by_the_system_clock_ends_by_itself() -> None:
    """A store of its own lives by the system's clock. [SCH-NEXT-WAIT]"""
    store = MemoryScheduler()
    before = await store.now()
    assert await store.next_ready(timedelta(milliseconds=5)) is None
    assert await store.now() >= before + timedelta(milliseconds=5)
    await store.make_ready("w")
    await store.wake_at(await taken(store), await store.now() + timedelta(milliseconds=5))
    assert await store.next_ready(timedelta(seconds=30)) is not None


async def test_one_wakeup_goes_to_one_of_many_that_wait(store: MemoryScheduler) -> None:
    """[SCH-NEXT-ONE]"""
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(store.next_ready(YEAR)) for _ in range(20)]
        await settled()
        for number in range(20):
            await store.make_ready(f"w{number}")
    deliveries = [waiter.result() for waiter in waiting]
    assert {delivery.workflow for delivery in deliveries if delivery} == {f"w{number}" for number in range(20)}


async def test_a_wait_that_is_cancelled_takes_nothing_and_leaves_nothing_behind(
    store: MemoryScheduler, clock: ManualClock
) -> None:
    """[SCH-READY-EVENTUALLY]"""
    waiting = asyncio.ensure_future(store.next_ready(YEAR))
    await settled()
    waiting.cancel()
    await store.make_ready("w")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await taken(store)).workflow == "w"
    assert not store.memory._queue("default").sleepers  # pyright: ignore[reportPrivateUsage]
    assert not clock._subscribers  # pyright: ignore[reportPrivateUsage]


async def test_bury_keeps_it_out_of_the_way_until_it_is_revived(store: MemoryScheduler, clock: ManualClock) -> None:
    """The reason stays readable. [SCH-BURY-KEEPS]"""
    await store.make_ready("w")
    await store.bury(await taken(store), "why")
    await store.make_ready("w")
    clock.advance(YEAR)
    assert (await store.next_ready(ZERO), await store.buried("w"), await store.buried("v")) == (None, "why", None)
    await store.make_ready("w", revive=True)
    assert ((await taken(store)).attempt, await store.buried("w")) == (1, None)


async def test_cancel_takes_every_wakeup(store: MemoryScheduler, clock: ManualClock) -> None:
    """Ready, sleeping, taken and buried; what was out reinstates nothing. [SCH-CANCEL-ALL] [SCH-WAKE-CANCELLED]"""
    for workflow in ("ready", "sleeping", "taken", "buried"):
        await store.make_ready(workflow)
    out = {delivery.workflow: delivery for delivery in [await taken(store) for _ in range(4)]}
    await store.done(out["ready"])
    await store.make_ready("ready")
    await store.wake_at(out["sleeping"], clock.now() + SECOND)
    await store.bury(out["buried"], "why")
    for workflow in out:
        await store.cancel(workflow)
    await store.wake_at(out["taken"], clock.now())
    clock.advance(YEAR)
    assert (await store.next_ready(ZERO), await store.buried("buried")) == (None, None)


async def test_queues_of_different_names_do_not_see_each_other(clock: ManualClock) -> None:
    """[SCH-QUEUE-NAMED]"""
    memory = Memory(clock)
    one, other = MemoryScheduler(memory, queue="one"), MemoryScheduler(memory, queue="other")
    await one.make_ready("w")
    assert await other.next_ready(ZERO) is None
    await other.cancel("w")
    delivery = await taken(one)
    await other.make_ready("w")
    await other.done(delivery)
    assert (await one.next_ready(ZERO), (await taken(other)).workflow) == (None, "w")


async def test_naive_instants_and_nonsense_are_refused_before_anything_is_done(store: MemoryScheduler) -> None:
    """Case 97. [ANY-VALID]"""
    await store.make_ready("w")
    delivery = await taken(store)
    naive = datetime(2024, 1, 1)
    for call in (
        store.wake_at(delivery, naive),
        store.wake_at(delivery, await store.now(), attempt=0),
        store.wake_at(delivery, await store.now(), lapses=-1),
        store.make_ready(""),
        store.buried("\0"),
        store.cancel("w" * 1_001),
    ):
        with pytest.raises(ValueError):
            await call
    for queue, lease in (("", LEASE), ("q\0", LEASE), ("q", ZERO), ("q", -SECOND)):
        with pytest.raises(ValueError):
            MemoryScheduler(queue=queue, lease=lease)
    await store.done(delivery)
    assert await store.next_ready(ZERO) is None


async def test_clock_is_the_store_s_and_aware(store: MemoryScheduler, clock: ManualClock) -> None:
    """Case 97. [ANY-CLOCK]"""
    assert await store.now() == clock.now()
    assert (await MemoryScheduler().now()).utcoffset() == ZERO
    memory = Memory(clock)
    checkpointer = MemoryCheckpointer(memory)
    holder = await checkpointer.claim("w", LEASE, LEASE)
    assert holder is not None
    assert holder.at == clock.now()
