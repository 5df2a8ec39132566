"""The scheduler: when a workflow may run, and who was told."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from durable_conformance.bench import LONG, NOW, Bench
from durable_conformance.case import shows
from durable_conformance.expect import answers, holds, same
from durable_conformance.suite._common import together
from durable_core.contract import Delivery


async def lapse(bench: Bench) -> None:
    """Let a lease run out."""
    await bench.elapse(bench.scheduler.lease)


# ---------------------------------------------------------------------------------------------------------- make_ready


@shows("SCH-READY-EVENTUALLY")
async def what_was_made_ready_is_given_out(bench: Bench) -> None:
    """With attempt one, no lapses, due by now, whichever instance asks."""
    other, workflow = await bench.open(), bench.workflow()
    before = await bench.scheduler.now()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow, by=other.scheduler)
    same((delivery.attempt, delivery.lapses), (1, 0), "attempt and lapses of a first delivery")
    holds(delivery.due <= await bench.scheduler.now(), "its due time is past", delivery)
    holds(delivery.due >= before - timedelta(milliseconds=2), "its due time is when it was made ready", delivery)


@shows("SCH-READY-EVENTUALLY")
async def though_it_arrives_while_a_pass_runs(bench: Bench) -> None:
    """A wakeup during a delivery is given out after the delivery was answered, whatever the answer."""
    for answer in ("done", "wake_at"):
        workflow = bench.workflow()
        await bench.scheduler.make_ready(workflow)
        delivery = await bench.take(workflow)
        await bench.scheduler.make_ready(workflow)
        if answer == "done":
            await bench.scheduler.done(delivery)
        else:
            await bench.scheduler.wake_at(delivery, await bench.scheduler.now() + LONG)
        await bench.scheduler.done(await bench.take(workflow))
        await bench.nothing_ready("both wakeups were answered")


@shows("SCH-READY-EVENTUALLY", short=True)
async def though_the_taker_dies(bench: Bench) -> None:
    """A delivery that nobody answers is given out again, and a wakeup that came meanwhile is not lost with it."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    await bench.take(workflow)
    await bench.scheduler.make_ready(workflow)
    await lapse(bench)
    again = await bench.take(workflow)
    await bench.scheduler.done(again)


@shows("SCH-READY-EVENTUALLY")
async def a_due_time_and_a_count_are_kept(bench: Bench) -> None:
    """It brings a later due time forward, keeps an earlier one, and keeps the count."""
    early, late = bench.workflow("early"), bench.workflow("late")
    for workflow in (early, late):
        await bench.scheduler.make_ready(workflow)
    now = await bench.scheduler.now()
    for delivery in [await bench.take() for _ in range(2)]:
        when = now - LONG if delivery.workflow == early else now + LONG
        await bench.scheduler.wake_at(delivery, when, attempt=4, lapses=2)
    for workflow in (early, late):
        await bench.scheduler.make_ready(workflow)
    left = {early, late}
    for again in [await bench.take() for _ in range(2)]:  # in whatever order: the longest due goes first only roughly
        holds(again.workflow in left, f"each of {sorted(left)} is given out once", again)
        left.remove(again.workflow)
        same((again.attempt, again.lapses), (4, 2), "attempt and lapses of what was made ready while it slept")
        if again.workflow == early:
            holds(again.due < now, "an earlier due time is kept", again)


