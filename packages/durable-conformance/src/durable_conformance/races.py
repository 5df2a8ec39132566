"""Random programs of several clients on one workflow, and the history of what came of them."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from durable_conformance.bench import LONG, NOW
from durable_conformance.expect import Broken
from durable_conformance.linear import NEVER, UNKNOWN, Call, explained, shortest
from durable_conformance.processes import Died
from durable_core.contract import Checkpointer, Delivery, Pass, Scheduler
from durable_core.errors import Fenced
from durable_core.reference import FENCED

RECORDS: Mapping[str, int] = {"claim": 4, "record": 6, "supply": 4, "append": 3, "renew": 1, "release": 2, "load": 3}
CLAIMS: Mapping[str, int] = {"claim": 6, "release": 4, "renew": 2, "record": 2}
SUPPLIES: Mapping[str, int] = {"supply": 6, "record": 2, "claim": 2, "append": 2, "load": 3}
ENTRIES: Mapping[str, int] = {"append": 6, "supply": 1, "load": 3}
DISCARDS: Mapping[str, int] = {"claim": 4, "record": 5, "supply": 2, "discard": 3, "load": 3}
WAKEUPS: Mapping[str, int] = {"make_ready": 5, "next_ready": 6, "done": 3, "wake_at": 2, "cancel": 1}


class Stores(Protocol):
    """What a client works with."""

    @property
    def checkpointer(self) -> Checkpointer[object]:
        """Its checkpointer."""
        ...

    @property
    def scheduler(self) -> Scheduler:
        """Its scheduler."""
        ...


class History:
    """The calls of all clients, each with its moments."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.latest: Pass | None = None
        self._moments = itertools.count(1)

    async def call(
        self, client: str, method: str, arguments: tuple[object, ...], call: Callable[[], Awaitable[object]]
    ) -> object:
        """Make a call, and note it."""
        began = next(self._moments)
        answer: object = UNKNOWN
        try:
            answer = await call()
        except Fenced:
            answer = FENCED
        except Died:
            pass
        except Exception as raised:
            raise Broken(f"{method} by {client}, among others at once, answers", f"{type(raised).__name__}: {raised}") from raised
        finally:
            ended = NEVER if answer is UNKNOWN else next(self._moments)
            self.calls.append(Call(client, method, arguments, began, ended, answer))
        return answer


class Client:
    """One client, which does a number of things in turn, each chosen by chance."""

    def __init__(
        self, name: str, stores: Stores, workflow: str, history: History, chance: random.Random, mix: Mapping[str, int]
    ) -> None:
        self.name, self.stores, self.workflow, self.history, self.chance, self.mix = name, stores, workflow, history, chance, mix
        self.holder: Pass | None = None
        self.delivery: Delivery | None = None
        self.done = 0

    async def run(self, steps: int) -> None:
        """Do so many things."""
        for _ in range(steps):
            for _ in range(self.chance.randrange(3)):
                await asyncio.sleep(0)
            self.done += 1
            await self._step(self.chance.choices(list(self.mix), list(self.mix.values()))[0])

    async def _step(self, method: str) -> None:
        store, value = self.stores.checkpointer, f"{self.name}.{self.done}"
        if self.chance.random() < 0.5:  # the branches of one pass work at once
            self.holder = self.history.latest
        if method in ("record", "renew", "release") and self.holder is None:
            method = "claim"
        if method in ("done", "wake_at") and self.delivery is None:
            method = "next_ready"
        if method == "claim":
            given = await self._call("claim", (), lambda: store.claim(self.workflow, LONG, LONG))
            self.holder = self.history.latest = given if isinstance(given, Pass) else self.holder
        elif method == "supply":
            key = f"k{self.chance.randrange(3)}"
            await self._call("supply", (key, value), lambda: store.supply(self.workflow, key, value))
        elif method == "append":
            once = f"id{self.chance.randrange(3)}" if self.chance.random() < 0.3 else None
            await self._call("append", (value, once), lambda: store.append(self.workflow, value, once=once))
        elif method == "load":
            await self._call("load", (), lambda: store.load(self.workflow))
        elif method == "discard":
            await self._call("discard", (), lambda: store.discard(self.workflow))
        elif self.holder is not None and method in ("record", "renew", "release"):
            await self._held(method, self.holder, value)
        else:
            await self._woken(method)

    async def _held(self, method: str, holder: Pass, value: str) -> None:
        store, key = self.stores.checkpointer, f"k{self.chance.randrange(3)}"
        if method == "record":
            await self._call("record", (holder, key, value), lambda: store.record(holder, key, value))
        elif method == "renew":
            await self._call("renew", (holder,), lambda: store.renew(holder, LONG))
        else:
            await self._call("release", (holder,), lambda: store.release(holder))

    async def _woken(self, method: str) -> None:
        scheduler, delivery = self.stores.scheduler, self.delivery
        if method == "make_ready":
            await self._call("make_ready", (), lambda: scheduler.make_ready(self.workflow))
        elif method == "cancel":
            await self._call("cancel", (), lambda: scheduler.cancel(self.workflow))
        elif method == "next_ready" or delivery is None:
            given = await self._call("next_ready", (), lambda: scheduler.next_ready(NOW))
            self.delivery = given if isinstance(given, Delivery) else delivery
        elif method == "done":
            await self._call("done", (delivery,), lambda: scheduler.done(delivery))
        else:
            when, attempt, lapses = delivery.due - LONG, delivery.attempt + 1, delivery.lapses
            await self._call("wake_at", (delivery,), lambda: scheduler.wake_at(delivery, when, attempt=attempt, lapses=lapses))

    async def _call(self, method: str, arguments: tuple[object, ...], call: Callable[[], Awaitable[object]]) -> object:
        return await self.history.call(self.name, method, arguments, call)


async def raced(workflow: str, stores: Sequence[Stores], chance: random.Random, mix: Mapping[str, int], steps: int) -> list[Call]:
    """Run one random program of as many clients as there are stores, and give its history."""
    history = History()
    clients = [
        Client(f"client {number}", each, workflow, history, random.Random(chance.random()), mix)
        for number, each in enumerate(stores)
    ]
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run(steps))
    return history.calls


def judge(calls: Sequence[Call], seed: str) -> None:
    """Ask that the history is explained by some order of its calls."""
    if explained(calls):
        return
    told = "\n".join(f"    {call}" for call in shortest(calls))
    raise Broken(
        "some order of the calls, in which none stands after one that began when it had ended, explains every answer",
        f"none does, of this history, the shortest beginning of it that none explains (seed {seed}):\n{told}",
    )
