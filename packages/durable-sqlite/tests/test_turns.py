"""How a turn ends, how a workflow ends, and what a pair is made of."""

import asyncio
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from durable_core.contract import Failed, Finished, Recorded, Turn
from durable_core.errors import Fenced, Misconfigured, NotEncodable
from durable_core.keys import OUTCOME
from durable_sqlite import SqliteCheckpointer, SqliteConnection, SqliteDurable, SqliteScheduler

NOW = timedelta(0)
SOON = timedelta(seconds=30)
LONG = timedelta(hours=1)
MOMENT = timedelta(milliseconds=20)


@pytest.fixture
def hasty(durable: SqliteDurable) -> SqliteDurable:
    """On the same file and queue, with a lease that is over at once."""
    connection = durable.checkpointer.connection
    return SqliteDurable(SqliteCheckpointer(connection), SqliteScheduler(connection, lease=MOMENT))


async def begun(durable: SqliteDurable, wait: timedelta = SOON, budget: timedelta = LONG) -> Turn:
    (turn,) = await durable.begin(wait, budget)
    return turn


async def started(durable: SqliteDurable, workflow: str = "w") -> Turn:
    await durable.arrive(workflow, "input", None)
    return await begun(durable)


def verbs(statements: Sequence[str]) -> list[str]:
    return [statement.split()[0] for statement in statements]


# ---------------------------------------------------------------------------------------------------------------- ends


async def test_keep_renews_the_claim_then_the_delivery(
    durable: SqliteDurable, hasty: SqliteDurable, statements: list[str]
) -> None:
    """[DUR-KEEP] One commit; `None` when the claim is lost, and then the delivery is left alone."""
    turn = await started(durable)
    del statements[:]
    assert await durable.renew(turn) == turn
    assert verbs(statements).count("COMMIT") == 1
    await durable.checkpointer.release(turn.holder)
    assert await durable.renew(turn) is None
    await durable.scheduler.done(turn.delivery)
    await hasty.arrive("v", "k", 1)
    old = await begun(hasty)
    new = await begun(durable)
    assert await durable.renew(old) is None
    assert await durable.renew(new) == new


async def test_finish_is_one_commit_and_final(durable: SqliteDurable, statements: list[str]) -> None:
    """[DUR-FINISH] [DUR-TURN-FENCED] It records, releases and answers, whatever arrived meanwhile; a repeat gets the same
    answer.
    """
    turn = await started(durable)
    await durable.deliver("w", "late")
    del statements[:]
    assert await durable.finish(turn, (1, 2)) == Recorded([1, 2], True)
    assert verbs(statements).count("COMMIT") == 1
    assert await durable.result("w") == Finished([1, 2])
    assert await durable.finish(turn, [1, 2]) == Recorded([1, 2], True)
    assert await durable.finish(turn, 3) == Recorded([1, 2], False)
    assert await durable.begin(NOW, LONG) == []
    assert await durable.checkpointer.claim("w", LONG, LONG) is not None
    with pytest.raises(Fenced):
        await durable.finish(turn, [1, 2])


async def test_finish_refused_writes_nothing(durable: SqliteDurable) -> None:
    """[DUR-FINISH] A value that the codec refuses leaves claim and delivery as they were."""
    turn = await started(durable)
    with pytest.raises(NotEncodable) as refused:
        await durable.finish(turn, {1})
    assert (refused.value.workflow, refused.value.key) == ("w", OUTCOME)
    assert await durable.result("w") is None
    assert await durable.renew(turn) == turn
    assert (await durable.finish(turn, 1)).first


async def test_finish_with_an_outcome_that_was_supplied(durable: SqliteDurable) -> None:
    """[DUR-FINISH] The first writer wins: the pass learns the outcome that is there, and the workflow is finished."""
    turn = await started(durable)
    await durable.checkpointer.supply("w", OUTCOME, "supplied")
    assert await durable.finish(turn, "own") == Recorded("supplied", False)
    assert await durable.begin(NOW, LONG) == []
    assert (await durable.workflows())[0].held_until is None


