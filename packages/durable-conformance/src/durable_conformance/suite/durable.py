"""The transitions of a durable: what a client does, and what a worker does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta

from durable_conformance.bench import LONG, NOW, Bench
from durable_conformance.case import shows
from durable_conformance.expect import answers, fenced, holds, raises, same
from durable_conformance.suite._common import co_commits, free, held, splits, together, unchanged, unencodable
from durable_core.contract import Durable, Entry, Failed, Finished, Recorded, Turn
from durable_core.errors import NotEncodable, ReservedKey

SECOND = timedelta(seconds=1)


async def lapse(bench: Bench) -> None:
    """Let a lease run out."""
    await bench.elapse(bench.scheduler.lease)


async def started(bench: Bench, hint: str = "w") -> str:
    """Start a workflow, and give its id."""
    workflow = bench.workflow(hint)
    await bench.durable.arrive(workflow, "input", 1)
    return workflow


async def begun(bench: Bench) -> Turn:
    """Start a workflow and begin a turn of it."""
    return await bench.turn(await started(bench))


async def superseded(bench: Bench) -> tuple[Turn, Turn]:
    """Give a turn that lapsed and was taken over, and the one that took over."""
    old = await begun(bench)
    await lapse(bench)
    return old, await bench.turn(old.holder.workflow)


# --------------------------------------------------------------------------------------------------------- client half


@shows("DUR-ARRIVE")
async def it_supplies_and_wakes(bench: Bench) -> None:
    """The value is recorded, first writer wins, and the workflow runs."""
    workflow = bench.workflow()
    same(await answers(bench.durable.arrive(workflow, "k", (1, 2)), "arrive"), Recorded([1, 2], True), "what arrive gives")
    turn = await bench.turn(workflow)
    same(dict(turn.records or await bench.checkpointer.load(workflow)), {"k": [1, 2]}, "the records of the turn")
    await bench.durable.pause(turn, None)
    same(await bench.durable.arrive(workflow, "k", "other"), Recorded([1, 2], False), "what arrive of a taken key gives")


@shows("DUR-ARRIVE")
async def it_wakes_also_when_it_was_not_first(bench: Bench) -> None:
    """A second arrive of a key leaves the workflow runnable: who asks again heals a wakeup that was lost."""
    workflow = bench.workflow()
    await bench.durable.arrive(workflow, "k", 1)
    await bench.scheduler.cancel(workflow)
    for value in (2, 1):
        await bench.durable.arrive(workflow, "k", value)
        await bench.durable.pause(await bench.turn(workflow), None)
    await bench.no_turn("every arrive had its turn")


@shows("DUR-ARRIVE")
async def what_is_refused_wakes_nobody(bench: Bench) -> None:
    """A reserved key is ReservedKey, and what the codec refuses NotEncodable; neither is recorded or wakes."""
    workflow = bench.workflow()
    for key in ("inbox:00000000000000000001", "until:k", "start:k", "failed:k", "outcome:"):
        await raises(bench.durable.arrive(workflow, key, 1), ReservedKey, f"arrive under {key!r}")
    await raises(bench.durable.arrive(workflow, "k", unencodable(bench)), NotEncodable, "arrive of what the codec refuses")
    same(await bench.checkpointer.load(workflow), {}, "load after refused arrives")
    await bench.no_turn("every arrive was refused")


@shows("DUR-DELIVER")
async def it_appends_and_wakes(bench: Bench) -> None:
    """Each message is an entry, and the workflow runs; also one that is asleep."""
    workflow = bench.workflow()
    first = await answers(bench.durable.deliver(workflow, {"m": 1}), "deliver")
    same(first.value, {"m": 1}, "the value of the entry")
    turn = await bench.turn(workflow)
    await bench.durable.pause(turn, await bench.scheduler.now() + LONG)
    second = await bench.durable.deliver(workflow, 2)
    turn = await bench.turn(workflow)
    same(await bench.checkpointer.load(workflow), {first.key: {"m": 1}, second.key: 2}, "load")
    await bench.durable.pause(turn, None)
    await bench.no_turn("both messages had their turn")


@shows("DUR-DELIVER")
async def once_goes_through(bench: Bench) -> None:
    """A repeat with the same id adds nothing, gives the first entry, and wakes all the same."""
    workflow = bench.workflow()
    first = await bench.durable.deliver(workflow, "first", once="id")
    await bench.durable.pause(await bench.turn(workflow), None)
    again = await answers(bench.durable.deliver(workflow, "again", once="id"), "a repeated deliver with once")
    same(again, Entry(first.key, "first"), "what a repeated deliver with once gives")
    await bench.durable.pause(await bench.turn(workflow), None)
    same(len(await bench.checkpointer.load(workflow)), 1, "how many entries there are")


@shows("DUR-DELETE", short=True)
async def it_cancels_and_discards(bench: Bench) -> None:
    """Ready, asleep, running or buried: the records are gone and counted, and it does not run again."""
    for state in ("ready", "asleep", "running", "buried"):
        workflow = await started(bench, state)
        await bench.durable.deliver(workflow, 1)
        if state != "ready":
            turn = await bench.turn(workflow)
            if state == "asleep":
                await bench.durable.pause(turn, await bench.scheduler.now() + bench.window / 2)
            elif state == "buried":
                await bench.durable.fail(turn, "broken", None)
        same(await answers(bench.durable.delete(workflow), f"delete of a workflow that is {state}"), 2, "what it removes")
        same(await bench.checkpointer.load(workflow), {}, "load after delete")
        same(await bench.durable.result(workflow), None, "result after delete")
        await bench.no_turn(f"it was deleted while {state}")
    await lapse(bench)
    await bench.no_turn("all were deleted, and every lease is over")
    same(await answers(bench.durable.delete(bench.workflow()), "delete of an unknown id"), 0, "what it removes")


@shows("DUR-DELETE", short=True)
async def a_new_life_sees_nothing_of_the_old(bench: Bench) -> None:
    """The pass of the old life is fenced and answers for nothing; the new one starts with its own records, at attempt one."""
    workflow = await started(bench)
    await bench.durable.fail(await bench.turn(workflow), "once", SECOND / 100)
    await bench.elapse(SECOND / 50)
    old = await bench.turn(workflow)
    await bench.checkpointer.record(old.holder, "k", "old")
    await bench.durable.delete(workflow)
    await bench.durable.arrive(workflow, "input", "new")
    await answers(bench.durable.pause(old, await bench.scheduler.now() + LONG), "pause by the turn of the old life")
    await fenced(bench.durable.finish(old, "old"), "finish by the turn of the old life")
    await fenced(bench.checkpointer.record(old.holder, "k", "old"), "record by the pass of the old life")
    new = await bench.turn(workflow)
    same(new.delivery.attempt, 1, "the attempt of the new life")
    same(await bench.checkpointer.load(workflow), {"input": "new"}, "load in the new life")


# --------------------------------------------------------------------------------------------------------------- begin


@shows("DUR-BEGIN")
async def it_takes_claims_and_loads(bench: Bench) -> None:
    """A turn has a pass that writes, a delivery that nobody else gets, and the records."""
    workflow = await started(bench)
    turn = await bench.turn(workflow)
    same((turn.delivery.workflow, turn.delivery.attempt, turn.delivery.lapses), (workflow, 1, 0), "workflow, attempt and lapses")
    same(dict(turn.records or await bench.checkpointer.load(workflow)), {"input": 1}, "the records of the turn")
    same(
        await answers(bench.checkpointer.record(turn.holder, "k", 1), "a record by the turn's pass"),
        Recorded(1, True),
        "what it gets",
    )
    await held(bench, workflow, "a turn is out")
    await bench.no_turn("the one turn is out")
    await bench.nothing_ready("the one delivery is out")


@shows("DUR-BEGIN")
async def up_to_the_limit_and_each_once(bench: Bench) -> None:
    """With a limit of four, seven that are ready come as at most four, then the rest, each once, the longest due first."""
    workflows = [await started(bench) for _ in range(7)]
    seen: list[str] = []
    while len(seen) < 7:
        turns = await answers(bench.durable.begin(NOW, LONG, limit=4), "begin with a limit of four")
        holds(1 <= len(turns) <= 4, "between one and four turns", turns)
        seen += [turn.holder.workflow for turn in turns]
    same(sorted(seen), sorted(workflows), "the workflows of the turns")
    same(list(await bench.durable.begin(NOW, LONG, limit=4)), [], "begin when all are out")


@shows("DUR-BEGIN", short=True)
async def it_claims_with_the_lease_and_the_budget(bench: Bench) -> None:
    """Without a renewal the turn is over with the scheduler's lease; and it is over with its budget."""
    workflow = await started(bench)
    await bench.turn(workflow)
    await lapse(bench)
    await free(bench, workflow, "the lease is over")
    short = await started(bench)
    turn = await bench.turn(short, budget=bench.window / 2)
    await bench.checkpointer.renew(turn.holder, LONG)
    await bench.elapse(bench.window / 2)
    await free(bench, short, "the budget is over")


