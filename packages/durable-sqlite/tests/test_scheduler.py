"""`SqliteScheduler`: each clause of the scheduler at least once."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from durable_core.contract import Delivery
from durable_sqlite import SqliteDurable, SqliteScheduler

NOW = timedelta(0)
SOON = timedelta(seconds=30)
MOMENT = timedelta(milliseconds=20)


@pytest.fixture
def scheduler(durable: SqliteDurable) -> SqliteScheduler:
    return durable.scheduler


@pytest.fixture
def hasty(durable: SqliteDurable) -> SqliteScheduler:
    """On the same queue, with a lease that is over at once."""
    return SqliteScheduler(durable.scheduler.connection, lease=MOMENT)


async def taken(scheduler: SqliteScheduler, wait: timedelta = SOON) -> Delivery:
    delivery = await scheduler.next_ready(wait)
    assert delivery is not None
    return delivery


async def nothing(scheduler: SqliteScheduler) -> None:
    assert await scheduler.next_ready(NOW) is None


async def test_now_is_an_aware_clock_that_does_not_go_back(scheduler: SqliteScheduler) -> None:
    """[ANY-CLOCK] The store's clock is the machine's, in UTC."""
    times = [await scheduler.now() for _ in range(5)]
    assert times == sorted(times)
    assert times[0].tzinfo is UTC
    assert scheduler.lease == SOON


async def test_ready_eventually_after_the_taker_died(scheduler: SqliteScheduler, hasty: SqliteScheduler) -> None:
    """[SCH-READY-EVENTUALLY] [SCH-NEXT-LAPSED] An unanswered delivery is given out again, with both counts one higher, each
    time.
    """
    await scheduler.make_ready("w")
    receipts: set[str] = set()
    for lapses in range(3):
        delivery = await taken(hasty)
        assert (delivery.workflow, delivery.attempt, delivery.lapses) == ("w", 1 + lapses, lapses)
        receipts.add(delivery.receipt)
    assert len(receipts) == 3


async def test_ready_eventually_after_a_restart(scheduler: SqliteScheduler, path: Path) -> None:
    """[SCH-READY-EVENTUALLY] It is there when another store opens the file."""
    await scheduler.make_ready("w")
    await scheduler.connection.aclose()
    async with SqliteDurable.at(path) as again:
        assert (await taken(again.scheduler)).workflow == "w"


async def test_ready_keeps_an_earlier_due_time_and_the_count(scheduler: SqliteScheduler) -> None:
    """[SCH-READY-EVENTUALLY] Made ready twice, it is due since the first time; asleep after failures, it keeps its count."""
    await scheduler.make_ready("w")
    await scheduler.make_ready("w")
    between = await scheduler.now()
    await scheduler.make_ready("w")
    first = await taken(scheduler)
    assert first.due < between
    await scheduler.wake_at(first, await scheduler.now() + SOON, attempt=4, lapses=2)
    await scheduler.make_ready("w")
    again = await taken(scheduler, NOW)
    assert (again.attempt, again.lapses) == (4, 2)


async def test_ready_coalesce_and_after_a_take(scheduler: SqliteScheduler) -> None:
    """[SCH-READY-COALESCE] [SCH-DONE-NEWER] Cases 86 and 90: many before a take are one delivery, any after it one more, at
    once.
    """
    for _ in range(5):
        await scheduler.make_ready("w")
    running = await taken(scheduler, NOW)
    for _ in range(3):
        await scheduler.make_ready("w")
    await nothing(scheduler)  # it leaves the lease alone
    await scheduler.done(running)
    again = await taken(scheduler, NOW)
    assert (again.attempt, again.lapses) == (1, 0)
    await scheduler.done(again)
    await nothing(scheduler)


async def test_ready_coalesce_into_the_delivery_that_follows_a_lapse(scheduler: SqliteScheduler, hasty: SqliteScheduler) -> None:
    """[SCH-READY-COALESCE] What came while a delivery was out is met by the one that follows its lapse, not by one more."""
    await scheduler.make_ready("w")
    await taken(hasty)
    await scheduler.make_ready("w")
    again = await taken(scheduler)
    assert (again.attempt, again.lapses) == (2, 1)
    await scheduler.done(again)
    await nothing(scheduler)


async def test_next_wait_returns_at_once_when_something_comes(scheduler: SqliteScheduler, other: SqliteDurable) -> None:
    """[SCH-NEXT-WAIT] A taker that waits is woken by its own store, by another store in the process, and by the passing of
    time.
    """
    for wake in (scheduler.make_ready, other.scheduler.make_ready):
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            waiting = group.create_task(scheduler.next_ready(timedelta(hours=1)))
            await asyncio.sleep(0)
            await wake("w")
        delivery = waiting.result()
        assert delivery is not None
        await scheduler.wake_at(delivery, await scheduler.now() + MOMENT)
        asleep = await taken(scheduler)
        assert asleep.due <= await scheduler.now()
        await scheduler.done(asleep)


async def test_next_wait_asks_no_more_often_than_it_says(scheduler: SqliteScheduler, statements: list[str]) -> None:
    """[SCH-NEXT-WAIT] An idle taker asks the file, not the database; the wait is over when it is over."""
    poll = (await scheduler.describe()).poll
    wait = poll * 10
    del statements[:]
    assert await scheduler.next_ready(wait) is None
    assert 1 <= len(statements) <= wait / poll


async def test_next_oldest_goes_first(scheduler: SqliteScheduler) -> None:
    """[SCH-NEXT-OLDEST] In the order in which they became due, whatever their names, made ready one by one or at once."""
    names = [f"{number * 7919 % 1000:03}" for number in range(300)]
    async with asyncio.TaskGroup() as group:
        for name in names[:150]:
            group.create_task(scheduler.make_ready(name))
    for name in names[150:]:
        await scheduler.make_ready(name)
    assert [(await taken(scheduler, NOW)).workflow for _ in names] == names


async def test_next_one_taker_for_each(scheduler: SqliteScheduler, other: SqliteDurable) -> None:
    """[SCH-NEXT-ONE] Forty takers at two stores share twenty deliveries, none twice."""
    for number in range(20):
        await scheduler.make_ready(f"w{number}")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task((scheduler, other.scheduler)[number % 2].next_ready(NOW)) for number in range(40)]
    names = [delivery.workflow for task in tasks if (delivery := task.result()) is not None]
    assert sorted(names) == sorted({f"w{number}" for number in range(20)})


async def test_next_deep_plans_by_index(scheduler: SqliteScheduler) -> None:
    """[SCH-NEXT-DEEP] What a take touches is found by the index: no statement of it scans or sorts."""
    from durable_sqlite import sql

    for statement, arguments in (
        (sql.NEXT_DUE, ("q",)),
        (sql.NEXT_READY, ("q", 1, 1)),
        (sql.TAKE, (1, 1, 1, 0, 1, "w", "q")),
        (sql.FINISHED, ("w",)),
        (sql.CLAIM_ROW, ("w",)),
        (sql.DELIVERY_ROW, ("w", "q", 1)),
        (sql.DONE, ("w", "q")),
        (sql.UNCONTENDED, ("w",)),
        (sql.APPEND_LAST, ("w",)),
        (sql.SWEEP, (0, "", 1, 10)),
        (sql.WORKFLOWS_NEXT, ("w", "w", "w")),
    ):
        rows = await scheduler.connection.read(
            lambda tx, text, bound: tx.execute("EXPLAIN QUERY PLAN " + text, bound).fetchall(), statement, arguments
        )
        plan = "; ".join(row[3] for row in rows)
        assert "SCAN workflow" not in plan, (statement, plan)
        assert "TEMP B-TREE" not in plan or statement == sql.SWEEP, (statement, plan)


async def test_renew_keeps_it_and_its_name(scheduler: SqliteScheduler, hasty: SqliteScheduler) -> None:
    """[SCH-RENEW-NAME] [SCH-NEXT-ONE] A delivery that is renewed is nobody else's; its receipt stays."""
    await scheduler.make_ready("w")
    delivery = await taken(hasty)
    kept = await scheduler.renew(delivery)
    assert kept == delivery
    await hasty.make_ready("probe")
    await taken(hasty)
    assert (await taken(hasty)).workflow == "probe"  # by now the first lease of "w" is over, too
    await scheduler.done(kept)


