"""For the tests of an application: a clock to move by hand, one pass of a body, and a crash after every record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final, Generic, TypeVar, cast

from durable_core._clock import ManualClock
from durable_core._crash import Crashes, told
from durable_core._life import Messages, Raised
from durable_core._memory import MemoryEffect
from durable_core._timed import monotonic_of
from durable_core.contract import CheckpointCodec, Checkpointer, Durable, Encoded
from durable_core.errors import DurableError
from durable_core.outcome import Completed, Outcome
from durable_core.resume import ALIVE, BUDGET, resume
from durable_core.run import Run

__all__ = ["ManualClock", "Messages", "Survived", "crash_everywhere", "one_pass"]

E = TypeVar("E")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Survived(Generic[T_co]):
    """What a workflow came to, the keys of its records in order, and how many times it was crashed on the way."""

    value: T_co
    keys: tuple[str, ...]
    crashes: int


async def one_pass(
    store: Durable[E] | Checkpointer[E],
    workflow: str,
    body: Callable[[Run[E]], Awaitable[T]],
    *,
    budget: timedelta = BUDGET,
    alive: timedelta = ALIVE,
) -> Outcome[T]:
    """Claim a workflow, advance it by one pass, release it, and give how the pass ended.

    No outcome is recorded, and nothing is asked of the scheduler.

    Raises: `DurableError` when another pass holds the workflow, and whatever `resume` raises.
    """
    # A durable has a checkpointer, and a checkpointer has none: that is how the two are told apart.
    checkpointer = cast("Checkpointer[E]", getattr(store, "checkpointer", store))
    holder = await checkpointer.claim(workflow, budget, alive)
    if holder is None:
        raise DurableError(f"workflow {workflow!r} is held by another pass")
    try:
        return await resume(checkpointer, holder, body, budget=budget, alive=alive, monotonic=monotonic_of(store))
    finally:
        await checkpointer.release(holder)


async def crash_everywhere(
    body: Callable[[Run[MemoryEffect]], Awaitable[T]],
    answers: Mapping[str, object] = _NOTHING,
    /,
    *,
    value: object = None,
    workflow: str = "workflow/1",
    codec: CheckpointCodec[Encoded] | None = None,
    ignore: Sequence[object] = (),
) -> Survived[T]:
    """Run a workflow once through, and go on once more from a crash just after each of its records.

    It runs on a store in memory whose clock jumps over the sleeps, with `value` as its input. `answers` are what it waits for, by
    the awaited key; `Messages(…)` under the key of a `receive` is delivered when that one waits. Effects run in the first life
    only. After a crash each gives what it gave there, while the system's clock and `random` say something else; so whatever
    differs then is the body's own doing:

    - an effect that the body calls itself, not through a step: something that the body can reach has changed, or the outcome has;
    - a wall clock, `random`, or a first-completed race that decides something: outcome or records differ, also when an answer,
      or the result of the loser, came in with the crash;
    - an `except` that goes by a failure which no record keeps: the effect runs again, or the records are not asked for.

    `ignore` are objects (lists, dicts, objects with attributes) that the body may change outside its steps. A crash between the
    beginning and the end of an `at_most_once` step is left out, since the next pass ends in `OutcomeUnknown`.

    [RUN-SETTLE] It fails when outcome, key sequence or the number of runs of a recorded step differ.

    Raises: `AssertionError` naming each crash and what differed; or that the workflow waits for something without an answer. What
    the body raises in the end, if it does so after every crash too.
    """
    crashes = Crashes(body, answers, workflow, value, codec, ignore)
    cuts = sorted(await crashes.straight())
    for cut in cuts:
        await crashes.crashed(cut)
    if crashes.faults:
        raise AssertionError(told(workflow, crashes.faults))
    match crashes.ending:
        case Completed(ended):
            return Survived(ended, crashes.keys, len(cuts))
        case Raised(error):
            raise error
        case None:
            raise AssertionError("a life without an end")
