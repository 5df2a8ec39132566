"""history: the records with their times."""

from __future__ import annotations

from datetime import timedelta

from durable_conformance.bench import LONG, Bench
from durable_conformance.case import shows
from durable_conformance.expect import answers, holds, same
from durable_conformance.suite._common import interleaves, together

TICK = timedelta(milliseconds=2)


@shows("CKP-HISTORY-SAME")
async def the_same_records_in_the_same_order(bench: Bench) -> None:
    """Recorded, supplied or appended, history and load show the same."""
    holder = await bench.claim(bench.workflow())
    for number in range(5):
        await bench.checkpointer.record(holder, f"z{5 - number}", number)
        await bench.checkpointer.supply(holder.workflow, f"a{number}", number)
        await bench.checkpointer.append(holder.workflow, number)
    loaded = await bench.checkpointer.load(holder.workflow)
    history = await answers(bench.checkpointer.history(holder.workflow), "history")
    same({key: one.value for key, one in history.items()}, loaded, "history without its times, and load")


@shows("CKP-HISTORY-TIME", short=True)
async def the_time_is_the_stores_at_the_write(bench: Bench) -> None:
    """Each time lies between the store's clock before the write and after it."""
    holder = await bench.claim(bench.workflow())
    for number, write in enumerate(("record", "supply", "append")):
        before = await bench.scheduler.now()
        if write == "record":
            await bench.checkpointer.record(holder, "r", 1)
        elif write == "supply":
            await bench.checkpointer.supply(holder.workflow, "s", 1)
        else:
            await bench.checkpointer.append(holder.workflow, 1)
        after = await bench.scheduler.now()
        written = list((await bench.checkpointer.history(holder.workflow)).values())[number].at
        holds(before - TICK <= written <= after + TICK, f"the time of {write} lies between {before} and {after}", written)
        await bench.elapse(bench.window / 10)


@shows("CKP-HISTORY-TIME")
async def it_is_aware_and_utc(bench: Bench) -> None:
    """Every time has a time zone, and it is UTC; so has the store's clock."""
    workflow = bench.workflow()
    await bench.checkpointer.supply(workflow, "k", 1)
    for at in ((await bench.checkpointer.history(workflow))["k"].at, await bench.scheduler.now()):
        same(at.utcoffset(), timedelta(0), f"the offset of {at!r}")


@shows("CKP-HISTORY-TIME", short=True)
async def reading_and_losing_do_not_change_it(bench: Bench) -> None:
    """Two reads give the same times, and so does one after a losing write and a replay."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "k", 1)
    first = await bench.checkpointer.history(holder.workflow)
    await bench.elapse(bench.window / 10)
    same(await bench.checkpointer.history(holder.workflow), first, "a second history")
    await bench.checkpointer.record(holder, "k", 2)
    await bench.checkpointer.supply(holder.workflow, "k", 1)
    same(await bench.checkpointer.history(holder.workflow), first, "history after losing writes")


@shows("CKP-HISTORY-TIME", "effects", when=interleaves, short=True)
async def an_effects_time_is_when_it_ended(bench: Bench) -> None:
    """What a long effect gives has the time of its commit and not of its beginning."""
    holder = await bench.claim(bench.workflow())
    made = bench.effects.meanwhile("c", lambda: bench.elapse(bench.window / 2))
    before = await bench.scheduler.now()
    await bench.checkpointer.transact(holder, "k", made)
    at = (await bench.checkpointer.history(holder.workflow))["k"].at
    holds(at >= before + bench.window / 2 - TICK, f"a time after {before + bench.window / 2}, when the effect ended", at)


@shows("CKP-HISTORY-RISING", short=True)
async def times_do_not_go_back_along_the_order(bench: Bench) -> None:
    """Of writes at once through three instances, the times rise as load has the records."""
    stores = [bench.checkpointer, (await bench.open()).checkpointer, (await bench.open()).checkpointer]
    holder = await bench.claim(bench.workflow())
    for number in range(12):
        await bench.elapse(timedelta(milliseconds=1)) if bench.manual else None
        calls = [store.record(holder, f"r{number}.{place}", place) for place, store in enumerate(stores)]
        supplies = [store.supply(holder.workflow, f"s{number}.{place}", place) for place, store in enumerate(stores)]
        await together(*calls, *supplies, *([_ticking(bench)] if bench.manual else []))
    times = [one.at for one in (await bench.checkpointer.history(holder.workflow)).values()]
    same(times, sorted(times), "the times along the order")


async def _ticking(bench: Bench) -> object:
    for _ in range(4):
        await bench.elapse(timedelta(milliseconds=1))
    return None


@shows("CKP-DISCARD-ALL")
async def everything_is_gone(bench: Bench) -> None:
    """Records, supplies and entries are removed and counted, from load and from history; others' are not."""
    holder, neighbour = await bench.claim(bench.workflow()), bench.workflow()
    await bench.checkpointer.supply(neighbour, "k", 1)
    await bench.checkpointer.record(holder, "r", 1)
    await bench.checkpointer.supply(holder.workflow, "s", 1)
    await bench.checkpointer.append(holder.workflow, 1, once="m")
    await bench.checkpointer.record(holder, "outcome:", 1)
    same(await answers(bench.checkpointer.discard(holder.workflow), "discard"), 4, "what discard removes")
    same(await bench.checkpointer.load(holder.workflow), {}, "load after a discard")
    same(await bench.checkpointer.history(holder.workflow), {}, "history after a discard")
    same(await bench.checkpointer.load(neighbour), {"k": 1}, "load of another workflow")
    same(await bench.checkpointer.discard(holder.workflow), 0, "what a second discard removes")


