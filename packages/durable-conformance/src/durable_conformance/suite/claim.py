"""claim: one pass at a time, with tokens that rise for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from durable_conformance.bench import LONG, Bench
from durable_conformance.case import shows
from durable_conformance.expect import NotShown, answers, fenced, holds, same
from durable_conformance.suite._common import free, held, interleaves, together
from durable_core.contract import Pass, Recorded


@shows("CKP-CLAIM-ONE")
async def of_many_at_once_one_is_granted(bench: Bench) -> None:
    """Eight claims at once, through two instances: one pass, seven refusals."""
    other = await bench.open()
    for _ in range(20):
        workflow = bench.workflow()
        stores = (bench.checkpointer, other.checkpointer) * 4
        given = await answers(together(*(store.claim(workflow, LONG, LONG) for store in stores)), "eight claims at once")
        same(sum(holder is not None for holder in given), 1, "how many of eight claims at once are granted")


@shows("CKP-CLAIM-ONE")
async def a_live_pass_keeps_others_out(bench: Bench) -> None:
    """While one is live another claim is refused, by the same instance and by a second; other workflows are free."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())
    for store in (bench.checkpointer, other.checkpointer):
        same(
            await answers(store.claim(holder.workflow, LONG, LONG), "a claim of a workflow that is held"),
            None,
            "a claim of a workflow that is held",
        )
    await bench.claim(bench.workflow())


@shows("CKP-CLAIM-RISING")
async def tokens_rise_over_release(bench: Bench) -> None:
    """Each pass has a larger token than the last, through whichever instance, over a hundred passes."""
    other, workflow, last = await bench.open(), bench.workflow(), -1
    for number in range(101):
        store = (bench, other)[number % 2].checkpointer
        holder = await bench.claim(workflow, by=store)
        holds(holder.token > last, f"a token above {last}", holder)
        same(holder.workflow, workflow, "the workflow of the pass")
        last = holder.token
        await store.release(holder)


@shows("CKP-CLAIM-RISING", short=True)
async def tokens_rise_over_lapse(bench: Bench) -> None:
    """A pass that lapsed is followed by a larger token, and fenced by it."""
    old = await bench.claim(bench.workflow(), LONG, bench.window)
    for _ in range(3):
        await bench.elapse(bench.window)
        new = await bench.claim(old.workflow, LONG, bench.window)
        holds(new.token > old.token, f"a token above {old.token}, after a lapse", new)
        await fenced(bench.checkpointer.record(old, "k", 1), "a record by the pass that lapsed")
        old = new


@shows("CKP-CLAIM-RISING")
async def tokens_rise_over_discard(bench: Bench) -> None:
    """A discarded id goes on where it was."""
    workflow, last = bench.workflow(), -1
    for _ in range(4):
        holder = await bench.claim(workflow)
        holds(holder.token > last, f"a token above {last}, after a discard", holder)
        last = holder.token
        await bench.checkpointer.record(holder, "k", 1)
        await bench.checkpointer.discard(workflow)
        same(await answers(bench.durable.delete(workflow), "delete"), 0, "what delete removes after discard")


@shows("CKP-CLAIM-RISING", "restart")
async def tokens_rise_over_a_restart(bench: Bench) -> None:
    """When everybody has closed and opened again, the next token is larger still."""
    old = await bench.claim(bench.workflow())
    await bench.checkpointer.release(old)
    await bench.reopen()
    new = await bench.claim(old.workflow)
    holds(new.token > old.token, f"a token above {old.token}, after a restart", new)
    await fenced(bench.checkpointer.record(old, "k", 1), "a record by the pass from before the restart")


@shows("CKP-CLAIM-RISING", "loss")
async def tokens_rise_over_the_loss_of_the_claim(bench: Bench) -> None:
    """Where the store lost the claim, the next token is larger all the same."""
    old = await bench.claim(bench.workflow())
    for _ in range(3):
        await bench.harness.lose_claim(bench.at, old.workflow)
        new = await bench.claim(old.workflow)
        holds(new.token > old.token, f"a token above {old.token}, after the claim was lost", new)
        await fenced(bench.checkpointer.record(old, "k", 1), "a record by the pass whose claim was lost")
        old = new


@shows("CKP-CLAIM-REFUSED")
async def a_refusal_is_none(bench: Bench) -> None:
    """It is no exception, and comes without waiting for the holder."""
    holder = await bench.claim(bench.workflow())
    for _ in range(3):
        same(
            await answers(bench.checkpointer.claim(holder.workflow, LONG, LONG), "a claim of a workflow that is held"),
            None,
            "what it gives",
        )


