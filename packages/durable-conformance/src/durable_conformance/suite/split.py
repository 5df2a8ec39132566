"""Two stores as one: in which order the writes go, and that asking again heals what a crash left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from durable_conformance.bench import LONG, NOW, Bench
from durable_conformance.case import shows
from durable_conformance.expect import answers, holds, same
from durable_conformance.suite._common import free, splits
from durable_core.contract import Checkpointer, Durable, Finished, Scheduler, Turn
from durable_core.split import SplitDurable

WRITES = (
    "record",
    "supply",
    "append",
    "claim",
    "release",
    "discard",
    "make_ready",
    "next_ready",
    "wake_at",
    "done",
    "bury",
    "cancel",
    "load",
)


class Crash(Exception):
    """What stands for a process that dies between two writes."""


@dataclass
class Log:
    """The calls that two halves got, and before which one to crash."""

    calls: list[str] = field(default_factory=list[str])
    crash_before: str = ""


class Spied:
    """A half whose calls are noted."""

    def __init__(self, half: object, log: Log) -> None:
        self._half, self._log = half, log

    def __getattr__(self, name: str) -> object:
        thing = getattr(self._half, name)
        if name not in WRITES:
            return thing

        async def call(*args: object, **options: object) -> object:
            if self._log.crash_before == name:
                self._log.crash_before = ""
                raise Crash(name)
            self._log.calls.append(name)
            return await thing(*args, **options)

        return call


def spied(bench: Bench) -> tuple[Durable[object], Log]:
    """Put the two halves together again, with a spy on each."""
    log = Log()
    # A spy has every method of the half behind it.
    checkpointer = cast(Checkpointer[object], Spied(bench.checkpointer, log))
    made = type(bench.durable) if isinstance(bench.durable, SplitDurable) else SplitDurable[object]
    return made(checkpointer, cast(Scheduler, Spied(bench.scheduler, log))), log


async def begun(bench: Bench, durable: Durable[object]) -> Turn:
    """Start a workflow and begin a turn of it."""
    workflow = bench.workflow()
    await durable.arrive(workflow, "input", 1)
    (turn,) = await answers(durable.begin(NOW, LONG), "begin")
    return turn


def ordered(log: Log, promised: list[str], what: str) -> None:
    """Ask that the writes that matter went in an order, and forget them."""
    same([name for name in log.calls if name in promised], promised, f"the writes of {what}, in their order")
    log.calls.clear()


@shows("DUR-SPLIT-ORDER", when=splits)
async def every_transition_has_its_order(bench: Bench) -> None:
    """Record before queue; record, release, answer; release before answer; cancel before discard; take, claim, load."""
    durable, log = spied(bench)
    workflow = bench.workflow()
    await durable.arrive(workflow, "input", 1)
    ordered(log, ["supply", "make_ready"], "arrive")
    await durable.deliver(workflow, 1)
    ordered(log, ["append", "make_ready"], "deliver")
    (turn,) = await durable.begin(NOW, LONG)
    ordered(log, ["next_ready", "claim", "load"], "begin")
    await durable.finish(turn, "done")
    ordered(log, ["record", "release", "done"], "finish")
    ends: Mapping[str, tuple[Callable[[Turn], Awaitable[None]], list[str]]] = {
        "pause": (lambda turn: durable.pause(turn, None), ["release", "done"]),
        "pause until": (lambda turn: durable.pause(turn, turn.holder.at + LONG), ["release", "wake_at"]),
        "fail": (lambda turn: durable.fail(turn, "reason", LONG), ["release", "wake_at"]),
        "bury": (lambda turn: durable.fail(turn, "reason", None), ["release", "bury"]),
        "hand_back": (lambda turn: durable.hand_back(turn, LONG), ["release", "wake_at"]),
    }
    for name, (end, promised) in ends.items():
        turn = await begun(bench, durable)
        log.calls.clear()
        await end(turn)
        ordered(log, promised, name)
    await durable.delete(workflow)
    ordered(log, ["cancel", "discard"], "delete")


async def _client(durable: Durable[object], name: str, workflow: str) -> object:
    if name == "arrive":
        return await durable.arrive(workflow, "k", 1)
    return await (durable.deliver(workflow, 1, once="id") if name == "deliver" else durable.delete(workflow))


@shows("DUR-SPLIT-ORDER", when=splits)
async def asking_again_heals_a_client(bench: Bench) -> None:
    """arrive, deliver or delete that died between its writes is whole when it is asked again."""
    durable, log = spied(bench)
    for name in ("arrive", "deliver", "delete"):
        workflow = bench.workflow(name)
        if name == "delete":
            await durable.arrive(workflow, "k", 1)
        log.crash_before = "discard" if name == "delete" else "make_ready"
        try:
            await _client(durable, name, workflow)
        except Crash:
            pass
        await bench.nothing_ready(f"{name} died before the queue was told, or after it was cancelled")
        await answers(_client(durable, name, workflow), f"{name}, asked again")
        same(
            len(await bench.checkpointer.load(workflow)), 0 if name == "delete" else 1, f"how many records there are after {name}"
        )
        if name != "delete":
            await bench.scheduler.done(await bench.take(workflow))


@shows("DUR-SPLIT-ORDER", when=splits, short=True)
async def a_worker_that_died_is_healed_by_the_next(bench: Bench) -> None:
    """A finish that died before the release is finished: no turn, and the result is there; a pause that did is begun again."""
    durable, log = spied(bench)
    turn = await begun(bench, durable)
    log.crash_before = "release"
    try:
        await durable.finish(turn, "done")
    except Crash:
        pass
    same(await bench.durable.result(turn.holder.workflow), Finished("done"), "result after a finish that died half way")
    await bench.elapse(bench.scheduler.lease)
    await bench.no_turn("it is finished, though its claim and delivery had to lapse")
    await free(bench, turn.holder.workflow, "it is finished, and its lease is over")
    turn = await begun(bench, durable)
    log.crash_before = "done"
    try:
        await durable.pause(turn, None)
    except Crash:
        pass
    await bench.elapse(bench.scheduler.lease)
    again = await bench.turn(turn.holder.workflow)
    holds(again.delivery.lapses == 1, "a pause that died before its answer is a lapse", again)
