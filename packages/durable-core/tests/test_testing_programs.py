"""Programs made by chance that keep to their run: no crash changes what they do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from durable_core import Run, StepFailed
from durable_core.memory import MemoryEffect
from durable_core.testing import Messages, crash_everywhere


@dataclass(frozen=True)
class Do:
    """One call of the run."""

    kind: Literal["step", "slow", "fails", "once", "transact", "sleep", "now", "await", "default", "receive", "pending", "flaky"]


@dataclass(frozen=True)
class InTurn:
    """One after the other."""

    parts: Sequence[Program]


@dataclass(frozen=True)
class AtOnce:
    """In a task each."""

    parts: Sequence[Program]


Program: TypeAlias = Do | InTurn | AtOnce

KINDS: Sequence[
    Literal["step", "slow", "fails", "once", "transact", "sleep", "now", "await", "default", "receive", "pending", "flaky"]
] = (
    "step",
    "slow",
    "fails",
    "once",
    "transact",
    "sleep",
    "now",
    "await",
    "default",
    "receive",
    "pending",
    "flaky",
)
programs: st.SearchStrategy[Program] = st.recursive(
    st.sampled_from(KINDS).map(Do),
    lambda inner: st.lists(inner, max_size=4).map(InTurn) | st.lists(inner, max_size=3).map(AtOnce),
    max_leaves=8,
)


class Runner:
    """Runs a program; each call has a name by its place."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._calls: dict[str, int] = {}

    async def body(self, run: Run[MemoryEffect]) -> object:
        return await self._run(run, self._program, "0")

    async def _run(self, run: Run[MemoryEffect], program: Program, at: str) -> object:
        match program:
            case Do(kind):
                return await self._do(run, kind, f"{kind} {at}")
            case InTurn(parts):
                return [await self._run(run, part, f"{at}.{number}") for number, part in enumerate(parts)]
            case AtOnce(parts):
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._run(run, part, f"{at}.{number}")) for number, part in enumerate(parts)]
                return [task.result() for task in tasks]

    async def _do(self, run: Run[MemoryEffect], kind: str, key: str) -> object:
        match kind:
            case "step" | "once":
                return await run.step(key, self._give, str, key, at_most_once=kind == "once")
            case "slow":
                return await run.step(key, self._slowly, str, key)
            case "fails":
                try:
                    return await run.step(key, self._fail, str, key, failures=(ValueError,))
                except StepFailed as failed:
                    return await run.step(f"after {key}", self._give, str, failed.message)
            case "flaky":
                try:
                    return await run.step(key, self._flaky, str, key)
                except ConnectionError:
                    return await run.step(key, self._flaky, str, key)
            case "transact":
                return await run.transact(key, lambda data: len(data), int)
            case "sleep":
                await run.sleep(key, timedelta(hours=len(key)))
                return None
            case "now":
                return (await run.now(key)).isoformat()
            case "await":
                return await run.awaiting(key, str)
            case "default":
                return await run.awaiting(key, str, timeout=timedelta(hours=1), default="late")
            case "receive":
                return [entry.value for entry in await run.receive(key, str, after=None, limit=1)]
            case _:
                return len(await run.pending(key, str, after=None, limit=1))

    async def _give(self, value: str) -> str:
        return value

    async def _slowly(self, value: str) -> str:
        await asyncio.sleep(0.001)
        return value

    async def _fail(self, value: str) -> str:
        raise ValueError(value)

    async def _flaky(self, value: str) -> str:
        self._calls[value] = self._calls.get(value, 0) + 1
        if self._calls[value] == 1:
            raise ConnectionError
        return value


def names(program: Program, at: str = "0") -> list[str]:
    """Give the names of all calls."""
    if isinstance(program, Do):
        return [f"{program.kind} {at}"]
    return [name for number, part in enumerate(program.parts) for name in names(part, f"{at}.{number}")]


@settings(max_examples=60)
@given(programs)
def test_a_program_that_keeps_to_its_run_survives_every_crash(program: Program) -> None:
    """RUN-SETTLE, RUN-RESUME-OUTCOME: no false alarm, whatever its shape."""
    answers: dict[str, object] = {}
    for name in names(program):
        if name.startswith("await"):
            answers[name] = "answered"
        elif name.startswith("receive"):
            answers[name] = Messages("hello")
    asyncio.run(survive(program, answers))


async def survive(program: Program, answers: dict[str, object]) -> None:
    survived = await crash_everywhere(Runner(program).body, answers)
    assert survived.keys[0] == "input"