@shows("CKP-CLAIM-REFUSED", short=True)
async def a_refusal_changes_nothing(bench: Bench) -> None:
    """The holder stays current, and its claim lapses when it would have: neither its window nor its budget moved."""
    for window in bench.windows():
        watch = bench.stopwatch()
        holder = await bench.claim(bench.workflow(), LONG, window)
        await bench.elapse(window * 0.6)
        rival = await bench.checkpointer.claim(holder.workflow, timedelta(days=1), timedelta(days=1))
        if watch() >= window * 0.9:
            continue
        same(rival, None, "a claim of a workflow that is held")
        await bench.elapse(window * 0.5)
        await free(bench, holder.workflow, "the window is over, and a refused claim did not move it")
        break
    holder = await bench.claim(bench.workflow())
    same(await bench.checkpointer.claim(holder.workflow, LONG, bench.window), None, "a claim of a workflow that is held")
    same(
        await answers(bench.checkpointer.record(holder, "k", 1), "a record after a refused claim"),
        Recorded(1, True),
        "what it gets",
    )
    await bench.elapse(bench.window * 1.2)
    await held(bench, holder.workflow, "a refused claim did not shorten the holder's")


@shows("CKP-CLAIM-LAPSE", short=True)
async def silence_ends_it_long_before_the_budget(bench: Bench) -> None:
    """Without a sign of life it lapses with its window, and needs no release."""
    holder = await bench.claim(bench.workflow(), LONG, bench.window)
    await bench.elapse(bench.window)
    new = await free(bench, holder.workflow, "the window is over")
    holds(new.token > holder.token, "the new pass has a larger token", new)


@shows("CKP-CLAIM-LAPSE", short=True)
async def the_budget_ends_it_before_the_window(bench: Bench) -> None:
    """With a window longer than the budget it lapses with the budget."""
    holder = await bench.claim(bench.workflow(), bench.window, LONG)
    await bench.elapse(bench.window)
    await free(bench, holder.workflow, "the budget is over")


@shows("CKP-CLAIM-LAPSE", short=True)
async def and_nothing_ends_it_earlier(bench: Bench) -> None:
    """Just before the earlier of the two is over another claim is refused."""
    for one in range(2):
        for window in bench.windows():
            watch = bench.stopwatch()
            holder = await bench.claim(bench.workflow(), *((window, LONG) if one else (LONG, window)))
            await bench.elapse(window * (0.99 if bench.manual else 0.8))
            rival = await bench.checkpointer.claim(holder.workflow, LONG, LONG)
            if watch() < window:
                same(rival, None, f"a claim just before the {'budget' if one else 'window'} is over")
                break


@shows("CKP-CLAIM-KEPT", "retention", short=True)
async def a_new_pass_keeps_what_was_about_to_go(bench: Bench) -> None:
    """A finished workflow that is claimed again outlives the time that it had left."""
    retention = bench.window * 2
    async with bench.opened(retention=retention) as store:
        workflow = bench.workflow()
        await store.arrive(workflow, "k", 1)
        (turn,) = await answers(store.begin(LONG, LONG), "begin")
        await store.finish(turn, "done")
        await bench.elapse(retention / 2)
        holder = await bench.claim(workflow, by=store.checkpointer)
        await bench.elapse(retention)
        same(
            (await store.checkpointer.load(workflow)).get("k"),
            1,
            "what a claimed workflow still holds when its retention is over",
        )
        same(await answers(store.checkpointer.record(holder, "r", 1), "a record by its pass"), Recorded(1, True), "what it gets")


@shows("CKP-CLAIM-REFUSED", "effects", when=interleaves)
async def a_holders_effect_does_not_hold_it_up(bench: Bench) -> None:
    """The refusal comes while the holder's effect is at work."""
    other, holder = await bench.open(), await bench.claim(bench.workflow())

    async def rival() -> None:
        same(
            await answers(other.checkpointer.claim(holder.workflow, LONG, LONG), "a claim while the holder's effect is at work"),
            None,
            "what it gives",
        )

    made = bench.effects.meanwhile("c", rival)
    if made is None:
        raise NotShown("the harness has no effect that awaits")
    await bench.checkpointer.transact(holder, "k", made)


@shows("CKP-EXTEND-GRANT", short=True)
async def it_grants_the_budget_from_now(bench: Bench) -> None:
    """After an extension the claim outlives its first budget, and is over with the second."""
    for window in bench.windows():
        holder = await bench.claim(bench.workflow(), window, LONG)
        await bench.elapse(window * 0.5)
        watch = bench.stopwatch()
        same(await bench.checkpointer.extend(holder, window * 2, LONG), True, "what extend gives")
        await bench.elapse(window)
        rival = await bench.checkpointer.claim(holder.workflow, LONG, LONG)
        if watch() >= window * 1.8:
            continue
        same(rival, None, "a claim when the first budget is over and the second is not")
        await bench.elapse(window)
        await free(bench, holder.workflow, "the second budget is over")
        return


