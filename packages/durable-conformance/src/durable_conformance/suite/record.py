"""record: who may write, who wins, and what a write leaves alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from durable_conformance.bench import LONG, Bench
from durable_conformance.case import shows
from durable_conformance.expect import answers, fenced, holds, raises, same
from durable_conformance.suite._common import (
    above,
    firsts,
    free,
    held,
    interleaves,
    joins,
    kept_alive,
    superseded,
    together,
    unchanged,
    unencodable,
)
from durable_core.contract import Pass, Recorded
from durable_core.errors import NotEncodable


@shows("CKP-RECORD-DURABLE")
async def another_instance_sees_it_when_the_call_returns(bench: Bench) -> None:
    """Nothing is acknowledged before its commit."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    for number in range(20):
        await bench.checkpointer.record(holder, f"k{number}", number)
        same((await other.checkpointer.load(holder.workflow)).get(f"k{number}"), number, "what a second instance loads at once")


@shows("CKP-RECORD-DURABLE", "restart")
async def it_is_there_after_a_restart(bench: Bench) -> None:
    """A record that was acknowledged is there when everybody has closed and opened again."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "k", "value")
    await bench.reopen()
    same(await bench.checkpointer.load(holder.workflow), {"k": "value"}, "load after a restart")


@shows("CKP-RECORD-ONCE")
async def winner_and_loser_get_the_stored_value(bench: Bench) -> None:
    """The first value stands, for the same pass and for a later one, and both are told it."""
    holder = await bench.claim(bench.workflow())
    same((await bench.checkpointer.record(holder, "k", 1)).value, 1, "what the first writer gets")
    same((await answers(bench.checkpointer.record(holder, "k", 2), "a second record")).value, 1, "what a second record gets")
    await bench.checkpointer.release(holder)
    later = await bench.claim(holder.workflow)
    same((await bench.checkpointer.record(later, "k", 3)).value, 1, "what a later pass gets")
    same(await bench.checkpointer.load(holder.workflow), {"k": 1}, "load")


@shows("CKP-RECORD-ONCE")
async def in_any_interleaving(bench: Bench) -> None:
    """Five records of one key at once agree on one value, which is stored."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    for number in range(20):
        stores = [bench.checkpointer, other.checkpointer] * 3
        given = await answers(
            together(*(store.record(holder, f"k{number}", place) for place, store in enumerate(stores))),
            "six records of one key at once",
        )
        stored = (await bench.checkpointer.load(holder.workflow))[f"k{number}"]
        same([one.value for one in given], [stored] * 6, "what six records of one key at once get")
        same(firsts(given), 1, "how many of six different values were first")


@shows("CKP-RECORD-FIRST")
async def the_only_writer_is_first(bench: Bench) -> None:
    """A lone writer is told that it was first."""
    holder = await bench.claim(bench.workflow())
    same(await bench.checkpointer.record(holder, "k", "mine"), Recorded("mine", True), "what a lone writer gets")


@shows("CKP-RECORD-FIRST")
async def a_different_value_is_not(bench: Bench) -> None:
    """Who comes second with another value is told that it was not first."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "k", "mine")
    same((await bench.checkpointer.record(holder, "k", "yours")).first, False, "`first` of a second, different value")


@shows("CKP-RECORD-FIRST")
async def a_tie_is_a_win_for_both(bench: Bench) -> None:
    """Who comes second with the same value is first too, by whatever method."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "k", ["same", 1])
    same((await bench.checkpointer.record(holder, "k", ["same", 1])).first, True, "`first` of a repeated value")
    same((await bench.checkpointer.supply(holder.workflow, "k", ["same", 1])).first, True, "`first` of the same value, supplied")


@shows("CKP-RECORD-FIRST")
async def what_the_codec_reshapes_is_a_win(bench: Bench) -> None:
    """A tuple that comes back as a list was first all the same: encodings are compared, not values."""
    holder = await bench.claim(bench.workflow())
    value = ("a", ("b", 1))
    for name in ("lone", "repeated"):
        same((await bench.checkpointer.record(holder, "k", value)).first, True, f"`first` of a {name} tuple")


