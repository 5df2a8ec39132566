"""Processes: one that is needed, and a fleet of workers that are killed and replaced."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from random import Random
from signal import SIGTERM
from typing import Final

KILLED: Final = -9
GRACE: Final = 10.0
WORDS: Final = 30
"""How many words the fleet says at most before the next worker is killed; an order takes about a dozen."""


@asynccontextmanager
async def program(module: str, *arguments: str) -> AsyncGenerator[Process, None]:
    """Run a module as a process, and end it."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(GRACE):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def end_with_parent() -> None:
    """Have this process asked to end when the one that started it is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


async def line_of(process: Process) -> str:
    """Give the next line that the process prints, empty when it has ended."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


class Fleet:
    """Workers. `events` counts what they say: a word a line."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.kills = 0
        self.events: Counter[str] = Counter()
        self._arguments = arguments
        self._at_work: list[Process] = []
        self._heard = asyncio.Event()

    async def keep(self) -> None:
        """Keep one worker running, until cancelled: start the next one when it is killed."""
        while True:
            async with program("examples.payments.worker", *self._arguments) as process:
                word = await line_of(process)
                if word:
                    self._at_work.append(process)
                while word:
                    self.events[word] += 1
                    self._heard.set()
                    word = await line_of(process)
                if await process.wait() != KILLED:
                    raise RuntimeError(f"a worker ended by itself, with {process.returncode}")

    async def kill(self, chance: Random, limit: int) -> None:
        """Kill workers with SIGKILL: nothing that they could notice or clean up after.

        What they have done decides when, and not the clock alone: however slow the machine is, work goes on between two kills.
        """
        while self.kills < limit:
            await self._said(chance.randint(1, WORDS))
            await asyncio.sleep(chance.uniform(0, 0.5))
            if self._at_work:
                self._at_work.pop(chance.randrange(len(self._at_work))).kill()
                self.kills += 1

    async def _said(self, more: int) -> None:
        """Return when so many more words were said."""
        until = self.events.total() + more
        while self.events.total() < until:
            self._heard.clear()
            await self._heard.wait()


@asynccontextmanager
async def fleet(size: int, *arguments: str) -> AsyncGenerator[Fleet, None]:
    """Keep so many workers running, and let them finish what they are doing at the end."""
    async with asyncio.TaskGroup() as group:
        workers = Fleet(arguments)
        keepers = [group.create_task(workers.keep()) for _ in range(size)]
        try:
            yield workers
        finally:
            for keeper in keepers:
                keeper.cancel()
