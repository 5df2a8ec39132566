"""What a pass may assume about its claim, by monotonic time alone."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import durable_core
from durable_core._pulse import Pulse
from durable_core.contract import Pass
from durable_core.errors import Fenced
from probe import Probe

AT = datetime(2024, 1, 1, tzinfo=UTC)
BUDGET, ALIVE = timedelta(seconds=90), timedelta(seconds=30)


class Hand:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def __call__(self) -> float:
        return self.time


def pulse(hand: Hand, sent: float = 1_000.0, arrived: float = 1_000.0) -> Pulse:
    return Pulse(Pass("w", 7, AT), BUDGET, ALIVE, hand, sent, arrived)


def test_clock_of_a_pass_begins_when_the_reply_arrived() -> None:
    """RUN-CLOCK: it is never ahead of the store, and never before the claim."""
    hand = Hand()
    beating = pulse(hand, sent=990.0)
    assert beating.now() == AT
    hand.time = 1_010.5
    assert beating.now() == AT + timedelta(seconds=10.5)
    hand.time = 900.0
    assert beating.now() == AT


def test_step_fresh_counts_the_claim_from_its_request() -> None:
    """RUN-STEP-FRESH: window and budget both begin when the claim was sent."""
    hand = Hand()
    beating = pulse(hand, sent=990.0)
    assert beating.window_left == 20.0
    hand.time = 1_079.0
    assert not beating.spent
    hand.time = 1_080.0
    assert beating.spent


def test_step_fresh_never_takes_a_sign_back() -> None:
    """RUN-STEP-FRESH: answers may come in any order."""
    hand = Hand()
    beating = pulse(hand)
    beating.confirm(1_010.0)
    beating.confirm(1_005.0)
    assert beating.window_left == 40.0


def test_step_fresh_counts_a_write_for_two_thirds_of_a_window() -> None:
    """RUN-STEP-FRESH: a store may leave the sign out while the last one is younger than a third of the window."""
    hand = Hand()
    beating = pulse(hand)
    hand.time = 1_020.0
    beating.wrote(1_020.0)
    assert beating.window_left == 20.0


@pytest.mark.parametrize("within", [None, timedelta(seconds=45)])
async def test_step_budget_and_fresh_ask_for_nothing_at_first(probe: Probe, within: timedelta | None) -> None:
    """RUN-STEP-BUDGET: a fresh claim with its budget needs no call."""
    await pulse(Hand()).ready(probe, "a", within)
    assert probe.calls == []


async def test_step_fresh_asks_exactly_when_the_window_is_over(probe: Probe) -> None:
    """RUN-STEP-FRESH: older than its window means older."""
    holder = await probe.take(BUDGET, ALIVE)
    hand = Hand()
    beating = Pulse(holder, BUDGET, ALIVE, hand, hand.time, hand.time)
    hand.time += 30.0
    await beating.ready(probe, "a", timedelta(seconds=1))
    assert probe.calls == []
    hand.time += 0.001
    await beating.ready(probe, "a", timedelta(seconds=1))
    assert probe.calls == [("renew", "w")]


async def test_step_budget_extends_by_at_least_the_budget(probe: Probe) -> None:
    """RUN-STEP-BUDGET: and by as much as the step says, and a window for the way."""
    holder = await probe.take(BUDGET, ALIVE)
    hand = Hand()
    beating = Pulse(holder, BUDGET, ALIVE, hand, hand.time, hand.time)
    hand.time += 46.0
    await beating.ready(probe, "a", None)
    claim = probe.durable.memory.see("w").ledger.claim
    assert claim is not None
    assert claim.until == probe.clock.now() + BUDGET
    await beating.ready(probe, "b", timedelta(seconds=300))
    claim = probe.durable.memory.see("w").ledger.claim
    assert claim is not None
    assert claim.until == probe.clock.now() + timedelta(seconds=330)
    assert probe.count("extend") == 2


async def test_step_budget_a_refusal_names_the_step(probe: Probe) -> None:
    """RUN-STEP-BUDGET: Fenced says which step found the claim gone."""
    holder = await probe.take(BUDGET, ALIVE)
    await probe.inner.discard("w")
    hand = Hand()
    beating = Pulse(holder, BUDGET, ALIVE, hand, hand.time, hand.time)
    with pytest.raises(Fenced, match="'a'"):
        await beating.ready(probe, "a", timedelta(seconds=300))
    hand.time += 31.0
    with pytest.raises(Fenced, match="'b'"):
        await beating.ready(probe, "b", timedelta(seconds=1))


async def test_step_budget_asks_one_question_for_all_that_ask_at_once(probe: Probe) -> None:
    """RUN-STEP-BUDGET: a branch that wants more than the one before asks again, the others do not."""
    holder = await probe.take(BUDGET, ALIVE)
    hand = Hand()
    beating = Pulse(holder, BUDGET, ALIVE, hand, hand.time, hand.time)
    hand.time += 50.0
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(beating.ready(probe, f"{number}", None))
        group.create_task(beating.ready(probe, "more", timedelta(seconds=600)))
    assert probe.count("extend") == 2


def test_clock_of_the_wall_is_read_nowhere_in_the_engine() -> None:
    """ANY-CLOCK: the store's clock is the only clock."""
    engine = ["_pulse", "_records", "_settle", "_thread", "_work", "outcome", "parsing", "resume", "run"]
    folder = Path(durable_core.__file__).parent
    for name in engine:
        source = (folder / f"{name}.py").read_text()
        assert not re.search(r"time\.time\(|\.now\(UTC|datetime\.now|utcnow|today\(", source), name
