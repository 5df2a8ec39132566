"""What a case is handed: the stores of one fresh datastore, names that nobody uses, time that passes, and other clients."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar, cast

from durable_conformance.expect import Broken, NotShown, answers, holds
from durable_conformance.harness import AnyHarness, Effects, Opening
from durable_conformance.pairs import paired
from durable_conformance.processes import Process
from durable_core.contract import (
    Catalog,
    CheckpointCodec,
    Checkpointer,
    Delivery,
    Description,
    Durable,
    Pass,
    Scheduler,
    Turn,
)

T = TypeVar("T")

LONG = timedelta(hours=1)
NOW = timedelta(0)
EVENTUALLY = timedelta(seconds=20)


class Bench:
    """One case's datastore, opened. `window` is a liveness window that is over soon."""

    def __init__(
        self, harness: AnyHarness, at: Opening, seed: str, window: timedelta, exits: AsyncExitStack, *, long: bool
    ) -> None:
        self.harness, self.at, self.window, self.long = harness, at, window, long
        self.seed = seed
        self.random = random.Random(seed)
        self.durable: Durable[object]
        self.description: Description
        self._exits = exits
        self._names = 0

    def __repr__(self) -> str:
        return f"<Bench of {self.harness.title()} at {self.at.name}>"

    @property
    def checkpointer(self) -> Checkpointer[object]:
        """The first instance's checkpointer."""
        return self.durable.checkpointer

    @property
    def scheduler(self) -> Scheduler:
        """The first instance's scheduler."""
        return self.durable.scheduler

    @property
    def catalog(self) -> Catalog:
        """What shows the store to its operators; only where `describe()` says that it lists."""
        for part in (self.durable, self.checkpointer, self.scheduler):
            if hasattr(part, "workflows") and hasattr(part, "sweep"):
                return cast(Catalog, part)  # it has both methods, and the case calls them
        raise Broken("describe() says lists=True: the durable has workflows() and sweep()", f"{self.durable!r} has not")

    @property
    def effects(self) -> Effects[object]:
        """The harness's effects, of this datastore."""
        return cast("Effects[object]", self.harness.effects(self.at))  # they go to stores of the same harness only

    # ----------------------------------------------------------------------------------------------------- instances

    async def begin(self) -> None:
        """Open the first instance and read what it says of itself."""
        self.durable = await self.open()
        self.description = await self.durable.describe()

    async def open(
        self, *, queue: str | None = None, lease: timedelta | None = None, codec: CheckpointCodec[str] | None = None
    ) -> Durable[object]:
        """Open another instance on the same datastore; it is closed when the case ends."""
        return await self._exits.enter_async_context(self.opened(queue=queue, lease=lease, codec=codec))

    @asynccontextmanager
    async def opened(
        self,
        *,
        queue: str | None = None,
        lease: timedelta | None = None,
        codec: CheckpointCodec[str] | None = None,
        retention: timedelta | None = None,
    ) -> AsyncGenerator[Durable[object]]:
        """Open another instance on the same datastore for the length of a block."""
        at = replace(self.at, queue=queue or self.at.queue, lease=lease or self.at.lease, codec=codec, retention=retention)
        async with self.harness.open(at) as stores:
            yield paired(stores, self.at.clock)

    async def process(self, *, lease: timedelta | None = None, skew: timedelta = NOW) -> Process:
        """Start another process on the same datastore, whose own clocks are wrong by so much; it is killed when the case ends."""
        at = replace(self.at, lease=lease or self.at.lease)
        process = await Process.started(self.harness, at, skew=skew.total_seconds())
        self._exits.push_async_callback(process.aclose)
        return process

    async def reopen(self) -> None:
        """Close every instance, restart the store, and open it again."""
        await self._exits.aclose()
        await self.harness.restart(self.at)
        self.durable = await self.open()

    # ----------------------------------------------------------------------------------------------------------- names

    def workflow(self, hint: str = "w") -> str:
        """Give an id that nobody uses."""
        self._names += 1
        return f"{hint}-{self._names}-{self.at.name}"

    # ------------------------------------------------------------------------------------------------------------ time

    @property
    def manual(self) -> bool:
        """Whether the store's clock is moved by hand."""
        return self.at.clock is not None

    async def elapse(self, duration: timedelta) -> None:
        """Let time pass on the store's clock: at least so much."""
        if self.at.clock is not None:
            self.at.clock.advance(duration)
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(duration.total_seconds() + 0.02)

    def windows(self) -> Iterator[timedelta]:
        """Give windows to try, each twice the last: for what must happen before one is over, on a machine that may be slow.

        Raises: `NotShown` when the caller still asks after the last.
        """
        window = self.window
        for _ in range(1 if self.manual else 5):
            yield window
            window *= 2
        raise NotShown(f"the machine was too slow to do it within {window.total_seconds():g} s")

    def stopwatch(self) -> Callable[[], timedelta]:
        """Give a function that says how much time has passed on the store's clock since now, at most."""
        if self.at.clock is not None:
            clock, began = self.at.clock, self.at.clock.now()
            return lambda: clock.now() - began
        started = time.monotonic()
        return lambda: timedelta(seconds=time.monotonic() - started)

    # ----------------------------------------------------------------------------------------------------------- verbs

    async def claim(
        self, workflow: str, budget: timedelta = LONG, alive: timedelta = LONG, *, by: Checkpointer | None = None
    ) -> Pass:
        """Claim a workflow that nobody holds."""
        holder = await (by or self.checkpointer).claim(workflow, budget, alive)
        if holder is None:
            raise Broken(f"a claim of {workflow!r}, which nobody holds, is granted", "None")
        return holder

    async def take(self, workflow: str | None = None, *, by: Scheduler | None = None, wait: timedelta = EVENTUALLY) -> Delivery:
        """Take the next delivery, which must be the workflow's where one is named."""
        promised = f"next_ready, with {workflow or 'a workflow'!r} due"
        delivery = await answers((by or self.scheduler).next_ready(wait), promised)
        if delivery is None:
            raise Broken(f"next_ready gives out {workflow or 'a workflow'!r}, which is due", "None")
        if workflow is not None:
            holds(delivery.workflow == workflow, f"next_ready gives out {workflow!r}", delivery)
        return delivery

    async def nothing_ready(self, promised: str, *, by: Scheduler | None = None, wait: timedelta = NOW) -> None:
        """Ask that nothing is given out."""
        delivery = await (by or self.scheduler).next_ready(wait)
        holds(delivery is None, f"{promised}: next_ready gives None", delivery)

    async def turn(self, workflow: str | None = None, *, budget: timedelta = LONG, wait: timedelta = EVENTUALLY) -> Turn:
        """Begin the one turn there is, which must be the workflow's where one is named."""
        turns = await answers(self.durable.begin(wait, budget), f"begin, with {workflow or 'a workflow'!r} due")
        holds(len(turns) == 1, f"begin gives one turn of {workflow or 'a workflow'!r}, which is due", turns)
        if workflow is not None:
            holds(turns[0].holder.workflow == workflow, f"begin gives a turn of {workflow!r}", turns)
        return turns[0]

    async def no_turn(self, promised: str, *, wait: timedelta = NOW) -> None:
        """Ask that no turn is given."""
        turns = await self.durable.begin(wait, LONG)
        holds(not turns, f"{promised}: begin gives no turn", turns)
