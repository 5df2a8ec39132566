"""Two worker processes on one file: one is killed, stopped or told to end inside a step, and the other one goes on."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from durable_core import Finished, start
from durable_sqlite import SqliteDurable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")

CHILD = Path(__file__).with_name("worker_child.py")
LEASE = timedelta(seconds=1)


class Pair:
    """A workflow, the lines that its effects left, and processes."""

    def __init__(self, folder: Path, durable: SqliteDurable) -> None:
        self.folder, self.durable = folder, durable
        self.processes: list[subprocess.Popen[bytes]] = []

    def worker(self, who: str, grace: float = 30) -> "subprocess.Popen[bytes]":
        """Start a worker process."""
        process = subprocess.Popen([sys.executable, str(CHILD), "slow", str(self.folder), who, str(grace)])
        self.processes.append(process)
        return process

    def lines(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    async def says(self, line: str) -> None:
        """Wait for a line."""
        await until(lambda: line in self.lines())

    async def ends(self) -> Finished[object]:
        """Let the step end, and wait for the workflow."""
        (self.folder / "go").touch()
        async with asyncio.timeout(60):
            while (ended := await self.durable.result("job/1")) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert isinstance(ended, Finished)
        return ended


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def pair(folder: Path) -> AsyncGenerator[Pair]:
    """Start the workflow."""
    async with SqliteDurable.at(folder / "shop.db", lease=LEASE) as durable:
        await start(durable, "job/1")
        made = Pair(folder, durable)
        try:
            yield made
        finally:
            for process in made.processes:
                process.kill()
                process.wait()


async def test_case_1_a_slow_pass_that_renews_is_nobody_else_s(tmp_path: Path) -> None:
    """[RUN-WORK] Four windows long, with another worker on the queue: one effect, one attempt."""
    async with pair(tmp_path) as at:
        at.worker("first")
        await at.says("first second")
        at.worker("other")
        (listed,) = await at.durable.workflows()
        assert listed.held_until is not None
        async with asyncio.timeout(60):
            while ((await at.durable.workflows())[0].held_until or listed.held_until) < listed.held_until + 4 * LEASE:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await at.durable.workflows())[0].attempt == 1
        assert await at.ends() == Finished("first")
        assert at.lines() == ["first first", "first second"]


async def test_case_10_a_killed_worker_s_workflow_is_taken_up_once_its_window_is_over(tmp_path: Path) -> None:
    """[RUN-WORK] The budget plays no part; what was recorded is replayed."""
    async with pair(tmp_path) as at:
        first = at.worker("first")
        await at.says("first second")
        first.kill()
        at.worker("other")
        await at.says("other second")
        assert await at.ends() == Finished("other")
        assert at.lines() == ["first first", "first second", "other second"]
        assert (await at.durable.workflows())[0].state == "finished"


async def test_case_8_a_stopped_worker_s_pass_ends_soon_after_it_wakes(tmp_path: Path) -> None:
    """[RUN-WORK] Its body is cancelled by the next renewal, it records nothing, and it goes on working."""
    async with pair(tmp_path) as at:
        first = at.worker("first")
        await at.says("first second")
        first.send_signal(signal.SIGSTOP)
        at.worker("other")
        await at.says("other second")
        first.send_signal(signal.SIGCONT)
        await at.says("first cancelled")
        assert await at.ends() == Finished("other")
        await start(at.durable, "job/2")
        async with asyncio.timeout(60):
            while await at.durable.result("job/2") is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        first.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(first.wait, 60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_case_105_a_signal_hands_the_work_over_at_once(tmp_path: Path, number: signal.Signals) -> None:
    """[RUN-WORK-DRAIN] After the grace time the pass is cancelled and given to the other worker, as the same attempt; exit 0."""
    async with pair(tmp_path) as at:
        first = at.worker("first", grace=0.2)
        await at.says("first second")
        other = at.worker("other")
        first.send_signal(number)
        assert await asyncio.to_thread(first.wait, 60) == 0
        assert at.lines()[:4] == ["first first", "first second", "first cancelled", "first ended"]
        await at.says("other second")
        (listed,) = await at.durable.workflows()
        assert (listed.state, listed.attempt) == ("running", 1)
        assert await at.ends() == Finished("other")
        other.send_signal(number)
        assert await asyncio.to_thread(other.wait, 60) == 0
