"""What one process cannot show: a second one, one that is killed, one that is stopped, one whose clocks are wrong."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from durable_conformance.bench import LONG, NOW, Bench
from durable_conformance.case import shows
from durable_conformance.child import EffectOf
from durable_conformance.expect import Broken, answers, fenced, holds, same
from durable_conformance.processes import Died, Process
from durable_conformance.suite._common import co_commits, free, held, joins, survives_kill, together, transacts, undoes
from durable_core.contract import Finished, Pass, Recorded

HOUR = timedelta(hours=1)
TICK = timedelta(milliseconds=2)


async def killed_at_work(bench: Bench, process: Process, work: asyncio.Task[object]) -> None:
    """Kill a process at some moment of its work."""
    await asyncio.sleep(0.02 + bench.random.random() * 0.08)
    await process.kill()
    await asyncio.wait([work])
    failure = None if work.cancelled() else work.exception()
    if failure is not None and not isinstance(failure, Died):
        raise Broken("the work of a process that is killed ends with it", f"{type(failure).__name__}: {failure}")


# ------------------------------------------------------------------------------------------------------- checkpointer


@shows("CKP-LOAD-SHARED", "processes", real=True)
async def a_second_process_sees_the_same(bench: Bench) -> None:
    """What one process wrote another loads at once, with the same order and times, and goes on seeing what is written after."""
    other, workflow = await bench.process(), bench.workflow()
    for number in range(3):
        await bench.checkpointer.supply(workflow, f"z{3 - number}", (number, None))
        await other.checkpointer.supply(workflow, f"a{number}", "other")
        await other.checkpointer.append(workflow, number)
        mine = await bench.checkpointer.history(workflow)
        same(len(mine), 3 * number + 3, "how many records there are")
        holds(await other.checkpointer.history(workflow) == mine, f"history by the second process: {mine}", "another one")
        same(list(await other.checkpointer.load(workflow)), list(mine), "the keys of load by the second process")


@shows("CKP-RECORD-DURABLE", "processes", real=True, when=survives_kill)
async def it_outlives_the_process_that_wrote_it(bench: Bench) -> None:
    """Every record that was acknowledged before SIGKILL is there."""
    process, workflow, acknowledged = await bench.process(), bench.workflow(), list[str]()
    holder = await bench.claim(workflow, by=process.checkpointer)

    async def write() -> object:
        while True:
            key = f"k{len(acknowledged)}"
            await process.checkpointer.record(holder, key, key)
            acknowledged.append(key)

    await killed_at_work(bench, process, asyncio.create_task(write()))
    loaded = await bench.checkpointer.load(workflow)
    missing = [key for key in acknowledged if key not in loaded]
    holds(not missing, f"all {len(acknowledged)} acknowledged records are there after SIGKILL", f"{missing[-5:]} are missing")
    holds(len(loaded) <= len(acknowledged) + 1, "and at most one more, which was under way", len(loaded))


@shows("CKP-RECORD-DURABLE", "kill", real=True, when=survives_kill)
async def it_outlives_the_server(bench: Bench) -> None:
    """Every record that was acknowledged before the server's SIGKILL is there after it."""
    holder = await bench.claim(bench.workflow())
    for number in range(30):
        await bench.checkpointer.record(holder, f"k{number}", number)
    await bench.harness.kill(bench.at)
    await bench.reopen()
    same(
        len(await bench.checkpointer.load(holder.workflow)), 30, "how many of thirty acknowledged records are there after SIGKILL"
    )


@shows("CKP-SUPPLY-DURABLE", "processes", real=True, when=survives_kill)
async def a_supply_outlives_its_process(bench: Bench) -> None:
    """Every supply and entry that was acknowledged before SIGKILL is there."""
    process, workflow, acknowledged = await bench.process(), bench.workflow(), list[str]()

    async def write() -> object:
        while True:
            key = f"k{len(acknowledged)}"
            await process.checkpointer.supply(workflow, key, key)
            acknowledged.append(key)
            acknowledged.append((await process.checkpointer.append(workflow, key)).key)

    await killed_at_work(bench, process, asyncio.create_task(write()))
    loaded = await bench.checkpointer.load(workflow)
    missing = [key for key in acknowledged if key not in loaded]
    holds(not missing, f"all {len(acknowledged)} acknowledged writes are there after SIGKILL", f"{missing[-5:]} are missing")