@shows("CKP-EXTEND-GRANT", short=True)
async def it_is_a_sign_of_life(bench: Bench) -> None:
    """Extensions every half window keep the claim."""
    for window in bench.windows():
        holder = await bench.claim(bench.workflow(), LONG, window)
        for _ in range(6):
            await bench.elapse(window / 2)
            watch = bench.stopwatch()
            await bench.checkpointer.extend(holder, LONG, window)
            rival = await bench.checkpointer.claim(holder.workflow, LONG, window)
            if watch() >= window * 0.9:
                break
            same(rival, None, "a claim of a workflow that is extended every half window")
        else:
            await bench.elapse(window)
            await free(bench, holder.workflow, "the window that the last extension gave is over")
            return


@shows("CKP-EXTEND-GRANT", short=True)
async def it_never_brings_the_end_forward(bench: Bench) -> None:
    """A shorter budget leaves the longer one in force."""
    holder = await bench.claim(bench.workflow(), LONG, LONG)
    same(await bench.checkpointer.extend(holder, bench.window, LONG), True, "what extend gives")
    await bench.elapse(bench.window * 1.1)
    await held(bench, holder.workflow, "a shorter extension is over, and the budget is not")


@shows("CKP-EXTEND-LAPSED", short=True)
async def it_works_on_a_lapsed_claim_that_nobody_took(bench: Bench) -> None:
    """Whether the window or the budget ran out, the pass holds the workflow again."""
    for budget, alive in ((LONG, bench.window), (bench.window, LONG)):
        holder = await bench.claim(bench.workflow(), budget, alive)
        await bench.elapse(bench.window * 1.1)
        same(await bench.checkpointer.extend(holder, LONG, LONG), True, "extend of a lapsed claim that nobody took")
        await held(bench, holder.workflow, "an extended claim is live again")


@shows("CKP-HOLD-LOST", short=True)
async def both_answer_false_to_a_superseded_pass(bench: Bench) -> None:
    """extend and renew give False and raise nothing: superseded by lapse or release, and for a token never issued."""
    old = await bench.claim(bench.workflow(), LONG, bench.window)
    await bench.elapse(bench.window)
    new = await free(bench, old.workflow, "the window is over")
    for stale in (old, replace(new, token=new.token + 1)):
        same(
            await answers(bench.checkpointer.renew(stale, LONG), "renew by a superseded pass"),
            False,
            f"renew with token {stale.token}",
        )
        same(
            await answers(bench.checkpointer.extend(stale, LONG, LONG), "extend by a superseded pass"),
            False,
            f"extend with token {stale.token}",
        )
    same(await answers(bench.checkpointer.record(new, "k", 1), "a record by the current pass"), Recorded(1, True), "what it gets")


@shows("CKP-HOLD-LOST")
async def and_to_a_released_one(bench: Bench) -> None:
    """After its release a pass gets False, before and after another came and went."""
    old = await bench.claim(bench.workflow())
    await bench.checkpointer.release(old)
    for _ in range(2):
        same(await answers(bench.checkpointer.renew(old, LONG), "renew after the release"), False, "renew after the release")
        same(
            await answers(bench.checkpointer.extend(old, LONG, LONG), "extend after the release"),
            False,
            "extend after the release",
        )
        await bench.checkpointer.release(await free(bench, old.workflow, "a released workflow"))


@shows("CKP-HOLD-LOST", short=True)
async def and_change_nothing_of_the_rivals(bench: Bench) -> None:
    """The rival's claim lapses when it would have, by window and by budget."""
    for budget, alive in ((LONG, bench.window), (bench.window, LONG)):
        old = await bench.claim(bench.workflow())
        await bench.checkpointer.release(old)
        new = await bench.claim(old.workflow, budget, alive)
        await answers(bench.checkpointer.renew(old, LONG), "renew by a superseded pass")
        await answers(bench.checkpointer.extend(old, LONG, LONG), "extend by a superseded pass")
        await bench.elapse(bench.window)
        await free(bench, new.workflow, "the rival's claim is over, whatever a superseded pass asked")


@shows("CKP-RENEW-LIVE", short=True)
async def a_renewal_is_a_sign_of_life(bench: Bench) -> None:
    """Renewals every half window keep the claim, and the window that the last one gave ends it."""
    for window in bench.windows():
        holder = await bench.claim(bench.workflow(), LONG, window)
        for _ in range(6):
            await bench.elapse(window / 2)
            watch = bench.stopwatch()
            same(await bench.checkpointer.renew(holder, window), True, "what renew gives")
            rival = await bench.checkpointer.claim(holder.workflow, LONG, window)
            if watch() >= window * 0.9:
                break
            same(rival, None, "a claim of a workflow that is renewed every half window")
        else:
            await bench.elapse(window)
            await free(bench, holder.workflow, "the window that the last renewal gave is over")
            return


