"""`SplitDurable` over the halves of two memory doubles, each with a clock of its own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from durable_core._clock import ManualClock
from durable_core.contract import Entry, Failed, Finished, Recorded, Turn
from durable_core.errors import Fenced, NotEncodable, ReservedKey
from durable_core.memory import Memory, MemoryCheckpointer, MemoryDurable, MemoryEffect, MemoryScheduler
from durable_core.split import SplitDurable

LEASE = timedelta(seconds=10)
BUDGET = timedelta(seconds=60)
SECOND = timedelta(seconds=1)
ZERO = timedelta(0)
YEAR = timedelta(days=365)


@dataclass
class Split:
    """The pair, and the clocks of its halves; the scheduler's is an hour behind."""

    ours: ManualClock = field(default_factory=lambda: ManualClock(datetime(2024, 5, 1, 13, tzinfo=UTC)))
    theirs: ManualClock = field(default_factory=lambda: ManualClock(datetime(2024, 5, 1, 12, tzinfo=UTC)))

    def __post_init__(self) -> None:
        self.checkpointer = MemoryCheckpointer(Memory(self.ours))
        self.scheduler = MemoryScheduler(Memory(self.theirs), lease=LEASE)
        self.durable: SplitDurable[MemoryEffect] = SplitDurable(self.checkpointer, self.scheduler)

    def advance(self, duration: timedelta) -> None:
        """Let time pass in both stores."""
        self.ours.advance(duration)
        self.theirs.advance(duration)

    async def begun(self) -> Turn:
        [turn] = await self.durable.begin(ZERO, BUDGET)
        return turn

    async def started(self, workflow: str = "w") -> Turn:
        await self.durable.arrive(workflow, "input", 1)
        return await self.begun()


@pytest.fixture
def split() -> Split:
    return Split()


@pytest.fixture
def ahead() -> Split:
    """The scheduler's clock is an hour ahead."""
    return Split(theirs=ManualClock(datetime(2024, 5, 1, 14, tzinfo=UTC)))


async def settled() -> None:
    """Let every task that can go on without the clock do so."""
    for _ in range(20):
        await asyncio.sleep(0)


def counts(turn: Turn) -> tuple[int, int]:
    return turn.delivery.attempt, turn.delivery.lapses


async def test_a_workflow_from_start_to_end(split: Split) -> None:
    """[DUR-ARRIVE] [DUR-DELIVER] [DUR-BEGIN] [DUR-PAUSE] [DUR-FINISH] [DUR-RESULT]"""
    assert await split.durable.arrive("w", "input", (1, 2)) == Recorded([1, 2], True)
    turn = await split.begun()
    assert turn.records == {"input": [1, 2]}
    await split.durable.pause(turn, None)
    entry = await split.durable.deliver("w", "hello", once="id")
    assert await split.durable.deliver("w", "again", once="id") == entry == Entry("inbox:00000000000000000001", "hello")
    turn = await split.begun()
    assert await split.durable.result("w") is None
    assert await split.durable.finish(turn, None) == Recorded(None, True)
    assert await split.durable.result("w") == Finished(None)
    assert await split.durable.begin(ZERO, BUDGET) == []
    assert await split.checkpointer.claim("w", BUDGET, LEASE) is not None


async def test_finished_workflow_is_answered_without_a_turn(split: Split) -> None:
    """And the workflows behind it are not held up by it. [DUR-BEGIN]"""
    await split.durable.finish(await split.started(), "done")
    for workflow in ("w", "v"):
        await split.durable.deliver(workflow, "late")
    assert [turn.holder.workflow for turn in await split.durable.begin(ZERO, BUDGET)] == ["v"]
    assert await split.checkpointer.claim("w", LEASE, LEASE) is not None
    split.advance(YEAR)
    assert [turn.holder.workflow for turn in await split.durable.begin(ZERO, BUDGET, limit=5)] == ["v"]
    assert await split.checkpointer.claim("w", BUDGET, LEASE) is not None


async def test_begin_takes_a_batch(split: Split) -> None:
    """[DUR-BEGIN]"""
    for workflow in "abc":
        await split.durable.arrive(workflow, "input", 1)
    assert [turn.holder.workflow for turn in await split.durable.begin(YEAR, BUDGET, limit=2)] == ["a", "b"]
    assert [turn.holder.workflow for turn in await split.durable.begin(YEAR, BUDGET, limit=2)] == ["c"]


async def test_contended_comes_back_within_a_lease_with_its_counts(split: Split) -> None:
    """[DUR-BEGIN]"""
    holder = await split.checkpointer.claim("w", BUDGET, LEASE)
    assert holder is not None
    await split.durable.arrive("w", "input", 1)
    assert await split.durable.begin(ZERO, BUDGET) == []
    assert await split.durable.begin(ZERO, BUDGET) == []
    await split.checkpointer.release(holder)
    split.advance(LEASE)
    assert counts(await split.begun()) == (1, 0)