@shows("CKP-CLAIM-ONE", "processes", real=True)
async def of_several_processes_one_is_granted(bench: Bench) -> None:
    """Claims at once, in this process and two others: one pass for each workflow."""
    stores = [bench.checkpointer]
    for _ in range(2):
        stores.append((await bench.process()).checkpointer)
    for _ in range(15):
        workflow = bench.workflow()
        given = await answers(
            together(*(store.claim(workflow, LONG, LONG) for store in stores * 2)), "six claims at once, in three processes"
        )
        same(sum(holder is not None for holder in given), 1, "how many of six claims in three processes are granted")


@shows("CKP-CLAIM-RISING", "processes", real=True, short=True)
async def tokens_rise_over_processes(bench: Bench) -> None:
    """In whichever process it is claimed, and after one was killed, the next token is larger."""
    one, other, workflow, last = await bench.process(), await bench.process(), bench.workflow(), -1
    for store in (one.checkpointer, other.checkpointer, bench.checkpointer, one.checkpointer, other.checkpointer):
        holder = await bench.claim(workflow, by=store)
        holds(holder.token > last, f"a token above {last}", holder)
        last = holder.token
        await store.release(holder)
    old = await bench.claim(workflow, LONG, bench.window, by=one.checkpointer)
    await one.kill()
    await bench.elapse(bench.window)
    new = await bench.claim(workflow)
    holds(new.token > old.token, f"a token above {old.token}, after its process was killed", new)


@shows("CKP-RECORD-FENCED", "processes", real=True, short=True)
async def a_process_stopped_past_its_lease_is_refused(bench: Bench) -> None:
    """A holder that stood still while another took over is fenced at every write, and changes nothing, when it goes on."""
    process, workflow = await bench.process(), bench.workflow()
    old = await bench.claim(workflow, LONG, bench.window, by=process.checkpointer)
    await process.checkpointer.record(old, "before", 1)
    process.freeze()
    writing = asyncio.create_task(_record(process, old))
    await bench.elapse(bench.window)
    new = await free(bench, workflow, "the holder's process stood still for a window")
    await bench.checkpointer.record(new, "a", "new")
    process.thaw()
    await fenced(writing, "a record that was sent before the stop and arrives after the next claim")
    await fenced(process.checkpointer.record(old, "b", "old"), "a record by the process that had stood still")
    same(await process.checkpointer.renew(old, LONG), False, "renew by the process that had stood still")
    await process.checkpointer.release(old)
    await held(bench, workflow, "a release by the process that had stood still")
    same(await bench.checkpointer.load(workflow), {"before": 1, "a": "new"}, "load")


async def _record(process: Process, holder: object) -> object:
    return await process.ask("checkpointer", "record", (holder, "a", "old"), {})


@shows("CKP-CLAIM-LAPSE", "processes", real=True, short=True)
async def a_killed_holder_is_followed_within_its_window(bench: Bench) -> None:
    """Its budget plays no part: after one window the workflow is free."""
    process, workflow = await bench.process(), bench.workflow()
    await bench.claim(workflow, LONG, bench.window, by=process.checkpointer)
    await process.kill()
    await bench.elapse(bench.window)
    await free(bench, workflow, "the holder's process was killed, and its window is over")


# ---------------------------------------------------------------------------------------------------------- whose clock


@shows("CKP-CLAIM-CLOCK", "clock", short=True)
async def time_that_passes_elsewhere_ends_nothing(bench: Bench) -> None:
    """With the store's clock standing still a claim does not lapse, and when the clock moves it does, at once."""
    holder = await bench.claim(bench.workflow(), LONG, timedelta(milliseconds=30))
    await asyncio.sleep(0.06)
    await held(bench, holder.workflow, "the store's clock stands still")
    await bench.elapse(timedelta(milliseconds=30))
    again = await free(bench, holder.workflow, "the store's clock has moved by the window")
    same(again.at - holder.at, timedelta(milliseconds=30), "the time between the two passes, by the store's clock")