@shows("DUR-BEGIN", real=True)
async def it_sleeps_until_something_is_due(bench: Bench) -> None:
    """It ends its wait when something is made ready, and by itself when a sleeper is due; with nothing due it gives nothing."""
    same(
        list(await answers(bench.durable.begin(timedelta(milliseconds=40), LONG), "begin with nothing ready")),
        [],
        "what it gives",
    )
    waiting = asyncio.create_task(_begin(bench.durable))
    await asyncio.sleep(0.03)
    holds(not waiting.done(), "begin waits while nothing is ready", waiting)
    workflow = await started(bench)
    turn = await answers(waiting, "begin, when something was made ready during its wait")
    same(turn.holder.workflow, workflow, "the workflow of the turn")
    await bench.durable.pause(turn, await bench.scheduler.now() + timedelta(milliseconds=80))
    again = await answers(_begin(bench.durable), "begin, with a sleeper due during its wait")
    same(again.holder.workflow, workflow, "the workflow of the turn")


async def _begin(durable: Durable[object]) -> Turn:
    while True:
        for turn in await durable.begin(LONG, LONG):
            return turn
        await asyncio.sleep(0.001)  # a store that does not wait would keep everybody else from their turn


@shows("DUR-BEGIN", short=True)
async def a_finished_workflow_gets_no_turn(bench: Bench) -> None:
    """Its wakeup is answered for: it is not given out, not after the lease either, and the next one is begun instead."""
    turn = await begun(bench)
    await bench.durable.finish(turn, "done")
    for _ in range(2):
        await bench.durable.arrive(turn.holder.workflow, "late", 1)
        await bench.no_turn("the workflow is finished")
        await bench.nothing_ready("the wakeup of a finished workflow was answered for")
    await lapse(bench)
    await bench.no_turn("the workflow is finished, and the lease is over")


