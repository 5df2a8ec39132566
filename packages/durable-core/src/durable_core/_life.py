"""One life of a workflow in a test, from its first pass to its end, with whoever answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeAlias, TypeVar

from durable_core._clock import ManualClock
from durable_core._watched import Watch, watched
from durable_core.memory import MemoryDurable, MemoryEffect
from durable_core.outcome import Blocked, Completed, Outcome, Sleeping
from durable_core.resume import resume
from durable_core.run import Run

T = TypeVar("T")
Body: TypeAlias = Callable[[Run[MemoryEffect]], Awaitable[T]]

_LONG = timedelta(days=365)
_IDLE_PASSES = 100


class Messages:
    """Among the answers: what arrives in the inbox, in order, when the workflow waits to receive under the key."""

    def __init__(self, *values: object) -> None:
        self.values = values

    def __repr__(self) -> str:
        return f"Messages({', '.join(map(repr, self.values))})"


@dataclass(frozen=True, slots=True)
class Raised:
    """The body ended by raising."""

    error: BaseException

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Raised) and _told(self.error) == _told(other.error)

    def __hash__(self) -> int:
        return hash(_told(self.error))


Ending: TypeAlias = Completed[T] | Raised


class Life(Generic[T]):
    """Drives one workflow until it ends: answers what it waits for, and lets the time pass for which it sleeps.

    `together` are the numbers of records that were there only between two answers which came at once; `delivered` says for which
    keys messages came, and how many records there were then.
    """

    def __init__(
        self,
        durable: MemoryDurable,
        clock: ManualClock,
        workflow: str,
        body: Body[T],
        answers: Mapping[str, object],
        watch: Watch,
        begin: Callable[[], None],
    ) -> None:
        self.durable, self.clock, self.workflow = durable, clock, workflow
        self._body, self._answers, self._begin = watched(body, watch), answers, begin
        self.delivered: dict[str, int] = {}
        self.together: set[int] = set()

    def __repr__(self) -> str:
        return f"<Life of {self.workflow!r}, {self.records} records>"

    @property
    def records(self) -> int:
        """How many records there are."""
        return len(self.durable.memory.see(self.workflow).ledger.records)

    async def ends(self) -> Ending[T]:
        """Give how it ends. Raises: `AssertionError` when it waits for something that nobody answers."""
        idle, before = 0, -1
        while idle < _IDLE_PASSES:
            idle = idle + 1 if self.records == before else 0
            before = self.records
            self._begin()
            try:
                outcome = await self._pass()
            except Exception as error:
                return Raised(error)
            match outcome:
                case Completed():
                    return outcome
                case Sleeping() | Blocked():
                    await self._answer(outcome)
        raise AssertionError(f"the workflow made {idle} passes without recording anything")

    async def _pass(self) -> Outcome[T]:
        checkpointer = self.durable.checkpointer
        holder = await checkpointer.claim(self.workflow, _LONG, _LONG)
        assert holder is not None, f"workflow {self.workflow!r} is held by another pass"
        try:
            return await resume(checkpointer, holder, self._body, budget=_LONG, alive=_LONG, monotonic=self.durable.monotonic)
        finally:
            await checkpointer.release(holder)

    async def _answer(self, outcome: Sleeping | Blocked) -> None:
        """Answer all that can be; failing that, let the time pass."""
        before = self.records
        for key in outcome.waiting:
            if key in self._answers:
                await self.durable.checkpointer.supply(self.workflow, key, self._answers[key])
        for key in outcome.listening:
            messages = self._answers.get(key)
            if isinstance(messages, Messages) and key not in self.delivered:
                for value in messages.values:
                    await self.durable.checkpointer.append(self.workflow, value)
                self.delivered[key] = self.records
        if self.records > before:
            self.together.update(range(before + 1, self.records))
            return
        if isinstance(outcome, Blocked):
            waits = ", ".join(map(repr, (*outcome.waiting, *outcome.listening)))
            raise AssertionError(f"the workflow waits for {waits}, and `answers` has nothing there")
        self.clock.advance(max(outcome.due - self.clock.now(), timedelta.resolution))


def _told(error: BaseException) -> tuple[str, str]:
    return type(error).__name__, str(error)