@shows("CKP-RECORD-FIRST")
async def one_and_true_are_two_values(bench: Bench) -> None:
    """1, True and 1.0 are equal in Python and have different encodings."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "k", 1)
    for value in (True, 1.0):
        same(await bench.checkpointer.record(holder, "k", value), Recorded(1, False), f"what {value!r} gets after 1")


@shows("CKP-RECORD-FENCED")
async def the_current_pass_writes(bench: Bench) -> None:
    """The last token issued is accepted, at the first pass and at the thirteenth."""
    workflow = bench.workflow()
    for number in range(13):
        holder = await bench.claim(workflow)
        same(
            (await answers(bench.checkpointer.record(holder, f"k{number}", 1), "a record by the current pass")).first,
            True,
            "`first`",
        )
        await bench.checkpointer.release(holder)


@shows("CKP-RECORD-FENCED")
async def a_superseded_pass_is_refused(bench: Bench) -> None:
    """A pass is fenced by the next, whether that one is live, released, or long gone; also over the tokens 9, 10, 99, 100."""
    workflow, old = bench.workflow(), list[Pass]()
    for number in range(102):
        holder = await bench.claim(workflow)
        for stale in [old[-1], bench.random.choice(old)] if number in (1, 2, 9, 10, 11, 99, 100, 101) else ():
            await fenced(
                bench.checkpointer.record(stale, "k", 1), f"a record with token {stale.token} after {holder.token} was issued"
            )
        await bench.checkpointer.release(holder)
        if number in (1, 10, 101):
            await fenced(
                bench.checkpointer.record(old[-1], "k", 1),
                f"a record with token {old[-1].token} after {holder.token} was released",
            )
        old.append(holder)
    same(await bench.checkpointer.load(workflow), {}, "load after refused writes only")


@shows("CKP-RECORD-FENCED", short=True)
async def a_pass_superseded_by_lapse_is_refused(bench: Bench) -> None:
    """Who lost the claim by silence is fenced, while the next pass is live and after it released."""
    old = await bench.claim(bench.workflow(), LONG, bench.window)
    await bench.elapse(bench.window)
    new = await free(bench, old.workflow, "the window is over")
    await fenced(bench.checkpointer.record(old, "k", 1), "a record by a pass that lapsed and was superseded")
    await bench.checkpointer.release(new)
    await fenced(bench.checkpointer.record(old, "k", 1), "a record by the old pass, after the new one released")
    same(await bench.checkpointer.load(old.workflow), {}, "load after refused writes only")


@shows("CKP-RECORD-FENCED")
async def a_token_never_issued_is_refused(bench: Bench) -> None:
    """Equality decides: a token above the last one is refused, and so is any where none was issued."""
    holder = await bench.claim(bench.workflow())
    for stranger in (above(holder), above(holder, 1000), above(holder, -1), replace(holder, workflow=bench.workflow())):
        await fenced(
            bench.checkpointer.record(stranger, "k", 1),
            f"a record to {stranger.workflow!r} with token {stranger.token}, {holder.workflow!r} being at {holder.token}",
        )
        same(await bench.checkpointer.load(stranger.workflow), {}, "load after refused writes only")


@shows("CKP-RECORD-FENCED", "loss")
async def a_lost_claim_lets_nobody_pass(bench: Bench) -> None:
    """Where the store lost the claim, the pass that held it is refused."""
    holder = await bench.claim(bench.workflow())
    await bench.harness.lose_claim(bench.at, holder.workflow)
    await fenced(bench.checkpointer.record(holder, "k", 1), "a record after the store lost the claim")
    same(await bench.checkpointer.load(holder.workflow), {}, "load after a refused write")


@shows("CKP-RECORD-FENCED")
async def also_for_a_key_that_is_there(bench: Bench) -> None:
    """The fence is asked before the record: a superseded pass does not get the stored value."""
    workflow = bench.workflow()
    await bench.checkpointer.supply(workflow, "k", "stored")
    old, _ = await superseded(bench, workflow)
    for value in ("stored", "other"):
        await fenced(bench.checkpointer.record(old, "k", value), "a record of a key that is there, by a superseded pass")


@shows("CKP-RECORD-FENCED")
async def and_changes_no_record(bench: Bench) -> None:
    """After a refusal the records, their order, their times and the entries' order are as before."""
    old, new = await superseded(bench)
    await bench.checkpointer.record(new, "a", 1)
    first = await bench.checkpointer.append(new.workflow, "first")
    async with unchanged(bench, new.workflow, "a refused write"):
        for key in ("a", "b"):
            await fenced(bench.checkpointer.record(old, key, "stale"), "a record by a superseded pass")
    second = await bench.checkpointer.append(new.workflow, "second")
    await bench.checkpointer.record(new, "b", 2)
    same(await bench.checkpointer.load(new.workflow), {"a": 1, first.key: "first", second.key: "second", "b": 2}, "load")
    holds(second.key > first.key, "entries sort as before", (first.key, second.key))


