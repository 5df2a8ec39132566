"""The rules that hold for every method: whose clock, what may be repeated, what is refused, how methods are called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from durable_conformance.bench import LONG, NOW, Bench
from durable_conformance.case import shows
from durable_conformance.expect import Broken, answers, holds, raises, same
from durable_conformance.suite._common import unchanged
from durable_core import contract
from durable_core.contract import Delivery, Pass, Turn
from durable_core.errors import ReservedKey
from durable_core.keys import inbox_key

TICK = timedelta(milliseconds=2)


# ----------------------------------------------------------------------------------------------------------- ANY-CLOCK


@shows("ANY-CLOCK", short=True)
async def a_pass_begins_by_the_stores_clock(bench: Bench) -> None:
    """`at` lies between the store's clock before the claim and after it, is UTC, and is never before the delivery was due."""
    for _ in range(3):
        workflow = bench.workflow()
        before = await bench.scheduler.now()
        holder = await bench.claim(workflow)
        after = await bench.scheduler.now()
        same(holder.at.utcoffset(), timedelta(0), "the offset of the pass's time")
        holds(before - TICK <= holder.at <= after + TICK, f"a pass claimed between {before} and {after}", holder)
        await bench.elapse(bench.window / 4)
    workflow = bench.workflow()
    await bench.durable.arrive(workflow, "k", 1)
    turn = await bench.turn(workflow)
    due = await bench.scheduler.now() + bench.window / 2
    await bench.durable.pause(turn, due)
    await bench.elapse(bench.window / 2)
    turn = await bench.turn(workflow)
    holds(turn.holder.at >= turn.delivery.due, "a pass does not begin before its delivery was due", turn)
    holds(turn.delivery.due >= due - TICK, f"it was due at {due}", turn)


# ---------------------------------------------------------------------------------------------------------- ANY-REPEAT


@shows("ANY-REPEAT")
async def a_write_repeated_by_the_caller_changes_nothing(bench: Bench) -> None:
    """record, supply, append with an id, release and discard, called twice, leave what one call leaves."""
    holder = await bench.claim(bench.workflow())
    store, workflow = bench.checkpointer, holder.workflow
    calls: Mapping[str, Callable[[], Awaitable[object]]] = {
        "record": lambda: store.record(holder, "r", [1]),
        "supply": lambda: store.supply(workflow, "s", [1]),
        "append with once": lambda: store.append(workflow, [1], once="id"),
        "renew": lambda: store.renew(holder, LONG),
        "extend": lambda: store.extend(holder, LONG, LONG),
        "release": lambda: store.release(holder),
    }
    for name, call in calls.items():
        first = await answers(call(), name)
        async with unchanged(bench, workflow, f"a repeated {name}"):
            same(await answers(call(), f"a repeated {name}"), first, f"what a repeated {name} gives")
    next_holder = await bench.claim(workflow)
    holds(next_holder.token > holder.token, "the next token is larger", next_holder)
    await store.discard(workflow)
    same(await answers(store.discard(workflow), "a repeated discard"), 0, "what a repeated discard removes")


@shows("ANY-REPEAT", short=True)
async def so_does_a_second_claim(bench: Bench) -> None:
    """A claim that the caller repeats is refused until the window ends, and the first stands."""
    holder = await bench.claim(bench.workflow(), LONG, bench.window * 3)
    same(
        await answers(bench.checkpointer.claim(holder.workflow, LONG, LONG), "a repeated claim"),
        None,
        "what a repeated claim gives",
    )
    same(await answers(bench.checkpointer.renew(holder, LONG), "renew"), True, "renew after a repeated claim")