@shows("CKP-CLAIM-CLOCK", "processes", "skew", real=True, short=True)
async def a_clients_wrong_clock_does_not_matter(bench: Bench) -> None:
    """A client an hour ahead takes over no live claim, and one an hour behind holds its own no longer than anybody."""
    for skew in (HOUR, -HOUR):
        process = await bench.process(skew=skew)
        mine = await bench.claim(bench.workflow(), LONG / 2, LONG / 2)
        given = await answers(process.checkpointer.claim(mine.workflow, LONG, LONG), "a claim by a client whose clock is wrong")
        same(given, None, f"a claim of a live workflow by a client whose clock is wrong by {skew}")
        before = await bench.scheduler.now()
        theirs = await bench.claim(bench.workflow(), LONG, bench.window, by=process.checkpointer)
        after = await bench.scheduler.now()
        holds(
            before - TICK <= theirs.at <= after + TICK,
            f"its pass begins by the store's clock, between {before} and {after}",
            theirs,
        )
        await bench.elapse(bench.window)
        await free(bench, theirs.workflow, f"the window of a client whose clock is wrong by {skew} is over")


@shows("CKP-CLAIM-CLOCK", "joined", real=True, short=True, when=joins)
async def it_is_read_when_the_decision_is_made(bench: Bench) -> None:
    """A claim that had to wait for another's commit begins, and is counted, from when it was granted."""
    workflow = bench.workflow()
    async with bench.harness.application(bench.at) as application:
        await application.client.arrive(workflow, "k", 1)
        claiming = asyncio.create_task(_claimed(bench, workflow))
        await asyncio.sleep(bench.window.total_seconds() * 1.2)
        waited, moment = not claiming.done(), await bench.scheduler.now()
        await application.commit()
    holder = await answers(claiming, "a claim beside an application's transaction")
    if waited:
        holds(isinstance(holder, Pass) and holder.at >= moment, f"a claim that waited until {moment} begins no earlier", holder)
        await held(bench, workflow, "a claim that waited longer than its window is live when it is granted")


async def _claimed(bench: Bench, workflow: str) -> object:
    return await bench.checkpointer.claim(workflow, LONG, bench.window)


@shows("CKP-HISTORY-TIME", "processes", "skew", real=True)
async def a_clients_wrong_clock_stamps_nothing(bench: Bench) -> None:
    """What a client whose clock is an hour ahead writes has the store's time."""
    process, workflow = await bench.process(skew=HOUR), bench.workflow()
    before = await bench.scheduler.now()
    await process.checkpointer.supply(workflow, "k", 1)
    after = await bench.scheduler.now()
    at = (await bench.checkpointer.history(workflow))["k"].at
    holds(before - TICK <= at <= after + TICK, f"a time between {before} and {after}", at)
    now = await process.scheduler.now()
    holds(after - TICK <= now <= after + HOUR / 2, "now() of that client is the store's clock", now)


@shows("SCH-WAKE-NOT-BEFORE", "processes", "skew", real=True)
async def a_clients_wrong_clock_wakes_nobody(bench: Bench) -> None:
    """A client whose clock is an hour ahead is given no sleeper that is due in half an hour."""
    process, workflow = await bench.process(skew=HOUR), bench.workflow()
    await bench.scheduler.make_ready(workflow)
    await bench.scheduler.wake_at(await bench.take(workflow), await bench.scheduler.now() + HOUR / 2)
    given = await answers(process.scheduler.next_ready(NOW), "next_ready by a client whose clock is wrong")
    same(given, None, "what a client whose clock is an hour ahead is given")


# -------------------------------------------------------------------------------------------------------------- effects