@shows("CKP-RECORD-FENCED", short=True)
async def and_gives_no_sign_of_life(bench: Bench) -> None:
    """A refused write neither prolongs the rival's claim nor ends it."""
    for window in bench.windows():
        watch = bench.stopwatch()
        old = await bench.claim(bench.workflow())
        await bench.checkpointer.release(old)
        new = await bench.claim(old.workflow, LONG, window)
        await bench.elapse(window * 0.6)
        await fenced(bench.checkpointer.record(old, "k", 1), "a record by a superseded pass")
        rival = await bench.checkpointer.claim(new.workflow, LONG, window)
        if watch() < window * 0.9:
            holds(rival is None, "the rival's claim outlives a refused write", rival)
            await bench.elapse(window * 0.5)
            await free(bench, new.workflow, "the rival's window is over, and a refused write was no sign of its life")
            return


@shows("CKP-RECORD-LAPSED", short=True)
async def a_lapsed_pass_writes_until_somebody_claims(bench: Bench) -> None:
    """Lapse alone fences nobody: neither the window's nor the budget's."""
    for budget, alive in ((LONG, bench.window), (bench.window, LONG)):
        holder = await bench.claim(bench.workflow(), budget, alive)
        await bench.elapse(bench.window)
        given = await answers(bench.checkpointer.record(holder, "k", 1), "a record by a lapsed pass that nobody has superseded")
        same(given, Recorded(1, True), "what a lapsed pass gets")
        same(await bench.checkpointer.load(holder.workflow), {"k": 1}, "load")


@shows("CKP-RECORD-LIVE", short=True)
async def a_record_is_a_sign_of_life(bench: Bench) -> None:
    """Records every half window keep the claim without a renewal."""
    await kept_alive(bench, LONG, lambda holder, number, _: bench.checkpointer.record(holder, f"k{number}", number), "a record")


@shows("CKP-RECORD-LIVE", short=True)
async def a_losing_record_is_one_too(bench: Bench) -> None:
    """An accepted write that finds the key taken keeps the claim as well."""
    await kept_alive(bench, LONG, lambda holder, number, _: bench.checkpointer.record(holder, "k", number), "a losing record")


@shows("CKP-RECORD-LIVE", short=True)
async def never_past_the_budget(bench: Bench) -> None:
    """However much a pass writes, its claim is over with its budget."""
    holder = await bench.claim(bench.workflow(), bench.window * 2, bench.window)
    for number in range(4):
        await bench.elapse(bench.window / 2)
        await bench.checkpointer.record(holder, f"k{number}", number)
    await free(bench, holder.workflow, "the budget is over")


@shows("CKP-RECORD-STILL", short=True)
async def a_losing_write_moves_nothing(bench: Bench) -> None:
    """Neither a loser nor a repeat moves value, position or time, by whichever method."""
    holder = await bench.claim(bench.workflow())
    for key in ("c", "a", "b"):
        await bench.checkpointer.record(holder, key, key)
    await bench.elapse(bench.window / 4)
    for key, value in (("c", "other"), ("c", "c"), ("a", "a"), ("b", 1)):
        async with unchanged(bench, holder.workflow, f"a second write of {key!r}"):
            await answers(bench.checkpointer.record(holder, key, value), "a second record")
        async with unchanged(bench, holder.workflow, f"a supply of {key!r}, which is there"):
            await answers(bench.checkpointer.supply(holder.workflow, key, value), "a supply of a key that is there")


