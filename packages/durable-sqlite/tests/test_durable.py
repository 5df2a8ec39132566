"""`SqliteDurable`: each transition is one commit, and each clause of the pair holds at least once."""

import asyncio
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from durable_core.contract import Failed, Finished, Recorded, Turn
from durable_core.errors import Fenced, Misconfigured, NotEncodable, ReservedKey
from durable_core.keys import INBOX, OUTCOME, inbox_key
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


# -------------------------------------------------------------------------------------------------------------- client


async def test_arrive_before_anything_ran(durable: SqliteDurable) -> None:
    """[DUR-ARRIVE] [DUR-DELIVER] Case 77: what came before the first pass is there for it; a second arrive loses and wakes all
    the same.
    """
    assert await durable.arrive("w", "input", {"sum": 3}) == Recorded({"sum": 3}, True)
    assert (await durable.deliver("w", "m")).key == inbox_key(1)
    turn = await begun(durable, NOW)
    assert turn.records is not None
    assert dict(turn.records) == {"input": {"sum": 3}, inbox_key(1): "m"}
    await durable.pause(turn, None)
    assert await durable.arrive("w", "input", "other") == Recorded({"sum": 3}, False)
    assert (await begun(durable, NOW)).delivery.workflow == "w"


async def test_arrive_from_two_hundred_senders(durable: SqliteDurable, other: SqliteDurable) -> None:
    """Case 80: one value and one delivery; of messages with an id one entry, of those without as many as were sent."""
    async with asyncio.TaskGroup() as group:
        stores = (durable, other)
        arrivals = [group.create_task(stores[number % 2].arrive("w", "order", number)) for number in range(200)]
        once = [group.create_task(stores[number % 2].deliver("w", "m", once="m1")) for number in range(50)]
        free = [group.create_task(stores[number % 2].deliver("v", number)) for number in range(50)]
    assert len({task.result().value for task in arrivals}) == 1
    assert sum(task.result().first for task in arrivals) == 1
    assert len({task.result().key for task in once}) == 1
    assert len({task.result().key for task in free}) == 50
    assert sorted(turn.delivery.workflow for turn in await durable.begin(NOW, LONG, limit=9)) == ["v", "w"]


async def test_client_refuses_reserved_keys(durable: SqliteDurable) -> None:
    """[CKP-KEY-RESERVED] `arrive` takes `input` and no key of the library's."""
    for key in (OUTCOME, INBOX, inbox_key(1), "until:x", "start:x", "failed:x"):
        with pytest.raises(ReservedKey):
            await durable.arrive("w", key, 1)
    with pytest.raises(NotEncodable):
        await durable.arrive("w", "k", {1})
    assert await durable.workflows() == []


async def test_delete_while_a_pass_is_at_it(durable: SqliteDurable) -> None:
    """[DUR-DELETE] Case 91: the pass is fenced, its answers reinstate nothing, and the id may begin a new life that sees
    nothing.
    """
    turn = await started(durable)
    await durable.checkpointer.record(turn.holder, "a", 1)
    await durable.deliver("w", "m", once="m1")
    assert await durable.delete("w") == 3
    with pytest.raises(Fenced):
        await durable.checkpointer.record(turn.holder, "b", 1)
    with pytest.raises(Fenced):
        await durable.finish(turn, 1)
    assert await durable.renew(turn) is None
    for end in (
        durable.pause(turn, None),
        durable.pause(turn, turn.delivery.due),
        durable.fail(turn, "x", SOON),
        durable.hand_back(turn, NOW),
    ):
        await end
    assert await durable.workflows() == []
    assert await durable.delete("w") == 0
    assert (await durable.deliver("w", "new", once="m1")).key == inbox_key(1)
    assert list((await begun(durable, NOW)).records or ()) == [inbox_key(1)]


# --------------------------------------------------------------------------------------------------------------- begin


async def test_begin_takes_claims_and_loads_in_one_commit(durable: SqliteDurable, statements: list[str]) -> None:
    """[DUR-BEGIN] [DUR-BEGIN-FRESH] One turn or a whole batch is one transaction; its claim lasts as long as the lease."""
    for number in range(5):
        await durable.arrive(f"w{number}", "input", number)
    del statements[:]
    turns = await durable.begin(NOW, LONG, limit=3)
    assert verbs(statements).count("COMMIT") == 1
    assert [(turn.delivery.workflow, turn.holder.workflow) for turn in turns] == [
        (f"w{number}", f"w{number}") for number in range(3)
    ]
    assert [dict(turn.records or {}) for turn in turns] == [{"input": number} for number in range(3)]
    assert all(turn.holder.at >= turn.delivery.due for turn in turns)
    listed = await durable.workflows(prefix="w0")
    assert listed[0].held_until == turns[0].holder.at + durable.scheduler.lease
    assert len(await durable.begin(NOW, LONG, limit=100)) == 2
    assert await durable.begin(NOW, LONG) == []


async def test_begin_wakes_by_itself_when_something_is_due(durable: SqliteDurable, other: SqliteDurable) -> None:
    """[DUR-BEGIN] It sleeps until the next due instant, and is told of what comes before, from its own store and from another."""
    turn = await started(durable)
    when = await durable.scheduler.now() + MOMENT * 2
    await durable.pause(turn, when)
    turn = await begun(durable, LONG)
    assert turn.delivery.due == when
    assert turn.holder.at >= when
    await durable.pause(turn, None)
    for store in (durable, other):
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            waiting = group.create_task(durable.begin(LONG, LONG))
            await asyncio.sleep(0)
            await store.arrive("v", "k", 1)
        await durable.pause(waiting.result()[0], None)