@shows("DUR-BEGIN", short=True)
async def a_held_workflow_comes_back_uncounted(bench: Bench) -> None:
    """While its claim is held it gets no turn; when the claim is released, or lapses, it does, with its counts unchanged."""
    for ending in ("released", "lapsed"):
        workflow = bench.workflow(ending)
        window = LONG if ending == "released" else bench.window
        await bench.scheduler.make_ready(workflow)
        holder = await bench.claim(workflow, LONG, window)
        if ending == "released":
            await bench.no_turn("its claim is held")
            await bench.checkpointer.release(holder)
        else:
            await bench.durable.begin(NOW, LONG)
            await bench.elapse(window)
        if splits(bench.description):
            await lapse(bench)
        turn = await bench.turn(workflow)
        same((turn.delivery.attempt, turn.delivery.lapses), (1, 0), f"attempt and lapses of a workflow whose claim was {ending}")
        await bench.durable.pause(turn, None)


@shows("DUR-BEGIN", real=True, short=True)
async def and_the_release_wakes_it(bench: Bench) -> None:
    """A begin that waits gets it when the claim is released, or when it lapses, at the latest (split: after one lease)."""
    for ending in ("released", "lapsed"):
        workflow = bench.workflow(ending)
        await bench.scheduler.make_ready(workflow)
        holder = await bench.claim(workflow, LONG, LONG if ending == "released" else bench.window)
        waiting = asyncio.create_task(_begin(bench.durable))
        await asyncio.sleep(0.03)
        if ending == "released":
            await bench.checkpointer.release(holder)
        turn = await answers(waiting, f"begin of a workflow whose claim was {ending}")
        same((turn.holder.workflow, turn.delivery.attempt), (workflow, 1), "workflow and attempt of the turn")
        await bench.durable.pause(turn, None)


@shows("DUR-BEGIN", "meter", real=True, when=co_commits)
async def it_does_not_poll_for_a_held_claim(bench: Bench) -> None:
    """While the one that is due is held, begin asks seldom."""
    workflow, poll = bench.workflow(), bench.description.poll.total_seconds()
    await bench.scheduler.make_ready(workflow)
    await bench.claim(workflow)
    allowed = 8 + (0.5 / poll if poll else 4)
    async with bench.harness.meter(bench.at, bench.durable) as meter:
        await bench.durable.begin(SECOND / 2, LONG)
        asked = meter.asked
    holds(asked <= allowed, f"at most {allowed:g} requests in half a second, with a poll interval of {poll:g} s", asked)