@shows("SCH-READY-EVENTUALLY")
async def only_revive_revives(bench: Bench) -> None:
    """A buried workflow stays buried when it is made ready, and with `revive` it runs, with attempt one."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    await bench.scheduler.wake_at(delivery, await bench.scheduler.now(), attempt=5, lapses=1)
    await bench.scheduler.bury(await bench.take(workflow), "broken")
    await bench.scheduler.make_ready(workflow)
    await bench.nothing_ready("a buried workflow was made ready without revive")
    same(await bench.scheduler.buried(workflow), "broken", "the reason why it is buried")
    await bench.scheduler.make_ready(workflow, revive=True)
    again = await bench.take(workflow)
    same((again.attempt, again.lapses), (1, 0), "attempt and lapses of a revived workflow")
    same(await bench.scheduler.buried(workflow), None, "the reason, of a revived workflow")


@shows("SCH-READY-EVENTUALLY", "restart", short=True)
async def though_everybody_closes(bench: Bench) -> None:
    """What was ready, asleep, taken or buried is so after a restart."""
    ready, asleep, taken, buried = (bench.workflow(hint) for hint in ("ready", "asleep", "taken", "buried"))
    for workflow in (taken, buried, asleep):
        await bench.scheduler.make_ready(workflow)
    now = await bench.scheduler.now()
    for _ in range(3):
        delivery = await bench.take()
        if delivery.workflow == buried:
            await bench.scheduler.bury(delivery, "reason")
        elif delivery.workflow == asleep:
            await bench.scheduler.wake_at(delivery, now + bench.scheduler.lease * 0.5, attempt=3)
    await bench.scheduler.make_ready(ready)
    await bench.reopen()
    same(await bench.scheduler.buried(buried), "reason", "the reason why it is buried")
    await bench.elapse(bench.scheduler.lease)
    counts = {delivery.workflow: delivery.attempt for delivery in [await bench.take() for _ in range(3)]}
    same(dict(sorted(counts.items())), {asleep: 3, ready: 1, taken: 2}, "what is given out after a restart, with its attempts")
    await bench.nothing_ready("all but the buried one were given out")


@shows("SCH-READY-COALESCE")
async def many_before_a_take_do_not_pile_up(bench: Bench) -> None:
    """Five wakeups before a take are answered by at most five deliveries, and never two at once."""
    workflow = bench.workflow()
    for _ in range(5):
        await bench.scheduler.make_ready(workflow)
    for _ in range(5):
        delivery = await bench.scheduler.next_ready(NOW)
        if delivery is None:
            break
        await bench.nothing_ready("the workflow's delivery is out")
        await bench.scheduler.done(delivery)
    await bench.nothing_ready("every wakeup has had its delivery")


@shows("SCH-READY-COALESCE")
async def one_after_a_take_waits_for_the_answer(bench: Bench) -> None:
    """It is another delivery, not given out beside the running one, and given out once that is answered, or with its lapse."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    await bench.scheduler.make_ready(workflow)
    await bench.scheduler.make_ready(workflow)
    await bench.nothing_ready("a delivery is out, and a wakeup came since")
    await bench.scheduler.done(delivery)
    again = await bench.take(workflow)
    same(again.attempt, 1, "the attempt of the wakeup that came since")
    await bench.scheduler.done(again)
    await bench.nothing_ready("both are answered")


# ---------------------------------------------------------------------------------------------------------- next_ready


@shows("SCH-NEXT-WAIT", real=True)
async def nothing_ready_is_none_after_the_wait(bench: Bench) -> None:
    """Nothing became ready: None, when the wait is over."""
    for wait in (NOW, timedelta(milliseconds=50), -LONG):
        given = await answers(bench.scheduler.next_ready(wait), f"next_ready that waits {wait}")
        same(given, None, f"next_ready that waits {wait}, with nothing ready")


@shows("SCH-NEXT-WAIT", real=True)
async def what_becomes_ready_ends_the_wait(bench: Bench) -> None:
    """A wakeup that comes during the wait is given out long before the wait is over, from this instance or another."""
    other = await bench.open()
    for store in (bench, other):
        workflow = bench.workflow()
        waiting = asyncio.create_task(bench.scheduler.next_ready(LONG))
        await asyncio.sleep(0.03)
        holds(not waiting.done(), "next_ready waits while nothing is ready", waiting)
        await store.scheduler.make_ready(workflow)
        delivery = await answers(waiting, "next_ready, when something was made ready during its wait")
        holds(delivery is not None and delivery.workflow == workflow, f"it gives {workflow!r}", delivery)