async def test_begin_and_what_wakes_it_are_one_commit(durable: SqliteDurable, statements: list[str]) -> None:
    """A taker that waits is served in the very transaction that wakes it, so that a wakeup costs one commit and not two."""
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(durable.begin(LONG, LONG))
        await durable.checkpointer.load("nobody")
        del statements[:]
        await durable.arrive("w", "k", 1)
    assert len(waiting.result()) == 1
    assert verbs(statements).count("COMMIT") == 1


async def test_begin_idle_asks_the_database_hardly_ever(durable: SqliteDurable, statements: list[str]) -> None:
    """[SCH-NEXT-WAIT] While nothing happens to the file a waiting taker runs a few looks and no transaction."""
    poll = (await durable.describe()).poll
    del statements[:]
    assert await durable.begin(poll * 20, LONG) == []
    assert len(statements) <= 20
    assert set(verbs(statements)) == {"SELECT"}


async def test_begin_answers_for_the_finished_without_a_turn(durable: SqliteDurable) -> None:
    """[DUR-BEGIN] Case 79: a message to a finished workflow stays readable and makes no turn."""
    await durable.finish(await started(durable), "done")
    for number in range(3):
        await durable.deliver("w", number)
    await durable.arrive("v", "input", 1)
    assert [turn.delivery.workflow for turn in await durable.begin(NOW, LONG, limit=5)] == ["v"]
    assert list(await durable.checkpointer.load("w")) == ["input", OUTCOME, inbox_key(1), inbox_key(2), inbox_key(3)]
    assert (await durable.workflows(prefix="w"))[0].due is None


async def test_begin_contended_comes_back_on_release(durable: SqliteDurable, statements: list[str]) -> None:
    """[DUR-BEGIN] A held workflow comes back when it is released, counts unchanged, and is not polled for meanwhile."""
    holder = await durable.checkpointer.claim("w", LONG, LONG)
    assert holder is not None
    await durable.arrive("w", "input", 1)
    poll = (await durable.describe()).poll
    assert await durable.begin(poll * 5, LONG) == []
    for _ in range(3):
        await durable.scheduler.make_ready("w")
    del statements[:]
    assert await durable.begin(poll * 5, LONG) == []
    assert "BEGIN" not in verbs(statements)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(durable.begin(LONG, LONG))
        await asyncio.sleep(0)
        await durable.checkpointer.release(holder)
    (turn,) = waiting.result()
    assert (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)
    assert turn.holder.token > holder.token


@pytest.mark.parametrize("how", ["lapse", "discard", "renewed for less", "extended for less"])
async def test_begin_contended_comes_back_when_the_claim_goes(durable: SqliteDurable, how: str) -> None:
    """[DUR-BEGIN] Also when it lapses, is discarded, or its holder asks for a shorter window."""
    checkpointer = durable.checkpointer
    holder = await checkpointer.claim("w", LONG, MOMENT * 5 if how == "lapse" else LONG)
    assert holder is not None
    await durable.scheduler.make_ready("w")
    assert await durable.begin(NOW, LONG) == []
    if how == "discard":
        await checkpointer.discard("w")
    elif how == "renewed for less":
        assert await checkpointer.renew(holder, MOMENT)
    elif how == "extended for less":
        assert await checkpointer.extend(holder, LONG, MOMENT)
    turn = await begun(durable, SOON)
    assert (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)


async def test_begin_of_a_large_history_leaves_the_load_to_the_pass(durable: SqliteDurable) -> None:
    """A thousand records come with the turn; more of them, or more than a megabyte, are loaded by the pass."""
    async with asyncio.TaskGroup() as group:
        for number in range(1_000):
            group.create_task(durable.checkpointer.supply("w", f"k{number}", number))
            group.create_task(durable.checkpointer.supply("v", f"k{number}", number))
    await durable.checkpointer.supply("v", "one more", 1)
    await durable.checkpointer.supply("u", "large", "x" * 1_000_000)
    for name in ("u", "v", "w"):
        await durable.scheduler.make_ready(name)
    turns = {turn.delivery.workflow: turn for turn in await durable.begin(NOW, LONG, limit=3)}
    assert turns["u"].records is None
    assert turns["v"].records is None
    assert len(turns["w"].records or ()) == 1_000


async def test_begin_records_decode_each_time_anew(durable: SqliteDurable) -> None:
    """[CKP-LOAD-CODEC] A value that the body changes does not change what it reads next."""
    await durable.arrive("w", "input", [1])
    records = (await begun(durable)).records
    assert records is not None
    assert records["input"] == [1]
    assert records["input"] is not records["input"]
    assert "input" in records
    assert "other" not in records


async def test_begin_of_a_cancelled_caller_is_handed_back(durable: SqliteDurable) -> None:
    """Turns whose caller was cancelled meanwhile are put back untouched, however the two meet."""
    for turn in range(40):
        beginning = asyncio.create_task(durable.begin(SOON, LONG))
        for _ in range(turn % 5):
            await asyncio.sleep(0)
        await durable.arrive("w", f"k{turn}", 1)
        beginning.cancel()
        try:
            turns = await beginning
        except asyncio.CancelledError:
            turns = [await begun(durable)]
        assert [(one.delivery.attempt, one.delivery.lapses) for one in turns] == [(1, 0)]
        await durable.pause(turns[0], None)


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