async def test_renew_silent_on_what_is_not_current(scheduler: SqliteScheduler, hasty: SqliteScheduler) -> None:
    """[SCH-RENEW-SILENT] Taken over, answered or cancelled: it changes nothing and comes back as it is."""
    await scheduler.make_ready("w")
    old = await taken(hasty)
    new = await taken(scheduler)
    assert await scheduler.renew(old) == old
    await scheduler.done(new)
    assert await scheduler.renew(new) == new
    await scheduler.make_ready("w")
    cancelled = await taken(scheduler)
    await scheduler.cancel("w")
    assert await scheduler.renew(cancelled) == cancelled
    foreign = Delivery("w", "no receipt of ours", 1, 0, new.due)
    assert await scheduler.renew(foreign) == foreign
    await nothing(scheduler)


async def test_wake_at_answers_and_sets_the_next(scheduler: SqliteScheduler) -> None:
    """[SCH-WAKE-ANSWERS] [SCH-WAKE-COUNT] [SCH-WAKE-NOT-BEFORE] One delivery with exactly these counts, not before its time."""
    await scheduler.make_ready("w")
    delivery = await taken(scheduler)
    when = await scheduler.now() + MOMENT
    await scheduler.wake_at(delivery, when, attempt=3, lapses=2)
    again = await taken(scheduler)
    assert (again.attempt, again.lapses, again.due) == (3, 2, when)
    assert await scheduler.now() >= when
    await scheduler.wake_at(again, datetime(1999, 1, 1, tzinfo=timezone(timedelta(hours=5))))
    assert (await taken(scheduler, NOW)).attempt == 1


