"""The other process: it opens the same datastore, answers, refuses, is stopped and killed, and is gone with its parent."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from durable_conformance.child import EffectOf, found
from durable_conformance.harness import Opening
from durable_conformance.mutants.harness import FileHarness
from durable_conformance.processes import Died, Process
from durable_core.contract import Recorded
from durable_core.errors import Fenced

LONG = timedelta(hours=1)


@pytest.fixture
def at(tmp_path: Path) -> Opening:
    """A datastore in a folder of its own."""
    return Opening(tmp_path, "name", "", "queue", LONG)


@asynccontextmanager
async def process(at: Opening, skew: float = 0.0) -> AsyncGenerator[Process]:
    """Another process with the datastore open."""
    made = await Process.started(FileHarness(), at, skew=skew)
    try:
        yield made
    finally:
        await made.aclose()


async def test_it_answers_and_refuses_as_the_store_does(at: Opening) -> None:
    """Values and exceptions cross the pipe as they are."""
    async with process(at) as one, process(at) as other:
        holder = await one.checkpointer.claim("w", LONG, LONG)
        assert holder is not None
        assert await other.checkpointer.record(holder, "k", (1, None)) == Recorded([1, None], True)
        assert await one.checkpointer.load("w", skip=0) == {"k": [1, None]}
        await other.checkpointer.discard("w")
        with pytest.raises(Fenced, match="token 1"):
            await one.checkpointer.record(holder, "k", 1)


async def test_effects_are_the_childs_own(at: Opening) -> None:
    """An effect is named to the child, which makes it."""
    async with process(at) as one:
        holder = await one.checkpointer.claim("w", LONG, LONG)
        assert await one.checkpointer.transact(holder, "k", EffectOf("c", "given")) == "given"  # type: ignore[arg-type] # pyright: ignore
    assert await FileHarness().effects(at).applied("c") == 1


async def test_a_killed_process_leaves_its_calls_unanswered(at: Opening) -> None:
    """Those under way, and later ones."""
    async with process(at) as one:
        waiting = asyncio.create_task(_next(one))
        await asyncio.sleep(0.05)
        await one.kill()
        with pytest.raises(Died):
            await waiting
        with pytest.raises(Died):
            await one.checkpointer.load("w")


async def _next(one: Process) -> object:
    return await one.scheduler.next_ready(LONG)


async def test_a_stopped_process_answers_when_it_goes_on(at: Opening) -> None:
    """And not before."""
    async with process(at) as one:
        one.freeze()
        waiting = asyncio.create_task(_load(one))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        one.thaw()
        assert await waiting == {}


async def _load(one: Process) -> object:
    return await one.checkpointer.load("w")


async def test_a_wrong_clock_is_wrong_in_the_child_only(at: Opening) -> None:
    """Its `time` and `datetime` are; the double's clock is that of the machine, in both."""
    async with process(at, skew=3600.0) as one:
        theirs = await one.scheduler.now()
    assert abs(theirs.timestamp() - time.clock_gettime(time.CLOCK_REALTIME)) < 60


def test_a_harness_is_found_by_module_and_by_file(tmp_path: Path) -> None:
    """And what is none is refused."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from durable_conformance import Harness\n\n\nclass Mine(Harness):\n    class Inner(Harness):\n        pass\n"
    )
    assert found(f"{path}:Mine").title() == "Mine"
    assert found(f"{path}:Mine.Inner").title() == "Inner"
    assert isinstance(found(FileHarness.importable()), FileHarness)
    assert found(f"{path}:Mine.Inner").importable() == f"{path}:Mine.Inner"  # under whatever name it is loaded here
    assert FileHarness.importable() == "durable_conformance.mutants.harness:FileHarness"
    with pytest.raises(ImportError, match="not a Harness"):
        found("durable_conformance.harness:Opening")


def test_nothing_is_left_running_when_the_parent_is_killed(tmp_path: Path) -> None:
    """A child ends when the pipe to its parent does."""
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom datetime import timedelta\n"
        "from durable_conformance.harness import Opening\nfrom durable_conformance.mutants.harness import FileHarness\n"
        "from durable_conformance.processes import Process\n"
        "async def main():\n"
        f"    made = await Process.started(FileHarness(), Opening(Path({str(tmp_path)!r}), 'n', '', 'q', timedelta(1)))\n"
        "    print(made._process.pid, flush=True)\n    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    for _ in range(200):
        try:
            os.kill(child, 0)
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.02)
    pytest.fail(f"process {child} is still there")