@shows("CKP-DISCARD-ALL")
async def a_new_life_starts_afresh(bench: Bench) -> None:
    """What is recorded after a discard is ordered from the front, and keys and ids are free again."""
    workflow = bench.workflow()
    for round in range(3):
        for key in ("c", "a", "b"):
            given = await bench.checkpointer.supply(workflow, key, round)
            same(given.first, True, f"`first` of {key!r} in life {round}")
        entry = await bench.checkpointer.append(workflow, round, once="m")
        same(entry.value, round, "what append with a used id gives in a new life")
        same(await bench.checkpointer.load(workflow), {"c": round, "a": round, "b": round, entry.key: round}, "load")
        await bench.checkpointer.discard(workflow)


@shows("CKP-DISCARD-FENCE")
async def a_pass_outstanding_is_fenced(bench: Bench) -> None:
    """Its next write is refused and the workflow stays empty; it can neither renew nor extend."""
    from durable_conformance.expect import fenced

    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "k", 1)
    await bench.checkpointer.discard(holder.workflow)
    await fenced(bench.checkpointer.record(holder, "k", 1), "a record by a pass whose workflow was discarded")
    same(await answers(bench.checkpointer.renew(holder, LONG), "renew after a discard"), False, "renew after a discard")
    same(await answers(bench.checkpointer.extend(holder, LONG, LONG), "extend after a discard"), False, "extend after a discard")
    same(await bench.checkpointer.load(holder.workflow), {}, "load")


@shows("CKP-DISCARD-FENCE")
async def also_when_another_has_claimed_since(bench: Bench) -> None:
    """The old pass does not write into the new life."""
    from durable_conformance.expect import fenced

    old = await bench.claim(bench.workflow())
    await bench.checkpointer.record(old, "k", "old")
    await bench.checkpointer.discard(old.workflow)
    new = await bench.claim(old.workflow)
    await bench.checkpointer.record(new, "k", "new")
    for key in ("k", "other"):
        await fenced(bench.checkpointer.record(old, key, "stale"), "a record by the pass of the old life")
    await answers(bench.checkpointer.release(old), "a release by the pass of the old life")
    same(await bench.checkpointer.load(old.workflow), {"k": "new"}, "load")
    same(await bench.checkpointer.renew(new, LONG), True, "renew by the pass of the new life")


@shows("CKP-DISCARD-FENCE")
async def there_is_no_gap_for_a_write(bench: Bench) -> None:
    """A pass that writes while its workflow is discarded leaves nothing behind."""
    from durable_core.errors import Fenced

    other = await bench.open()
    for number in range(25):
        holder = await bench.claim(bench.workflow())
        await bench.checkpointer.record(holder, "first", 1)

        async def write(holder: object = holder) -> int:
            from durable_core.contract import Pass

            assert isinstance(holder, Pass)
            for key in range(12):
                try:
                    await bench.checkpointer.record(holder, f"k{key}", key)
                except Fenced:
                    return 0
            return 0

        async def discard(workflow: str = holder.workflow, turns: int = number % 8) -> int:
            import asyncio

            for _ in range(turns):
                await asyncio.sleep(0)
            return await other.checkpointer.discard(workflow)

        await answers(together(write(), discard()), "a discard beside a pass that writes")
        same(await bench.checkpointer.load(holder.workflow), {}, "load when both are through")


@shows("CKP-DISCARD-FREE")
async def it_can_be_claimed_at_once(bench: Bench) -> None:
    """Though a pass was live, the next claim is granted, with a larger token."""
    old = await bench.claim(bench.workflow())
    await bench.checkpointer.record(old, "k", 1)
    await bench.checkpointer.discard(old.workflow)
    new = await answers(bench.checkpointer.claim(old.workflow, LONG, LONG), "a claim after a discard")
    holds(new is not None and new.token > old.token, f"a claim after a discard is granted, with a token above {old.token}", new)


@shows("CKP-DISCARD-UNKNOWN")
async def nothing_is_zero(bench: Bench) -> None:
    """A workflow that has nothing gives zero, twice, and can be claimed and written as if nobody had asked."""
    workflow = bench.workflow()
    for _ in range(2):
        same(await answers(bench.checkpointer.discard(workflow), "discard of an unknown id"), 0, "what it removes")
    same(await bench.checkpointer.load(workflow), {}, "load")
    holder = await answers(bench.checkpointer.claim(workflow, LONG, LONG), "a claim after a discard of an unknown id")
    holds(holder is not None, "a claim after a discard of an unknown id is granted", holder)


@shows("CKP-DISCARD-UNKNOWN")
async def a_pass_without_records_is_fenced(bench: Bench) -> None:
    """With a live claim and no records discard gives zero, and the pass is fenced."""
    from durable_conformance.expect import fenced

    holder = await bench.claim(bench.workflow())
    same(await bench.checkpointer.discard(holder.workflow), 0, "what discard removes of a workflow without records")
    await fenced(bench.checkpointer.record(holder, "k", 1), "a record by a pass whose workflow was discarded")
    new = await answers(bench.checkpointer.claim(holder.workflow, LONG, LONG), "a claim after that")
    holds(new is not None and new.token > holder.token, "the id is free, with a larger token", new)
