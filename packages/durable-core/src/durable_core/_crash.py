"""A workflow run once through, and once more from every point at which a crash could leave it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Generic, TypeVar

from durable_core import keys
from durable_core._bystanders import Bystanders
from durable_core._chance import WORLDS, another_world
from durable_core._clock import ManualClock
from durable_core._life import Body, Ending, Life, Messages, Raised
from durable_core._story import Again, Story, ran_again
from durable_core.contract import CheckpointCodec, Encoded
from durable_core.memory import MemoryDurable
from durable_core.outcome import Completed

T = TypeVar("T")

_PATIENCE = 10.0
_GHOST = 1.0


class Crashes(Generic[T]):
    """The lives of one workflow, and what they did differently. [RUN-SETTLE]"""

    def __init__(
        self,
        body: Body[T],
        answers: Mapping[str, object],
        workflow: str,
        value: object,
        codec: CheckpointCodec[Encoded] | None,
        ignore: Sequence[object],
    ) -> None:
        self._body, self._answers, self._workflow, self._value, self._codec = body, answers, workflow, value, codec
        self._ignore = ignore
        self._story = Story()
        self._kept: list[tuple[str, object]] = []
        self._times: list[datetime] = []
        self._delivered: dict[str, int] = {}
        self._ghosts: dict[str, object] = {}
        self.faults: list[str] = []
        self.lives = 0
        self.ending: Ending[T] | None = None

    def __repr__(self) -> str:
        return f"<Crashes of {self._workflow!r}, {self.lives} lives>"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all records, in order."""
        return tuple(key for key, _ in self._kept)

    async def straight(self) -> frozenset[int]:
        """Live without a crash, and give after how many records one can come."""
        clock = ManualClock()
        durable = MemoryDurable(clock=clock, codec=self._codec)
        await durable.checkpointer.supply(self._workflow, keys.INPUT, self._value)
        life = Life(durable, clock, self._workflow, self._body, self._answers, self._story, self._story.begin)
        self._story.count = lambda: life.records
        self.ending = await life.ends()
        for key, written in (await durable.checkpointer.history(self._workflow)).items():
            self._kept.append((key, written.value))
            self._times.append(written.at)
        self._delivered = life.delivered
        self.faults += [f"without a crash: {ran_again(key)}" for key in dict.fromkeys(self._story.again)]
        await self._land()
        return frozenset(range(1, len(self._kept) + 1)) - life.together - self._begun()

    async def crashed(self, at: int) -> None:
        """Live on from so many records, in several ways."""
        bystanders = Bystanders(self._body, self._ignore)
        for world in range(WORLDS):
            with another_world(self._body, world):
                await self._live_on(at, {}, bystanders)
        landed = self._could_land(at)
        if landed:
            with another_world(self._body, 0):
                await self._live_on(at, landed, bystanders)

    async def _live_on(self, at: int, landed: Mapping[str, object], bystanders: Bystanders) -> None:
        self.lives += 1
        clock = ManualClock(self._times[at - 1])
        durable = MemoryDurable(clock=clock, codec=self._codec)
        for key, value in (*self._kept[:at], *landed.items()):
            await durable.checkpointer.supply(self._workflow, key, value)
        again = Again(self._story, at, frozenset(landed))
        life = Life(durable, clock, self._workflow, self._body, self._answers, again, again.begin)
        life.delivered.update({key: count for key, count in self._delivered.items() if count <= at})
        faults: list[str] = []
        try:
            async with asyncio.timeout(_PATIENCE):
                ending = await life.ends()
            faults += self._differences(at, ending, await durable.checkpointer.load(self._workflow), again)
        except TimeoutError:
            faults.append(f"it did not end within {_PATIENCE:.0f} s")
        except AssertionError as stuck:
            faults.append(str(stuck))
        changed = bystanders.changed()
        if changed:
            faults.append(f"its body itself changed {', '.join(changed)}: an effect belongs in a step")
        when = f"crashed just after {self._kept[at - 1][0]!r} (record {at} of {len(self._kept)})"
        if landed:
            when += f", while {', '.join(map(repr, landed))} came in,"
        self.faults += [f"{when} {fault}" for fault in dict.fromkeys(again.faults + faults)]

    def _differences(self, at: int, ending: Ending[T], records: Mapping[str, object], again: Again) -> list[str]:
        if again.faults:
            return []
        faults: list[str] = []
        if ending != self.ending:
            faults.append(f"it ended with {_shown(ending)}, and with {_shown(self.ending)} without the crash")
        late = again.landed | {keys.UNTIL + key for key in again.landed}
        found, expected = [key for key in records if key not in late], [key for key in self.keys if key not in late]
        if self._story.is_concurrent or again.is_concurrent:  # branches record in any order
            found.sort()
            expected.sort()
        if found != expected:
            faults.append(_of_keys(found, expected))
        missed = [key for key in self.keys[:at] if key in self._story.asked_last and key not in again.asked_last]
        if missed and isinstance(self.ending, Completed):
            faults.append(f"it never asked for {', '.join(map(repr, missed))}, which was recorded")
        return faults

    def _begun(self) -> set[int]:
        """Give the cuts that leave an `at_most_once` step begun and not ended: it is unknown then, as it should be."""
        cuts: set[int] = set()
        open_steps: set[str] = set()
        for count, key in enumerate(self.keys, 1):
            if key.startswith(keys.START):
                open_steps.add(key[len(keys.START) :])
            open_steps.discard(key.removeprefix(keys.FAILED))
            if open_steps:
                cuts.add(count)
        return cuts

    async def _land(self) -> None:
        """Let those effects end that the body did not wait for: their results might have landed just before the crash."""
        for key, made in self._story.attempts.items():
            effect = made[-1].effect
            if made[-1].kind == "unfinished" and effect is not None and key not in self.keys:
                try:
                    async with asyncio.timeout(_GHOST):
                        self._ghosts[key] = await effect()
                except (Exception, asyncio.CancelledError):  # then it cannot land
                    pass

    def _could_land(self, at: int) -> dict[str, object]:
        """Give what could be recorded as well by then: answers, and results of effects that had begun."""
        there = set(self.keys[:at])
        early = {key: value for key, value in self._answers.items() if not isinstance(value, Messages) and key not in there}
        begun = {
            key: value for key, value in self._ghosts.items() if self._story.attempts[key][-1].began < at and key not in there
        }
        return early | begun


def _of_keys(found: Sequence[str], expected: Sequence[str]) -> str:
    """Say where two sequences of keys part."""
    for number, (one, other) in enumerate(zip_longest(found, expected), 1):
        if one != other:
            says = [repr(key) if key is not None else "not there" for key in (one, other)]
            return f"its record {number} was {says[0]}, and {says[1]} without the crash"
    return "its records differ"


def _shown(ending: Ending[T] | None) -> str:
    match ending:
        case Completed(value):
            return repr(value)
        case Raised(error):
            return f"{type(error).__name__}({error})"
        case None:
            return "nothing"


def told(workflow: str, faults: Sequence[str], most: int = 8) -> str:
    """Put faults into one message."""
    more = f"\n- and {len(faults) - most} more" if len(faults) > most else ""
    return f"{workflow!r} does not survive every crash:\n- " + "\n- ".join(faults[:most]) + more
