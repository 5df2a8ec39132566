"""supply: a value from outside any pass."""

from __future__ import annotations

from durable_conformance.bench import LONG, Bench
from durable_conformance.case import shows
from durable_conformance.expect import NotShown, answers, holds, same
from durable_conformance.suite._common import firsts, free, held, interleaves, together, transacts
from durable_core.contract import Recorded


@shows("CKP-SUPPLY-FREE")
async def it_needs_no_claim(bench: Bench) -> None:
    """It writes where nobody ever claimed, where a pass is live, and after one released."""
    workflow = bench.workflow()
    same(
        await answers(bench.checkpointer.supply(workflow, "a", 1), "supply where nobody ever claimed"),
        Recorded(1, True),
        "what it gets",
    )
    holder = await bench.claim(workflow)
    same(
        await answers(bench.checkpointer.supply(workflow, "b", 2), "supply while a pass is live"),
        Recorded(2, True),
        "what it gets",
    )
    await bench.checkpointer.release(holder)
    same(await answers(bench.checkpointer.supply(workflow, "c", 3), "supply after a release"), Recorded(3, True), "what it gets")
    same(await bench.checkpointer.load(workflow), {"a": 1, "b": 2, "c": 3}, "load")


@shows("CKP-SUPPLY-FREE", short=True)
async def it_disturbs_no_pass(bench: Bench) -> None:
    """The pass stays current and live, and its claim lapses when it would have."""
    for window in bench.windows():
        watch = bench.stopwatch()
        holder = await bench.claim(bench.workflow(), LONG, window)
        await bench.elapse(window * 0.6)
        await bench.checkpointer.supply(holder.workflow, "k", 1)
        rival = await bench.checkpointer.claim(holder.workflow, LONG, window)
        if watch() >= window * 0.9:
            continue
        holds(rival is None, "the claim outlives a supply", rival)
        await bench.elapse(window * 0.5)
        await free(bench, holder.workflow, "the window is over, and a supply was no sign of life")
        break
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.supply(holder.workflow, "k", 1)
    same(await answers(bench.checkpointer.record(holder, "r", 1), "a record after a supply"), Recorded(1, True), "what it gets")
    same(await bench.checkpointer.renew(holder, LONG), True, "renew after a supply")


@shows("CKP-SUPPLY-FREE", "effects", when=interleaves)
async def a_long_effect_does_not_hold_it_up(bench: Bench) -> None:
    """It returns while a pass is inside a transact of the same workflow."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())

    async def supply() -> None:
        given = await answers(other.checkpointer.supply(holder.workflow, "s", 1), "supply while an effect is at work")
        same(given, Recorded(1, True), "what it gets")

    made = bench.effects.meanwhile("c", supply)
    if made is None:
        raise NotShown("the harness has no effect that awaits")
    await bench.checkpointer.transact(holder, "k", made)


@shows("CKP-SUPPLY-ONCE")
async def the_first_supply_stands(bench: Bench) -> None:
    """A later one gets the stored value and learns that it lost; the same value again is a tie."""
    workflow = bench.workflow()
    same(await bench.checkpointer.supply(workflow, "k", "first"), Recorded("first", True), "what the first supply gets")
    same(await bench.checkpointer.supply(workflow, "k", "second"), Recorded("first", False), "what a second supply gets")
    same(
        await bench.checkpointer.supply(workflow, "k", "first"),
        Recorded("first", True),
        "what the first value, supplied again, gets",
    )
    same(await bench.checkpointer.load(workflow), {"k": "first"}, "load")


@shows("CKP-SUPPLY-ONCE")
async def a_pass_and_a_supply_are_alike(bench: Bench) -> None:
    """Whichever of record and supply comes first stands, and both are told so."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "r", "recorded")
    same(
        await bench.checkpointer.supply(holder.workflow, "r", "supplied"),
        Recorded("recorded", False),
        "what a supply after a record gets",
    )
    await bench.checkpointer.supply(holder.workflow, "s", "supplied")
    same(
        await bench.checkpointer.record(holder, "s", "recorded"), Recorded("supplied", False), "what a record after a supply gets"
    )
    same(await bench.checkpointer.load(holder.workflow), {"r": "recorded", "s": "supplied"}, "load")


@shows("CKP-SUPPLY-ONCE", "effects", when=transacts)
async def an_effect_and_a_supply_are_alike(bench: Bench) -> None:
    """A supply after an effect gets the effect's record."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.transact(holder, "k", bench.effects.add("c", "applied"))
    same(
        await bench.checkpointer.supply(holder.workflow, "k", "supplied"),
        Recorded("applied", False),
        "what a supply after an effect gets",
    )


@shows("CKP-SUPPLY-ONCE")
async def of_many_at_once_one_stands(bench: Bench) -> None:
    """Six supplies and records of one key at once agree on one value, and one of them was first."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    for number in range(20):
        stores = (bench.checkpointer, other.checkpointer)
        calls = [store.supply(holder.workflow, f"k{number}", f"supply {place}") for place, store in enumerate(stores * 2)]
        calls += [store.record(holder, f"k{number}", f"record {place}") for place, store in enumerate(stores)]
        given = await answers(together(*calls), "supplies and records of one key at once")
        stored = (await bench.checkpointer.load(holder.workflow))[f"k{number}"]
        same([one.value for one in given], [stored] * 6, "what six writers of one key at once get")
        same(firsts(given), 1, "how many of six different values were first")


@shows("CKP-SUPPLY-DURABLE")
async def another_instance_sees_it_when_supply_returns(bench: Bench) -> None:
    """Nothing is acknowledged before its commit."""
    other, workflow = await bench.open(), bench.workflow()
    for number in range(20):
        await bench.checkpointer.supply(workflow, f"k{number}", number)
        same((await other.checkpointer.load(workflow)).get(f"k{number}"), number, "what a second instance loads at once")


@shows("CKP-SUPPLY-DURABLE", "restart")
async def a_supply_is_there_after_a_restart(bench: Bench) -> None:
    """What was acknowledged is there when everybody has closed and opened again, and so is the live claim."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.supply(holder.workflow, "k", "value")
    await bench.reopen()
    same(await bench.checkpointer.load(holder.workflow), {"k": "value"}, "load after a restart")
    await held(bench, holder.workflow, "a claim outlives a restart")
