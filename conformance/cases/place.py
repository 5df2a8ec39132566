"""Where a case happens: one datastore of one store, opened as often as the case wants, in this process or another."""

from __future__ import annotations

import importlib
import itertools
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from durable_conformance import Effects, Harness, Opening
from durable_core.contract import Durable, Pass
from durable_core.outcome import Outcome
from durable_core.resume import resume
from durable_core.run import Run

T = TypeVar("T")

MINUTE = timedelta(minutes=1)
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """A datastore that is the case's own."""

    harness: Harness[object]
    at: Opening

    @classmethod
    def fresh(cls, harness: Harness[object], address: str, folder: Path) -> Place:
        """Give an empty one."""
        name = f"s{next(_numbers)}x{os.getpid()}"
        return cls(harness, Opening(folder, name, address, f"q{name}", MINUTE))

    @classmethod
    def told(cls, text: str) -> Place:
        """Give the one that `words` tells of, in another process."""
        words = json.loads(text)
        module, _, name = words["harness"].partition(":")
        harness: Harness[object] = getattr(importlib.import_module(module), name)()
        lease = timedelta(seconds=words["lease"])
        return cls(harness, Opening(Path(words["folder"]), words["name"], words["address"], words["queue"], lease))

    @property
    def words(self) -> str:
        """Say it to another process."""
        at = self.at
        said = {
            "harness": self.harness.importable(),
            "folder": str(at.folder),
            "name": at.name,
            "address": at.address,
            "queue": at.queue,
        }
        return json.dumps({**said, "lease": at.lease.total_seconds()})

    def leased(self, lease: timedelta) -> Place:
        """Give the same datastore, for stores with another lease."""
        return replace(self, at=replace(self.at, lease=lease))

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Durable[object]]:
        """Open the store."""
        async with self.harness.open(self.at) as stores:
            assert not isinstance(stores, tuple)
            yield stores

    @property
    def effects(self) -> Effects[object]:
        """Give effects of the store that count."""
        return self.harness.effects(self.at)


class Effect:
    """An effect that counts its calls, and gives or raises its answers in turn, the last one for ever."""

    def __init__(self, *answers: object) -> None:
        self._answers = answers
        self.runs = 0

    async def __call__(self) -> object:
        self.runs += 1
        answer = self._answers[min(self.runs, len(self._answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def same(stored: object) -> object:
    """Take whatever the store holds."""
    return stored


async def claimed(durable: Durable[object], workflow: str = "w") -> Pass:
    """Claim a workflow."""
    holder = await durable.checkpointer.claim(workflow, MINUTE, MINUTE)
    assert holder is not None
    return holder


async def advance(durable: Durable[object], body: Callable[[Run[object]], Awaitable[T]], workflow: str = "w") -> Outcome[T]:
    """Make one pass, and release whatever comes of it."""
    holder = await claimed(durable, workflow)
    try:
        return await resume(durable.checkpointer, holder, body, budget=MINUTE, alive=MINUTE)
    finally:
        await durable.checkpointer.release(holder)


async def recorded(durable: Durable[object], workflow: str = "w") -> Mapping[str, object]:
    """Give what is recorded."""
    return await durable.checkpointer.load(workflow)
