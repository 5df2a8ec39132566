"""Recorded histories of many clients, and two hammers: what only shows when things happen at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from durable_conformance import races
from durable_conformance.bench import LONG, Bench
from durable_conformance.case import shows
from durable_conformance.expect import Broken, holds, same
from durable_conformance.processes import Process
from durable_conformance.races import Stores, judge, raced
from durable_core.keys import inbox_key


async def instances(bench: Bench, count: int) -> list[Stores]:
    """Open instances, with a lease that does not end."""
    return [await bench.open(lease=LONG) for _ in range(count)]


async def histories(bench: Bench, stores: Sequence[Stores], mix: Mapping[str, int], count: int) -> None:
    """Run random programs, short ones first, and judge their histories."""
    for number in range(count * (20 if bench.long else 1)):
        steps = 2 + number * 10 // (count * (20 if bench.long else 1))
        workflow = bench.workflow()
        judge(await raced(workflow, stores, bench.random, mix, steps), bench.seed)
        if "next_ready" in mix:
            await bench.scheduler.cancel(workflow)


@shows("CKP-RECORD-ONCE")
async def histories_of_records_are_explained(bench: Bench) -> None:
    """Random programs of four clients on three keys: one order of the calls explains every answer."""
    await histories(bench, await instances(bench, 4), races.RECORDS, 20)


@shows("CKP-CLAIM-ONE")
async def histories_of_claims_are_explained(bench: Bench) -> None:
    """Random programs of four clients that claim, renew and release: at most one pass at a time explains every answer."""
    await histories(bench, await instances(bench, 4), races.CLAIMS, 20)


@shows("CKP-SUPPLY-ONCE")
async def histories_of_supplies_are_explained(bench: Bench) -> None:
    """Random programs of four clients that supply what others record: one order explains every answer."""
    await histories(bench, await instances(bench, 4), races.SUPPLIES, 20)


@shows("CKP-APPEND-SORTED")
async def histories_of_entries_are_explained(bench: Bench) -> None:
    """Random programs of four clients that append: keys that rise in one order explain every answer and every load."""
    await histories(bench, await instances(bench, 4), races.ENTRIES, 20)


@shows("CKP-DISCARD-FENCE")
async def histories_of_discards_are_explained(bench: Bench) -> None:
    """Random programs of four clients that discard what others write: no write of a pass falls behind its discard."""
    await histories(bench, await instances(bench, 4), races.DISCARDS, 20)


@shows("SCH-NEXT-ONE")
async def histories_of_wakeups_are_explained(bench: Bench) -> None:
    """Random programs of four clients that wake, take, answer and cancel: one order of the calls explains every delivery."""
    await histories(bench, await instances(bench, 4), races.WAKEUPS, 20)


# ------------------------------------------------------------------------------------------------------------- hammers


async def prefixes(bench: Bench, writers: Sequence[Stores], readers: Sequence[Stores], each: int) -> None:
    """Write to one workflow from many sides, while readers ask that each load begins with the one before."""
    workflow, writing = bench.workflow(), len(writers)

    async def write(number: int, stores: Stores) -> None:
        nonlocal writing
        for place in range(each):
            if bench.random.random() < 0.5:
                await stores.checkpointer.supply(workflow, f"k{number}.{place}", place)
            else:
                await stores.checkpointer.append(workflow, [number, place])
        writing -= 1

    async def read(stores: Stores) -> None:
        seen: list[tuple[str, object]] = []
        while True:
            await asyncio.sleep(0)  # a store that never waits would keep the writers from their turn
            last = not writing
            skip = bench.random.choice((0, len(seen), len(seen) // 2))
            loaded = list((await stores.checkpointer.load(workflow, skip=skip)).items())
            if loaded[: len(seen) - skip] != seen[skip:]:
                raise Broken(f"a load begins with the one before it, from place {skip}: {seen[skip:]}", str(loaded))
            seen[skip:] = loaded
            if last:
                break
        same(len(seen), each * len(writers), "how many records there are in the end")

    async with asyncio.TaskGroup() as group:
        for number, stores in enumerate(writers):
            group.create_task(write(number, stores))
        for stores in readers:
            group.create_task(read(stores))


async def cursors(bench: Bench, writers: Sequence[Stores], readers: Sequence[Stores], each: int) -> None:
    """Append to one workflow from many sides, while readers ask for keys after the last they saw."""
    workflow, writing = bench.workflow(), len(writers)
    sent = {f"{number}.{place}" for number in range(len(writers)) for place in range(each)}

    async def write(number: int, stores: Stores) -> None:
        nonlocal writing
        for place in range(each):
            await stores.checkpointer.append(workflow, f"{number}.{place}")
        writing -= 1

    async def read(stores: Stores) -> None:
        cursor, got = "", list[object]()
        while True:
            await asyncio.sleep(0)  # a store that never waits would keep the writers from their turn
            last = not writing
            loaded = await stores.checkpointer.load(workflow)
            fresh = sorted(key for key in loaded if key > cursor and key.startswith(inbox_key(0)[:6]))
            got += [loaded[key] for key in fresh]
            cursor = fresh[-1] if fresh else cursor
            if last:
                break
        missed = sorted(sent - {str(value) for value in got})
        holds(
            not missed,
            "a reader that asks for keys after the last it saw gets every entry",
            f"it missed {missed[:10]}, {len(missed)} of {len(sent)}",
        )
        same(len(got), len(sent), "how many entries it got")

    async with asyncio.TaskGroup() as group:
        for number, stores in enumerate(writers):
            group.create_task(write(number, stores))
        for stores in readers:
            group.create_task(read(stores))


@shows("CKP-LOAD-PREFIX")
async def a_hammer_moves_nothing_that_was_loaded(bench: Bench) -> None:
    """Four writers and two readers on one workflow, through six instances: each load begins with the one before."""
    stores = await instances(bench, 6)
    await prefixes(bench, stores[:4], stores[4:], 400 if bench.long else 40)


@shows("CKP-APPEND-CURSOR")
async def a_hammer_hides_no_entry_from_a_cursor(bench: Bench) -> None:
    """Four writers append, and two readers with a cursor miss none."""
    stores = await instances(bench, 6)
    await cursors(bench, stores[:4], stores[4:], 400 if bench.long else 40)


# ----------------------------------------------------------------------------------------------------- several processes


async def processes(bench: Bench, count: int) -> list[Process]:
    """Start processes with the datastore open."""
    return [await bench.process(lease=LONG) for _ in range(count)]


@shows("CKP-RECORD-ONCE", "processes", real=True)
async def histories_of_two_processes_are_explained(bench: Bench) -> None:
    """Random programs of four clients in two processes: one order of the calls explains every answer."""
    one, other = await processes(bench, 2)
    for mix in (races.RECORDS, races.CLAIMS, races.DISCARDS):
        await histories(bench, [one, other, one, other], mix, 6)


@shows("SCH-NEXT-ONE", "processes", real=True)
async def histories_of_wakeups_in_two_processes_are_explained(bench: Bench) -> None:
    """Random programs of four clients in two processes that wake, take and answer: one order explains every delivery."""
    one, other = await processes(bench, 2)
    await histories(bench, [one, other, one, other], races.WAKEUPS, 8)


@shows("CKP-LOAD-PREFIX", "processes", real=True)
async def nor_does_one_of_two_processes(bench: Bench) -> None:
    """Writers in two processes and readers in this one and another: each load begins with the one before."""
    one, other = await processes(bench, 2)
    await prefixes(bench, [one, other], [bench.durable, other], 400 if bench.long else 40)


@shows("CKP-APPEND-CURSOR", "processes", real=True)
async def nor_from_one_in_another_process(bench: Bench) -> None:
    """Writers in two processes append, and readers with a cursor, in this one and another, miss none."""
    one, other = await processes(bench, 2)
    await cursors(bench, [one, other], [bench.durable, other], 400 if bench.long else 40)