@shows("CKP-TRANSACT-ATOMIC", "processes", "effects", real=True, when=undoes, short=True)
async def a_process_killed_in_its_effect_leaves_nothing(bench: Bench) -> None:
    """Neither the effect nor a record is there, and the next pass runs it once."""
    process, workflow = await bench.process(), bench.workflow()
    old = await bench.claim(workflow, LONG, bench.window, by=process.checkpointer)
    dying = asyncio.create_task(_transact(process, old, "k", EffectOf("c", kills=True)))
    await asyncio.wait([dying], timeout=5)
    await process.kill()
    await asyncio.wait([dying])
    holds(dying.exception() is not None, "a transact whose process died in its effect gives no answer", dying)
    applied, loaded = await bench.effects.applied("c"), await bench.checkpointer.load(workflow)
    holds(applied == len(loaded), "as many effects as records after a process died in its effect", f"{applied} and {loaded}")
    await bench.elapse(bench.window)
    new = await free(bench, workflow, "the holder's process was killed")
    await answers(bench.checkpointer.transact(new, "k", bench.effects.add("c", "again")), "the next pass's transact")
    same(await bench.effects.applied("c"), 1, "how often the effect is applied in the end")


async def _transact(process: Process, holder: object, key: str, effect: EffectOf) -> object:
    return await process.ask("checkpointer", "transact", (holder, key, effect), {})


@shows("CKP-TRANSACT-ONCE", "processes", "effects", real=True, when=transacts, short=True)
async def it_is_applied_once_over_crashes(bench: Bench) -> None:
    """Processes that are killed at any moment of a run of effects, and a last one that is not: each is applied once."""
    workflow, keys = bench.workflow(), [f"k{number}" for number in range(40)]
    for _ in range(3):
        process = await bench.process()
        holder = await bench.claim(workflow, LONG, bench.window, by=process.checkpointer)

        async def work(process: Process = process, holder: object = holder) -> object:
            for key in keys:
                await _transact(process, holder, key, EffectOf(key))
            return None

        await killed_at_work(bench, process, asyncio.create_task(work()))
        await bench.elapse(bench.window)
    last = await bench.claim(workflow)
    for key in keys:
        same(
            await answers(bench.checkpointer.transact(last, key, bench.effects.add(key, "done")), "transact"),
            "done",
            "what transact gives",
        )
        same(await bench.effects.applied(key), 1, f"how often the effect of {key!r} is applied, over three crashes")


# -------------------------------------------------------------------------------------------------- scheduler, durable


@shows("SCH-READY-EVENTUALLY", "processes", real=True, short=True)
async def though_the_takers_process_is_killed(bench: Bench) -> None:
    """What it had taken is given out again within its lease, counted, with a wakeup that came meanwhile."""
    process, workflow = await bench.process(), bench.workflow()
    await bench.scheduler.make_ready(workflow)
    await bench.take(workflow, by=process.scheduler)
    await process.kill()
    await bench.scheduler.make_ready(workflow)
    await bench.elapse(bench.scheduler.lease)
    again = await bench.take(workflow)
    same((again.attempt, again.lapses), (2, 1), "attempt and lapses of what a killed process had taken")
    await bench.scheduler.done(again)


@shows("SCH-DONE-STALE", "processes", real=True, short=True)
async def nor_does_one_from_a_process_that_stood_still(bench: Bench) -> None:
    """A taker that stood still past its lease and then answers does not take the delivery from who has it now."""
    process, workflow = await bench.process(), bench.workflow()
    await bench.scheduler.make_ready(workflow)
    old = await bench.take(workflow, by=process.scheduler)
    process.freeze()
    await bench.elapse(bench.scheduler.lease)
    new = await bench.take(workflow)
    process.thaw()
    await answers(process.scheduler.done(old), "done by a process that had stood still")
    await bench.nothing_ready("the new taker has it")
    await bench.elapse(bench.scheduler.lease)
    again = await bench.take(workflow)
    same(again.lapses, new.lapses + 1, "the lapses of what the new taker left to lapse")


@shows("SCH-NEXT-WAIT", "processes", real=True)
async def so_does_what_another_process_makes_ready(bench: Bench) -> None:
    """A wakeup from another process ends the wait within the poll interval that describe() states, and some slack."""
    process, workflow = await bench.process(), bench.workflow()
    waiting = asyncio.create_task(_next(bench))
    await asyncio.sleep(0.05)
    await process.scheduler.make_ready(workflow)
    delivery = await answers(waiting, "next_ready, when another process made something ready")
    same(getattr(delivery, "workflow", None), workflow, "the workflow of the delivery")