@shows("SCH-NEXT-WAIT", real=True, short=True)
async def so_does_what_becomes_due(bench: Bench) -> None:
    """A sleeper whose time comes, and a delivery whose lease runs out, end the wait."""
    asleep, taken = bench.workflow("asleep"), bench.workflow("taken")
    await bench.scheduler.make_ready(asleep)
    delivery = await bench.take(asleep)
    await bench.scheduler.wake_at(delivery, await bench.scheduler.now() + timedelta(milliseconds=60))
    first = await answers(bench.scheduler.next_ready(LONG), "next_ready, with a sleeper due during its wait")
    holds(first is not None and first.workflow == asleep, f"it gives {asleep!r}", first)
    assert first is not None
    await bench.scheduler.done(first)
    await bench.scheduler.make_ready(taken)
    await bench.take(taken)
    again = await answers(bench.scheduler.next_ready(LONG), "next_ready, with a lease that runs out during its wait")
    holds(again is not None and again.workflow == taken, f"it gives {taken!r}", again)


@shows("SCH-NEXT-WAIT", "meter", real=True)
async def and_it_asks_seldom(bench: Bench) -> None:
    """While nothing is ready it asks at most once a poll interval, and hardly at all where wakeups are announced."""
    wait, poll = 0.6, bench.description.poll.total_seconds()
    allowed = 6 + (wait / poll if poll else 4)
    async with bench.harness.meter(bench.at, bench.durable) as meter:
        await bench.scheduler.next_ready(timedelta(seconds=wait))
        asked = meter.asked
    holds(asked <= allowed, f"at most {allowed:g} requests in {wait} s, with a poll interval of {poll:g} s", asked)


@shows("SCH-NEXT-OLDEST")
async def the_longest_due_goes_first(bench: Bench) -> None:
    """Of a thousand made ready in turn none is taken more than 256 places late."""
    count = 1_000 if bench.manual or bench.long else 400
    workflows = [bench.workflow() for _ in range(count)]
    for workflow in workflows:
        await bench.scheduler.make_ready(workflow)
    place = {workflow: number for number, workflow in enumerate(workflows)}
    for number in range(count):
        delivery = await bench.take(wait=NOW)
        late = number - place[delivery.workflow]
        holds(
            late <= 256,
            "none is taken more than 256 places late",
            f"the {place[delivery.workflow]}th was taken as the {number}th",
        )


@shows("SCH-NEXT-ONE")
async def at_once_one_gets_it(bench: Bench) -> None:
    """Six takes at once, through two instances, of one wakeup: one delivery."""
    other = await bench.open()
    for _ in range(15):
        workflow = bench.workflow()
        await bench.scheduler.make_ready(workflow)
        given = await answers(together(*(store.scheduler.next_ready(NOW) for store in (bench, other) * 3)), "six takes at once")
        taken = [delivery for delivery in given if delivery is not None]
        same(len(taken), 1, "how many of six takes at once get the one wakeup")
        await bench.scheduler.done(taken[0])


@shows("SCH-NEXT-ONE", short=True)
async def as_long_as_its_lease(bench: Bench) -> None:
    """Before the lease is over it is nobody else's, and a renewal keeps it for another."""
    for window in bench.windows():
        store = await bench.open(lease=window)
        workflow = bench.workflow()
        await store.scheduler.make_ready(workflow)
        watch = bench.stopwatch()
        delivery = await bench.take(workflow, by=store.scheduler)
        await bench.elapse(window * (0.99 if bench.manual else 0.7))
        again = await store.scheduler.next_ready(NOW)
        if watch() < window:
            same(again, None, "next_ready just before the lease is over")
            watch = bench.stopwatch()
            await store.scheduler.renew(delivery)
            await bench.elapse(window * (0.99 if bench.manual else 0.7))
            again = await store.scheduler.next_ready(NOW)
            if watch() < window:
                same(again, None, "next_ready just before the renewed lease is over")
                return
        await store.scheduler.done(again or delivery)


@shows("SCH-NEXT-ONE", short=True)
async def the_takers_lease_counts(bench: Bench) -> None:
    """Somebody whose own lease is short does not take over what was taken with a long one."""
    patient = await bench.open(lease=bench.window * 20)
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    await bench.take(workflow, by=patient.scheduler)
    await lapse(bench)
    await bench.nothing_ready("the taker's lease is twenty times this one's")