@shows("DUR-BEGIN-FRESH", short=True)
async def it_loads_what_was_committed_before_the_claim(bench: Bench) -> None:
    """However a begin and the last records of the pass before it fall together, the turn has every record."""
    other = await bench.open()
    for number in range(8 if splits(bench.description) else 25):
        workflow = bench.workflow()
        await bench.scheduler.make_ready(workflow)
        holder = await bench.claim(workflow)
        waiting = asyncio.create_task(_given(other, bench))
        for key in range(number % 5):
            await bench.checkpointer.record(holder, f"k{key}", key)
        await bench.checkpointer.release(holder)
        if splits(bench.description):
            await lapse(bench)
        turn = await answers(waiting, "begin beside the pass before it")
        records = turn.records if turn.records is not None else await bench.checkpointer.load(workflow)
        same(dict(records), {f"k{key}": key for key in range(number % 5)}, "the records of the turn")
        await other.pause(turn, None)


async def _given(durable: Durable[object], bench: Bench) -> Turn:
    """Begin until there is a turn, whatever moves the clock."""
    while True:
        for turn in await durable.begin(NOW, LONG):
            return turn
        await asyncio.sleep(0 if bench.manual else 0.001)


# ------------------------------------------------------------------------------------------------------ renew and ends


@shows("DUR-KEEP", short=True)
async def it_renews_both(bench: Bench) -> None:
    """Renewed every half lease, neither the claim nor the delivery is lost; when it ends both are, within a lease."""
    for window in bench.windows():
        store = await bench.open(lease=window)
        workflow = await started(bench)
        (turn,) = await answers(store.begin(NOW, LONG), "begin")
        for _ in range(5):
            watch = bench.stopwatch()
            kept = await answers(store.renew(turn), "renew")
            if kept is None or watch() >= window:
                break
            turn = kept
            await bench.elapse(window / 2)
            rival, delivery = await bench.checkpointer.claim(workflow, LONG, window), await bench.scheduler.next_ready(NOW)
            if watch() >= window:
                break
            same((rival, delivery), (None, None), "a rival's claim and delivery, half a lease after a renewal")
        else:
            await bench.elapse(window)
            (again,) = await answers(store.begin(LONG, LONG), "begin when the renewals have ended")
            same((again.delivery.attempt, again.delivery.lapses), (2, 1), "attempt and lapses when the renewals ended")
            return
        holds(bench.manual is False, "renew of a turn that is current gives a turn", "None")
        await bench.durable.delete(workflow)


@shows("DUR-KEEP", short=True)
async def a_lost_claim_leaves_the_delivery(bench: Bench) -> None:
    """None where the claim is lost or released; the delivery then lapses when it would have, and nothing of the rival's moves."""
    old = await begun(bench)
    await bench.checkpointer.discard(old.holder.workflow)
    await bench.elapse(bench.scheduler.lease / 2)
    same(await answers(bench.durable.renew(old), "renew of a turn whose claim is lost"), None, "what it gives")
    await bench.elapse(bench.scheduler.lease / 2)
    new = await bench.turn(old.holder.workflow)
    same(new.delivery.lapses, 1, "the lapses of a delivery whose turn had lost its claim")
    same(await answers(bench.durable.renew(old), "renew of a turn that was taken over"), None, "what it gives")
    await bench.checkpointer.release(new.holder)
    same(await answers(bench.durable.renew(new), "renew of a turn whose claim was released"), None, "what it gives")


@shows("DUR-FINISH", short=True)
async def it_records_releases_and_answers(bench: Bench) -> None:
    """The outcome is recorded under `outcome:`, the claim is free, and the workflow does not run again."""
    for value in (("a", 1), None):
        turn = await begun(bench)
        workflow = turn.holder.workflow
        crossed = bench.checkpointer.roundtrip(value)
        same(await answers(bench.durable.finish(turn, value), "finish"), Recorded(crossed, True), "what finish gives")
        same((await bench.checkpointer.load(workflow)).get("outcome:", "nothing"), crossed, "what is recorded under outcome:")
        same(await bench.durable.result(workflow), Finished(crossed), "result")
        await bench.no_turn("it is finished")
        await free(bench, workflow, "it is finished")
        await lapse(bench)
        await bench.no_turn("it is finished, and the lease is over")


