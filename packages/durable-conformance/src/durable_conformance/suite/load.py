"""load: what is read, in which order, and by whom."""

from __future__ import annotations

from collections.abc import Callable

from durable_conformance.bench import NOW, Bench
from durable_conformance.case import shows
from durable_conformance.expect import Broken, alike, answers, holds, same
from durable_conformance.suite._common import transacts

STRANGE = (
    ("a", "a:"),
    ("a:b", "a"),
    ("a", "a%"),
    ("a_", "ab"),
    ("a*", "ab"),
    ("a", "A"),
    ("a", "a "),
    ("a", "\ta"),
    ("\u00e9", "e\u0301"),
    ("{a}", "a"),
    ("a{b}c", "a{b}d"),
    ("}a", "{}a"),
    ("a/b", "a/B"),
    ("'", '"'),
    ("a;--", "a;"),
    ("\u212b", "\u00c5"),
    ("ss", "\u00df"),
    ("\U0001f600", "\U0001f601"),
    ("..", "."),
    ("a\\", "a\\\\"),
    ("a\n", "a\r"),
    ("0", "00"),
    ("-1", "1"),
    ("null", "None"),
    ("a" * 990, "a" * 989),
)


def strange(bench: Bench) -> list[str]:
    """Give ids of which some store might take two for one, or read one as something else; no other case uses them."""
    ids = dict.fromkeys(part for pair in STRANGE for part in pair)
    return [name if len(name) > 900 else f"{name}{bench.at.name[:8]}" for name in ids] + [name for name in ids if len(name) < 900]


@shows("CKP-LOAD-EMPTY")
async def an_unknown_workflow_is_empty(bench: Bench) -> None:
    """Without records, load and history are empty dicts."""
    workflow = bench.workflow()
    same(await answers(bench.checkpointer.load(workflow), "load of an unknown id"), {}, "load of an unknown id")
    same(await bench.checkpointer.history(workflow), {}, "history of an unknown id")
    same(await bench.checkpointer.load(workflow, skip=3), {}, "load of an unknown id, skipping three")


@shows("CKP-LOAD-EMPTY")
async def reading_creates_nothing(bench: Bench) -> None:
    """After load and history of an unknown id there is nothing to discard and nothing to load."""
    workflow = bench.workflow()
    await bench.checkpointer.load(workflow)
    await bench.checkpointer.history(workflow)
    same(await bench.checkpointer.load(workflow), {}, "a second load of an unknown id")
    same(await bench.checkpointer.discard(workflow), 0, "what discard removes of an id that was only read")


@shows("CKP-LOAD-ORDER")
async def keys_come_as_they_were_first_recorded(bench: Bench) -> None:
    """Not by name: c, a, b stays c, a, b."""
    holder = await bench.claim(bench.workflow())
    for key in ("c", "a", "b", "B", "10", "9", "\u00e9"):
        await bench.checkpointer.record(holder, key, key)
    loaded = await bench.checkpointer.load(holder.workflow)
    same(list(loaded), ["c", "a", "b", "B", "10", "9", "\u00e9"], "the keys of load")
    same(list(loaded.values()), list(loaded), "each key has its own value")
    for key in ("a", "c"):
        await bench.checkpointer.record(holder, key, "again")
    same(await bench.checkpointer.load(holder.workflow), loaded, "load after two of them were recorded again")


@shows("CKP-LOAD-ORDER")
async def all_methods_share_one_order(bench: Bench) -> None:
    """record, supply and append, interleaved, are loaded as they were called, through whichever instance."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    keys: list[str] = []
    for number in range(4):
        for who in (bench.checkpointer, other.checkpointer):
            await who.record(holder, f"z{number}{len(keys)}", number)
            keys.append(f"z{number}{len(keys)}")
            await who.supply(holder.workflow, f"m{number}{len(keys)}", number)
            keys.append(f"m{number}{len(keys)}")
            keys.append((await who.append(holder.workflow, number)).key)
    same(list(await bench.checkpointer.load(holder.workflow)), keys, "the keys of load")


@shows("CKP-LOAD-ORDER", "effects", when=transacts)
async def an_effect_takes_its_place(bench: Bench) -> None:
    """transact shares the order of the others."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "z", 1)
    await bench.checkpointer.transact(holder, "y", bench.effects.add("order", "done"))
    await bench.checkpointer.supply(holder.workflow, "x", 3)
    same(list(await bench.checkpointer.load(holder.workflow)), ["z", "y", "x"], "the keys of load")


@shows("CKP-LOAD-ORDER")
async def the_order_outlives_size(bench: Bench) -> None:
    """Six hundred records, or one of more than 64 bytes among ten, come in their order."""
    await _ordered(bench, [f"k{bench.random.randrange(10**9)}-{number}" for number in range(600)], lambda _place: "short")
    await _ordered(bench, [f"{letter}" for letter in "qwertzuiop"], lambda place: "x" * (65 if place == 4 else 1))


