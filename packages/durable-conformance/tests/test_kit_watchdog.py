"""A store that never lets the event loop turn is broken, and does not hang the kit."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from durable_conformance import Report, check
from durable_conformance.mutants.double import DoubleCheckpointer, DoubleScheduler
from durable_conformance.mutants.harness import DoubleHarness
from durable_core.contract import Delivery


class Spinning(DoubleScheduler):
    """Runs without ever waiting."""

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        while True:
            pass


class Stubborn(DoubleScheduler):
    """Looks for a wakeup again, whatever it was told."""

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        looks = 0
        while looks < 3:
            try:
                while True:
                    pass
            except BaseException:
                looks += 1
        return None


class Blocking(DoubleScheduler):
    """Waits for a lock, and all the process with it."""

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        threading.Event().wait()
        return None


class Lingering(DoubleScheduler):
    """Spins when it is cancelled."""

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        try:
            return await super().next_ready(wait)
        finally:
            while True:
                pass


class SpinningCheckpointer(DoubleCheckpointer):
    """Runs without ever waiting, in what the state machines ask first."""

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        while True:
            pass


class StuckHarness(DoubleHarness):
    """The double, with little patience."""

    patience = timedelta(seconds=0.6)


def verdicts(report: Report) -> Sequence[str]:
    """Give the verdict of each test that ran, and whether it was stuck."""
    return sorted({f"{one.verdict}{', stuck' * ('stuck: ' in one.seen)}" for one in report.results})


@pytest.mark.parametrize("scheduler", [Spinning, Stubborn, Blocking, Lingering])
def test_a_call_that_keeps_the_loop_from_turning_is_broken_and_the_next_case_runs(scheduler: type[DoubleScheduler]) -> None:
    """No timeout of asyncio can end it; the cases after it are as they would have been."""
    harness = type("StuckHere", (StuckHarness,), {"scheduler": scheduler})
    report = check(harness, only="SCH_DONE_ANSWERS")
    assert verdicts(report) == ["broken, stuck"]
    assert "next_ready (test_kit_watchdog.py" in report.results[0].seen
    assert check(harness, only="CKP-LOAD-EMPTY").exit_code == 0


def test_outside_the_main_thread_a_call_that_spins_is_broken() -> None:
    """Where no signal can be taken, too."""
    harness = type("StuckHere", (StuckHarness,), {"scheduler": Spinning})
    with ThreadPoolExecutor(1) as thread:
        assert verdicts(thread.submit(check, harness, only="SCH_DONE_ANSWERS").result()) == ["broken, stuck"]


PROFILED = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from durable_conformance import check
from durable_conformance.mutants.double import DoubleScheduler
from durable_conformance.mutants.harness import DoubleHarness

class Spinning(DoubleScheduler):
    async def next_ready(self, wait, /):
        while True:
            pass

class Harness(DoubleHarness):
    patience = timedelta(seconds=0.6)
    scheduler = DoubleScheduler if sys.argv[1] == "sound" else Spinning

with ThreadPoolExecutor(1) as thread:
    report = thread.submit(check, Harness, only="SCH_DONE_ANSWERS").result()
sys.setprofile(lambda *_: None)
threading.get_ident()
(lambda: None)()
sys.setprofile(None)
print(*{one.verdict for one in report.results})
"""


@pytest.mark.parametrize(("store", "verdict"), [("sound", "held"), ("stuck", "broken")])
def test_a_case_in_another_thread_leaves_nothing_on_its_way(store: str, verdict: str) -> None:
    """An interrupt that is never taken hangs CPython 3.11 at the first function that is profiled afterwards."""
    ended = subprocess.run([sys.executable, "-c", PROFILED, store], stdout=subprocess.PIPE, timeout=60, check=True)
    assert ended.stdout.decode().split() == [verdict]


def test_a_state_machine_ends_at_the_first_call_that_spins() -> None:
    """Nobody looks for a shorter program: each would take as long."""
    harness = type("StuckHere", (StuckHarness,), {"checkpointer": SpinningCheckpointer})
    report = check(harness, only="any_records_in_turn")
    assert verdicts(report) == ["broken, stuck"]


class Slow(DoubleScheduler):
    """Blocks the loop at every look, and never for long."""

    async def next_ready(self, wait: timedelta, /) -> Delivery | None:
        time.sleep(0.3)  # noqa: ASYNC251 - that is what it does wrong
        return await super().next_ready(wait)


def test_a_slow_store_is_not_taken_for_a_stuck_one() -> None:
    """What lets the loop turn now and then is as good as it is."""
    harness = type("SlowHere", (DoubleHarness,), {"scheduler": Slow})
    assert verdicts(check(harness, only="SCH_NEXT_WAIT_nothing")) == ["held"]
