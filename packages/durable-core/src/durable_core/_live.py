"""A turn that a worker holds, from the moment it was taken until it is answered."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from durable_core._pulse import Pulse
from durable_core.contract import Turn
from durable_core.resume import Advance


class Live:
    """What the worker, its heartbeat and the task of a turn know of it.

    `due` is when the heartbeat looks at it next. `asked` says that a renewal was sent and is not confirmed yet.
    """

    __slots__ = (
        "advance",
        "answering_since",
        "asked",
        "at_work",
        "due",
        "expired",
        "lost",
        "pulse",
        "renewal",
        "spent",
        "task",
        "turn",
    )

    def __init__(self, turn: Turn, pulse: Pulse, due: float) -> None:
        self.turn, self.pulse, self.due = turn, pulse, due
        self.task: asyncio.Task[None] | None = None
        self.advance: Advance | None = None
        self.renewal: asyncio.Task[None] | None = None
        self.asked = self.lost = self.spent = self.expired = False
        self.at_work: tuple[str, ...] = ()
        self.answering_since: float | None = None

    def __repr__(self) -> str:
        state = "lost" if self.lost else "passing" if self.answering_since is None else "answering"
        return f"<Live {self.turn.holder.workflow!r}, token {self.turn.holder.token}, {state}>"

    @property
    def is_answering(self) -> bool:
        """Whether its pass is over."""
        return self.answering_since is not None

    def lose(self) -> None:
        """End the pass, or the attempt to answer, because the claim is lost."""
        if self.is_answering:
            self.expired = True
        elif self.advance is not None:
            self.note_lost(self.advance.at_work)
            self.advance.lose()
            return
        self.note_lost(())
        if self.task is not None:
            self.task.cancel()

    def note_lost(self, at_work: tuple[str, ...]) -> None:
        """Remember what was the matter when the claim was found lost. [RUN-STEP-BUDGET]"""
        if not self.lost:
            self.lost, self.spent, self.at_work = True, self.pulse.spent, at_work

    def answering(self, now: float, least: timedelta) -> None:
        """The pass is over: from here on the answer counts, until the window is over, or for a while if it is already."""
        self.answering_since = asyncio.get_running_loop().time()
        self.due = now + max(self.pulse.window_left, least.total_seconds())
