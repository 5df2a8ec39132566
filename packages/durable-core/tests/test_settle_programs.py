"""Random bodies against a model of what they reach: the same waits on every pass, and every effect once."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from durable_core.errors import StepFailed
from durable_core.outcome import Blocked, Completed, Outcome, Sleeping
from durable_core.run import Run
from probe import Probe

HOUR = timedelta(hours=1)


@dataclass
class World:
    """What the effects of a program see and count."""

    probe: Probe
    runs: Counter[str] = field(default_factory=Counter[str])

    def recorded(self, key: str) -> bool:
        records = self.probe.durable.memory.see("w").ledger.records
        return key in records or f"failed:{key}" in records


class Failure(Exception):
    """A failure that a step declares."""


class Node:
    """A part of a body: `play` is the part itself, `reach` what a pass reaches of it, given what is answered."""

    async def play(self, run: Run, world: World) -> None:
        raise NotImplementedError

    def reach(self, answered: set[str], steps: list[str], waits: set[str]) -> bool:
        """Say whether the part ends; add the steps that run, and the waits that hold it."""
        raise NotImplementedError


@dataclass
class Step(Node):
    """An effect that takes so many turns of the loop; it may fail, and what handles that comes next."""

    key: str
    turns: int
    handler: Node | None = None

    async def play(self, run: Run, world: World) -> None:
        try:
            await run.step(self.key, self.effect, str, world, failures=(Failure,))
        except StepFailed:
            assert self.handler is not None
            await self.handler.play(run, world)

    async def effect(self, world: World) -> str:
        assert not world.recorded(self.key), f"{self.key} runs though it is recorded"
        world.runs[self.key] += 1
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.handler is not None:
            raise Failure(self.key)
        return self.key

    def reach(self, answered: set[str], steps: list[str], waits: set[str]) -> bool:
        steps.append(self.key)
        return self.handler is None or self.handler.reach(answered, steps, waits)


@dataclass
class Waiting(Node):
    """A wait for an answer, a message or an instant."""

    key: str
    kind: str

    async def play(self, run: Run, world: World) -> None:
        match self.kind:
            case "answer":
                assert await run.awaiting(self.key, str) == self.key
            case "timed":
                assert await run.awaiting(self.key, str, timeout=HOUR, default="default") in (self.key, "default")
            case _:
                await run.sleep(self.key, HOUR)

    def reach(self, answered: set[str], steps: list[str], waits: set[str]) -> bool:
        if self.key not in answered:
            waits.add(self.key)
        return self.key in answered


@dataclass
class Sequential(Node):
    """One part after the other."""

    parts: Sequence[Node]

    async def play(self, run: Run, world: World) -> None:
        for part in self.parts:
            await part.play(run, world)

    def reach(self, answered: set[str], steps: list[str], waits: set[str]) -> bool:
        return all(part.reach(answered, steps, waits) for part in self.parts)


@dataclass
class Parallel(Node):
    """Parts at once, in one of the ways that asyncio has for it; with permits, so many of them at once."""

    parts: Sequence[Node]
    how: str
    permits: int

    async def play(self, run: Run, world: World) -> None:
        permits = asyncio.Semaphore(self.permits)

        async def branch(part: Node) -> None:
            async with permits:
                await part.play(run, world)

        match self.how:
            case "group":
                async with asyncio.TaskGroup() as group:
                    for part in self.parts:
                        group.create_task(branch(part))
            case "gather":
                await asyncio.gather(*(branch(part) for part in self.parts))
            case "wait":
                done, _ = await asyncio.wait([asyncio.create_task(branch(part)) for part in self.parts])
                for task in done:
                    task.result()
            case _:
                tasks = [asyncio.create_task(branch(part)) for part in self.parts]
                for task in tasks:
                    await asyncio.shield(task)

    def reach(self, answered: set[str], steps: list[str], waits: set[str]) -> bool:
        blocked = 0
        for part in self.parts:
            if blocked < self.permits:
                blocked += not part.reach(answered, steps, waits)
        return not blocked


@dataclass
class Aborted(Node):
    """A group that one of its branches aborts while the others wait: they are withdrawn, and the body goes on."""

    failing: Step
    others: Sequence[Waiting]

    async def play(self, run: Run, world: World) -> None:
        async def fail() -> None:
            await self.failing.play(run, world)
            raise Failure("abort")

        try:
            async with asyncio.TaskGroup() as group:
                for other in self.others:
                    group.create_task(other.play(run, world))
                group.create_task(fail())
        except* Failure:
            pass

    def reach(self, answered: set[str], steps: list[str], waits: set[str]) -> bool:
        return self.failing.reach(answered, steps, waits)


class Writer:
    """Writes programs."""

    def __init__(self, seed: int) -> None:
        self.random, self._count = random.Random(seed), 0

    def program(self) -> Node:
        return Sequential([self.node(3) for _ in range(3)])

    def key(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count:03}"

    def step(self) -> Step:
        return Step(self.key("s"), self.random.choice([0, 0, 1, 3, 40]))

    def node(self, depth: int) -> Node:
        kind = self.random.choice(["step", "step", "wait", "handled", "aborted", "parallel", "parallel", "sequential"])
        if kind == "wait":
            return Waiting(self.key("w"), self.random.choice(["answer", "answer", "timed", "nap"]))
        if kind == "handled" and depth:
            failing = self.step()
            failing.handler = self.node(depth - 1)
            return failing
        if kind == "aborted":
            return Aborted(self.step(), [Waiting(self.key("x"), "answer") for _ in range(self.random.randrange(3))])
        if kind in ("parallel", "sequential") and depth:
            parts = [self.node(depth - 1) for _ in range(self.random.randrange(1, 5))]
            if kind == "sequential":
                return Sequential(parts)
            return Parallel(
                parts, self.random.choice(["group", "group", "gather", "wait", "shield"]), self.random.choice([1, 2, 99])
            )
        return self.step()


def unheard() -> Probe:
    """Give a probe, and let the loop complain to nobody of what these programs leave behind unawaited."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    return Probe()