@shows("SCH-NEXT-LAPSED", short=True)
async def unanswered_it_comes_back_counted(bench: Bench) -> None:
    """After the lease it is given out again, with attempt and lapses one higher each time."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    receipts: list[str] = []
    for number in range(4):
        delivery = await bench.take(workflow)
        same((delivery.attempt, delivery.lapses), (1 + number, number), f"attempt and lapses after {number} lapses")
        receipts.append(delivery.receipt)
        await lapse(bench)
    same(len(set(receipts)), 4, "how many receipts four deliveries have")


@shows("SCH-NEXT-DEEP", "meter")
async def a_take_touches_the_same_at_any_depth(bench: Bench) -> None:
    """What a take touches does not grow with the workflows that sleep, are ready, pending or finished."""
    sizes = (1_000, 100_000) if bench.long else (60, 480)
    touched: list[int] = []
    done = 0
    for size in sizes:
        await _fill(bench, done, size // 4)
        done = size // 4
        async with bench.harness.meter(bench.at, bench.durable) as meter:
            for _ in range(10):
                delivery = await bench.take(wait=NOW)
                await bench.scheduler.done(delivery)
            touched.append(meter.touched)
    holds(
        touched[1] <= touched[0] * 2 + 20,
        f"ten takes touch at {sizes[1]} what they touch at {sizes[0]}: {touched[0]}",
        touched[1],
    )


async def _fill(bench: Bench, done: int, size: int) -> None:
    now = await bench.scheduler.now()
    for number in range(done, size):
        for kind in ("sleeps", "pending", "finished"):
            await bench.scheduler.make_ready(f"{kind} {number}")
        for _ in range(3):
            delivery = await bench.take(wait=NOW)
            if delivery.workflow.startswith("sleeps"):
                await bench.scheduler.wake_at(delivery, now + LONG * 24)
            elif delivery.workflow.startswith("finished"):
                await bench.scheduler.done(delivery)
    for number in range(done, size):
        await bench.scheduler.make_ready(f"ready {number}")


# --------------------------------------------------------------------------------------------------------------- renew


@shows("SCH-RENEW-NAME", short=True)
async def what_it_gives_is_current(bench: Bench) -> None:
    """The delivery that each renewal gives can be renewed and answered; it is of the same workflow and count."""
    for answer in ("done", "wake_at", "bury"):
        workflow = bench.workflow()
        await bench.scheduler.make_ready(workflow)
        delivery = await bench.take(workflow)
        for _ in range(3):
            renewed = await answers(bench.scheduler.renew(delivery), "renew")
            same(
                (renewed.workflow, renewed.attempt, renewed.lapses),
                (workflow, 1, 0),
                "workflow, attempt and lapses of what renew gives",
            )
            delivery = renewed
        await _answer(bench, delivery, answer)
        await lapse(bench)
        await bench.nothing_ready(f"{answer} answered for what the last renewal gave")


async def _answer(bench: Bench, delivery: Delivery, answer: str) -> None:
    """Answer for a delivery; the workflow is not ready afterwards."""
    if answer == "done":
        await bench.scheduler.done(delivery)
    elif answer == "wake_at":
        await bench.scheduler.wake_at(delivery, await bench.scheduler.now() + LONG * 24)
    else:
        await bench.scheduler.bury(delivery, "reason")


@shows("SCH-RENEW-NAME", short=True)
async def it_keeps_the_delivery(bench: Bench) -> None:
    """Renewed every half lease it is nobody else's, and when the renewals end it comes back."""
    workflow = bench.workflow()
    for window in bench.windows():
        store = await bench.open(lease=window)
        await store.scheduler.make_ready(workflow)
        delivery = await bench.take(workflow, by=store.scheduler)
        for _ in range(5):
            watch = bench.stopwatch()
            delivery = await store.scheduler.renew(delivery)
            await bench.elapse(window / 2)
            again = await store.scheduler.next_ready(NOW)
            if watch() >= window:
                await store.scheduler.done(again or delivery)
                break
            same(again, None, "next_ready half a lease after a renewal")
        else:
            await bench.elapse(window)
            lapsed = await bench.take(workflow, by=store.scheduler)
            same((lapsed.attempt, lapsed.lapses), (2, 1), "attempt and lapses when the renewals ended")
            return