async def test_wake_at_refuses_what_cannot_be(scheduler: SqliteScheduler, statements: list[str]) -> None:
    """[ANY-VALID] Case 97: a naive instant and impossible counts are refused before anything is done."""
    await scheduler.make_ready("w")
    delivery = await taken(scheduler)
    del statements[:]
    for call in (
        scheduler.wake_at(delivery, datetime(2030, 1, 1)),
        scheduler.wake_at(delivery, delivery.due, attempt=0),
        scheduler.wake_at(delivery, delivery.due, lapses=-1),
    ):
        with pytest.raises(ValueError):
            await call
    assert statements == []


async def test_wake_newer_is_due_at_once(scheduler: SqliteScheduler) -> None:
    """[SCH-WAKE-NEWER] A wakeup that came meanwhile is neither delayed nor dropped, and the count stands."""
    await scheduler.make_ready("w")
    delivery = await taken(scheduler)
    await scheduler.make_ready("w")
    await scheduler.wake_at(delivery, await scheduler.now() + SOON, attempt=5, lapses=1)
    again = await taken(scheduler, NOW)
    assert (again.attempt, again.lapses) == (5, 1)


async def test_stale_and_cancelled_answers_change_nothing(scheduler: SqliteScheduler, hasty: SqliteScheduler) -> None:
    """[SCH-WAKE-STALE] [SCH-WAKE-CANCELLED] [SCH-DONE-STALE] [SCH-DONE-CANCELLED] [SCH-BURY-STALE] [SCH-BURY-CANCELLED]
    [SCH-CANCEL-ALL] Case 14.
    """
    await scheduler.make_ready("w")
    old = await taken(hasty)
    new = await taken(scheduler)
    for gone in (old, Delivery("w", "x", 1, 0, old.due), Delivery("w", "9" * 30, 1, 0, old.due)):
        await scheduler.done(gone)
        await scheduler.wake_at(gone, old.due)
        await scheduler.bury(gone, "why")
        await nothing(scheduler)
        assert await scheduler.buried("w") is None
    await scheduler.cancel("w")
    await scheduler.done(new)
    await scheduler.wake_at(new, new.due)
    await scheduler.bury(new, "why")
    await nothing(scheduler)
    assert await scheduler.buried("w") is None
    await scheduler.make_ready("w")
    assert (await taken(scheduler)).receipt not in (old.receipt, new.receipt)


