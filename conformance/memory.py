"""The harness of the memory double, and of two memory halves behind a `SplitDurable`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import ClassVar

from durable_conformance import Effects, Harness, Hook, Meter, Opening, Stores
from durable_core._clock import SystemClock
from durable_core.codec import JsonCodec
from durable_core.contract import Durable
from durable_core.memory import Memory, MemoryDurable, MemoryEffect


class MemoryEffects(Effects[MemoryEffect]):
    """Effects on the double's own dict."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def add(self, counter: str, gives: object, /) -> MemoryEffect:
        def effect(data: dict[str, object]) -> object:
            _add(data, counter)
            return gives

        return effect

    def fail(self, counter: str, /, *, first: bool) -> MemoryEffect:
        def effect(data: dict[str, object]) -> object:
            if not first:
                _add(data, counter)
            raise ZeroDivisionError("the effect failed")

        return effect

    async def applied(self, counter: str, /) -> int:
        count = self._memory.data.get(counter, 0)
        assert isinstance(count, int)
        return count

    def inside(self, counter: str, call: Callable[[], object], /) -> MemoryEffect:
        def effect(data: dict[str, object]) -> object:
            _add(data, counter)
            call()
            return "inside"

        return effect


def _add(data: dict[str, object], counter: str) -> None:
    count = data.get(counter, 0)
    assert isinstance(count, int)
    data[counter] = count + 1


class CountedClock(SystemClock):
    """The system's clock, counting how often the store reads it: once for every look."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def now(self) -> datetime:
        self.read += 1
        return super().now()


class MemoryMeter:
    """Counts the store's looks, and the calls of Python and C functions that its work took."""

    def __init__(self, clock: object) -> None:
        self._clock = clock
        self._began = self._read()
        self.touched = 0

    @property
    def asked(self) -> int:
        return self._read() - self._began

    def _read(self) -> int:
        return self._clock.read if isinstance(self._clock, CountedClock) else 0

    def called(self, _frame: object, event: str, _argument: object) -> None:
        self.touched += event in ("call", "c_call")


class MemoryHarness(Harness[MemoryEffect]):
    """A `MemoryDurable`; instances share one `Memory`."""

    offers: ClassVar[frozenset[Hook]] = frozenset({"clock", "codec", "queues", "effects", "meter"})
    lacks: ClassVar[Mapping[Hook, str]] = {
        "skew": "its clock is the process's",
        "wire": "its client is the store: no reply can be lost",
        "kill": "it has no server",
        "loss": "a claim's storage cannot be lost",
        "retention": "nothing expires",
        "processes": "it lives in one process",
        "restart": "it ends with its process",
        "joined": "it lives in no database",
        "halves": "it makes its halves itself",
    }

    def __init__(self) -> None:
        self._memory: tuple[str, Memory] | None = None

    def memory(self, at: Opening) -> Memory:
        """Give the datastore of a case; it is gone when the next case begins."""
        if self._memory is None or self._memory[0] != at.name:
            self._memory = at.name, Memory(at.clock or CountedClock())
        return self._memory[1]

    @asynccontextmanager
    async def open(self, at: Opening, /) -> AsyncGenerator[Stores[MemoryEffect]]:
        async with MemoryDurable(
            memory=self.memory(at), queue=at.queue, lease=at.lease, codec=at.codec or JsonCodec()
        ) as durable:
            yield durable

    def effects(self, at: Opening, /) -> MemoryEffects:
        return MemoryEffects(self.memory(at))

    @asynccontextmanager
    async def meter(self, at: Opening, stores: Durable[MemoryEffect], /) -> AsyncGenerator[Meter]:
        meter = MemoryMeter(self.memory(at).clock)
        sys.setprofile(meter.called)
        try:
            yield meter
        finally:
            sys.setprofile(None)


class SplitMemoryHarness(MemoryHarness):
    """Two memory halves, as a stranger would give them: the kit puts them together."""

    name = "memory, split"

    @asynccontextmanager
    async def open(self, at: Opening, /) -> AsyncGenerator[Stores[MemoryEffect]]:
        async with MemoryDurable(
            memory=self.memory(at), queue=at.queue, lease=at.lease, codec=at.codec or JsonCodec()
        ) as durable:
            yield durable.checkpointer, durable.scheduler