async def _next(bench: Bench) -> object:
    return await bench.scheduler.next_ready(LONG)


@shows("DUR-CO-COMMIT", "processes", real=True, when=co_commits)
async def a_killed_client_shows_both_or_neither(bench: Bench) -> None:
    """Of a client that is killed while it starts one workflow after another, each has its value and its wakeup, or neither."""
    for life in range(3):
        process, prefix = await bench.process(), bench.workflow(f"life{life}")

        started = [0]

        async def start(process: Process = process, prefix: str = prefix, started: list[int] = started) -> object:
            for number in range(10_000):
                started[0] = number + 1
                await process.durable.arrive(f"{prefix}.{number}", "input", number)
            return None

        await killed_at_work(bench, process, asyncio.create_task(start()))
        # A server may still commit what the client had sent when it was killed: whoever has a value before the look at the
        # queue must be in it, and whoever is in it must have a value afterwards.
        names = [f"{prefix}.{number}" for number in range(started[0] + 2)]
        before = {workflow for workflow in names if await bench.checkpointer.load(workflow)}
        woken: set[str] = set()
        while (delivery := await bench.scheduler.next_ready(NOW)) is not None:
            woken.add(delivery.workflow)
            await bench.scheduler.done(delivery)
        same(sorted(before - woken), [], "the workflows that have their value and no wakeup")
        valueless = [workflow for workflow in sorted(woken) if not await bench.checkpointer.load(workflow)]
        same(valueless, [], "the workflows that have their wakeup and no value")


@shows("DUR-CO-COMMIT", "processes", real=True, when=co_commits, short=True)
async def a_killed_worker_shows_both_or_neither(bench: Bench) -> None:
    """Of a worker that is killed while it finishes workflows, each is finished and answered, or comes back."""
    process = await bench.process()
    workflows = [bench.workflow() for _ in range(60)]
    for workflow in workflows:
        await bench.durable.arrive(workflow, "input", workflow)

    async def work() -> object:
        while turns := await process.durable.begin(NOW, LONG):
            for turn in turns:
                await process.durable.finish(turn, turn.holder.workflow)
        return None

    await killed_at_work(bench, process, asyncio.create_task(work()))
    await bench.elapse(bench.scheduler.lease)
    back: set[str] = set()
    for turn in [turn for _ in range(70) for turn in await bench.durable.begin(NOW, LONG)]:
        back.add(turn.holder.workflow)
        await bench.durable.pause(turn, None)
    for workflow in workflows:
        finished = await bench.durable.result(workflow) == Finished(workflow)
        same(
            (finished, workflow in back), (finished, not finished), f"whether {workflow!r} is finished, and whether it comes back"
        )


@shows("DUR-RESULT", "processes", real=True)
async def a_watch_sees_another_process(bench: Bench) -> None:
    """It returns when another process finished the workflow, and the result is there for both."""
    process, workflow = await bench.process(lease=LONG), bench.workflow()
    await process.durable.arrive(workflow, "input", 1)
    (turn,) = await answers(process.durable.begin(timedelta(seconds=5), LONG), "begin by another process")
    watching = asyncio.create_task(bench.durable.watch(workflow, LONG))
    await asyncio.sleep(0.03)
    same(await process.durable.finish(turn, ["done"]), Recorded(["done"], True), "what finish gives")
    await answers(watching, "watch, when another process finished the workflow")
    for durable in (bench.durable, process.durable):
        same(await durable.result(workflow), Finished(["done"]), "result")


@shows("DUR-DESCRIBE", "processes", real=True, when=survives_kill)
async def a_kill_is_survived_as_it_says(bench: Bench) -> None:
    """Where it says that an acknowledged write survives a kill, what another process wrote and woke is there after its kill."""
    process, workflow = await bench.process(), bench.workflow()
    await process.durable.arrive(workflow, "k", 1)
    await process.kill()
    same(await bench.checkpointer.load(workflow), {"k": 1}, "load after the kill of the process that wrote")
    await bench.take(workflow)
