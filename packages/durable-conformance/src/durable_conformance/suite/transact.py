"""transact: an effect and its record, together or not at all."""

from __future__ import annotations

import asyncio

from durable_conformance.bench import LONG, Bench
from durable_conformance.case import shows
from durable_conformance.expect import Broken, NotApplicable, NotShown, answers, fenced, holds, raises, same
from durable_conformance.suite._common import (
    free,
    interleaves,
    kept_alive,
    never_transacts,
    superseded,
    tears,
    together,
    transacts,
    unchanged,
    undoes,
    unencodable,
)
from durable_core.contract import Recorded, Torn
from durable_core.errors import EffectTorn, Misconfigured, NotEncodable


async def applied(bench: Bench, counter: str, times: int, promised: str) -> None:
    """Ask how often an effect was applied."""
    same(await bench.effects.applied(counter), times, f"{promised}: how often the effect is applied")


def effect(bench: Bench, counter: str, gives: object = "done") -> object:
    """Give an effect that adds one and gives a value."""
    made = bench.effects.add(counter, gives)
    if made is None:
        raise NotShown(f"the harness has no effect that gives {gives!r}")
    return made


@shows("CKP-TRANSACT-ONCE", "effects", when=transacts)
async def it_is_applied_once_for_all_passes(bench: Bench) -> None:
    """The same pass, a later one and a second instance get the recorded value, and the effect is applied once."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    for number in range(2):
        given = await answers(bench.checkpointer.transact(holder, "k", effect(bench, "c", f"run {number}")), "transact")
        same(given, "run 0", "what transact gives")
    await bench.checkpointer.release(holder)
    later = await bench.claim(holder.workflow)
    same(await other.checkpointer.transact(later, "k", effect(bench, "c", "run 3")), "run 0", "what a later pass gets")
    await applied(bench, "c", 1, "three calls of two passes")
    same(await bench.checkpointer.load(holder.workflow), {"k": "run 0"}, "load")


@shows("CKP-TRANSACT-ONCE", "effects", when=transacts)
async def it_is_applied_once_by_calls_at_once(bench: Bench) -> None:
    """Four calls of one key at once, through two instances, apply it once and give one value."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    for number in range(10):
        stores = (bench.checkpointer, other.checkpointer) * 2
        given = await answers(
            together(*(store.transact(holder, f"k{number}", effect(bench, f"c{number}")) for store in stores)),
            "four transacts of one key at once",
        )
        same(list(given), ["done"] * 4, "what four transacts of one key at once give")
        await applied(bench, f"c{number}", 1, "four transacts of one key at once")