@shows("CKP-RENEW-LIVE", short=True)
async def and_does_not_touch_the_budget(bench: Bench) -> None:
    """However often and long a pass renews, its claim is over with its budget."""
    holder = await bench.claim(bench.workflow(), bench.window * 2, bench.window)
    for _ in range(3):
        await bench.elapse(bench.window / 2)
        await bench.checkpointer.renew(holder, LONG)
    await bench.elapse(bench.window / 2)
    await free(bench, holder.workflow, "the budget is over")


@shows("CKP-RENEW-BUDGET", short=True)
async def a_spent_budget_is_false(bench: Bench) -> None:
    """Once the budget is spent renew gives False and keeps nothing; an extension helps."""
    holder = await bench.claim(bench.workflow(), bench.window, LONG)
    await bench.elapse(bench.window)
    same(await answers(bench.checkpointer.renew(holder, LONG), "renew of a spent budget"), False, "renew of a spent budget")
    same(await bench.checkpointer.extend(holder, LONG, LONG), True, "extend of a spent budget that nobody took")
    same(await bench.checkpointer.renew(holder, LONG), True, "renew after the extension")
    other = await bench.claim(bench.workflow(), bench.window, LONG)
    await bench.elapse(bench.window)
    await bench.checkpointer.renew(other, LONG)
    await free(bench, other.workflow, "the budget is spent, and a refused renewal did not lengthen it")


@shows("CKP-RELEASE-FREE")
async def it_can_be_claimed_at_once(bench: Bench) -> None:
    """After a release the next claim is granted, through whichever instance, and the fence stays."""
    other, workflow = await bench.open(), bench.workflow()
    old: Pass | None = None
    for store in (bench, other, bench):
        holder = await answers(store.checkpointer.claim(workflow, LONG, LONG), "a claim after a release")
        assert holder is not None or old is not None
        if holder is None:
            holds(False, "a claim after a release is granted", "None")
            return
        if old is not None:
            holds(holder.token > old.token, f"a token above {old.token}", holder)
            await fenced(bench.checkpointer.record(old, "k", 1), "a record by the pass that released")
        await store.checkpointer.release(holder)
        old = holder


@shows("CKP-RELEASE-FREE", short=True)
async def a_superseded_pass_releases_nothing(bench: Bench) -> None:
    """The release of a pass that was superseded leaves the rival's claim, and raises nothing."""
    old = await bench.claim(bench.workflow(), LONG, bench.window)
    await bench.elapse(bench.window)
    new = await free(bench, old.workflow, "the window is over")
    for stale in (old, old, replace(new, token=new.token + 1)):
        await answers(bench.checkpointer.release(stale), "a release by a superseded pass")
        await held(bench, new.workflow, "after a release by a superseded pass")
    same(await bench.checkpointer.renew(new, LONG), True, "renew by the rival")


@shows("CKP-RELEASE-FINAL")
async def no_sign_of_life_takes_it_back(bench: Bench) -> None:
    """After its release neither renew, extend nor a write of that pass keeps anybody out."""
    holder = await bench.claim(bench.workflow())
    await bench.checkpointer.release(holder)
    await answers(bench.checkpointer.renew(holder, LONG), "renew after the release")
    await answers(bench.checkpointer.extend(holder, LONG, LONG), "extend after the release")
    new = await free(bench, holder.workflow, "a pass released, and gave signs of life afterwards")
    await bench.checkpointer.release(new)
    await _written_after(bench, new)
    await free(bench, new.workflow, "a pass released, and wrote afterwards")


async def _written_after(bench: Bench, holder: Pass) -> None:
    from durable_core.errors import Fenced

    try:
        await bench.checkpointer.record(holder, "k", 1)
        landed = True
    except Fenced:
        landed = False
    same("k" in await bench.checkpointer.load(holder.workflow), landed, "whether a write after the release is there, as it said")


@shows("CKP-RELEASE-FINAL")
async def a_write_after_the_next_claim_is_fenced(bench: Bench) -> None:
    """Once somebody has claimed, what the released pass writes is refused."""
    old = await bench.claim(bench.workflow())
    await bench.checkpointer.release(old)
    await bench.claim(old.workflow)
    await fenced(bench.checkpointer.record(old, "k", 1), "a record by a released pass, after the next claim")
    same(await bench.checkpointer.load(old.workflow), {}, "load")
