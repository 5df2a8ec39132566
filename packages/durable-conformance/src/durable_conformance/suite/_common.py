"""What several modules of the suite ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from durable_conformance.bench import LONG, Bench
from durable_conformance.expect import Broken, answers, holds, same
from durable_core.contract import Description, Pass, Recorded
from durable_core.errors import NotEncodable

T = TypeVar("T")


def transacts(description: Description) -> bool:
    """The store has effects."""
    return description.transacts


def never_transacts(description: Description) -> bool:
    """The store has no effects."""
    return not description.transacts


def undoes(description: Description) -> bool:
    """The store undoes an effect that failed."""
    return description.transacts and description.undoes


def tears(description: Description) -> bool:
    """The store does not undo an effect that failed."""
    return description.transacts and not description.undoes


def interleaves(description: Description) -> bool:
    """The store holds nothing while an effect is at work."""
    return description.transacts and description.undoes and description.interleaves


def joins(description: Description) -> bool:
    """The store writes inside the application's transactions."""
    return description.joins


def lists(description: Description) -> bool:
    """The store has a catalog."""
    return description.lists


def co_commits(description: Description) -> bool:
    """Both halves are one datastore."""
    return description.co_commits


def splits(description: Description) -> bool:
    """The halves are two datastores."""
    return not description.co_commits


def survives_kill(description: Description) -> bool:
    """An acknowledged write outlives the process that holds the data."""
    return description.survives_kill == "yes"


@asynccontextmanager
async def unchanged(bench: Bench, workflow: str, what: str) -> AsyncGenerator[None]:
    """Ask that neither records nor their order nor their times change in a block."""
    before = await bench.checkpointer.history(workflow)
    yield
    after = await bench.checkpointer.history(workflow)
    same(list(after), list(before), f"the keys after {what}")
    holds(after == before, f"the records and their times after {what}: {before}", after)


async def together(*calls: Coroutine[object, object, T]) -> Sequence[T]:
    """Await all calls at once, and give what they answer."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


async def superseded(bench: Bench, workflow: str | None = None) -> tuple[Pass, Pass]:
    """Give a pass that another has superseded, and the other."""
    old = await bench.claim(workflow or bench.workflow())
    await bench.checkpointer.release(old)
    return old, await bench.claim(old.workflow)


def unencodable(bench: Bench) -> object:
    """Give a value that the codec refuses."""

    class Strange:
        pass

    for value in (object(), Strange(), lambda: None, {1, 2}, float("nan")):
        try:
            bench.checkpointer.roundtrip(value)
        except NotEncodable:
            return value
    raise Broken("the codec refuses an object(), a function, a set or a NaN", "it carries all of them")


async def held(bench: Bench, workflow: str, promised: str) -> None:
    """Ask that nobody can claim a workflow."""
    rival = await answers(bench.checkpointer.claim(workflow, LONG, LONG), f"claim of {workflow!r}, which is held")
    holds(rival is None, f"{promised}: another claim is refused", rival)


async def free(bench: Bench, workflow: str, promised: str) -> Pass:
    """Ask that a workflow can be claimed, and claim it."""
    holder = await answers(bench.checkpointer.claim(workflow, LONG, LONG), f"claim of {workflow!r}, which is free")
    if holder is None:
        raise Broken(f"{promised}: a claim is granted", "None")
    return holder


async def kept_alive(
    bench: Bench, budget: timedelta, sign: Callable[[Pass, int, timedelta], Awaitable[object]], what: str
) -> None:
    """Ask that a sign of life every half window keeps a claim for three windows."""
    for window in bench.windows():
        holder = await bench.claim(bench.workflow(), budget, window)
        for number in range(6):
            await bench.elapse(window / 2)
            watch = bench.stopwatch()
            await sign(holder, number, window)
            rival = await bench.checkpointer.claim(holder.workflow, budget, window)
            if watch() >= window * 0.9:
                break
            holds(rival is None, f"{what} every half window keeps the claim", rival)
        else:
            return


async def lapses_on_time(bench: Bench, holder: Pass, window: timedelta, what: str) -> None:
    """Ask that a claim with this window, and nothing heard of it since, has lapsed when it is over."""
    await bench.elapse(window)
    await free(bench, holder.workflow, what)


def above(holder: Pass, by: int = 1) -> Pass:
    """Give a pass with a token that was never issued."""
    return replace(holder, token=holder.token + by)


def firsts(answers: Sequence[Recorded]) -> int:
    """Count the calls that were first."""
    return sum(answer.first for answer in answers)
