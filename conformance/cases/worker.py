"""A worker process that is killed, stopped or told to end: `python -m conformance.cases.worker PLACE WHO GRACE`."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from conformance.cases.place import Place
from durable_core import Run, nothing
from durable_core.observer import Event
from durable_core.worker import Worker


class Notes:
    """Lines that survive whatever happens next."""

    def __init__(self, folder: Path, who: str) -> None:
        self.folder, self._who = folder, who

    def note(self, *words: object) -> None:
        """Leave a line."""
        log = os.open(self.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, (" ".join(map(str, (self._who, *words))) + "\n").encode())
        os.close(log)

    def tell(self, event: Event) -> None:
        """Leave a line for what an observer is told of a pass."""
        name = type(event).__name__
        if name in ("PassBegan", "Buried"):
            self.note(name, getattr(event, "workflow", ""), getattr(event, "attempt", ""))


class Slow:
    """Two steps; the second one ends when a file says so."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    async def first(self) -> None:
        self._notes.note("first")

    async def second(self) -> None:
        self._notes.note("second")
        try:
            while not (self._notes.folder / "go").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self._notes.note("cancelled")
            raise

    async def body(self, run: Run[object]) -> str:
        await run.step("first", self.first, nothing)
        await run.step("second", self.second, nothing)
        return "done"


async def pause() -> None:
    await asyncio.sleep(0.05)


async def die() -> None:
    os._exit(13)


async def innocent(run: Run[object]) -> None:
    await run.step("first", pause, nothing)
    await run.step("second", pause, nothing)


async def killer(run: Run[object]) -> None:
    await run.step("first", pause, nothing)
    await run.step("second", die, nothing)


async def work(place: Place, who: str, grace: str) -> None:
    """Work until killed or told to end."""
    notes = Notes(place.at.folder, who)
    async with place.open() as durable:
        worker = Worker(durable, grace=timedelta(seconds=float(grace)), observer=notes.tell)
        bodies = {"slow": Slow(notes).body, "job": innocent, "bad": killer}
        await worker.run(bodies, signals=(signal.SIGTERM, signal.SIGINT))
    notes.note("ended")


if __name__ == "__main__":
    words, me, patience = sys.argv[1:]
    asyncio.run(work(Place.told(words), me, patience))