@shows("CKP-TRANSACT-ONCE", "effects", "restart", when=transacts)
async def it_is_applied_once_over_a_restart(bench: Bench) -> None:
    """After everybody has closed and opened again the effect is there, and is not applied again."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.transact(holder, "k", effect(bench, "c", 1))
    await bench.reopen()
    later = await bench.claim(holder.workflow) if await bench.checkpointer.renew(holder, LONG) is False else holder
    same(await bench.checkpointer.transact(later, "k", effect(bench, "c", 2)), 1, "what transact gives after a restart")
    await applied(bench, "c", 1, "a transact before and one after a restart")


@shows("CKP-TRANSACT-ATOMIC", "effects", when=undoes)
async def an_effect_that_fails_leaves_nothing(bench: Bench) -> None:
    """Its own error passes through, what it wrote is undone, the key is free, and the next call runs it."""
    holder = await bench.claim(bench.workflow())
    for first in (True, False):
        async with unchanged(bench, holder.workflow, "an effect that failed"):
            await _fails(bench, bench.checkpointer.transact(holder, "k", bench.effects.fail("c", first=first)))
            await applied(bench, "c", 0, "an effect that failed")
    same(
        await answers(bench.checkpointer.transact(holder, "k", effect(bench, "c")), "the next transact"),
        "done",
        "what the next transact gives",
    )
    await applied(bench, "c", 1, "a failed effect and a good one")


async def _fails(bench: Bench, call: object) -> None:
    assert asyncio.iscoroutine(call)
    raised = await raises(call, Exception, "transact of an effect that fails, which raises the effect's own error and")
    holds(
        not isinstance(raised, (NotEncodable, Misconfigured, EffectTorn)), "the effect's own error passes through", repr(raised)
    )


@shows("CKP-TRANSACT-ATOMIC", "effects", when=undoes)
async def a_result_that_cannot_be_stored_undoes_the_effect(bench: Bench) -> None:
    """When the codec refuses the result, the effect is undone and the key is free."""
    holder, wrong = await bench.claim(bench.workflow()), unencodable(bench)
    async with unchanged(bench, holder.workflow, "a result that cannot be stored"):
        await raises(
            bench.checkpointer.transact(holder, "k", effect(bench, "c", wrong)),
            NotEncodable,
            "transact of a result that the codec refuses",
        )
    await applied(bench, "c", 0, "a result that cannot be stored")
    same(await bench.checkpointer.transact(holder, "k", effect(bench, "c")), "done", "what the next transact gives")


@shows("CKP-TRANSACT-ATOMIC", "effects", when=transacts)
async def a_cancelled_caller_leaves_both_or_neither(bench: Bench) -> None:
    """Wherever the caller is cancelled, the effect is applied exactly when its record is there."""
    for turns in range(14):
        holder = await bench.claim(bench.workflow())
        task = asyncio.create_task(bench.checkpointer.transact(holder, "k", effect(bench, f"c{turns}")))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await _settled(bench, holder.workflow, f"c{turns}", f"a transact cancelled after {turns} turns of the loop")


async def _settled(bench: Bench, workflow: str, counter: str, what: str) -> None:
    records = len(await bench.checkpointer.load(workflow))
    times = await bench.effects.applied(counter)
    if records != times:  # a call that was cancelled on its way may still be at work in the store
        await asyncio.sleep(0.1)
        records, times = len(await bench.checkpointer.load(workflow)), await bench.effects.applied(counter)
    holds(records == times, f"{what}: as many effects as records", f"{times} effects and {records} records")


@shows("CKP-TRANSACT-ATOMIC", "effects", when=transacts)
async def the_record_is_what_a_reload_gives(bench: Bench) -> None:
    """Whatever an effect gives, the call, the repeated call and load give the same value, or it is refused."""
    holder = await bench.claim(bench.workflow())
    empty: list[object] = []
    nothing: dict[str, object] = {}
    values: tuple[object, ...] = (2**53 + 1, None, empty, nothing, "", 0, False, "\u00e9", [empty, nothing], -1.5)
    for number, value in enumerate(values):
        made = bench.effects.add(f"c{number}", value)
        if made is None:
            continue
        given = await answers(
            bench.checkpointer.transact(holder, f"k{number}", made), f"transact of an effect that gives {value!r}"
        )
        same(given, bench.checkpointer.roundtrip(value), f"what transact gives for {value!r}")
        same((await bench.checkpointer.load(holder.workflow))[f"k{number}"], given, f"load of what an effect gave as {value!r}")


@shows("CKP-TRANSACT-RECORDED", "effects", when=transacts)
async def a_recorded_key_runs_no_effect(bench: Bench) -> None:
    """The recorded value comes back, however it was written, and the effect does not run."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "r", "recorded")
    await bench.checkpointer.supply(holder.workflow, "s", None)
    ran: list[str] = []
    for key, promised in (("r", "recorded"), ("s", None)):
        made = bench.effects.inside("c", lambda: ran.append("ran")) or effect(bench, "c")
        same(
            await answers(bench.checkpointer.transact(holder, key, made), "transact of a recorded key"),
            promised,
            f"what transact of {key!r} gives",
        )
    same(ran, [], "how often the effect of a recorded key ran")
    await applied(bench, "c", 0, "a recorded key")


@shows("CKP-TRANSACT-RECORDED", "effects", when=transacts)
async def the_fence_is_asked_first(bench: Bench) -> None:
    """A superseded pass is fenced even where the key is recorded."""
    old, new = await superseded(bench)
    await bench.checkpointer.record(new, "k", "stored")
    await fenced(bench.checkpointer.transact(old, "k", effect(bench, "c")), "transact of a recorded key by a superseded pass")
    await applied(bench, "c", 0, "a recorded key, asked for by a superseded pass")


@shows("CKP-TRANSACT-FENCED", "effects", when=transacts)
async def a_superseded_pass_applies_nothing(bench: Bench) -> None:
    """It is refused, its effect does not run, and nothing changes."""
    old, new = await superseded(bench)
    ran: list[str] = []
    async with unchanged(bench, new.workflow, "a refused transact"):
        made = bench.effects.inside("c", lambda: ran.append("ran")) or effect(bench, "c")
        await fenced(bench.checkpointer.transact(old, "k", made), "transact by a superseded pass")
    same(ran, [], "how often a superseded pass's effect ran")
    await applied(bench, "c", 0, "a superseded pass")