@shows("ANY-REPEAT", short=True)
async def an_answer_repeated_by_the_caller_changes_nothing(bench: Bench) -> None:
    """done, wake_at, bury, renew and cancel of a delivery, called twice, leave what one call leaves."""
    scheduler = bench.scheduler
    later = await scheduler.now() + bench.window
    calls: Mapping[str, Callable[[Delivery], Awaitable[object]]] = {
        "done": lambda delivery: scheduler.done(delivery),
        "wake_at": lambda delivery: scheduler.wake_at(delivery, later, attempt=4, lapses=1),
        "bury": lambda delivery: scheduler.bury(delivery, "reason"),
        "cancel": lambda delivery: scheduler.cancel(delivery.workflow),
    }
    for name, call in calls.items():
        workflow = bench.workflow(name)
        await scheduler.make_ready(workflow)
        delivery = await bench.take(workflow)
        for time in ("", "repeated "):
            await answers(call(delivery), f"a {time}{name}")
        reason = "reason" if name == "bury" else None
        same(await scheduler.buried(workflow), reason, f"the reason why it is buried, after a repeated {name}")
    await bench.elapse(bench.scheduler.lease + bench.window)
    again = await bench.take()
    same((again.workflow.split("-")[0], again.attempt, again.lapses), ("wake_at", 4, 1), "the one workflow that is woken again")
    await bench.nothing_ready("the others are answered, buried and cancelled")


@shows("ANY-REPEAT", short=True)
async def an_end_repeated_by_the_caller_changes_nothing(bench: Bench) -> None:
    """arrive, finish, pause, fail and hand_back, called twice, leave what one call leaves."""
    durable = bench.durable
    ends: Mapping[str, Callable[[Turn], Awaitable[object]]] = {
        "finish": lambda turn: durable.finish(turn, [1]),
        "pause": lambda turn: durable.pause(turn, None),
        "fail": lambda turn: durable.fail(turn, "reason", LONG * 24),
        "bury": lambda turn: durable.fail(turn, "reason", None),
        "hand_back": lambda turn: durable.hand_back(turn, LONG * 24),
    }
    for name, end in ends.items():
        workflow = bench.workflow(name)
        first = await durable.arrive(workflow, "k", 1)
        same(await answers(durable.arrive(workflow, "k", 1), "a repeated arrive"), first, "what a repeated arrive gives")
        turn = await bench.turn(workflow)
        for time in ("", "repeated "):
            await answers(end(turn), f"a {time}{name}")
        await bench.elapse(bench.scheduler.lease)
        await bench.no_turn(f"a repeated {name} answered once")
        loaded = ["k", "outcome:"] if name == "finish" else ["k"]
        same(list(await bench.checkpointer.load(workflow)), loaded, f"the keys of load after a repeated {name}")
        await durable.delete(workflow)
        same(await answers(durable.delete(workflow), "a repeated delete"), 0, "what a repeated delete removes")


# ----------------------------------------------------------------------------------------------------------- ANY-VALID


BAD_NAMES = ("", "a\0b", "\udc80", "x" * 1_001, "\u00e9" * 501)
ODD_NAMES = ("x" * 1_000, "\u00e9" * 500, " ", "\n", "a/b", "%", "\U0001f600", "\ufeff", "\u202e", "input")


async def refused(call: Coroutine[object, object, object], what: str) -> None:
    """Ask for a `ValueError`."""
    raised = await raises(call, ValueError, what)
    holds(not isinstance(raised, ReservedKey), f"{what}: a ValueError about the argument", repr(raised))


@shows("ANY-VALID")
async def bad_names_are_refused_by_every_method(bench: Bench) -> None:
    """An id, key or `once` that is empty, has NUL or a lone surrogate, or more than 1 000 bytes is a ValueError, and nothing is
    done.
    """
    good = bench.workflow()
    holder = await bench.claim(good)
    for bad in BAD_NAMES:
        await _refused_everywhere(bench, holder, good, bad)
    same(await bench.checkpointer.load(good), {}, "load after refused calls only")
    await bench.nothing_ready("every call was refused")