@shows("CKP-RECORD-CONCURRENT")
async def many_keys_at_once_all_land(bench: Bench) -> None:
    """Sixty records of one pass at once, through two instances: each gets its own, all are there, none twice."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    stores = (bench.checkpointer, other.checkpointer)
    given = await answers(
        together(*(stores[number % 2].record(holder, f"k{number}", number) for number in range(60))), "sixty records at once"
    )
    same(list(given), [Recorded(number, True) for number in range(60)], "what sixty records at once get")
    loaded = await bench.checkpointer.load(holder.workflow)
    same(dict(sorted(loaded.items())), {f"k{number}": number for number in sorted(range(60), key=str)}, "load")


@shows("CKP-RECORD-CONCURRENT")
async def a_refused_neighbour_disturbs_nobody(bench: Bench) -> None:
    """Among records at once, one that cannot be stored and one that is fenced fail alone."""
    old, new = await superseded(bench)
    wrong = unencodable(bench)
    refused = [
        raises(bench.checkpointer.record(new, "wrong", wrong), NotEncodable, "a record that cannot be stored"),
        fenced(bench.checkpointer.record(old, "stale", 1), "a record by a superseded pass"),
    ]

    async def kept(number: int) -> None:
        given = await answers(bench.checkpointer.record(new, f"k{number}", number), "a record beside one that is refused")
        same(given, Recorded(number, True), "what a record beside one that is refused gets")

    async def refuse(number: int) -> None:
        await refused[number]

    await together(*(kept(number) for number in range(5)), refuse(0), refuse(1), *(kept(number) for number in range(5, 20)))
    same(sorted(await bench.checkpointer.load(new.workflow)), sorted(f"k{number}" for number in range(20)), "the keys of load")


@shows("CKP-RECORD-CONCURRENT")
async def a_cancelled_caller_cancels_nobody_else(bench: Bench) -> None:
    """Wherever one of several callers is cancelled, the others' records land; its own is there as a whole or not at all."""
    for turns in range(12):
        holder = await bench.claim(bench.workflow())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(bench.checkpointer.record(holder, f"k{number}", number)) for number in range(8)]
            for _ in range(turns):
                await asyncio.sleep(0)
            tasks[turns % 8].cancel()
        others = [number for number in range(8) if number != turns % 8]
        same([tasks[number].cancelled() for number in others], [False] * 7, "whether the others were cancelled")
        same([tasks[number].result() for number in others], [Recorded(number, True) for number in others], "what the others get")
        loaded = await bench.checkpointer.load(holder.workflow)
        same([loaded.get(f"k{number}") for number in others], others, "what is stored of the others")
        holds(loaded.get(f"k{turns % 8}", turns % 8) == turns % 8, "the cancelled record is whole or absent", loaded)


@shows("CKP-RECORD-CONCURRENT", "joined", when=lambda said: joins(said) and interleaves(said))
async def an_open_transaction_holds_its_own_workflow_only(bench: Bench) -> None:
    """While an application's transaction holds one workflow, records of others through the same instance return."""
    holder = await bench.claim(bench.workflow())
    async with bench.harness.application(bench.at) as application:
        await application.client.arrive(bench.workflow(), "k", 1)
        given = await answers(
            bench.checkpointer.record(holder, "k", 1), "a record beside an open transaction of another workflow"
        )
        same(given, Recorded(1, True), "what a record beside an open transaction gets")


@shows("CKP-RECORD-REFUSED")
async def what_cannot_be_stored_leaves_nothing(bench: Bench) -> None:
    """A value that the codec refuses fails naming workflow and key, writes nothing, and the key is free."""
    holder, wrong = await bench.claim(bench.workflow()), unencodable(bench)
    await bench.checkpointer.record(holder, "before", 0)
    async with unchanged(bench, holder.workflow, "a refused value"):
        refused = await raises(bench.checkpointer.record(holder, "k", wrong), NotEncodable, "a record of what the codec refuses")
        same((refused.workflow, refused.key), (holder.workflow, "k"), "the workflow and the key that the error names")
        await raises(bench.checkpointer.supply(holder.workflow, "k", wrong), NotEncodable, "a supply of what the codec refuses")
        await raises(bench.checkpointer.append(holder.workflow, wrong), NotEncodable, "an append of what the codec refuses")
    same(await bench.checkpointer.record(holder, "k", "right"), Recorded("right", True), "what the key takes afterwards")


@shows("CKP-RECORD-REFUSED")
async def and_the_claim_stays_usable(bench: Bench) -> None:
    """The pass still holds the workflow after a refusal."""
    holder, wrong = await bench.claim(bench.workflow()), unencodable(bench)
    await raises(bench.checkpointer.record(holder, "k", wrong), NotEncodable, "a record of what the codec refuses")
    await held(bench, holder.workflow, "after a refused value")
    same(await bench.checkpointer.renew(holder, LONG), True, "renew after a refused value")
    same(
        await answers(bench.checkpointer.record(holder, "k", 1), "a record after a refused value"),
        Recorded(1, True),
        "what a record gets",
    )