@shows("CKP-TRANSACT-FENCED", "effects", when=interleaves, short=True)
async def a_pass_superseded_meanwhile_applies_nothing(bench: Bench) -> None:
    """A rival's claim is granted while the effect is at work, and the transact is then fenced."""
    other, holder = await bench.open(), await bench.claim(bench.workflow(), LONG, bench.window)

    async def rival() -> None:
        await bench.elapse(bench.window)
        await answers(bench.claim(holder.workflow, by=other.checkpointer), "a rival's claim while an effect is at work")

    made = bench.effects.meanwhile("c", rival)
    await fenced(
        bench.checkpointer.transact(holder, "k", made), "transact by a pass that was superseded while its effect was at work"
    )
    await applied(bench, "c", 0, "superseded while at work")
    same(await bench.checkpointer.load(holder.workflow), {}, "load")


@shows("CKP-TRANSACT-FENCED", "effects", when=interleaves)
async def nothing_is_held_while_an_effect_is_at_work(bench: Bench) -> None:
    """This pass's renewal, everybody's supply and a rival's refused claim return while the effect is at work."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())

    async def life() -> None:
        renewed = await answers(other.checkpointer.renew(holder, LONG), "renew while an effect is at work")
        same(renewed, True, "what renew gives while an effect is at work")
        await answers(other.checkpointer.supply(holder.workflow, "s", 1), "supply while an effect is at work")
        rival = await answers(other.checkpointer.claim(holder.workflow, LONG, LONG), "claim while the holder's effect is at work")
        same(rival, None, "what a rival's claim gives while the holder is live")

    made = bench.effects.meanwhile("c", life)
    same(await answers(bench.checkpointer.transact(holder, "k", made), "transact"), "meanwhile", "what transact gives")
    same(list(await bench.checkpointer.load(holder.workflow)), ["s", "k"], "the keys of load")


@shows("CKP-TRANSACT-SUPPLIED", "effects", when=transacts)
async def a_value_supplied_before_stands(bench: Bench) -> None:
    """It comes back, and the effect is not applied."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.supply(holder.workflow, "k", "supplied")
    same(await bench.checkpointer.transact(holder, "k", effect(bench, "c")), "supplied", "what transact gives")
    await applied(bench, "c", 0, "a value supplied before")