async def test_turn_fenced_changes_neither_half(durable: SqliteDurable, hasty: SqliteDurable) -> None:
    """[DUR-TURN-FENCED] The turn of a superseded pass ends nothing: not the new claim, not the new delivery."""
    await hasty.arrive("w", "input", 1)
    old = await begun(hasty)
    new = await begun(durable)
    assert (new.delivery.attempt, new.delivery.lapses) == (2, 1)
    with pytest.raises(Fenced):
        await durable.finish(old, 1)
    for end in (
        durable.pause(old, None),
        durable.fail(old, "x", None),
        durable.fail(old, "x", SOON),
        durable.hand_back(old, NOW),
    ):
        await end
    assert await durable.result("w") is None
    assert await durable.renew(new) == new
    assert (await durable.finish(new, 2)).first


async def test_turn_fenced_after_another_end(durable: SqliteDurable) -> None:
    """[DUR-TURN-FENCED] A `finish` after a `pause` of the same turn is fenced; every other repeat changes nothing."""
    turn = await started(durable)
    await durable.pause(turn, None)
    with pytest.raises(Fenced):
        await durable.finish(turn, 1)
    await durable.pause(turn, turn.delivery.due)
    await durable.fail(turn, "why", None)
    assert await durable.result("w") is None
    assert await durable.begin(NOW, LONG) == []


async def test_turn_fenced_answers_while_its_receipt_is_current(durable: SqliteDurable) -> None:
    """[DUR-TURN-FENCED] A pass that lost only its claim answers its delivery and leaves the new claim alone."""
    turn = await started(durable)
    await durable.checkpointer.release(turn.holder)
    rival = await durable.checkpointer.claim("w", LONG, LONG)
    assert rival is not None
    await durable.pause(turn, None)
    assert (await durable.checkpointer.record(rival, "k", 1)).first
    assert await durable.checkpointer.claim("w", LONG, LONG) is None
    assert (await durable.workflows())[0].due is None


async def test_pause_until_and_for_good(durable: SqliteDurable, statements: list[str]) -> None:
    """[DUR-PAUSE] With a due time it comes back then, counts begun anew; without one only a wakeup brings it back, a newer one
    at once.
    """
    turn = await started(durable)
    due = await durable.scheduler.now() + MOMENT
    del statements[:]
    await durable.pause(turn, due)
    assert verbs(statements).count("COMMIT") == 1
    turn = await begun(durable)
    assert (turn.delivery.due, turn.delivery.attempt, turn.delivery.lapses) == (due, 1, 0)
    await durable.deliver("w", "meanwhile")
    await durable.pause(turn, None)
    turn = await begun(durable, NOW)
    await durable.deliver("w", "meanwhile")
    await durable.pause(turn, await durable.scheduler.now() + LONG)
    turn = await begun(durable, NOW)
    await durable.pause(turn, None)
    assert await durable.begin(MOMENT, LONG) == []
    with pytest.raises(ValueError, match="naive"):
        await durable.pause(turn, datetime(2030, 1, 1))


async def test_fail_comes_back_or_is_buried(durable: SqliteDurable, statements: list[str]) -> None:
    """[DUR-FAIL] One attempt more after the delay; without one it is set aside with its reason, which is its result."""
    turn = await started(durable)
    await durable.fail(turn, "first", MOMENT)
    turn = await begun(durable)
    assert (turn.delivery.attempt, turn.delivery.lapses) == (2, 0)
    await durable.deliver("w", "meanwhile")
    await durable.fail(turn, "second", LONG)
    turn = await begun(durable, NOW)
    assert (turn.delivery.attempt, turn.delivery.lapses) == (3, 0)
    del statements[:]
    await durable.fail(turn, "for good \udc00", None)
    assert verbs(statements).count("COMMIT") == 1
    assert await durable.result("w") == Failed("for good \\udc00")
    await durable.deliver("w", "waits with it")
    assert await durable.begin(NOW, LONG) == []
    await durable.scheduler.make_ready("w", revive=True)
    assert await durable.result("w") is None
    assert (await begun(durable, NOW)).delivery.attempt == 1
    for again_in in (NOW, -SOON):
        with pytest.raises(ValueError):
            await durable.fail(turn, "x", again_in)


