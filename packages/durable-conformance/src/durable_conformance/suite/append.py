"""append: the inbox, its keys and its order."""

from __future__ import annotations

import re

from durable_conformance.bench import LONG, Bench
from durable_conformance.case import shows
from durable_conformance.expect import NotShown, answers, holds, same
from durable_conformance.suite._common import free, interleaves, together
from durable_core.contract import Entry, Recorded
from durable_core.keys import MAX_INBOX, inbox_key, inbox_number


@shows("CKP-APPEND-KEY")
async def the_key_is_twenty_digits(bench: Bench) -> None:
    """`inbox:` and twenty digits, of a number below 2^53; also above an entry with a high number."""
    workflow = bench.workflow()
    for number in range(12):
        if number == 8:
            await bench.checkpointer.supply(workflow, inbox_key(2**52), "copied")
        entry = await answers(bench.checkpointer.append(workflow, number), "append")
        holds(bool(re.fullmatch(r"inbox:[0-9]{20}", entry.key)), "the key is inbox: and twenty digits", entry.key)
        holds(int(entry.key[6:]) < MAX_INBOX, "the number is below 2^53", entry.key)
        same(entry.value, number, "the value that append gives")


@shows("CKP-APPEND-FREE")
async def it_needs_no_claim(bench: Bench) -> None:
    """It adds where nobody ever claimed, where a pass is live, and after one released."""
    workflow = bench.workflow()
    keys = [(await answers(bench.checkpointer.append(workflow, 1), "append where nobody ever claimed")).key]
    holder = await bench.claim(workflow)
    keys.append((await answers(bench.checkpointer.append(workflow, 2), "append while a pass is live")).key)
    await bench.checkpointer.release(holder)
    keys.append((await answers(bench.checkpointer.append(workflow, 3), "append after a release")).key)
    same(list(await bench.checkpointer.load(workflow)), keys, "the keys of load")


@shows("CKP-APPEND-FREE", short=True)
async def it_disturbs_no_pass(bench: Bench) -> None:
    """The pass stays current, and its claim lapses when it would have."""
    for window in bench.windows():
        watch = bench.stopwatch()
        holder = await bench.claim(bench.workflow(), LONG, window)
        await bench.elapse(window * 0.6)
        await bench.checkpointer.append(holder.workflow, 1)
        rival = await bench.checkpointer.claim(holder.workflow, LONG, window)
        if watch() >= window * 0.9:
            continue
        holds(rival is None, "the claim outlives an append", rival)
        same(
            await answers(bench.checkpointer.record(holder, "k", 1), "a record after an append"),
            Recorded(1, True),
            "what it gets",
        )
        break
    holder = await bench.claim(bench.workflow(), LONG, bench.window)
    await bench.elapse(bench.window * 0.6)
    await bench.checkpointer.append(holder.workflow, 1)
    await bench.elapse(bench.window * 0.5)
    await free(bench, holder.workflow, "the window is over, and an append was no sign of life")