@shows("DUR-FINISH")
async def what_cannot_be_stored_changes_nothing(bench: Bench) -> None:
    """A value that the codec refuses leaves the turn as it was: held, out, and able to end otherwise."""
    turn, wrong = await begun(bench), unencodable(bench)
    async with unchanged(bench, turn.holder.workflow, "a refused finish"):
        refused = await raises(bench.durable.finish(turn, wrong), NotEncodable, "finish with what the codec refuses")
    same((refused.workflow, refused.key), (turn.holder.workflow, "outcome:"), "the workflow and the key that the error names")
    await held(bench, turn.holder.workflow, "finish was refused")
    same(
        await answers(bench.checkpointer.record(turn.holder, "k", 1), "a record after a refused finish"),
        Recorded(1, True),
        "what it gets",
    )
    same((await answers(bench.durable.finish(turn, "right"), "finish")).first, True, "`first` of the second finish")


@shows("DUR-FINISH")
async def a_newer_wakeup_runs_nothing_more(bench: Bench) -> None:
    """What arrived while it ran does not run a finished workflow again."""
    turn = await begun(bench)
    await bench.durable.deliver(turn.holder.workflow, "late")
    await bench.durable.finish(turn, "done")
    await bench.no_turn("it is finished, though a message came before")


@shows("DUR-PAUSE", short=True)
async def it_releases_and_answers(bench: Bench) -> None:
    """Without a due time the workflow is free and does not run until something wakes it, then at attempt one."""
    workflow = await started(bench)
    await bench.durable.fail(await bench.turn(workflow), "once", SECOND / 100)
    await bench.elapse(SECOND / 50)
    await answers(bench.durable.pause(await bench.turn(workflow), None), "pause")
    await bench.no_turn("it is paused without a due time")
    await bench.checkpointer.release(await free(bench, workflow, "it is paused"))
    await lapse(bench)
    await bench.no_turn("it is paused without a due time, and the lease is over")
    await bench.durable.arrive(workflow, "k", 1)
    same((await bench.turn(workflow)).delivery.attempt, 1, "the attempt after a pause")


@shows("DUR-PAUSE", short=True)
async def it_wakes_when_it_is_due(bench: Bench) -> None:
    """With a due time it runs then and not before, and no later for being released; a newer wakeup runs it at once."""
    turn = await begun(bench)
    due = await bench.scheduler.now() + bench.window
    await bench.durable.pause(turn, due)
    given = await bench.durable.begin(NOW, LONG)
    holds(not given or await bench.scheduler.now() >= due, f"no turn before {due}", given)
    if not given:
        await bench.checkpointer.release(await free(bench, turn.holder.workflow, "it is paused"))
        await bench.elapse(bench.window)
        given = [await bench.turn(turn.holder.workflow)]
    same((given[0].delivery.attempt, given[0].delivery.lapses), (1, 0), "attempt and lapses of a sleeper")
    await bench.durable.arrive(turn.holder.workflow, "k", 1)
    await bench.durable.pause(given[0], await bench.scheduler.now() + LONG)
    await bench.turn(turn.holder.workflow)


@shows("DUR-FAIL", short=True)
async def it_comes_back_with_the_attempt_one_higher(bench: Bench) -> None:
    """Released, not before the delay, then with attempt two, three and no lapses."""
    turn = await begun(bench)
    for attempt in (2, 3):
        again_in = bench.window
        watch = bench.stopwatch()
        await answers(bench.durable.fail(turn, "broken", again_in), "fail")
        given = await bench.durable.begin(NOW, LONG)
        holds(not given or watch() >= again_in, f"no turn before {again_in} is over", given)
        same(await bench.durable.result(turn.holder.workflow), None, "result of a workflow that is tried again")
        if not given:
            await bench.checkpointer.release(await free(bench, turn.holder.workflow, "its pass failed"))
            await bench.elapse(again_in)
            given = [await bench.turn(turn.holder.workflow)]
        turn = given[0]
        same((turn.delivery.attempt, turn.delivery.lapses), (attempt, 0), "attempt and lapses after a failure")


@shows("DUR-FAIL")
async def without_a_delay_it_is_buried(bench: Bench) -> None:
    """Released, set aside with the reason, which `result` and `buried` give; it runs again only when revived."""
    turn = await begun(bench)
    workflow = turn.holder.workflow
    await answers(bench.durable.fail(turn, "hopeless: \u00e9", None), "fail without a delay")
    same(await bench.durable.result(workflow), Failed("hopeless: \u00e9"), "result")
    same(await bench.scheduler.buried(workflow), "hopeless: \u00e9", "buried")
    await bench.durable.arrive(workflow, "k", 1)
    await bench.no_turn("it is buried")
    await bench.checkpointer.release(await free(bench, workflow, "it is buried"))
    await bench.scheduler.make_ready(workflow, revive=True)
    same((await bench.turn(workflow)).delivery.attempt, 1, "the attempt of a revived workflow")
    same(await bench.durable.result(workflow), None, "result of a revived workflow")