@shows("SCH-RENEW-SILENT", short=True)
async def on_a_lost_delivery_it_does_nothing(bench: Bench) -> None:
    """Taken over, answered or cancelled: the delivery comes back as it is, and nobody's lease moves."""
    over, answered, cancelled = (bench.workflow(hint) for hint in ("over", "answered", "cancelled"))
    for workflow in (over, answered, cancelled):
        await bench.scheduler.make_ready(workflow)
    taken = {delivery.workflow: delivery for delivery in [await bench.take() for _ in range(3)]}
    await bench.scheduler.done(taken[answered])
    await bench.scheduler.cancel(cancelled)
    await lapse(bench)
    rival = await bench.take(over)
    await bench.elapse(bench.scheduler.lease / 2)
    for delivery in taken.values():
        given = await answers(bench.scheduler.renew(delivery), f"renew of a delivery that is {delivery.workflow.split('-')[0]}")
        same(given, delivery, f"what renew gives for a delivery that is {delivery.workflow.split('-')[0]}")
    await bench.elapse(bench.scheduler.lease / 2)
    again = await bench.take(over)
    same(again.lapses, rival.lapses + 1, "the lapses of what was taken over and not renewed by its taker")
    await bench.scheduler.done(again)
    await lapse(bench)
    await bench.nothing_ready("the others were answered and cancelled")


# ------------------------------------------------------------------------------------------------------------- wake_at


@shows("SCH-WAKE-ANSWERS", short=True)
async def it_answers_and_sets_the_next(bench: Bench) -> None:
    """The delivery does not come back when its lease is over, and the workflow does when it is due, once."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    when = await bench.scheduler.now() + bench.scheduler.lease * 2
    await answers(bench.scheduler.wake_at(delivery, when), "wake_at")
    await bench.elapse(bench.scheduler.lease * 1.2)
    if await bench.scheduler.now() < when:
        same(await bench.scheduler.next_ready(NOW), None, "next_ready when the lease is over and the due time is not")
    await bench.elapse(bench.scheduler.lease)
    again = await bench.take(workflow)
    same((again.attempt, again.lapses), (1, 0), "attempt and lapses of the next delivery")
    await bench.scheduler.done(again)
    await bench.nothing_ready("the one wakeup was answered")


@shows("SCH-WAKE-COUNT", short=True)
async def the_next_delivery_carries_the_count(bench: Bench) -> None:
    """Exactly what was passed, for whatever was passed; and a lapse adds one to both."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    for attempt, lapses in ((1, 0), (2, 0), (7, 3), (7, 3), (1, 0), (30, 29)):
        await bench.scheduler.wake_at(delivery, await bench.scheduler.now(), attempt=attempt, lapses=lapses)
        delivery = await bench.take(workflow)
        same((delivery.attempt, delivery.lapses), (attempt, lapses), "attempt and lapses after wake_at with them")
    await lapse(bench)
    delivery = await bench.take(workflow)
    same((delivery.attempt, delivery.lapses), (31, 30), "attempt and lapses after a lapse of (30, 29)")
    await bench.scheduler.wake_at(delivery, await bench.scheduler.now())
    delivery = await bench.take(workflow)
    same((delivery.attempt, delivery.lapses), (1, 0), "attempt and lapses after wake_at without them")