@shows("CKP-APPEND-FREE", "effects", when=interleaves)
async def a_long_effect_does_not_hold_it_up(bench: Bench) -> None:
    """It returns while a pass is inside a transact of the same workflow."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    made = bench.effects.meanwhile(
        "c", lambda: answers(other.checkpointer.append(holder.workflow, 1), "append while an effect is at work")
    )
    if made is None:
        raise NotShown("the harness has no effect that awaits")
    await bench.checkpointer.transact(holder, "k", made)


@shows("CKP-APPEND-DISTINCT")
async def many_at_once_are_all_there(bench: Bench) -> None:
    """Sixty appends at once, through two instances, get sixty keys, and load has each value."""
    other, workflow = await bench.open(), bench.workflow()
    stores = (bench.checkpointer, other.checkpointer)
    entries = await answers(
        together(*(stores[number % 2].append(workflow, number) for number in range(60))), "sixty appends at once"
    )
    same(len({entry.key for entry in entries}), 60, "how many keys sixty appends at once got")
    loaded = await bench.checkpointer.load(workflow)
    same(
        {entry.key: entry.value for entry in sorted(entries, key=lambda one: one.key)},
        dict(sorted(loaded.items())),
        "the entries, and load",
    )


@shows("CKP-APPEND-DISTINCT")
async def equal_messages_are_two(bench: Bench) -> None:
    """The same value twice in a row, or with another between, is two entries."""
    workflow = bench.workflow()
    entries = [await answers(bench.checkpointer.append(workflow, value), "append") for value in ("same", "same", "other", "same")]
    same(len({entry.key for entry in entries}), 4, "how many keys four appends got")
    same(list((await bench.checkpointer.load(workflow)).values()), ["same", "same", "other", "same"], "the values of load")


@shows("CKP-APPEND-SORTED")
async def keys_sort_as_they_were_appended(bench: Bench) -> None:
    """Over 9, 10, 99 and 100, and through two instances in turn, with records in between; load has them in the same order."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    keys: list[str] = []
    for number in range(104):
        keys.append((await (bench, other)[number % 2].checkpointer.append(holder.workflow, number)).key)
        if number % 7 == 0:
            await bench.checkpointer.record(holder, f"k{number}", number)
    same(keys, sorted(keys), "the keys in the order in which they were appended")
    loaded = [key for key in await bench.checkpointer.load(holder.workflow) if key.startswith("inbox:")]
    same(loaded, keys, "the inbox keys of load")


@shows("CKP-APPEND-SORTED")
async def keys_sort_as_load_has_them(bench: Bench) -> None:
    """Of appends at once the order of the keys is the order of load, and one that begins later sorts after."""
    other, workflow, last = await bench.open(), bench.workflow(), ""
    for _ in range(8):
        stores = (bench.checkpointer, other.checkpointer) * 5
        entries = await answers(
            together(*(store.append(workflow, place) for place, store in enumerate(stores))), "appends at once"
        )
        holds(min(entry.key for entry in entries) > last, "appends that begin after others returned sort after them", entries)
        last = max(entry.key for entry in entries)
        loaded = list(await bench.checkpointer.load(workflow))
        same(loaded, sorted(loaded), "the keys of load")


@shows("CKP-APPEND-ABOVE")
async def it_sorts_above_what_was_copied(bench: Bench) -> None:
    """An entry sorts above every inbox key that is there, however it came, and takes none's place."""
    workflow, other = bench.workflow(), await bench.open()
    for number in (5, 77, 2**40):
        await bench.checkpointer.supply(workflow, inbox_key(number), f"copied {number}")
        for store in (bench.checkpointer, other.checkpointer):
            entry = await answers(store.append(workflow, "new"), "append above a copied entry")
            holds(inbox_number(entry.key) > number, f"a new entry sorts above {inbox_key(number)}", entry.key)
    loaded = await bench.checkpointer.load(workflow)
    same(len(loaded), 9, "how many entries there are")
    same(loaded[inbox_key(77)], "copied 77", "what a copied key still holds")
    same(list(loaded), sorted(loaded), "the keys of load")


@shows("CKP-APPEND-ABOVE")
async def also_where_records_stand_between(bench: Bench) -> None:
    """Neither the number of records nor the place of the highest entry decides the next number."""
    workflow = bench.workflow()
    await bench.checkpointer.supply(workflow, inbox_key(50), "high")
    await bench.checkpointer.supply(workflow, inbox_key(20), "low")
    await bench.checkpointer.supply(workflow, "plain", 1)
    entry = await answers(bench.checkpointer.append(workflow, "new"), "append above copied entries")
    holds(inbox_number(entry.key) > 50, "a new entry sorts above the highest", entry.key)


@shows("CKP-APPEND-ONCE")
async def a_repeat_gets_the_first_entry(bench: Bench) -> None:
    """With `once` a repeat adds nothing and gives the first entry, whatever its value and through whichever instance."""
    other, workflow = await bench.open(), bench.workflow()
    first = await bench.checkpointer.append(workflow, "first", once="message 1")
    await bench.checkpointer.append(workflow, "between")
    for store in (bench.checkpointer, other.checkpointer):
        again = await answers(store.append(workflow, "again", once="message 1"), "a repeated append with once")
        same(again, Entry(first.key, "first"), "what a repeated append with once gives")
    same(list((await bench.checkpointer.load(workflow)).values()), ["first", "between"], "the values of load")


