"""What the store's own client repeats when a reply is lost: the same answer, and nothing twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

from durable_conformance.bench import LONG, NOW, Bench
from durable_conformance.case import shows
from durable_conformance.expect import NotShown, answers, holds, same
from durable_conformance.harness import Wire
from durable_conformance.pairs import paired
from durable_conformance.suite._common import transacts
from durable_core.contract import Durable, Recorded

T = TypeVar("T")


class Line:
    """The stores behind a connection, and the calls over it whose first reply is lost."""

    def __init__(self, durable: Durable[object], wire: Wire) -> None:
        self.durable = durable
        self._wire = wire

    async def lossy(self, call: Awaitable[T], what: str) -> T:
        """Make a call whose first reply is lost."""
        lost = self._wire.lost
        self._wire.lose_reply()
        answer = await answers(call, f"{what}, whose first reply was lost")
        if self._wire.lost == lost:
            raise NotShown(f"no reply was lost during {what}")
        return answer


@asynccontextmanager
async def line(bench: Bench) -> AsyncGenerator[Line]:
    """Open the datastore through a connection that loses replies."""
    async with bench.harness.wire(bench.at) as wire:
        yield Line(paired(wire.stores, bench.at.clock), wire)


@shows("ANY-REPEAT", "wire")
async def a_lost_reply_changes_no_answer(bench: Bench) -> None:
    """record, supply, extend, renew, release, finish, arrive and discard give what they would have given."""
    async with line(bench) as wire:
        durable, store = wire.durable, wire.durable.checkpointer
        holder = await wire.lossy(store.claim(bench.workflow(), LONG, LONG), "claim")
        holds(holder is not None, "a claim whose first reply was lost is granted", holder)
        assert holder is not None
        workflow = holder.workflow
        same(await wire.lossy(store.record(holder, "r", 1), "record"), Recorded(1, True), "what record gives")
        same(await wire.lossy(store.record(holder, "r", 2), "a losing record"), Recorded(1, False), "what a losing record gives")
        same(await wire.lossy(store.supply(workflow, "s", 1), "supply"), Recorded(1, True), "what supply gives")
        same(
            await wire.lossy(store.supply(workflow, "s", 2), "a losing supply"), Recorded(1, False), "what a losing supply gives"
        )
        same(await wire.lossy(store.extend(holder, LONG, LONG), "extend"), True, "what extend gives")
        same(await wire.lossy(store.renew(holder, LONG), "renew"), True, "what renew gives")
        await wire.lossy(store.release(holder), "release")
        same(await wire.lossy(durable.arrive(workflow, "a", 1), "arrive"), Recorded(1, True), "what arrive gives")
        turns = await wire.lossy(durable.begin(NOW, LONG), "begin")
        same([turn.holder.workflow for turn in turns], [workflow], "the workflows of the turns that begin gives")
        (turn,) = turns
        same(await wire.lossy(durable.finish(turn, "done"), "finish"), Recorded("done", True), "what finish gives")
        same(await wire.lossy(store.discard(workflow), "discard"), 4, "what discard removes")
        await durable.arrive(workflow, "a", 1)
        same(await wire.lossy(durable.delete(workflow), "delete"), 1, "what delete removes")
        same(await bench.checkpointer.load(workflow), {}, "load")


@shows("ANY-REPEAT", "wire")
async def nor_a_wakeup(bench: Bench) -> None:
    """make_ready, wake_at, done, bury and cancel whose replies were lost leave one wakeup, or none."""
    async with line(bench) as wire:
        scheduler, workflow = wire.durable.scheduler, bench.workflow()
        await wire.lossy(scheduler.make_ready(workflow), "make_ready")
        delivery = await bench.take(workflow, by=scheduler)
        await wire.lossy(scheduler.wake_at(delivery, await scheduler.now(), attempt=3), "wake_at")
        delivery = await bench.take(workflow, by=scheduler)
        same((delivery.attempt, delivery.lapses), (3, 0), "attempt and lapses after wake_at")
        await wire.lossy(scheduler.done(delivery), "done")
        await bench.nothing_ready("done answered", by=scheduler)
        await scheduler.make_ready(workflow)
        await wire.lossy(scheduler.bury(await bench.take(workflow, by=scheduler), "reason"), "bury")
        same(await scheduler.buried(workflow), "reason", "the reason why it is buried")
        await wire.lossy(scheduler.cancel(workflow), "cancel")
        same(await scheduler.buried(workflow), None, "the reason of a cancelled workflow")


@shows("ANY-REPEAT", "wire", "effects", when=transacts)
async def nor_applies_an_effect_twice(bench: Bench) -> None:
    """transact whose reply was lost applies its effect once and gives its value."""
    async with line(bench) as wire:
        holder = await bench.claim(bench.workflow())
        for number in range(3):
            made = bench.effects.add("c", number)
            given = await wire.lossy(wire.durable.checkpointer.transact(holder, f"k{number}", made), "transact")
            same(given, number, "what transact gives")
            same(await bench.effects.applied("c"), number + 1, "how often the effect is applied")


@shows("CKP-CLAIM-REPEAT", "wire")
async def a_claim_whose_reply_was_lost_is_granted(bench: Bench) -> None:
    """The client gets the pass that the store granted, which is the current one; another is refused."""
    async with line(bench) as wire:
        for _ in range(3):
            holder = await wire.lossy(wire.durable.checkpointer.claim(bench.workflow(), LONG, LONG), "claim")
            holds(holder is not None, "a claim whose first reply was lost is granted", holder)
            assert holder is not None
            given = await answers(bench.checkpointer.record(holder, "k", 1), "a record by the pass whose claim was repeated")
            same(given, Recorded(1, True), "what it gets")
            same(await bench.checkpointer.claim(holder.workflow, LONG, LONG), None, "another claim")


@shows("CKP-CLAIM-REPEAT", "wire")
async def a_refusal_stays_one(bench: Bench) -> None:
    """A claim that was refused, and whose reply was lost, is refused."""
    async with line(bench) as wire:
        holder = await bench.claim(bench.workflow())
        same(
            await wire.lossy(wire.durable.checkpointer.claim(holder.workflow, LONG, LONG), "a refused claim"),
            None,
            "what it gives",
        )


@shows("CKP-APPEND-REPEAT", "wire")
async def an_append_whose_reply_was_lost_is_one_entry(bench: Bench) -> None:
    """One entry, whose key the client gets, also after many others; two calls are still two."""
    async with line(bench) as wire:
        workflow, keys = bench.workflow(), list[str]()
        for number in range(40):
            call = wire.durable.checkpointer.append(workflow, "same")
            keys.append((await wire.lossy(call, "append") if number % 8 == 0 else await call).key)
        keys.append((await wire.lossy(wire.durable.deliver(workflow, "same"), "deliver")).key)
        same(list(await bench.checkpointer.load(workflow)), keys, "the keys of load, and what the calls gave")


@shows("SCH-NEXT-REPEAT", "wire", short=True)
async def a_take_whose_reply_was_lost_is_no_lapse(bench: Bench) -> None:
    """The client gets the delivery that was taken, at attempt one, and can answer for it."""
    async with line(bench) as wire:
        scheduler = wire.durable.scheduler
        for _ in range(3):
            workflow = bench.workflow()
            await scheduler.make_ready(workflow)
            delivery = await wire.lossy(scheduler.next_ready(NOW), "next_ready")
            holds(delivery is not None, "a take whose first reply was lost gives the delivery", delivery)
            assert delivery is not None
            same((delivery.workflow, delivery.attempt, delivery.lapses), (workflow, 1, 0), "workflow, attempt and lapses")
            await scheduler.done(delivery)
            await bench.elapse(scheduler.lease)
            await bench.nothing_ready("the one delivery was answered")


@shows("DUR-BEGIN-REPEAT", "wire")
async def a_begin_whose_reply_was_lost_is_one_turn(bench: Bench) -> None:
    """The client gets the turn that was begun: its pass writes, its delivery is at attempt one, and no second one is out."""
    async with line(bench) as wire:
        durable, workflow, other = wire.durable, bench.workflow(), bench.workflow()
        await durable.arrive(workflow, "k", 1)
        await durable.arrive(other, "k", 1)
        turns = await wire.lossy(durable.begin(NOW, LONG), "begin")
        same([turn.holder.workflow for turn in turns], [workflow], "the workflows of the turns")
        (turn,) = turns
        same((turn.delivery.attempt, turn.delivery.lapses), (1, 0), "attempt and lapses")
        given = await answers(bench.checkpointer.record(turn.holder, "r", 1), "a record by the turn's pass")
        same(given, Recorded(1, True), "what it gets")
        (second,) = await answers(durable.begin(NOW, LONG), "begin")
        same(second.holder.workflow, other, "the workflow of the next turn: only one was taken before")