@shows("SCH-WAKE-NOT-BEFORE", short=True)
async def not_before_it_is_due(bench: Bench) -> None:
    """A sleeper is not given out before its time by the store's clock; one whose time is past is, at once."""
    workflow, past = bench.workflow(), bench.workflow("past")
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    when = await bench.scheduler.now() + bench.window
    await bench.scheduler.wake_at(delivery, when)
    for _ in range(3):
        given = await bench.scheduler.next_ready(NOW)
        after = await bench.scheduler.now()
        holds(given is None or after >= when, f"not given out before {when}", f"given out at {after} at the latest")
        if given is not None:
            break
        await bench.elapse(bench.window * 0.3)
    else:
        await bench.elapse(bench.window * 0.2)
        again = await bench.take(workflow)
        holds(again.due == when, f"the due time of the delivery is {when}", again)
    await bench.scheduler.make_ready(past)
    delivery = await bench.take(past)
    await bench.scheduler.wake_at(delivery, await bench.scheduler.now() - LONG)
    await bench.take(past)


@shows("SCH-WAKE-NOT-BEFORE")
async def unless_something_else_makes_it_ready(bench: Bench) -> None:
    """make_ready wakes a sleeper."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    await bench.scheduler.wake_at(await bench.take(workflow), await bench.scheduler.now() + LONG)
    await bench.nothing_ready("it sleeps for an hour")
    await bench.scheduler.make_ready(workflow)
    await bench.take(workflow)


@shows("SCH-WAKE-NEWER")
async def a_newer_wakeup_makes_it_due_at_once(bench: Bench) -> None:
    """It is neither delayed nor dropped by the due time that the pass chose, is one delivery, and the count passed stands."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    await bench.scheduler.make_ready(workflow)
    await bench.scheduler.wake_at(delivery, await bench.scheduler.now() + LONG, attempt=5, lapses=2)
    again = await bench.take(workflow)
    same((again.attempt, again.lapses), (5, 2), "attempt and lapses")
    await bench.scheduler.done(again)
    await bench.nothing_ready("the newer wakeup was answered")


@shows("SCH-WAKE-CANCELLED", short=True)
async def wake_at_reinstates_nothing(bench: Bench) -> None:
    """A workflow cancelled since its delivery was taken is not given out, whatever wake_at says."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    await bench.scheduler.cancel(workflow)
    await answers(bench.scheduler.wake_at(delivery, await bench.scheduler.now()), "wake_at of a cancelled workflow")
    await bench.nothing_ready("it was cancelled since its delivery was taken")
    await lapse(bench)
    await bench.nothing_ready("it was cancelled since its delivery was taken, and the lease is over")


async def stale(bench: Bench, workflow: str) -> tuple[Delivery, Delivery]:
    """Give a delivery that was taken over, and the one that took over."""
    await bench.scheduler.make_ready(workflow)
    old = await bench.take(workflow)
    await lapse(bench)
    return old, await bench.take(workflow)


async def untouched(bench: Bench, new: Delivery, what: str) -> None:
    """Ask that a delivery is still out, lapses on time, and is still the workflow's only wakeup."""
    await bench.nothing_ready(f"after {what} with a stale receipt the taker still has it")
    await lapse(bench)
    again = await bench.take(new.workflow)
    same(
        (again.attempt, again.lapses),
        (new.attempt + 1, new.lapses + 1),
        f"attempt and lapses of what lapsed after {what} with a stale receipt",
    )
    await bench.scheduler.done(again)
    await bench.nothing_ready("it was answered")
    same(await bench.scheduler.buried(new.workflow), None, f"the reason why it is buried, after {what} with a stale receipt")


@shows("SCH-WAKE-STALE", short=True)
async def wake_at_with_a_stale_receipt_changes_nothing(bench: Bench) -> None:
    """Neither the taker's delivery nor what it answered is touched."""
    old, new = await stale(bench, bench.workflow())
    for when in (await bench.scheduler.now() - LONG, await bench.scheduler.now() + LONG):
        await answers(bench.scheduler.wake_at(old, when, attempt=9), "wake_at with a stale receipt")
    await untouched(bench, new, "wake_at")


