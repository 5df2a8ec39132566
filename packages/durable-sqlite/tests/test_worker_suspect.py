"""A workflow that kills its process, twenty that share the process with it, and somebody who restarts it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from durable_core import Failed, Finished, start
from durable_sqlite import SqliteDurable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")

CHILD = Path(__file__).with_name("worker_child.py")
LEASE = timedelta(seconds=0.5)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("processes", [1, 2])
async def test_case_15_the_killer_is_buried_and_none_of_the_innocents_is(tmp_path: Path, processes: int) -> None:
    """[RUN-WORK-SUSPECT] All twenty finish, the killer runs alone from its third lapse on, and is buried after three more."""
    innocents = [f"job/{number}" for number in range(20)]
    async with SqliteDurable.at(tmp_path / "shop.db", lease=LEASE) as durable:
        await start(durable, "bad/1")
        for workflow in innocents:
            await start(durable, workflow)
        deaths, workers = 0, [worker(tmp_path) for _ in range(processes)]
        try:
            while await durable.result("bad/1") is None:
                for index, process in enumerate(workers):
                    if process.poll() is not None:
                        assert process.returncode == 13
                        deaths += 1
                        workers[index] = worker(tmp_path)
                await asyncio.sleep(0.01)
            async with asyncio.timeout(60):
                while not all([await durable.result(workflow) for workflow in innocents]):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            for process in workers:
                process.send_signal(signal.SIGTERM)
            for process in workers:  # one that was started just now may have no handler yet
                assert await asyncio.to_thread(process.wait, 60) in (0, -signal.SIGTERM)
        finally:
            for process in workers:
                process.kill()
                process.wait()
        assert {type(await durable.result(workflow)) for workflow in innocents} == {Finished}
        ended = await durable.result("bad/1")
        assert isinstance(ended, Failed)
        assert "6 passes" in ended.reason
        assert deaths <= 6  # a stalled machine may make a lapse of its own
        events = Counter(line.split()[0] for line in (tmp_path / "log").read_text().splitlines())
        assert events["Buried"] == 1


def worker(folder: Path) -> "subprocess.Popen[bytes]":
    """Start a worker process."""
    return subprocess.Popen([sys.executable, str(CHILD), "crowd", str(folder)])
