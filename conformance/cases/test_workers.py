"""Cases of worker processes, on every store that several can open: killed, stopped, told to end, and taken down by a body."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from datetime import timedelta

import pytest

from conformance.cases.place import Place
from durable_core.client import start
from durable_core.contract import Durable, Failed, Finished

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")

LEASE = timedelta(seconds=1)


class Fleet:
    """Worker processes on one datastore, and the lines that they left."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.processes: list[subprocess.Popen[bytes]] = []

    def worker(self, who: str, grace: float = 30) -> "subprocess.Popen[bytes]":
        """Start one."""
        command = [sys.executable, "-m", "conformance.cases.worker", self.place.words, who, str(grace)]
        process = subprocess.Popen(command)
        self.processes.append(process)
        return process

    def lines(self) -> list[str]:
        log = self.place.at.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def steps(self) -> list[str]:
        """Give the lines of the bodies themselves."""
        return [line for line in self.lines() if "PassBegan" not in line and "Buried" not in line]

    def attempts(self) -> set[str]:
        """Give the attempts of the passes that began."""
        return {line.split()[-1] for line in self.lines() if "PassBegan slow/1" in line}

    async def says(self, line: str) -> None:
        """Wait for a line."""
        await until(lambda: line in self.lines())

    async def ends(self, durable: Durable[object]) -> Finished[object] | Failed:
        """Let the slow step end, and wait for its workflow."""
        (self.place.at.folder / "go").touch()
        return await ended(durable, "slow/1")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def ended(durable: Durable[object], workflow: str) -> Finished[object] | Failed:
    async with asyncio.timeout(60):
        while (answer := await durable.result(workflow)) is None:
            await durable.watch(workflow, LEASE)
    return answer


@pytest.fixture
def fleet(shared_place: Place) -> Generator[Fleet]:
    """No workers yet."""
    made = Fleet(shared_place.leased(LEASE))
    try:
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.wait()


async def test_a_slow_pass_that_renews_is_nobody_elses(fleet: Fleet) -> None:
    """Case 1: for four windows, with another worker on the queue: one effect, one attempt. [RUN-WORK]"""
    async with fleet.place.open() as durable:
        await start(durable, "slow/1")
        fleet.worker("first")
        await fleet.says("first second")
        fleet.worker("other")
        until = await durable.scheduler.now() + 4 * LEASE
        while await durable.scheduler.now() < until:
            assert not await durable.begin(LEASE / 10, LEASE)
        assert await fleet.ends(durable) == Finished("done")
        assert (fleet.steps(), fleet.attempts()) == (["first first", "first second"], {"1"})


async def test_a_killed_workers_workflow_is_taken_up(fleet: Fleet) -> None:
    """Cases 10, 131: once its window is over, and not its budget; what was recorded is replayed. [RUN-WORK]"""
    async with fleet.place.open() as durable:
        await start(durable, "slow/1")
        first = fleet.worker("first")
        await fleet.says("first second")
        first.kill()
        fleet.worker("other")
        await fleet.says("other second")
        assert await fleet.ends(durable) == Finished("done")
        assert fleet.steps() == ["first first", "first second", "other second"]


async def test_a_stopped_workers_pass_ends_soon_after_it_wakes(fleet: Fleet) -> None:
    """Cases 4, 8: its body is cancelled by the next renewal, it records nothing, and the worker goes on working. [RUN-WORK]"""
    async with fleet.place.open() as durable:
        await start(durable, "slow/1")
        first = fleet.worker("first")
        await fleet.says("first second")
        first.send_signal(signal.SIGSTOP)
        fleet.worker("other")
        await fleet.says("other second")
        first.send_signal(signal.SIGCONT)
        await fleet.says("first cancelled")
        assert await fleet.ends(durable) == Finished("done")
        await start(durable, "job/1")
        assert await ended(durable, "job/1") == Finished(None)
        first.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(first.wait, 60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_hands_the_work_over_at_once(fleet: Fleet, number: signal.Signals) -> None:
    """Case 105: after the grace time the pass is cancelled and given on as the same attempt; exit code 0. [RUN-WORK-DRAIN]"""
    async with fleet.place.open() as durable:
        await start(durable, "slow/1")
        first = fleet.worker("first", grace=0.2)
        await fleet.says("first second")
        other = fleet.worker("other")
        first.send_signal(number)
        assert await asyncio.to_thread(first.wait, 60) == 0
        assert fleet.steps()[:4] == ["first first", "first second", "first cancelled", "first ended"]
        await fleet.says("other second")
        assert await fleet.ends(durable) == Finished("done")
        assert fleet.attempts() == {"1"}
        other.send_signal(number)
        assert await asyncio.to_thread(other.wait, 60) == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("processes", [1, 2])
async def test_the_killer_is_buried_and_none_of_the_innocents_is(fleet: Fleet, processes: int) -> None:
    """Case 15: all twenty finish; the killer runs alone from its third lapse on, and is buried after three more.
    [RUN-WORK-SUSPECT]"""
    innocents = [f"job/{number}" for number in range(20)]
    async with fleet.place.open() as durable:
        for workflow in ("bad/1", *innocents):
            await start(durable, workflow)
        deaths, workers = 0, [fleet.worker("crowd") for _ in range(processes)]
        while await durable.result("bad/1") is None:
            for index, process in enumerate(workers):
                if process.poll() is not None:
                    assert process.returncode == 13
                    deaths += 1
                    workers[index] = fleet.worker("crowd")
            await asyncio.sleep(0.01)
        assert {type(await ended(durable, workflow)) for workflow in innocents} == {Finished}
        for process in workers:
            process.send_signal(signal.SIGTERM)
        for process in workers:  # one that was started just now may have no handler yet
            assert await asyncio.to_thread(process.wait, 60) in (0, -signal.SIGTERM)
        failed = await durable.result("bad/1")
        assert isinstance(failed, Failed)
        assert "6 passes" in failed.reason
        assert deaths <= 6  # a stalled machine may make a lapse of its own
        assert sum("Buried bad/1" in line for line in fleet.lines()) == 1


async def test_deleted_in_a_crash_loop(fleet: Fleet) -> None:
    """Case 144: the delete waits for nobody, and the workflow never comes back."""
    async with fleet.place.open() as durable:
        await start(durable, "bad/1")
        assert await asyncio.to_thread(fleet.worker("crowd").wait, 60) == 13
        assert await durable.delete("bad/1") == 2
        await start(durable, "job/1")
        fleet.worker("crowd")
        assert await ended(durable, "job/1") == Finished(None)
        assert await durable.result("bad/1") is None
        assert not await durable.checkpointer.load("bad/1")
        assert sum("PassBegan bad/1" in line for line in fleet.lines()) == 1