async def _refused_everywhere(bench: Bench, holder: Pass, good: str, bad: str) -> None:
    other = replace(holder, workflow=bad)
    store, durable, scheduler, shown = bench.checkpointer, bench.durable, bench.scheduler, bad[:10]
    calls: Mapping[str, Callable[[], Coroutine[object, object, object]]] = {
        "load": lambda: store.load(bad),
        "history": lambda: store.history(bad),
        "discard": lambda: store.discard(bad),
        "claim": lambda: store.claim(bad, LONG, LONG),
        "supply": lambda: store.supply(bad, "k", 1),
        "supply under": lambda: store.supply(good, bad, 1),
        "append": lambda: store.append(bad, 1),
        "append with once": lambda: store.append(good, 1, once=bad),
        "record": lambda: store.record(other, "k", 1),
        "record under": lambda: store.record(holder, bad, 1),
        "make_ready": lambda: scheduler.make_ready(bad),
        "cancel": lambda: scheduler.cancel(bad),
        "buried": lambda: scheduler.buried(bad),
        "arrive": lambda: durable.arrive(bad, "k", 1),
        "arrive under": lambda: durable.arrive(good, bad, 1),
        "deliver": lambda: durable.deliver(bad, 1),
        "deliver with once": lambda: durable.deliver(good, 1, once=bad),
        "delete": lambda: durable.delete(bad),
        "result": lambda: durable.result(bad),
    }
    for name, call in calls.items():
        await refused(call(), f"{name} {shown!r}")


@shows("ANY-VALID")
async def odd_names_work_everywhere(bench: Bench) -> None:
    """Everything else is an id, a key and a `once` like any other, up to 1 000 bytes; with a reserved prefix, 1 032."""
    for odd in ODD_NAMES:
        workflow = odd if len(odd.encode()) > 900 else f"{odd}{bench.at.name[:9]}"
        await answers(bench.durable.arrive(workflow, odd, odd), f"arrive of {workflow[:10]!r} under {odd[:10]!r}")
        turn = await bench.turn(workflow)
        recorded = await answers(bench.checkpointer.record(turn.holder, f"{odd[:-9]}.", odd), f"record under {odd[:10]!r}")
        same(recorded.value, odd, "what record gives")
        entry = await answers(bench.durable.deliver(workflow, odd, once=odd), f"deliver with once={odd[:10]!r}")
        same(list(await bench.checkpointer.load(workflow)), [odd, f"{odd[:-9]}.", entry.key], "the keys of load")
        await bench.durable.delete(workflow)
    workflow = bench.workflow()
    for prefix in ("until:", "start:", "failed:"):
        key = prefix + "x" * 1_000
        await answers(bench.checkpointer.supply(workflow, key, 1), f"supply under {prefix!r} and 1 000 bytes")
        await refused(bench.checkpointer.supply(workflow, prefix + "x" * 1_032, 1), f"supply under {prefix!r} and 1 032 bytes")


@shows("ANY-VALID")
async def bad_numbers_are_refused(bench: Bench) -> None:
    """Durations of zero or less, naive instants, a negative skip, a limit or an attempt below one are ValueErrors."""
    holder = await bench.claim(bench.workflow())
    store, scheduler, durable = bench.checkpointer, bench.scheduler, bench.durable
    await durable.arrive(other := bench.workflow(), "k", 1)
    turn = await bench.turn(other)
    for bad in (NOW, -LONG):
        await refused(store.claim(bench.workflow(), bad, LONG), f"claim with a budget of {bad}")
        await refused(store.claim(bench.workflow(), LONG, bad), f"claim with a window of {bad}")
        await refused(store.renew(holder, bad), f"renew with a window of {bad}")
        await refused(store.extend(holder, bad, LONG), f"extend with a budget of {bad}")
        await refused(store.extend(holder, LONG, bad), f"extend with a window of {bad}")
        await refused(_awaited(durable.begin(NOW, bad)), f"begin with a budget of {bad}")
    naive = datetime(2030, 1, 1)
    await refused(scheduler.wake_at(turn.delivery, naive), "wake_at with a naive instant")
    await refused(durable.pause(turn, naive), "pause until a naive instant")
    await refused(store.load(holder.workflow, skip=-1), "load with skip=-1")
    await refused(_awaited(durable.begin(NOW, LONG, limit=0)), "begin with limit=0")
    await refused(scheduler.wake_at(turn.delivery, await scheduler.now(), attempt=0), "wake_at with attempt=0")
    await refused(scheduler.wake_at(turn.delivery, await scheduler.now(), lapses=-1), "wake_at with lapses=-1")
    same(await answers(store.renew(holder, LONG), "renew"), True, "renew after refused calls only")
    holds(await durable.renew(turn) is not None, "the turn is as it was after refused calls only", "lost")


