"""One run of a graph whose types are forgotten: what is ready starts, what came back is recorded, what fails stops the rest."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Generic, TypeAlias, TypeVar

from durable_core._same import difference
from durable_core._work import Work, message_of
from durable_core.contract import Checkpointer, Pass
from durable_core.errors import Contended, DurableError, Fenced, Interruption, NotEncodable, StepFailed

E = TypeVar("E")

Call: TypeAlias = Callable[..., Awaitable[object]]

_KEPT_FOR = 10.0  # seconds for which a record is waited for once its node is cancelled


@dataclass(frozen=True, slots=True)
class Plan:
    """What each node calls, the names whose values it takes and those that it only comes after, and the name that is asked for.

    Names that call nothing are the sources.
    """

    calls: Mapping[str, Call]
    takes: Mapping[str, tuple[str, ...]]
    after: Mapping[str, tuple[str, ...]]
    output: str

    def sorter(self) -> TopologicalSorter[str]:
        """Give a fresh order of the names. Raises: `ValueError` for a cycle."""
        sorter = TopologicalSorter({name: (*self.takes[name], *self.after[name]) for name in self.calls})
        try:
            sorter.prepare()
        except CycleError as found:
            circle: list[str] = found.args[1]
            raise ValueError(f"the graph has a cycle: {' -> '.join(map(repr, circle))}") from None
        return sorter

    def uses(self) -> Counter[str]:
        """Count by how many each value is taken."""
        return Counter([self.output, *(name for taken in self.takes.values() for name in taken)])


class Running(Generic[E]):
    """One run of a graph: the values so far, the names that are ready, the nodes at work."""

    def __init__(
        self,
        checkpointer: Checkpointer[E],
        holder: Pass,
        plan: Plan,
        values: dict[str, object],
        limit: int,
    ) -> None:
        self._checkpointer, self._holder, self._workflow = checkpointer, holder, holder.workflow
        self._plan, self._sorter, self._uses = plan, plan.sorter(), plan.uses()
        self._values, self._limit = values, limit
        self._ready: deque[str] = deque()
        self._tasks: dict[asyncio.Task[object], str] = {}
        self._failures: list[tuple[str, BaseException]] = []
        self._stopping = False
        self._give_up_at = math.inf

    def __repr__(self) -> str:
        return f"<run of {self._workflow!r}: {len(self._tasks)} nodes at work, {len(self._values)} values>"

    async def finish(self) -> None:
        """Run what is not recorded. However it ends, no node is left at work."""
        try:
            while not self._failures and self._start():
                done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                self._collect(done)
        finally:
            await self._stop()
        if self._failures:
            raise self._verdict()

    def value(self, name: str) -> object:
        """Give a value: a copy, where something else takes it too."""
        value = self._values[name]
        if name not in self._plan.calls or self._uses[name] == 1:
            return value
        return self._roundtrip(name, value)

    def _start(self) -> bool:
        """Start what is ready, as far as the limit allows, and say whether anything is at work."""
        while len(self._tasks) < self._limit:
            if not self._ready:
                self._ready.extend(self._sorter.get_ready())
            if not self._ready:
                break
            name = self._ready.popleft()
            if name in self._values:
                self._sorter.done(name)
            else:
                self._tasks[asyncio.create_task(self._run(name))] = name
        return bool(self._tasks)

    async def _run(self, name: str) -> object:
        work = Work(
            self._workflow,
            name,
            functools.partial(self._plan.calls[name], *map(self.value, self._plan.takes[name])),
            functools.partial(self._keep, name),
            _keep_no_failure,
            failures=(),
            at_most_once=False,
            timeout=None,
            window_left=lambda: self._give_up_at - asyncio.get_running_loop().time(),
        )
        return await work.done()

    async def _keep(self, name: str, value: object) -> object:
        copy = self._roundtrip(name, value)
        if (changed := difference(value, copy)) is not None:
            raise NotEncodable(f"a node's value must come back as it went, and {changed}", self._workflow, name)
        recorded = await self._checkpointer.record(self._holder, name, copy)
        if not recorded.first:
            raise Contended(self._workflow, name)
        return recorded.value

    def _roundtrip(self, name: str, value: object) -> object:
        try:
            return self._checkpointer.roundtrip(value)
        except NotEncodable as refused:
            raise NotEncodable(refused.reason, self._workflow, name) from refused
        except Exception as refused:
            raise NotEncodable(f"{type(refused).__name__}: {refused}", self._workflow, name) from refused

    def _collect(self, done: set[asyncio.Task[object]]) -> None:
        for task in [task for task in self._tasks if task in done]:
            name = self._tasks.pop(task)
            if task.cancelled():
                if not self._stopping:
                    self._fail(
                        name, DurableError(f"node {name!r} of workflow {self._workflow!r} was cancelled, and not by this library")
                    )
            elif (error := task.exception()) is not None:
                self._fail(name, error)
            else:
                self._values[name] = task.result()
                self._sorter.done(name)

    def _fail(self, name: str, error: BaseException) -> None:
        if not isinstance(error, (Interruption, DurableError)):
            _note(error, f"in node {name!r} of workflow {self._workflow!r}")
        self._failures.append((name, error))

    async def _stop(self) -> None:
        """Cancel what is at work and wait for it, however often this is itself cancelled."""
        if not self._stopping:
            self._stopping = True
            self._give_up_at = asyncio.get_running_loop().time() + _KEPT_FOR
        cancelled: asyncio.CancelledError | None = None
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            try:
                done, _ = await asyncio.wait(self._tasks)
                self._collect(done)
            except asyncio.CancelledError as again:
                cancelled = again
        if cancelled is not None:
            raise cancelled

    def _verdict(self) -> BaseException:
        """Give the failure that is raised: `Fenced`, else `Contended`, else the first; the others are noted on it."""
        errors = [error for _, error in self._failures]
        ranked = [error for kind in (Fenced, Contended, Interruption) for error in errors if isinstance(error, kind)]
        verdict = (ranked or errors)[0]
        for name, error in self._failures:
            if error is not verdict:
                _note(verdict, f"and node {name!r} failed with {type(error).__name__}: {message_of(error)}")
        return verdict


async def _keep_no_failure(kind: str, message: str) -> StepFailed:
    raise AssertionError("a node declares no failures")


def _note(error: BaseException, text: str) -> None:
    with contextlib.suppress(Exception):  # an exception may refuse attributes
        error.add_note(text)