def waited(outcome: Outcome[object]) -> set[str]:
    return set() if isinstance(outcome, Completed) else {*outcome.waiting}


async def answer(probe: Probe, writer: Writer, outcome: Blocked | Sleeping, answered: set[str]) -> None:
    """Answer one of the waits, or let an hour pass, which answers all that have a deadline."""
    if isinstance(outcome, Sleeping) and writer.random.random() < 0.5:
        history = await probe.inner.load("w")
        probe.tick(3_600)
        answered |= {key for key in outcome.waiting if key in history or f"until:{key}" in history}
        return
    naps = await probe.inner.load("w")
    free = [key for key in outcome.waiting if key not in naps]
    if not free:
        probe.tick(3_600)
        answered |= set(outcome.waiting)
    else:
        key = writer.random.choice(free)
        assert (await probe.supply_now(key, key)).first
        answered.add(key)


@pytest.mark.parametrize("seed", range(60))
async def test_programs_reach_the_same_waits_on_every_pass_and_run_every_effect_once(seed: int) -> None:
    """RUN-SUSPEND-SETTLE: a pass names exactly the waits that the model says, twice in a row, and runs nothing again."""
    probe, writer = unheard(), Writer(seed)
    program, world, answered = writer.program(), World(probe), set[str]()

    async def body(run: Run) -> str:
        await program.play(run, world)
        return "done"

    while True:
        steps, waits = list[str](), set[str]()
        ends = program.reach(answered, steps, waits)
        outcome = await probe.advance(body)
        assert outcome == await probe.advance(body)
        assert waited(outcome) == waits
        assert isinstance(outcome, Completed) == ends
        assert world.runs == Counter(steps)
        if isinstance(outcome, Completed):
            return
        await answer(probe, writer, outcome, answered)


@pytest.mark.parametrize("seed", range(60))
async def test_programs_come_to_the_same_end_whatever_breaks_on_the_way(seed: int) -> None:
    """RUN-STEP: passes that are cancelled or lose the store anywhere repeat no recorded effect, and the end is the model's."""
    probe, writer = unheard(), Writer(seed + 1_000)
    program, world, answered = writer.program(), World(probe), set[str]()

    async def body(run: Run) -> str:
        await program.play(run, world)
        return "done"

    while True:
        for _ in range(3):
            await broken(probe, writer, body)
        steps, waits = list[str](), set[str]()
        program.reach(answered, steps, waits)
        outcome = await probe.advance(body)
        assert waited(outcome) == waits
        assert set(world.runs) >= set(steps)
        if isinstance(outcome, Completed):
            return
        await answer(probe, writer, outcome, answered)


async def broken(probe: Probe, writer: Writer, body: Callable[[Run], Awaitable[str]]) -> None:
    """Make a pass that is cancelled after some turns, or whose records fail."""
    holder = await probe.take()
    for key in (f"s{writer.random.randrange(40):03}" for _ in range(2)):
        probe.fail("record", key, ConnectionError("down"), after=writer.random.random() < 0.5)
    task = asyncio.create_task(probe.advance(body, holder=holder))
    for _ in range(writer.random.randrange(120)):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    await probe.inner.release(holder)
    probe.forget_rules()
    error = None if task.cancelled() else task.exception()
    assert error is None or isinstance(error, ConnectionError | ExceptionGroup), error