@shows("DUR-HAND-BACK", short=True)
async def nothing_is_counted(bench: Bench) -> None:
    """Released, and given out after the delay with the same attempt and lapses; at once where the delay is zero."""
    workflow = await started(bench)
    await bench.scheduler.wake_at(await bench.take(workflow), await bench.scheduler.now(), attempt=5, lapses=2)
    turn = await bench.turn(workflow)
    for again_in in (NOW, bench.window):
        watch = bench.stopwatch()
        await answers(bench.durable.hand_back(turn, again_in), "hand_back")
        given = await bench.durable.begin(NOW, LONG)
        holds(not given or watch() >= again_in, f"no turn before {again_in} is over", given)
        if not given:
            await bench.checkpointer.release(await free(bench, workflow, "it was handed back"))
            if again_in:
                await bench.elapse(again_in)
            given = [await bench.turn(workflow)]
        turn = given[0]
        same((turn.delivery.attempt, turn.delivery.lapses), (5, 2), "attempt and lapses of what was handed back")


@shows("DUR-HAND-BACK")
async def also_when_the_claim_was_lost(bench: Bench) -> None:
    """A turn whose claim is gone answers for its delivery all the same, at once and uncounted."""
    turn = await begun(bench)
    await bench.checkpointer.discard(turn.holder.workflow)
    await bench.durable.hand_back(turn, NOW)
    again = await bench.turn(turn.holder.workflow)
    same((again.delivery.attempt, again.delivery.lapses), (1, 0), "attempt and lapses of what was handed back")


# --------------------------------------------------------------------------------------------------------- TURN-FENCED


@shows("DUR-TURN-FENCED", short=True)
async def finish_by_a_superseded_pass_changes_neither_half(bench: Bench) -> None:
    """It is Fenced, nothing is recorded, and the rival still has claim and delivery."""
    old, new = await superseded(bench)
    workflow = new.holder.workflow
    async with unchanged(bench, workflow, "a fenced finish"):
        await fenced(bench.durable.finish(old, "old"), "finish by a superseded pass")
    same(await bench.durable.result(workflow), None, "result after a fenced finish")
    await held(bench, workflow, "the rival's turn is out")
    await bench.nothing_ready("the rival's delivery is out")
    await lapse(bench)
    third = await bench.turn(workflow)
    same(third.delivery.lapses, new.delivery.lapses + 1, "the lapses when the rival's delivery lapsed in its turn")
    same((await answers(bench.durable.finish(third, "new"), "finish by the third")).value, "new", "what the third's finish gives")


@shows("DUR-TURN-FENCED", short=True)
async def the_other_ends_change_nothing_of_the_rivals(bench: Bench) -> None:
    """pause, fail and hand_back by a superseded pass raise nothing, release nothing and answer nothing."""
    ends: dict[str, Callable[[Turn], Coroutine[object, object, None]]] = {
        "pause": lambda turn: bench.durable.pause(turn, None),
        "fail": lambda turn: bench.durable.fail(turn, "stale", SECOND),
        "bury": lambda turn: bench.durable.fail(turn, "stale", None),
        "hand_back": lambda turn: bench.durable.hand_back(turn, NOW),
    }
    for name, end in ends.items():
        old, new = await superseded(bench)
        await answers(end(old), f"{name} by a superseded pass")
        await held(bench, new.holder.workflow, f"{name} by a superseded pass")
        await bench.nothing_ready(f"{name} by a superseded pass")
        same(await bench.durable.result(new.holder.workflow), None, f"result after {name} by a superseded pass")
        holds(
            await bench.durable.renew(new) is not None, f"the rival's turn is renewed after {name} by a superseded pass", "None"
        )
        await bench.durable.delete(new.holder.workflow)


@shows("DUR-TURN-FENCED", short=True)
async def they_answer_while_the_receipt_is_current(bench: Bench) -> None:
    """Where only the claim was lost, the end releases nothing and answers for the delivery."""
    turn = await begun(bench)
    workflow = turn.holder.workflow
    await bench.checkpointer.discard(workflow)
    rival = await bench.claim(workflow)
    await answers(bench.durable.pause(turn, None), "pause by a pass whose claim was lost")
    await held(bench, workflow, "the rival's claim")
    await lapse(bench)
    await bench.checkpointer.release(rival)
    await bench.no_turn("its delivery was answered for")


