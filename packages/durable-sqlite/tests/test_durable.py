"""`SqliteDurable`: each transition is one commit, and each clause of the pair holds at least once."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from durable_core.contract import Recorded, Turn
from durable_core.errors import Fenced, NotEncodable, ReservedKey
from durable_core.keys import INBOX, OUTCOME, inbox_key
from durable_sqlite import SqliteCheckpointer, SqliteDurable, SqliteScheduler

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