@shows("CKP-TRANSACT-SUPPLIED", "effects", when=interleaves)
async def a_value_supplied_meanwhile_undoes_the_effect(bench: Bench) -> None:
    """It was first: it stands, it comes back, and the effect is undone."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())

    async def supply() -> None:
        given = await answers(other.checkpointer.supply(holder.workflow, "k", "supplied"), "supply while an effect is at work")
        same(given, Recorded("supplied", True), "what the supply gets")

    made = bench.effects.meanwhile("c", supply)
    given = await answers(bench.checkpointer.transact(holder, "k", made), "transact of a key that was supplied meanwhile")
    same(given, "supplied", "what transact gives")
    await applied(bench, "c", 0, "a value supplied meanwhile")
    same(await bench.checkpointer.load(holder.workflow), {"k": "supplied"}, "load")


@shows("CKP-TRANSACT-OWN", "effects", when=undoes)
async def an_effect_cannot_commit(bench: Bench) -> None:
    """An effect that tries to end its transaction fails, leaves no record, and what it did is undone."""
    made = bench.effects.commit("c")
    if made is None:
        raise NotApplicable("an effect of this store is handed no transaction")
    holder = await bench.claim(bench.workflow())
    await raises(bench.checkpointer.transact(holder, "k", made), Exception, "transact of an effect that tries to commit")
    await applied(bench, "c", 0, "an effect that tried to commit")
    same(await bench.checkpointer.load(holder.workflow), {}, "load after an effect that tried to commit")
    same(
        await answers(bench.checkpointer.transact(holder, "k", effect(bench, "c")), "the next transact"),
        "done",
        "what the next transact gives",
    )


@shows("CKP-TRANSACT-OWN", "effects", when=undoes)
async def a_swallowed_error_is_no_record(bench: Bench) -> None:
    """An effect that hid an error of the database does not become a record."""
    made = bench.effects.swallow("c")
    if made is None:
        raise NotApplicable("an effect of this store cannot hide an error of the database")
    holder = await bench.claim(bench.workflow())
    await raises(
        bench.checkpointer.transact(holder, "k", made), Exception, "transact of an effect that hid an error of the database"
    )
    await applied(bench, "c", 0, "an effect that hid an error")
    same(await bench.checkpointer.load(holder.workflow), {}, "load after an effect that hid an error")


@shows("CKP-TRANSACT-TORN", "effects", when=tears)
async def a_failure_before_the_first_write_leaves_nothing(bench: Bench) -> None:
    """Nothing is torn, and the next call runs the effect."""
    holder = await bench.claim(bench.workflow())
    await raises(
        bench.checkpointer.transact(holder, "k", bench.effects.fail("c", first=True)),
        Exception,
        "transact of an effect that fails at once",
    )
    same(await bench.checkpointer.load(holder.workflow), {}, "load after an effect that failed before it wrote")
    same(
        await answers(bench.checkpointer.transact(holder, "k", effect(bench, "c")), "the next transact"),
        "done",
        "what the next transact gives",
    )


@shows("CKP-TRANSACT-TORN", "effects", when=tears)
async def a_failure_after_it_tears_the_key(bench: Bench) -> None:
    """The mark takes key, position and time, load and history show it, and it is never repeated or reported done."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.record(holder, "before", 1)
    await raises(
        bench.checkpointer.transact(holder, "k", bench.effects.fail("c", first=False)),
        Exception,
        "transact of an effect that fails half way",
    )
    await bench.checkpointer.record(holder, "after", 2)
    loaded = await bench.checkpointer.load(holder.workflow)
    same(list(loaded), ["before", "k", "after"], "the keys of load")
    holds(isinstance(loaded["k"], Torn), "load shows the mark as Torn", loaded["k"])
    history = await bench.checkpointer.history(holder.workflow)
    holds(isinstance(history["k"].value, Torn), "history shows the mark as Torn", history["k"])
    for number in range(2):
        await raises(bench.checkpointer.transact(holder, "k", effect(bench, "c")), EffectTorn, f"transact {number} of a torn key")
    await raises(bench.checkpointer.record(holder, "k", 1), EffectTorn, "record of a torn key")
    await raises(bench.checkpointer.supply(holder.workflow, "k", 1), EffectTorn, "supply of a torn key")
    await applied(bench, "c", 1, "an effect that failed half way, and was asked for twice more")


@shows("CKP-TRANSACT-TORN", "effects", when=tears)
async def mend_replaces_the_mark(bench: Bench) -> None:
    """What an operator found to be true takes the mark's place, once."""
    holder = await bench.claim(bench.workflow())
    await raises(
        bench.checkpointer.transact(holder, "k", bench.effects.fail("c", first=False)),
        Exception,
        "transact of an effect that fails half way",
    )
    await bench.checkpointer.record(holder, "after", 2)
    mend = getattr(bench.checkpointer, "mend", None)
    if mend is None:
        raise Broken("a store that does not undo has mend(workflow, key, value)", "it has not")
    same(await mend(holder.workflow, "k", "found"), True, "what mend of a torn key gives")
    same(await mend(holder.workflow, "k", "again"), False, "what mend gives of a key that is not torn")
    same(await bench.checkpointer.load(holder.workflow), {"k": "found", "after": 2}, "load after mend")


@shows("CKP-TRANSACT-LIVE", "effects", when=transacts, short=True)
async def an_effect_is_a_sign_of_life(bench: Bench) -> None:
    """Effects every half window keep the claim, and not past its budget."""
    await kept_alive(
        bench, LONG, lambda holder, number, _: bench.checkpointer.transact(holder, f"k{number}", effect(bench, "c")), "a transact"
    )
    holder = await bench.claim(bench.workflow(), bench.window * 2, bench.window)
    for number in range(4):
        await bench.elapse(bench.window / 2)
        await bench.checkpointer.transact(holder, f"k{number}", effect(bench, "c"))
    await free(bench, holder.workflow, "the budget is over, whatever a transact said")


@shows("CKP-TRANSACT-NEVER", when=never_transacts)
async def a_store_without_effects_refuses_them(bench: Bench) -> None:
    """It says so with Misconfigured, runs nothing and writes nothing."""
    holder, ran = await bench.claim(bench.workflow()), list[str]()

    def effect(*_arguments: object) -> None:
        ran.append("ran")

    for thing in (effect, object(), "SELECT 1"):
        await raises(bench.checkpointer.transact(holder, "k", thing), Misconfigured, "transact on a store without effects")
    same(ran, [], "how often an effect ran")
    same(await bench.checkpointer.load(holder.workflow), {}, "load after refused effects")