async def _ordered(bench: Bench, keys: list[str], value: Callable[[int], str]) -> None:
    workflow = bench.workflow()
    for place, key in enumerate(keys):
        await bench.checkpointer.supply(workflow, key, value(place))
    same(list(await bench.checkpointer.load(workflow)), keys, f"the keys of load, of {len(keys)} records")


@shows("CKP-LOAD-ORDER")
async def one_tick_of_the_clock_is_no_tie(bench: Bench) -> None:
    """Fifty records at once keep the order in which they were made, whatever the clock's resolution."""
    keys = [f"k{bench.random.randrange(10**6):06}-{number}" for number in range(50)]
    holder = await bench.claim(bench.workflow())
    for key in keys:
        await bench.checkpointer.record(holder, key, key)
    same(list(await bench.checkpointer.load(holder.workflow)), keys, "the keys of load")


@shows("CKP-LOAD-ORDER")
async def a_supply_after_the_load_stands_before_the_record(bench: Bench) -> None:
    """What somebody supplied after a pass loaded stands before what the pass records next."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "a", 1)
    await bench.checkpointer.load(holder.workflow)
    await other.checkpointer.supply(holder.workflow, "supplied", 2)
    await bench.checkpointer.record(holder, "b", 3)
    same(list(await bench.checkpointer.load(holder.workflow)), ["a", "supplied", "b"], "the keys of load")


@shows("CKP-LOAD-ORDER")
async def skip_leaves_out_from_the_front(bench: Bench) -> None:
    """`skip` counts records in their order, and more than there are leaves none."""
    workflow = bench.workflow()
    for key in ("c", "a", "b"):
        await bench.checkpointer.supply(workflow, key, key.upper())
    for skip, promised in ((0, {"c": "C", "a": "A", "b": "B"}), (1, {"a": "A", "b": "B"}), (2, {"b": "B"}), (3, {}), (9, {})):
        same(await bench.checkpointer.load(workflow, skip=skip), promised, f"load that skips {skip}")


@shows("CKP-LOAD-PREFIX")
async def what_was_loaded_stays_in_front(bench: Bench) -> None:
    """Each load begins with the one before, whatever is written, lost or repeated in between."""
    workflow, before = bench.workflow(), list[tuple[str, object]]()
    holder = await bench.claim(workflow)
    for number in range(30):
        kind = bench.random.randrange(4)
        if kind == 0:
            await bench.checkpointer.record(holder, f"k{bench.random.randrange(12)}", number)
        elif kind == 1:
            await bench.checkpointer.supply(workflow, f"k{bench.random.randrange(12)}", number)
        elif kind == 2:
            await bench.checkpointer.append(workflow, number)
        else:
            await bench.checkpointer.release(holder)
            holder = await bench.claim(workflow)
        after = list((await bench.checkpointer.load(workflow)).items())
        same(after[: len(before)], before, "the front of a later load")
        before = after


@shows("CKP-LOAD-CODEC")
async def every_value_has_crossed_the_codec(bench: Bench) -> None:
    """What a value becomes by the codec is what load, history and the write itself give, for every method."""
    value: object = {"list": [1, 2.0, True, None, "\u00e9"], "pair": (1, (2,))}
    crossed = bench.checkpointer.roundtrip(value)
    holder = await bench.claim(bench.workflow())
    same((await bench.checkpointer.record(holder, "r", value)).value, crossed, "what record gives")
    same((await bench.checkpointer.supply(holder.workflow, "s", value)).value, crossed, "what supply gives")
    entry = await bench.checkpointer.append(holder.workflow, value)
    same(entry.value, crossed, "what append gives")
    same(
        await bench.checkpointer.load(holder.workflow),
        {"r": crossed, "s": crossed, entry.key: crossed},
        "load of what record, supply and append wrote",
    )
    history = await bench.checkpointer.history(holder.workflow)
    same([one.value for one in history.values()], [crossed] * 3, "the values of history")


@shows("CKP-LOAD-CODEC")
async def what_was_handed_in_is_not_kept(bench: Bench) -> None:
    """Changing an object after it was recorded changes no record."""
    holder, values = await bench.claim(bench.workflow()), [1]
    recorded = await bench.checkpointer.record(holder, "r", values)
    supplied = await bench.checkpointer.supply(holder.workflow, "s", values)
    for given in (recorded.value, supplied.value):
        holds(given is not values, "the value that comes back is not the object handed in", "the same object")
    entry = await bench.checkpointer.append(holder.workflow, values)
    holds(entry.value is not values, "the value that append gives is not the object handed in", "the same object")
    values.append(2)
    same(await bench.checkpointer.load(holder.workflow), {"r": [1], "s": [1], entry.key: [1]}, "load after the object changed")


@shows("CKP-LOAD-CODEC")
async def what_was_handed_out_is_not_kept(bench: Bench) -> None:
    """Changing what load gave changes no record."""
    workflow = bench.workflow()
    await bench.checkpointer.supply(workflow, "k", {"a": [1]})
    loaded = await bench.checkpointer.load(workflow)
    value = loaded["k"]
    assert isinstance(value, dict)
    value["a"] = "changed"
    loaded["other"] = 1
    same(await bench.checkpointer.load(workflow), {"k": {"a": [1]}}, "a second load, after the first one's answer was changed")


@shows("CKP-LOAD-ISOLATED")
async def strange_ids_keep_their_own_records(bench: Bench) -> None:
    """Ids that differ in anything keep their own records, and discarding one leaves the others."""
    ids = strange(bench)
    for number, workflow in enumerate(ids):
        await answers(bench.checkpointer.supply(workflow, "k", number), f"supply to {workflow!r}")
    for number, workflow in enumerate(ids):
        same(await bench.checkpointer.load(workflow), {"k": number}, f"load of {workflow!r}")
    while ids:
        workflow = ids.pop(bench.random.randrange(len(ids)))
        same(await bench.checkpointer.discard(workflow), 1, f"what discard of {workflow!r} removes")
        sample = bench.random.sample(ids, min(3, len(ids)))
        for other in sample:
            holds(
                "k" in await bench.checkpointer.load(other),
                f"{other!r} keeps its record when {workflow!r} is discarded",
                "it is gone",
            )


@shows("CKP-LOAD-ISOLATED")
async def id_and_key_do_not_run_together(bench: Bench) -> None:
    """An id `a:b` with a key `c` is not an id `a` with a key `b:c`."""
    name = bench.at.name
    for separator in (":", "/", "|", "\x1f", "\n", " ", ".", "-", "::", "%", ",", "#", "\t"):
        one, other = f"{name}{separator}b", name
        await bench.checkpointer.supply(one, "c", "one")
        await bench.checkpointer.supply(other, f"b{separator}c", "other")
        same(await bench.checkpointer.load(one), {"c": "one"}, f"load of {one!r}")
        same((await bench.checkpointer.load(other))[f"b{separator}c"], "other", f"{other!r} under 'b{separator}c'")


@shows("CKP-LOAD-ISOLATED", short=True)
async def strange_ids_keep_their_own_claims(bench: Bench) -> None:
    """Every id is claimed on its own, and a release frees no other."""
    ids = strange(bench)
    holders = [await bench.claim(workflow) for workflow in ids]
    for holder in holders[::7]:
        await bench.checkpointer.release(holder)
    for place, workflow in enumerate(ids):
        again = await bench.checkpointer.claim(workflow, bench.window, bench.window)
        holds((again is not None) is (place % 7 == 0), f"{workflow!r} is {'free' if place % 7 == 0 else 'held'}", again)


@shows("CKP-LOAD-ISOLATED")
async def strange_ids_keep_their_own_wakeups(bench: Bench) -> None:
    """Every id is woken on its own, and cancelling one leaves the others."""
    ids = strange(bench)
    for workflow in ids:
        await bench.scheduler.make_ready(workflow)
    gone = [workflow for place, workflow in enumerate(ids) if place % 5 == 0 or set(workflow) & set("%_*?[")]
    for workflow in gone:
        await bench.scheduler.cancel(workflow)
    woken = [(await bench.take()).workflow for _ in range(len(ids) - len(gone))]
    same(sorted(woken), sorted(set(ids) - set(gone)), "what is given out, the cancelled ones left out")
    await bench.nothing_ready("all have been given out", wait=NOW)


@shows("CKP-LOAD-SHARED")
async def a_second_instance_sees_the_same(bench: Bench) -> None:
    """What one instance wrote another loads at once, and goes on seeing what is written after."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    for number in range(3):
        await bench.checkpointer.record(holder, f"mine{number}", number)
        await other.checkpointer.record(holder, f"yours{number}", number)
        mine = await bench.checkpointer.load(holder.workflow)
        yours = await other.checkpointer.load(holder.workflow)
        same(len(mine), 2 * number + 2, "how many records there are")
        same(yours, mine, "load by the second instance")
    same(await other.checkpointer.discard(holder.workflow), 6, "what the second instance discards")
    same(await bench.checkpointer.load(holder.workflow), {}, "load by the first, after the second discarded")


@shows("CKP-LOAD-SHARED", "restart")
async def an_instance_opened_after_a_restart_sees_the_same(bench: Bench) -> None:
    """When everybody has closed and opened again, the records, their order and their times are there."""
    workflow = bench.workflow()
    for key in ("c", "a", "b"):
        await bench.checkpointer.supply(workflow, key, [key])
    await bench.checkpointer.append(workflow, "message")
    loaded, history = await bench.checkpointer.load(workflow), await bench.checkpointer.history(workflow)
    await bench.reopen()
    same(await bench.checkpointer.load(workflow), loaded, "load after a restart")
    if not alike(await bench.checkpointer.history(workflow), history):
        raise Broken(f"history after a restart: {history}", str(await bench.checkpointer.history(workflow)))