@shows("SCH-WAKE-STALE")
async def nor_what_was_answered(bench: Bench) -> None:
    """After done, a second answer of the same delivery wakes nothing; after wake_at it moves nothing."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    await bench.scheduler.done(delivery)
    await answers(bench.scheduler.wake_at(delivery, await bench.scheduler.now()), "wake_at of an answered delivery")
    await bench.nothing_ready("it was answered")
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    await bench.scheduler.wake_at(delivery, await bench.scheduler.now() + LONG, attempt=2)
    await answers(bench.scheduler.wake_at(delivery, await bench.scheduler.now()), "a second wake_at of one delivery")
    await bench.nothing_ready("its next wakeup is in an hour, whatever an answered delivery says")


# ------------------------------------------------------------------------------------------------------ done, bury, …


@shows("SCH-DONE-ANSWERS", short=True)
async def it_does_not_come_back(bench: Bench) -> None:
    """An answered delivery is not given out again, not after its lease either; the next wakeup is, as a first."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    await bench.scheduler.done(await bench.take(workflow))
    await bench.nothing_ready("it was answered")
    await lapse(bench)
    await bench.nothing_ready("it was answered, and the lease is over")
    await bench.scheduler.make_ready(workflow)
    same((await bench.take(workflow)).attempt, 1, "the attempt of the next wakeup")


@shows("SCH-DONE-NEWER")
async def a_newer_wakeup_outlives_done(bench: Bench) -> None:
    """What arrived since the take makes it due at once, with attempt one, whatever the attempt was."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    await bench.scheduler.wake_at(await bench.take(workflow), await bench.scheduler.now(), attempt=6, lapses=2)
    delivery = await bench.take(workflow)
    await bench.scheduler.make_ready(workflow)
    await bench.scheduler.done(delivery)
    again = await bench.take(workflow)
    same((again.attempt, again.lapses), (1, 0), "attempt and lapses of a wakeup that came before done")


@shows("SCH-DONE-STALE", short=True)
async def done_with_a_stale_receipt_changes_nothing(bench: Bench) -> None:
    """The taker still has its delivery, and the next wakeup is not lost."""
    old, new = await stale(bench, bench.workflow())
    await answers(bench.scheduler.done(old), "done with a stale receipt")
    await untouched(bench, new, "done")


@shows("SCH-DONE-CANCELLED", short=True)
async def done_reinstates_nothing(bench: Bench) -> None:
    """A workflow cancelled since is not given out, though a wakeup had come before the cancel."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    await bench.scheduler.make_ready(workflow)
    await bench.scheduler.cancel(workflow)
    await answers(bench.scheduler.done(delivery), "done of a cancelled workflow")
    await bench.nothing_ready("it was cancelled since its delivery was taken")
    await lapse(bench)
    await bench.nothing_ready("it was cancelled, and the lease is over")


@shows("SCH-BURY-KEEPS", short=True)
async def it_is_set_aside_with_its_reason(bench: Bench) -> None:
    """Not given out, not after the lease either; the reason is there, for another instance too; others have none."""
    workflow, other = bench.workflow(), await bench.open()
    await bench.scheduler.make_ready(workflow)
    reason = "ValueError: \u00e9 " + "x" * 3_900
    await answers(bench.scheduler.bury(await bench.take(workflow), reason), "bury")
    await bench.nothing_ready("it is buried")
    await lapse(bench)
    await bench.nothing_ready("it is buried, and the lease is over")
    for store in (bench, other):
        same(await store.scheduler.buried(workflow), reason, "the reason why it is buried")
    same(await bench.scheduler.buried(bench.workflow()), None, "the reason of a workflow that is not buried")