async def test_due_instants_go_over_as_durations(split: Split) -> None:
    """An hour between the clocks delays nothing and brings nothing forward. [ANY-CLOCK] [DUR-PAUSE]"""
    turn = await split.started()
    split.advance(SECOND)
    await split.durable.pause(turn, turn.holder.at + timedelta(days=3))
    split.advance(timedelta(days=3) - 2 * SECOND)
    assert await split.durable.begin(ZERO, BUDGET) == []
    split.advance(SECOND)
    turn = await split.begun()
    assert turn.holder.at == split.ours.now()


async def test_pass_is_never_behind_the_due_instant_for_which_it_was_woken(ahead: Split) -> None:
    """Where the scheduler is ahead, its instant counts. [ANY-CLOCK]"""
    turn = await ahead.started()
    assert turn.holder.at == turn.delivery.due == ahead.theirs.now()
    ahead.advance(SECOND)
    await ahead.durable.pause(turn, turn.holder.at + 10 * SECOND)
    ahead.advance(9 * SECOND - timedelta(microseconds=1))
    assert await ahead.durable.begin(ZERO, BUDGET) == []
    ahead.advance(timedelta(microseconds=1))
    again = await ahead.begun()
    assert again.holder.at == turn.holder.at + 10 * SECOND


async def test_due_instant_in_the_past_and_of_a_turn_of_unknown_origin(split: Split) -> None:
    """The first is due now; a turn that this kind of durable did not begin has nothing to measure by. [DUR-PAUSE]"""
    await split.durable.pause(await split.started(), split.ours.now() - YEAR)
    turn = await split.begun()
    await split.durable.pause(Turn(turn.holder, turn.delivery, None), split.theirs.now() + SECOND)
    assert await split.durable.begin(ZERO, BUDGET) == []
    split.advance(SECOND)
    assert (await split.begun()).delivery.due == split.theirs.now()


async def test_fail_hand_back_and_bury(split: Split) -> None:
    """[DUR-FAIL] [DUR-HAND-BACK] [DUR-RESULT]"""
    await split.durable.fail(await split.started(), "why", SECOND)
    assert await split.durable.begin(ZERO, BUDGET) == []
    split.advance(SECOND)
    await split.durable.hand_back(await split.begun(), ZERO)
    turn = await split.begun()
    assert counts(turn) == (2, 0)
    await split.durable.hand_back(turn, SECOND)
    split.advance(SECOND)
    turn = await split.begun()
    assert counts(turn) == (2, 0)
    await split.durable.fail(turn, "at last", None)
    assert (await split.durable.begin(ZERO, BUDGET), await split.durable.result("w")) == ([], Failed("at last"))


async def test_keep_renews_both_halves_or_leaves_the_delivery_alone(split: Split) -> None:
    """[DUR-KEEP]"""
    turn = await split.started()
    for _ in range(4):
        split.advance(LEASE - SECOND)
        kept = await split.durable.renew(turn)
        assert kept is not None
        turn = kept
    assert await split.durable.begin(ZERO, BUDGET) == []
    await split.checkpointer.discard("w")
    assert await split.durable.renew(turn) is None
    split.advance(LEASE)
    assert counts(await split.begun()) == (2, 1)


async def test_finish_by_a_superseded_pass_is_fenced_and_changes_neither_half(split: Split) -> None:
    """[DUR-TURN-FENCED]"""
    old = await split.started()
    split.advance(LEASE)
    new = await split.begun()
    with pytest.raises(Fenced):
        await split.durable.finish(old, "old")
    await split.durable.pause(old, None)
    await split.durable.fail(old, "why", None)
    await split.durable.hand_back(old, ZERO)
    assert (await split.durable.renew(new), await split.durable.result("w")) == (new, None)
    assert await split.durable.finish(new, "new") == Recorded("new", True)
    with pytest.raises(Fenced):
        await split.durable.finish(old, "new")


async def test_finish_may_be_repeated_but_not_follow_another_end(split: Split) -> None:
    """[DUR-TURN-FENCED]"""
    turn = await split.started()
    await split.durable.pause(turn, None)
    with pytest.raises(Fenced):
        await split.durable.finish(turn, "late")
    assert await split.checkpointer.load("w") == {"input": 1}
    await split.scheduler.make_ready("w")
    turn = await split.begun()
    for expected in (Recorded("done", True), Recorded("done", True)):
        assert await split.durable.finish(turn, "done") == expected
    assert await split.durable.finish(turn, "other") == Recorded("done", False)


async def test_finish_of_a_lapsed_pass_that_nobody_took_lands(split: Split) -> None:
    """Also when its budget is spent. [CKP-RECORD-LAPSED] [DUR-FINISH]"""
    turn = await split.started()
    split.advance(2 * BUDGET)
    assert await split.durable.finish(turn, "done") == Recorded("done", True)
    assert await split.durable.begin(ZERO, BUDGET) == []