@shows("DUR-TURN-FENCED")
async def a_repeated_finish_is_not_fenced(bench: Bench) -> None:
    """Repeated after it landed, finish gives the stored outcome; with another value it is told that it was not first."""
    turn = await begun(bench)
    await bench.durable.finish(turn, "done")
    for _ in range(2):
        same(
            await answers(bench.durable.finish(turn, "done"), "a repeated finish"),
            Recorded("done", True),
            "what a repeated finish gives",
        )
    same(
        await answers(bench.durable.finish(turn, "other"), "a finish with another value"),
        Recorded("done", False),
        "what it gives",
    )


@shows("DUR-TURN-FENCED")
async def a_finish_after_another_end_is(bench: Bench) -> None:
    """After pause, fail or hand_back of the same turn finish is Fenced and records nothing."""
    for name in ("pause", "fail", "bury", "hand_back"):
        turn = await begun(bench)
        if name == "pause":
            await bench.durable.pause(turn, None)
        elif name == "hand_back":
            await bench.durable.hand_back(turn, LONG)
        else:
            await bench.durable.fail(turn, "broken", LONG if name == "fail" else None)
        await fenced(bench.durable.finish(turn, "late"), f"finish after {name} of the same turn")
        same(
            "outcome:" in await bench.checkpointer.load(turn.holder.workflow),
            False,
            f"whether an outcome is recorded after {name}",
        )


# -------------------------------------------------------------------------------------------------------------- result


@shows("DUR-RESULT")
async def it_says_how_the_workflow_ended(bench: Bench) -> None:
    """None while it has not, Finished also of None, Failed when it is buried; for any instance."""
    other, workflow = await bench.open(), await started(bench)
    for store in (bench.durable, other):
        same(await store.result(workflow), None, "result of a workflow that has not run")
        same(await store.result("nobody's"), None, "result of an unknown id")
    turn = await bench.turn(workflow)
    same(await bench.durable.result(workflow), None, "result of a workflow that runs")
    await bench.durable.finish(turn, None)
    buried = await begun(bench)
    await bench.durable.fail(buried, "reason", None)
    for store in (bench.durable, other):
        same(await store.result(workflow), Finished(None), "result of a workflow that finished with None")
        same(await store.result(buried.holder.workflow), Failed("reason"), "result of a buried workflow")


@shows("DUR-RESULT", real=True)
async def watch_returns_when_it_has_one(bench: Bench) -> None:
    """At once where there is a result, soon where one comes, by whichever instance, and after the wait where none does."""
    other = await bench.open()
    for ending in ("finish", "bury"):
        turn = await begun(bench)
        waiting = asyncio.create_task(other.watch(turn.holder.workflow, LONG))
        await asyncio.sleep(0.03)
        await (bench.durable.finish(turn, 1) if ending == "finish" else bench.durable.fail(turn, "reason", None))
        await answers(waiting, f"watch, when a {ending} came during its wait")
        await answers(other.watch(turn.holder.workflow, LONG), "watch of a workflow that has a result")
    await answers(other.watch(await started(bench), SECOND / 20), "watch whose wait is over")


@shows("DUR-RESULT", "meter", real=True)
async def and_does_not_spin(bench: Bench) -> None:
    """While nothing changes watch asks seldom."""
    workflow, poll = await started(bench), bench.description.poll.total_seconds()
    allowed = 20 + (0.4 / poll if poll else 4)
    async with bench.harness.meter(bench.at, bench.durable) as meter:
        await answers(bench.durable.watch(workflow, SECOND * 0.4), "watch")
        asked = meter.asked
    holds(asked <= allowed, f"at most {allowed:g} requests in 0.4 s, with a poll interval of {poll:g} s", asked)


# ----------------------------------------------------------------------------------------------------------- CO-COMMIT