@shows("SCH-BURY-KEEPS")
async def a_wakeup_that_arrived_waits_with_it(bench: Bench) -> None:
    """Buried with a newer wakeup it is not given out, and it is not lost: it can be revived."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    await bench.scheduler.make_ready(workflow)
    await bench.scheduler.bury(delivery, "reason")
    await bench.nothing_ready("it is buried, with a wakeup that came before")
    same(await bench.scheduler.buried(workflow), "reason", "the reason why it is buried")
    await bench.scheduler.make_ready(workflow, revive=True)
    await bench.scheduler.done(await bench.take(workflow))
    await bench.nothing_ready("it was revived once")


@shows("SCH-BURY-CANCELLED", short=True)
async def bury_reinstates_nothing(bench: Bench) -> None:
    """A workflow cancelled since is neither buried nor given out."""
    workflow = bench.workflow()
    await bench.scheduler.make_ready(workflow)
    delivery = await bench.take(workflow)
    await bench.scheduler.cancel(workflow)
    await answers(bench.scheduler.bury(delivery, "reason"), "bury of a cancelled workflow")
    same(await bench.scheduler.buried(workflow), None, "the reason of a cancelled workflow")
    await lapse(bench)
    await bench.nothing_ready("it was cancelled")


@shows("SCH-BURY-STALE", short=True)
async def bury_with_a_stale_receipt_changes_nothing(bench: Bench) -> None:
    """The taker still has its delivery, and nothing is buried."""
    old, new = await stale(bench, bench.workflow())
    await answers(bench.scheduler.bury(old, "stale"), "bury with a stale receipt")
    same(await bench.scheduler.buried(new.workflow), None, "the reason, after bury with a stale receipt")
    await untouched(bench, new, "bury")


@shows("SCH-CANCEL-ALL", short=True)
async def every_wakeup_goes(bench: Bench) -> None:
    """Ready, asleep, taken or buried: after cancel it is not given out, and is not buried; others are untouched."""
    kinds = {hint: bench.workflow(hint) for hint in ("asleep", "taken", "buried", "ready")}
    for hint in ("asleep", "taken", "buried"):
        await bench.scheduler.make_ready(kinds[hint])
        delivery = await bench.take(kinds[hint])
        if hint == "asleep":
            await bench.scheduler.wake_at(delivery, await bench.scheduler.now() + bench.window / 2)
        elif hint == "buried":
            await bench.scheduler.bury(delivery, "reason")
    await bench.scheduler.make_ready(kinds["ready"])
    other = bench.workflow("other")
    await bench.scheduler.make_ready(other)
    for hint, workflow in kinds.items():
        await answers(bench.scheduler.cancel(workflow), f"cancel of a workflow that is {hint}")
    same(await bench.scheduler.buried(kinds["buried"]), None, "the reason of a cancelled workflow")
    await bench.scheduler.done(await bench.take(other))
    await bench.nothing_ready("the others are cancelled")
    await lapse(bench)
    await bench.nothing_ready("the others are cancelled, and every time and lease is over")


@shows("SCH-CANCEL-ALL")
async def and_a_new_wakeup_is_a_first(bench: Bench) -> None:
    """What is made ready after a cancel runs, with attempt one, at once; an unknown id is cancelled in silence."""
    workflow = bench.workflow()
    await answers(bench.scheduler.cancel(workflow), "cancel of an unknown id")
    await bench.scheduler.make_ready(workflow)
    await bench.scheduler.wake_at(await bench.take(workflow), await bench.scheduler.now() + LONG, attempt=8, lapses=3)
    await bench.scheduler.cancel(workflow)
    await bench.scheduler.make_ready(workflow)
    again = await bench.take(workflow)
    same((again.attempt, again.lapses), (1, 0), "attempt and lapses of a new wakeup")


@shows("SCH-QUEUE-NAMED", "queues")
async def queues_do_not_see_each_other(bench: Bench) -> None:
    """A wakeup is given out in its own queue; cancel, bury and a delivery in one leave the other's."""
    other = await bench.open(queue=f"{bench.at.queue}-other")
    both, mine = bench.workflow("both"), bench.workflow("mine")
    await bench.scheduler.make_ready(mine)
    await bench.nothing_ready("it was made ready in another queue", by=other.scheduler)
    await bench.scheduler.done(await bench.take(mine))
    for store in (bench, other):
        await store.scheduler.make_ready(both)
    await bench.scheduler.cancel(both)
    await bench.nothing_ready("it was cancelled in this queue")
    await other.scheduler.bury(await bench.take(both, by=other.scheduler), "reason")
    same(await bench.scheduler.buried(both), None, "the reason in the queue where it is not buried")
    same(await other.scheduler.buried(both), "reason", "the reason in the queue where it is buried")