async def test_hand_back_leaves_the_counts(durable: SqliteDurable, hasty: SqliteDurable) -> None:
    """[DUR-HAND-BACK] After a lapse and a failure the counts are what they were, at once or later."""
    await hasty.arrive("w", "input", 1)
    await begun(hasty)
    turn = await begun(durable)
    for delay in (NOW, MOMENT):
        await durable.hand_back(turn, delay)
        turn = await begun(durable, SOON)
        assert (turn.delivery.attempt, turn.delivery.lapses) == (2, 1)


# -------------------------------------------------------------------------------------------------------------- result


async def test_result_and_watch(durable: SqliteDurable, other: SqliteDurable) -> None:
    """[DUR-RESULT] `watch` returns when the workflow ends, is buried, or the wait is over; any store sees the result."""
    await durable.watch("nobody", MOMENT)
    turn = await started(durable)
    assert await durable.result("w") is None
    for store in (durable, other):
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            watching = group.create_task(store.watch("w", LONG))
            await asyncio.sleep(0)
            await (durable.finish(turn, 1) if store is durable else durable.fail(await started(durable, "v"), "why", None))
            if store is other:
                watching.cancel()
        assert await store.result("w") == Finished(1)
    async with asyncio.timeout(60):
        await other.watch("v", LONG)
    assert await other.result("v") == Failed("why")


async def test_an_outcome_that_is_supplied_is_met_at_once(durable: SqliteDurable, statements: list[str]) -> None:
    """[DUR-BEGIN] [DUR-RESULT] It ends the wait of who watches, and of a wakeup that waits for the claim of the pass at work."""
    holder = await durable.checkpointer.claim("w", LONG, LONG)
    assert holder is not None
    await durable.scheduler.make_ready("w")
    assert await durable.begin(NOW, LONG) == []
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(durable.watch("w", LONG))
        await asyncio.sleep(0)
        await durable.checkpointer.supply("w", OUTCOME, 1)
    assert await durable.begin(NOW, LONG) == []
    assert (await durable.workflows())[0].due is None
    assert (await durable.checkpointer.record(holder, "late", 1)).first


async def test_watch_hears_of_another_store(durable: SqliteDurable, other: SqliteDurable) -> None:
    """[DUR-RESULT] It returns when another store on the file ends the workflow."""
    turn = await started(durable)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(other.watch("w", LONG))
        await other.checkpointer.load("nobody")
        await durable.finish(turn, 1)


# -------------------------------------------------------------------------------------------------------- construction


async def test_co_commit_refuses_halves_that_do_not_share(tmp_path: Path) -> None:
    """[DUR-CO-COMMIT] Case 29: two files, and two connections to one file, are refused; so is what is no connection."""
    one, same, two = (SqliteConnection(tmp_path / name) for name in ("one.db", "one.db", "two.db"))
    for rival in (same, two):
        with pytest.raises(Misconfigured, match="share one SqliteConnection"):
            SqliteDurable(SqliteCheckpointer(one), SqliteScheduler(rival))
    SqliteDurable(SqliteCheckpointer(one), SqliteScheduler(one))
    for build in (SqliteCheckpointer, SqliteScheduler):
        with pytest.raises(Misconfigured, match="SqliteConnection"):
            build("shop.db")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert os.listdir(tmp_path) == []


async def test_describe_says_what_the_file_is_set_to(path: Path) -> None:
    """[DUR-DESCRIBE] It asks the connection: FULL and EXTRA survive a power cut, NORMAL does not; all three answers agree."""
    for synchronous, survives in (("FULL", "yes"), ("NORMAL", "no"), ("EXTRA", "yes")):
        async with SqliteDurable.at(path, synchronous=synchronous) as durable:  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            said = await durable.describe()
            assert (said.product, said.survives_kill, said.survives_power_cut, said.survives_failover) == (
                "SQLite",
                "yes",
                survives,
                "no",
            )
            assert (said.transacts, said.undoes, said.interleaves, said.co_commits, said.joins, said.lists) == (
                (True, True, False, True, True, True)
            )
            assert said == await durable.checkpointer.describe() == await durable.scheduler.describe()
            await durable.checkpointer.connection.read(lambda tx: tx.execute("PRAGMA synchronous = OFF").fetchall())
            assert (await durable.describe()).survives_power_cut == "no"
