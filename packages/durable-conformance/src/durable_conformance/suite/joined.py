"""joined: the client half inside the application's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from durable_conformance.bench import NOW, Bench
from durable_conformance.case import shows
from durable_conformance.expect import answers, holds, raises, same
from durable_conformance.suite._common import joins
from durable_core.contract import Recorded
from durable_core.errors import ReservedKey


@shows("DUR-JOINED", "joined", when=joins)
async def after_the_commit_both_are_there(bench: Bench) -> None:
    """What arrive and deliver wrote, and the wakeups, are there with the application's commit and not before."""
    started, told = bench.workflow("started"), bench.workflow("told")
    async with bench.harness.application(bench.at) as application:
        given = await answers(application.client.arrive(started, "input", [1]), "arrive in an application's transaction")
        same(given, Recorded([1], True), "what arrive gives")
        entry = await answers(application.client.deliver(told, "message", once="id"), "deliver in an application's transaction")
        await application.commit()
    same(await bench.checkpointer.load(started), {"input": [1]}, "load after the commit")
    same(await bench.checkpointer.load(told), {entry.key: "message"}, "load after the commit")
    woken = [(await bench.take()).workflow for _ in range(2)]
    same(sorted(woken), sorted((started, told)), "what is given out after the commit")


@shows("DUR-JOINED", "joined", when=joins)
async def before_the_commit_nothing_is_seen(bench: Bench) -> None:
    """Neither a record nor a wakeup is seen by another client before the application commits."""
    workflow, other = bench.workflow(), await bench.open()
    async with bench.harness.application(bench.at) as application:
        await application.client.arrive(workflow, "input", 1)
        if not isinstance(await _within_a_moment(other.checkpointer.load(workflow)), TimeoutError):
            same(await other.checkpointer.load(workflow), {}, "load by another client before the commit")
        delivery = await _within_a_moment(other.scheduler.next_ready(NOW))
        holds(delivery is None or isinstance(delivery, TimeoutError), "nothing is given out before the commit", delivery)
        await application.commit()
    await bench.take(workflow)


async def _within_a_moment(call: Coroutine[object, object, object]) -> object:
    """Give the answer, or the `TimeoutError` of a store that has the transaction wait for."""
    try:
        async with asyncio.timeout(0.2):
            return await call
    except TimeoutError as late:
        return late


@shows("DUR-JOINED", "joined", when=joins)
async def after_a_rollback_there_is_no_trace(bench: Bench) -> None:
    """Neither records, nor wakeups, nor an id that was used: the next arrive is the first."""
    started, told = bench.workflow("started"), bench.workflow("told")
    async with bench.harness.application(bench.at) as application:
        await application.client.arrive(started, "input", "gone")
        await application.client.deliver(told, "gone", once="id")
        await application.rollback()
    same(await bench.checkpointer.load(started), {}, "load after the rollback")
    same(await bench.checkpointer.load(told), {}, "load after the rollback")
    await bench.nothing_ready("the application rolled back")
    same(await bench.durable.arrive(started, "input", "kept"), Recorded("kept", True), "what the next arrive gives")
    same((await bench.durable.deliver(told, "kept", once="id")).value, "kept", "the entry of the next deliver")


@shows("DUR-JOINED", "joined", when=joins)
async def several_calls_are_one_commit(bench: Bench) -> None:
    """arrive, deliver and delete of one transaction see each other, and land together."""
    kept, gone = bench.workflow("kept"), bench.workflow("gone")
    await bench.durable.arrive(gone, "k", 1)
    async with bench.harness.application(bench.at) as application:
        await application.client.arrive(kept, "k", "first")
        same(
            await application.client.arrive(kept, "k", "second"),
            Recorded("first", False),
            "what a second arrive in the transaction gives",
        )
        first = await application.client.deliver(kept, 1)
        second = await application.client.deliver(kept, 2)
        same(await answers(application.client.delete(gone), "delete in an application's transaction"), 1, "what it removes")
        await application.commit()
    same(await bench.checkpointer.load(kept), {"k": "first", first.key: 1, second.key: 2}, "load after the commit")
    same(await bench.checkpointer.load(gone), {}, "load of what was deleted")
    await bench.scheduler.done(await bench.take(kept))
    await bench.nothing_ready("the other was deleted")


@shows("DUR-JOINED", "joined", when=joins)
async def reserved_keys_are_refused(bench: Bench) -> None:
    """A joined client refuses what a durable refuses, and the transaction goes on."""
    workflow = bench.workflow()
    async with bench.harness.application(bench.at) as application:
        await raises(application.client.arrive(workflow, "outcome:", 1), ReservedKey, "arrive under a reserved key")
        await raises(application.client.arrive("", "k", 1), ValueError, "arrive of an empty id")
        await answers(application.client.arrive(workflow, "k", 1), "arrive after a refusal")
        await application.commit()
    same(await bench.checkpointer.load(workflow), {"k": 1}, "load after the commit")