async def test_finish_refused_by_the_codec_changes_nothing(split: Split) -> None:
    """The refusal names workflow and key. [DUR-FINISH]"""
    turn = await split.started()
    split.advance(LEASE - SECOND)
    with pytest.raises(NotEncodable, match=r"'outcome:' of workflow 'w'"):
        await split.durable.finish(turn, {1: 2})
    split.advance(SECOND)
    assert await split.checkpointer.claim("w", BUDGET, LEASE) is not None


async def test_wakeup_during_a_pass_leads_to_one_further_delivery(split: Split) -> None:
    """Case 86, and against a chosen deadline. [SCH-WAKE-NEWER] [SCH-DONE-NEWER]"""
    turn = await split.started()
    for _ in range(3):
        await split.durable.arrive("w", "answer", 2)
    await split.durable.pause(turn, split.ours.now() + YEAR)
    await split.durable.pause(await split.begun(), None)
    assert await split.durable.begin(ZERO, BUDGET) == []


async def test_delete_while_a_pass_is_inside(split: Split) -> None:
    """Cases 91 and 92. [DUR-DELETE]"""
    turn = await split.started()
    assert await split.durable.delete("w") == 1
    with pytest.raises(Fenced):
        await split.durable.finish(turn, 1)
    await split.durable.pause(turn, split.ours.now())
    split.advance(YEAR)
    assert (await split.durable.begin(ZERO, BUDGET), await split.checkpointer.load("w")) == ([], {})
    await split.durable.arrive("w", "input", "new")
    assert (await split.begun()).records == {"input": "new"}


async def test_watch_returns_when_there_is_a_result(split: Split) -> None:
    """Finished, buried, deleted, or there already. [DUR-RESULT]"""
    for workflow in ("finished", "buried", "deleted"):
        await split.durable.arrive(workflow, "input", 1)
    finished, buried, _ = await split.durable.begin(ZERO, BUDGET, limit=3)
    async with asyncio.TaskGroup() as group:
        for workflow in ("finished", "buried", "deleted"):
            group.create_task(split.durable.watch(workflow, YEAR))
        await settled()
        await split.durable.finish(finished, None)
        await split.durable.fail(buried, "why", None)
        await split.durable.delete("deleted")
    await split.durable.watch("finished", YEAR)
    await split.durable.watch("unknown", ZERO)


async def test_watch_ends_with_the_wait_by_the_store_s_clock(split: Split) -> None:
    """[DUR-RESULT]"""
    watching = asyncio.ensure_future(split.durable.watch("w", timedelta(milliseconds=30)))
    await settled()
    split.advance(timedelta(milliseconds=30))
    await watching


async def test_arguments_are_checked_before_either_store_is_asked(split: Split) -> None:
    """[ANY-VALID] [CKP-KEY-RESERVED]"""
    turn = await split.started()
    naive = datetime(2024, 1, 1)
    for call in (
        split.durable.arrive("\0", "k", 1),
        split.durable.deliver("w", 1, once=""),
        split.durable.delete(""),
        split.durable.begin(ZERO, ZERO),
        split.durable.begin(ZERO, BUDGET, limit=0),
        split.durable.pause(turn, naive),
        split.durable.fail(turn, "why", ZERO),
        split.durable.hand_back(turn, -SECOND),
        split.durable.result(""),
        split.durable.watch("", ZERO),
    ):
        with pytest.raises(ValueError):
            await call
    with pytest.raises(ReservedKey):
        await split.durable.arrive("w", "outcome:", 1)
    assert await split.durable.renew(turn) == turn


async def test_describe_gives_the_weaker_word_and_how_long_a_watch_may_not_notice(split: Split) -> None:
    """[DUR-DESCRIBE]"""
    said = await split.durable.describe()
    assert (said.product, said.co_commits, said.joins, said.lists, said.undoes) == ("memory + memory", False, False, False, True)
    assert (said.survives_kill, said.poll) == ("no", SECOND)


async def test_monotonic_is_the_checkpointer_s(split: Split) -> None:
    """[ANY-CLOCK]"""
    split.ours.advance(YEAR)
    assert split.durable.monotonic() == YEAR.total_seconds()
    assert repr(split.durable).startswith("SplitDurable(MemoryCheckpointer(")


async def test_halves_of_one_memory_are_as_good(split: Split) -> None:
    """Nothing here needs two stores. [DUR-SPLIT-ORDER]"""
    memory = MemoryDurable(clock=split.ours, lease=LEASE)
    durable = SplitDurable(memory.checkpointer, memory.scheduler)
    await durable.arrive("w", "input", 1)
    turns: Sequence[Turn] = await durable.begin(ZERO, BUDGET)
    assert await durable.finish(turns[0], 1) == Recorded(1, True)
    assert await memory.result("w") == Finished(1)
