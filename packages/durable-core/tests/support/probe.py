"""The memory double's checkpointer, its calls counted, held and broken on demand: what the engine's own tests look through."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

from durable_core._clock import ManualClock
from durable_core.contract import Checkpointer, Description, Entry, Pass, Recorded, Written
from durable_core.memory import MemoryCheckpointer, MemoryDurable, MemoryEffect
from durable_core.outcome import Outcome
from durable_core.resume import resume
from durable_core.run import Run

T = TypeVar("T")

BUDGET = timedelta(minutes=15)
ALIVE = timedelta(minutes=1)


class Effect:
    """An effect that counts its calls, and gives or raises its answers in turn, the last one for ever."""

    def __init__(self, *answers: object) -> None:
        self._answers = answers
        self.calls: list[tuple[object, ...]] = []

    def __repr__(self) -> str:
        return f"<Effect, called {self.runs} times>"

    @property
    def runs(self) -> int:
        """How often it was called."""
        return len(self.calls)

    async def __call__(self, *args: object) -> object:
        """Give or raise the next answer."""
        self.calls.append(args)
        answer = self._answers[min(self.runs, len(self._answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Held(Effect):
    """An effect that waits: `began` says that it runs, `go` lets it end, `ending` is how it did."""

    def __init__(self, *answers: object) -> None:
        super().__init__(*answers)
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.ending: str | None = None

    async def __call__(self, *args: object) -> object:
        """Wait, then give or raise the next answer."""
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.calls.append(args)
            self.ending = "cancelled"
            raise
        self.ending = "returned"
        return await super().__call__(*args)


class Gate:
    """Where a call waits: `reached` says that it came, `open` lets it go on."""

    def __init__(self) -> None:
        self.reached, self._opened = asyncio.Event(), asyncio.Event()

    def open(self) -> None:
        """Let the call go on."""
        self._opened.set()

    async def passed(self) -> None:
        """Wait at the gate."""
        self.reached.set()
        await self._opened.wait()


Rule = tuple[bool, Callable[[], Awaitable[None]]]


class Probe:
    """A checkpointer over a memory of its own, by a clock that the test moves.

    `calls` lists what was asked of the store, as (method, key or workflow). A rule holds or breaks one call of a method for a
    key, the next one, before or after the store has done it.
    """

    def __init__(self, workflow: str = "w") -> None:
        self.clock = ManualClock()
        self.durable = MemoryDurable(clock=self.clock)
        self.inner: MemoryCheckpointer = self.durable.checkpointer
        self.workflow = workflow
        self.calls: list[tuple[str, str]] = []
        self.kept: list[asyncio.Task[object]] = []
        self._rules: defaultdict[tuple[str, str], deque[Rule]] = defaultdict(deque)

    def __repr__(self) -> str:
        return f"<Probe of {self.workflow!r}, {len(self.calls)} calls>"

    # What a test does with it

    def gate(self, method: str, key: str, *, after: bool = False) -> Gate:
        """Hold the next such call."""
        gate = Gate()
        self._rules[method, key].append((after, gate.passed))
        return gate

    def fail(self, method: str, key: str, error: BaseException, *, after: bool = False) -> None:
        """Break the next such call."""

        async def failed() -> None:
            raise error

        self._rules[method, key].append((after, failed))

    def then(self, method: str, key: str, call: Callable[[], object], *, after: bool = False) -> None:
        """Have something happen in the next such call."""

        async def called() -> None:
            call()

        self._rules[method, key].append((after, called))

    def forget_rules(self) -> None:
        """Hold and break nothing more."""
        self._rules.clear()

    def count(self, method: str, key: str | None = None) -> int:
        """Count calls of a method."""
        return sum(1 for called, named in self.calls if called == method and key in (None, named))

    def leave(self, call: Awaitable[object]) -> None:
        """Start a task that nobody awaits; it is kept, so that nobody collects it either."""

        async def left() -> object:
            return await call

        self.kept.append(asyncio.create_task(left()))

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(timedelta(seconds=seconds))

    async def take(self, budget: timedelta = BUDGET, alive: timedelta = ALIVE) -> Pass:
        """Claim the workflow."""
        holder = await self.inner.claim(self.workflow, budget, alive)
        assert holder is not None
        return holder

    async def advance(
        self,
        body: Callable[[Run[MemoryEffect]], Awaitable[T]],
        *,
        holder: Pass | None = None,
        budget: timedelta = BUDGET,
        alive: timedelta = ALIVE,
    ) -> Outcome[T]:
        """Claim the workflow, unless a holder is given, and advance it by one pass, and release it."""
        taken = await self.take(budget, alive) if holder is None else holder
        try:
            return await resume(self, taken, body, budget=budget, alive=alive, monotonic=self.clock.monotonic)
        finally:
            await self.inner.release(taken)

    async def lose(self) -> Pass:
        """Have somebody else take the workflow over, once the claim has lapsed."""
        self.tick(BUDGET.total_seconds() * 2)
        return await self.take()

    async def keys(self) -> list[str]:
        """Give the recorded keys, in order."""
        return list(await self.inner.load(self.workflow))

    async def supply_now(self, key: str, value: object) -> Recorded:
        """Supply a value."""
        return await self.inner.supply(self.workflow, key, value)

    # The checkpointer

    async def _call(self, method: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append((method, key))
        rules = self._rules.get((method, key))
        after, act = rules.popleft() if rules else (False, None)
        if act is not None and not after:
            await act()
        value = await call()
        if act is not None and after:
            await act()
        return value

    def roundtrip(self, value: object, /) -> object:
        """As the double."""
        return self.inner.roundtrip(value)

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        """As the double."""
        return await self._call("load", f"{workflow} from {skip}", lambda: self.inner.load(workflow, skip=skip))

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        """As the double."""
        return await self._call("record", key, lambda: self.inner.record(holder, key, value))

    async def transact(self, holder: Pass, key: str, effect: MemoryEffect, /) -> object:
        """As the double."""
        return await self._call("transact", key, lambda: self.inner.transact(holder, key, effect))

    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        """As the double."""
        return await self._call("supply", key, lambda: self.inner.supply(workflow, key, value))

    async def append(self, workflow: str, value: object, /, *, once: str | None = None) -> Entry[object]:
        """As the double."""
        return await self._call("append", workflow, lambda: self.inner.append(workflow, value, once=once))

    async def claim(self, workflow: str, budget: timedelta, alive: timedelta, /) -> Pass | None:
        """As the double."""
        return await self._call("claim", workflow, lambda: self.inner.claim(workflow, budget, alive))

    async def extend(self, holder: Pass, budget: timedelta, alive: timedelta, /) -> bool:
        """As the double."""
        return await self._call("extend", holder.workflow, lambda: self.inner.extend(holder, budget, alive))

    async def renew(self, holder: Pass, alive: timedelta, /) -> bool:
        """As the double."""
        return await self._call("renew", holder.workflow, lambda: self.inner.renew(holder, alive))

    async def release(self, holder: Pass, /) -> None:
        """As the double."""
        await self._call("release", holder.workflow, lambda: self.inner.release(holder))

    async def history(self, workflow: str, /) -> dict[str, Written]:
        """As the double."""
        return await self._call("history", workflow, lambda: self.inner.history(workflow))

    async def discard(self, workflow: str, /) -> int:
        """As the double."""
        return await self._call("discard", workflow, lambda: self.inner.discard(workflow))

    async def describe(self, /) -> Description:
        """As the double."""
        return await self.inner.describe()


_checkpointer: type[Checkpointer[MemoryEffect]] = Probe


@asynccontextmanager
async def probing() -> AsyncGenerator[Probe]:
    """Give a probe; and afterwards see that no task is left, and that the event loop had nothing to complain of."""
    loop, complaints = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: complaints.append(f"{context.get('message')}: {context.get('exception')!r}"))
    before = asyncio.all_tasks()
    probe = Probe()
    yield probe
    probe.kept.clear()
    for _ in range(3):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    gc.collect(1)
    assert not left, f"tasks are left: {left}"
    assert not complaints, complaints