async def cancelled_after(call: Coroutine[object, object, object], turns: int) -> None:
    """Begin a call, cancel it after so many turns of the loop, and wait for its end."""
    task = asyncio.create_task(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def still(bench: Bench) -> None:
    """Let what a cancelled call left at work come to its end."""
    for _ in range(20):
        await asyncio.sleep(0)
    if not bench.manual:
        await asyncio.sleep(0.05)


@shows("DUR-CO-COMMIT", when=co_commits)
async def a_cancelled_client_shows_both_or_neither(bench: Bench) -> None:
    """Wherever arrive, deliver or delete is cancelled, records and wakeup are there together or not at all."""
    for turns in range(10):
        for name in ("arrive", "deliver", "delete"):
            workflow = bench.workflow(name)
            if name == "delete":
                await bench.durable.arrive(workflow, "k", 1)
                await cancelled_after(bench.durable.delete(workflow), turns)
            elif name == "arrive":
                await cancelled_after(bench.durable.arrive(workflow, "k", 1), turns)
            else:
                await cancelled_after(bench.durable.deliver(workflow, 1), turns)
            await still(bench)
            recorded = bool(await bench.checkpointer.load(workflow))
            given = await bench.scheduler.next_ready(NOW)
            what = f"{name}, cancelled after {turns} turns of the loop"
            same((recorded, given is not None), (recorded, recorded), f"whether there are a record and a wakeup after {what}")
            if given is not None:
                await bench.scheduler.done(given)


@shows("DUR-CO-COMMIT", when=co_commits)
async def a_cancelled_worker_shows_both_or_neither(bench: Bench) -> None:
    """Wherever finish, pause, fail or hand_back is cancelled, the turn is over in both halves or in neither."""
    durable = await bench.open(lease=LONG)  # so that what is seen below is not a lapse
    for turns in range(10):
        for name in ("finish", "pause", "fail", "hand_back"):
            workflow = await started(bench)
            (turn,) = await durable.begin(LONG, LONG)
            calls: dict[str, Coroutine[object, object, object]] = {
                "finish": durable.finish(turn, 1),
                "pause": durable.pause(turn, None),
                "fail": durable.fail(turn, "reason", LONG),
                "hand_back": durable.hand_back(turn, LONG),
            }
            for other, call in calls.items():
                if other != name:
                    call.close()
            await cancelled_after(calls[name], turns)
            await still(bench)
            released = not await bench.checkpointer.renew(turn.holder, LONG)
            await bench.scheduler.make_ready(workflow)  # given out now only if the delivery is not out
            answered = await bench.scheduler.next_ready(NOW) is not None
            what = f"{name}, cancelled after {turns} turns of the loop"
            same(
                (released, answered),
                (released, released),
                f"whether the claim is released and the delivery answered after {what}",
            )
            if name == "finish":
                recorded = "outcome:" in await bench.checkpointer.load(workflow)
                same(recorded, released, f"whether an outcome is recorded after {what}")
            await bench.durable.delete(workflow)


@shows("DUR-CO-COMMIT", when=co_commits, short=True)
async def a_cancelled_begin_loses_nothing(bench: Bench) -> None:
    """Wherever begin is cancelled, the workflow is taken and claimed, or neither: it is begun again within a lease."""
    durable = await bench.open(lease=LONG)  # so that what is seen below is not a lapse
    for turns in range(10):
        workflow = await started(bench)
        await cancelled_after(durable.begin(NOW, LONG), turns)
        await still(bench)
        free_now = await bench.checkpointer.claim(workflow, LONG, LONG)
        given = await bench.scheduler.next_ready(NOW)
        what = f"a begin cancelled after {turns} turns of the loop"
        same(free_now is not None, given is not None, f"whether claim and delivery are free after {what}")
        await bench.durable.delete(workflow)


@shows("DUR-CO-COMMIT", "halves", when=co_commits)
async def halves_that_share_nothing_are_refused(bench: Bench) -> None:
    """Construction refuses a checkpointer and a scheduler on two connections."""
    async with bench.harness.mismatched(bench.at) as build:

        async def built() -> object:
            return build()

        await raises(built(), Exception, "a durable of two halves that do not share their connection")


@shows("DUR-CO-COMMIT", when=co_commits)
async def clients_and_workers_at_once_lose_nothing(bench: Bench) -> None:
    """While two workers take and finish what clients start, every workflow is finished once, with its own value."""
    other, workflows = await bench.open(), [bench.workflow() for _ in range(30)]
    finished: list[str] = []

    async def client(mine: list[str]) -> None:
        for workflow in mine:
            await bench.durable.arrive(workflow, "input", workflow)

    async def worker(durable: Durable[object]) -> None:
        while len(finished) < len(workflows):
            for turn in await durable.begin(NOW, LONG, limit=3):
                records = turn.records if turn.records is not None else await durable.checkpointer.load(turn.holder.workflow)
                await durable.finish(turn, records["input"])
                finished.append(turn.holder.workflow)
            await asyncio.sleep(0 if bench.manual else 0.001)

    await answers(
        together(client(workflows[::2]), client(workflows[1::2]), worker(bench.durable), worker(other)),
        "two clients and two workers at once",
        times=3,
    )
    same(sorted(finished), sorted(workflows), "the workflows that were finished, each once")
    for workflow in workflows:
        same(await bench.durable.result(workflow), Finished(workflow), f"result of {workflow!r}")