async def _awaited(call: Awaitable[object]) -> object:
    return await call


# ------------------------------------------------------------------------------------------------------ ANY-POSITIONAL


@shows("ANY-POSITIONAL")
async def every_method_is_the_stores_own(bench: Bench) -> None:
    """Nothing is inherited from a protocol (such a method returns None), all is async, and parameters go by position."""
    for part, protocol in (
        (bench.checkpointer, contract.Checkpointer),
        (bench.scheduler, contract.Scheduler),
        (bench.durable, contract.Durable),
    ):
        for name, promised in inspect.getmembers(protocol, inspect.isfunction):
            if name.startswith("_"):
                continue
            own = getattr(type(part), name, None)
            who = f"{type(part).__name__}.{name}"
            holds(callable(own) and own is not promised, f"{who} is the store's own", own)
            assert own is not None
            holds(name == "roundtrip" or _is_async(own), f"{who} is async", own)
            _positional(who, own, promised)


def _is_async(method: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.iscoroutinefunction(inspect.unwrap(method))


def _positional(who: str, own: Callable[..., object], promised: Callable[..., object]) -> None:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in inspect.signature(promised).parameters.values() if one.kind in kinds]
    named = [one.name for one in inspect.signature(promised).parameters.values() if one.kind is inspect.Parameter.KEYWORD_ONLY]
    try:
        inspect.signature(own).bind(*needed, **dict.fromkeys(named))
    except TypeError as refused:
        raise Broken(f"{who} takes {len(needed) - 1} positional arguments, and the keywords {named}", str(refused)) from refused


# -------------------------------------------------------------------------------------------------------- KEY-RESERVED


@shows("CKP-KEY-RESERVED")
async def the_checkpointer_takes_reserved_keys(bench: Bench) -> None:
    """record and supply take every reserved prefix, and load and history show them in their places."""
    holder = await bench.claim(bench.workflow())
    keys = ["until:k", "start:k", "failed:k", inbox_key(7), "outcome:", "input", "inboxes", "until"]
    for place, key in enumerate(keys):
        if place % 2:
            given = await answers(bench.checkpointer.supply(holder.workflow, key, place), f"supply under {key!r}")
        else:
            given = await answers(bench.checkpointer.record(holder, key, place), f"record under {key!r}")
        same((given.value, given.first), (place, True), f"what a write under {key!r} gives")
    same(await bench.checkpointer.load(holder.workflow), {key: place for place, key in enumerate(keys)}, "load")
    same(list(await bench.checkpointer.history(holder.workflow)), keys, "the keys of history")


@shows("CKP-KEY-RESERVED")
async def an_inbox_key_is_twenty_digits(bench: Bench) -> None:
    """Anything else under `inbox:`, or a number of 2^53 and more, is a ValueError, and nothing is written."""
    holder = await bench.claim(bench.workflow())
    digits = ("", "1", "0" * 19, "0" * 21, "x" * 20, "-" + "0" * 19, " " + "0" * 19, f"{2**53:020}", "9" * 20, "\u0661" * 20)
    for bad in digits:
        await raises(bench.checkpointer.record(holder, f"inbox:{bad}", 1), ValueError, f"record under 'inbox:{bad}'")
        await raises(bench.checkpointer.supply(holder.workflow, f"inbox:{bad}", 1), ValueError, f"supply under 'inbox:{bad}'")
    same(await bench.checkpointer.load(holder.workflow), {}, "load after refused keys only")
    await answers(bench.checkpointer.supply(holder.workflow, f"inbox:{2**53 - 1:020}", 1), "supply under the highest inbox key")
