"""The catalog: what an operator sees, and what a sweep takes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from durable_conformance.bench import LONG, Bench
from durable_conformance.case import shows
from durable_conformance.expect import Broken, answers, holds, same
from durable_conformance.suite._common import lists
from durable_core.contract import Listed, State, Turn

STATES: tuple[State, ...] = ("ready", "running", "sleeping", "blocked", "buried", "finished")


async def one_of_each(bench: Bench, prefix: str) -> dict[State, str]:
    """Make a workflow in each state; gives their ids by state."""
    ids: dict[State, str] = {state: f"{prefix}{state}" for state in STATES}
    turns: dict[str, Turn] = {}
    for state in ("running", "sleeping", "blocked", "buried", "finished"):
        await bench.durable.arrive(ids[state], "input", state)
        turns[state] = await bench.turn(ids[state])
    await bench.durable.pause(turns["sleeping"], await bench.scheduler.now() + LONG)
    await bench.durable.pause(turns["blocked"], None)
    await bench.durable.fail(turns["buried"], "reason", None)
    await bench.durable.finish(turns["finished"], "done")
    await bench.durable.arrive(ids["ready"], "input", "ready")
    return ids


async def listed(bench: Bench, workflow: str) -> Listed:
    """Give what is listed of one workflow."""
    found = await answers(bench.catalog.workflows(prefix=workflow), "workflows")
    for one in found:
        if one.workflow == workflow:
            return one
    raise Broken(f"{workflow!r} is listed", str(found))


@shows("CAT-LIST", when=lists)
async def each_has_its_state(bench: Bench) -> None:
    """Ready, running, sleeping, blocked, buried and finished are listed as such, with what belongs to the state."""
    ids = await one_of_each(bench, bench.workflow())
    for state, workflow in ids.items():
        one = await listed(bench, workflow)
        same(
            (one.state, one.records), (state, 2 if state == "finished" else 1), f"state and records of a workflow that is {state}"
        )
        same(one.reason, "reason" if state == "buried" else None, f"the reason of a workflow that is {state}")
        holds(one.first is not None and one.last is not None and one.first <= one.last, "the times of first and last", one)
        same(one.held_until is not None, state == "running", f"whether a workflow that is {state} is held until some time")
        if state == "sleeping":
            holds(one.due is not None and one.due > await bench.scheduler.now(), "a sleeper is due later", one)
    found = await bench.catalog.workflows(prefix=bench.workflow())
    same(list(found), [], "what is listed under a prefix that nobody has")


@shows("CAT-LIST", when=lists, short=True)
async def the_first_state_that_applies(bench: Bench) -> None:
    """Finished, also when it was made ready again; running, also with a newer wakeup; a lapsed pass is ready."""
    finished, running, lapsed = (bench.workflow(hint) for hint in ("finished", "running", "lapsed"))
    for workflow in (finished, running):
        await bench.durable.arrive(workflow, "k", 1)
        turn = await bench.turn(workflow)
        if workflow == finished:
            await bench.durable.finish(turn, 1)
    for workflow in (finished, running):
        await bench.durable.arrive(workflow, "late", 1)
    same((await listed(bench, finished)).state, "finished", "the state of a finished workflow that was made ready")
    same((await listed(bench, running)).state, "running", "the state of a workflow that runs and was made ready")
    await bench.durable.delete(running)
    await bench.durable.delete(finished)
    await bench.durable.arrive(lapsed, "k", 1)
    await bench.turn(lapsed)
    await bench.elapse(bench.scheduler.lease)
    same((await listed(bench, lapsed)).state, "ready", "the state of a workflow whose turn lapsed")


@shows("CAT-LIST", when=lists)
async def by_prefix_and_by_state(bench: Bench) -> None:
    """A prefix is one of characters and no pattern, and a state picks its own."""
    prefix = bench.workflow()
    ids = await one_of_each(bench, f"{prefix}%")
    await bench.checkpointer.supply(f"{prefix}_other", "k", 1)
    under = await answers(bench.catalog.workflows(prefix=f"{prefix}%"), "workflows with a prefix")
    same(sorted(one.workflow for one in under), sorted(ids.values()), "what is listed under the prefix")
    for state in STATES:
        picked = await answers(bench.catalog.workflows(prefix=f"{prefix}%", state=state), f"workflows with state={state!r}")
        same([one.workflow for one in picked], [ids[state]], f"what is listed as {state}")


@shows("CAT-LIST", when=lists)
async def pages_skip_and_repeat_nothing(bench: Bench) -> None:
    """Page by page each workflow that was there all the while is listed once, though others are written meanwhile."""
    prefix = bench.workflow()
    names = [f"{prefix}{bench.random.randrange(10**6):06}" for _ in range(40)]
    for workflow in names:
        await bench.checkpointer.supply(workflow, "k", 1)
    seen, after, extra = list[str](), None, 0
    while page := await answers(bench.catalog.workflows(prefix=prefix, after=after, limit=7), "a page"):
        holds(len(page) <= 7, "a page is no longer than its limit", len(page))
        seen += [one.workflow for one in page]
        after = page[-1].workflow
        await bench.checkpointer.supply(f"{prefix}{bench.random.randrange(10**6):06}x", "k", 1)
        extra += 1
        holds(extra < 40, "the pages come to an end", f"{extra} pages")
    same(sorted(name for name in seen if not name.endswith("x")), sorted(set(names)), "what the pages list, each once")
    same(len(seen), len(set(seen)), "how many are listed, and how many different ones")


@shows("CAT-LIST", when=lists)
async def it_reads_only(bench: Bench) -> None:
    """After listing, records, claims and wakeups are as before, and nothing new is listed."""
    workflow = bench.workflow()
    await bench.durable.arrive(workflow, "k", 1)
    before = await bench.checkpointer.history(workflow)
    for _ in range(3):
        found = await bench.catalog.workflows(prefix=workflow)
        same(len(found), 1, "how many are listed")
    same(await bench.checkpointer.history(workflow), before, "history after listing")
    turn = await bench.turn(workflow)
    same((turn.delivery.attempt, turn.delivery.lapses), (1, 0), "attempt and lapses after listing")
    unknown = bench.workflow("unknown")
    await bench.checkpointer.load(unknown)
    await bench.checkpointer.discard(unknown)
    same(list(await bench.catalog.workflows(prefix=unknown)), [], "what is listed of an id that was only read and discarded")


@shows("CAT-SWEEP", when=lists, short=True)
async def what_finished_before_goes(bench: Bench) -> None:
    """Finished workflows go, and nothing that is ready, running, sleeping, blocked or buried; gives how many went."""
    ids = await one_of_each(bench, bench.workflow())
    await bench.elapse(bench.window / 10)
    removed = await answers(bench.catalog.sweep(await bench.scheduler.now()), "sweep")
    same(removed, 1, "how many a sweep took")
    for state, workflow in ids.items():
        same(
            bool(await bench.checkpointer.load(workflow)),
            state != "finished",
            f"whether a workflow that is {state} keeps its records",
        )
    same(await bench.durable.result(ids["finished"]), None, "result of a swept workflow")
    same(await bench.catalog.sweep(await bench.scheduler.now()), 0, "how many a second sweep took")


@shows("CAT-SWEEP", when=lists, short=True)
async def not_what_is_held_or_woken_again(bench: Bench) -> None:
    """A finished workflow that is claimed, or made ready again, stays; and so does one that finished after the instant."""
    claimed, woken, younger = (bench.workflow(hint) for hint in ("claimed", "woken", "younger"))
    for workflow in (claimed, woken):
        await bench.durable.arrive(workflow, "k", 1)
        await bench.durable.finish(await bench.turn(workflow), 1)
    await bench.elapse(timedelta(milliseconds=20))
    instant = await bench.scheduler.now()
    await bench.elapse(timedelta(milliseconds=20))
    await bench.durable.arrive(younger, "k", 1)
    await bench.durable.finish(await bench.turn(younger), 1)
    await bench.claim(claimed)
    await bench.scheduler.make_ready(woken)
    same(await answers(bench.catalog.sweep(instant), "sweep"), 0, "how many a sweep took")
    for workflow in (claimed, woken, younger):
        holds(bool(await bench.checkpointer.load(workflow)), f"{workflow!r} is kept", "it is gone")


@shows("CAT-SWEEP", when=lists, short=True)
async def what_is_not_finished_never_expires(bench: Bench) -> None:
    """However much time passes, an unfinished workflow keeps its records."""
    workflow = bench.workflow()
    await bench.checkpointer.supply(workflow, "k", 1)
    await bench.elapse(LONG * 24 * 400 if bench.manual else bench.window)
    await bench.catalog.sweep(await bench.scheduler.now())
    same(await bench.checkpointer.load(workflow), {"k": 1}, "load after a long time and a sweep")


@shows("CAT-SWEEP", when=lists, short=True)
async def many_go_while_others_are_written(bench: Bench) -> None:
    """A sweep over many, beside writes to others, takes all that finished and nothing else."""
    prefix = bench.workflow()
    for number in range(30):
        await bench.durable.arrive(f"{prefix}{number}", "k", 1)
        await bench.durable.finish(await bench.turn(), 1)
    await bench.elapse(timedelta(milliseconds=20))
    instant = await bench.scheduler.now()

    async def write() -> int:
        for number in range(30):
            await bench.checkpointer.supply(f"{prefix}new{number}", "k", 1)
            await asyncio.sleep(0)
        return 0

    async with asyncio.TaskGroup() as group:
        sweeping = group.create_task(bench.catalog.sweep(instant))
        group.create_task(write())
    same(sweeping.result(), 30, "how many a sweep took")
    same(len(await bench.catalog.workflows(prefix=prefix, limit=100)), 30, "how many are left")