async def test_done_beats_a_late_take(scheduler: SqliteScheduler, hasty: SqliteScheduler) -> None:
    """[SCH-DONE-ANSWERS] Case 14: what is answered is not given out again, even after its lease."""
    await scheduler.make_ready("w")
    delivery = await taken(hasty)
    await scheduler.done(delivery)
    await scheduler.done(delivery)
    assert await hasty.next_ready(MOMENT * 3) is None


async def test_bury_keeps_it_until_it_is_revived(scheduler: SqliteScheduler) -> None:
    """[SCH-BURY-KEEPS] [SCH-READY-EVENTUALLY] Set aside with its reason; a wakeup waits with it; only `revive` brings it back."""
    await scheduler.make_ready("w")
    delivery = await taken(scheduler)
    await scheduler.make_ready("w")
    await scheduler.bury(delivery, "why \ud800\0 not")
    assert await scheduler.buried("w") == "why \\ud800\0 not"
    await scheduler.make_ready("w")
    await nothing(scheduler)
    await scheduler.make_ready("w", revive=True)
    assert await scheduler.buried("w") is None
    again = await taken(scheduler, NOW)
    assert (again.attempt, again.lapses) == (1, 0)
    await scheduler.make_ready("w", revive=True)  # of one that is not buried: as without
    await scheduler.done(again)
    assert (await taken(scheduler, NOW)).attempt == 1


async def test_cancel_all_states(scheduler: SqliteScheduler) -> None:
    """[SCH-CANCEL-ALL] Ready, sleeping, taken and buried wakeups all go."""
    for name in ("ready", "sleeping", "taken", "buried"):
        await scheduler.make_ready(name)
    found = {delivery.workflow: delivery for delivery in [await taken(scheduler) for _ in range(4)]}
    await scheduler.wake_at(found["ready"], found["ready"].due)
    await scheduler.wake_at(found["sleeping"], await scheduler.now() + MOMENT)
    await scheduler.bury(found["buried"], "why")
    for name in found:
        await scheduler.cancel(name)
    assert await scheduler.next_ready(MOMENT * 2) is None
    assert await scheduler.buried("buried") is None


async def test_queue_named_sees_no_other(scheduler: SqliteScheduler) -> None:
    """[SCH-QUEUE-NAMED] Two queues on one file share nothing."""
    emails = SqliteScheduler(scheduler.connection, queue="emails")
    await emails.make_ready("w")
    await nothing(scheduler)
    await scheduler.make_ready("w")
    mine = await taken(scheduler, NOW)
    theirs = await taken(emails, NOW)
    await emails.bury(theirs, "why")
    assert await scheduler.buried("w") is None
    await emails.cancel("w")
    await scheduler.wake_at(mine, mine.due)
    assert (await taken(scheduler, NOW)).workflow == "w"


async def test_a_cancelled_taker_puts_back_what_it_took(scheduler: SqliteScheduler) -> None:
    """A take whose caller was cancelled meanwhile is given to the next, with the same counts, however the two meet."""
    for turn in range(60):
        taking = asyncio.create_task(scheduler.next_ready(SOON))
        for _ in range(turn % 5):
            await asyncio.sleep(0)
        await scheduler.make_ready("w")
        taking.cancel()
        try:
            delivery = await taking
        except asyncio.CancelledError:
            delivery = None
        delivery = delivery or await taken(scheduler)
        assert (delivery.attempt, delivery.lapses) == (1, 0)
        await scheduler.done(delivery)
        assert await scheduler.next_ready(NOW) is None