@shows("CKP-APPEND-ONCE")
async def the_id_is_no_record(bench: Bench) -> None:
    """load and history show entries only; the id is one workflow's, and is no key."""
    workflow, elsewhere = bench.workflow(), bench.workflow()
    entry = await bench.checkpointer.append(workflow, 1, once="message")
    same(list(await bench.checkpointer.load(workflow)), [entry.key], "the keys of load")
    same(list(await bench.checkpointer.history(workflow)), [entry.key], "the keys of history")
    same(
        await bench.checkpointer.supply(workflow, "message", "free"), Recorded("free", True), "a supply under the name of the id"
    )
    await bench.checkpointer.append(elsewhere, 2, once="message")
    same(list((await bench.checkpointer.load(elsewhere)).values()), [2], "what another workflow got under the same id")


@shows("CKP-APPEND-ONCE")
async def repeats_at_once_are_one(bench: Bench) -> None:
    """Eight appends with one id at once are one entry, and other ids are others."""
    other, workflow = await bench.open(), bench.workflow()
    for number in range(6):
        stores = (bench.checkpointer, other.checkpointer) * 4
        calls = [store.append(workflow, place, once=f"message {number}") for place, store in enumerate(stores)]
        entries = await answers(together(*calls), "eight appends with one id at once")
        same(len(set(entry.key for entry in entries)), 1, "how many entries eight appends with one id made")
        same(len({repr(entry.value) for entry in entries}), 1, "how many values they give")
    same(len(await bench.checkpointer.load(workflow)), 6, "how many entries there are of six ids")


@shows("CKP-APPEND-RECORD")
async def the_entry_is_an_ordinary_record(bench: Bench) -> None:
    """load and history show it in its place, and reading consumes nothing."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "a", 1)
    entry = await bench.checkpointer.append(holder.workflow, {"m": 1})
    await bench.checkpointer.record(holder, "b", 2)
    for _ in range(2):
        same(await bench.checkpointer.load(holder.workflow), {"a": 1, entry.key: {"m": 1}, "b": 2}, "load")
        history = await bench.checkpointer.history(holder.workflow)
        same([(key, one.value) for key, one in history.items()], [("a", 1), (entry.key, {"m": 1}), ("b", 2)], "history")
    same(
        await bench.checkpointer.supply(holder.workflow, entry.key, "other"),
        Recorded({"m": 1}, False),
        "a supply under the entry's key",
    )
    await bench.checkpointer.release(holder)
    later = await bench.claim(holder.workflow)
    same(list(await bench.checkpointer.load(later.workflow)), ["a", entry.key, "b"], "the keys of load in the next pass")
    same(await bench.checkpointer.discard(later.workflow), 3, "what discard removes, the entry among it")


@shows("CKP-APPEND-CURSOR")
async def later_keys_are_all_that_was_not_seen(bench: Bench) -> None:
    """A reader that asks for keys after the last it saw gets each entry once, whatever else is written."""
    holder, cursor, seen = await bench.claim(bench.workflow()), "", list[object]()
    for number in range(12):
        if number % 3 == 0:
            await bench.checkpointer.record(holder, f"z{number}", number)
        if number == 6:
            await bench.checkpointer.supply(holder.workflow, inbox_key(10**6), "copied")
        await bench.checkpointer.append(holder.workflow, number)
        if number % 2:
            loaded = await bench.checkpointer.load(holder.workflow)
            fresh = {key: value for key, value in loaded.items() if key.startswith("inbox:") and key > cursor}
            cursor = max(fresh, default=cursor)
            seen += fresh.values()
    same(seen, [*range(6), "copied", *range(6, 12)], "what a reader with a cursor saw")


@shows("CKP-APPEND-FREE")
async def discard_does_not_stop_it(bench: Bench) -> None:
    """It adds to a workflow that was discarded, which then has that entry only."""
    workflow = bench.workflow()
    await bench.checkpointer.append(workflow, "old", once="m")
    await bench.checkpointer.discard(workflow)
    entry = await answers(bench.checkpointer.append(workflow, "new", once="m"), "append after a discard")
    same(await bench.checkpointer.load(workflow), {entry.key: "new"}, "load")
