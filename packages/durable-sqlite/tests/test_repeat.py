"""[ANY-REPEAT] A caller that repeats a write, because it does not know what came of it, leaves the same state."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from durable_core.contract import Turn
from durable_sqlite import EffectCursor, SqliteDurable, _tx

LONG = timedelta(hours=1)
NOW = timedelta(0)

CALLS: dict[str, Callable[[SqliteDurable, Turn], Awaitable[object]]] = {
    "record": lambda durable, turn: durable.checkpointer.record(turn.holder, "k", 1),
    "transact": lambda durable, turn: durable.checkpointer.transact(turn.holder, "k", counted),
    "supply": lambda durable, turn: durable.checkpointer.supply("w", "k", 1),
    "append once": lambda durable, turn: durable.checkpointer.append("w", 1, once="m"),
    "claim": lambda durable, turn: durable.checkpointer.claim("v", LONG, LONG),
    "extend": lambda durable, turn: durable.checkpointer.extend(turn.holder, LONG, LONG),
    "renew the claim": lambda durable, turn: durable.checkpointer.renew(turn.holder, LONG),
    "release": lambda durable, turn: durable.checkpointer.release(turn.holder),
    "discard": lambda durable, turn: durable.checkpointer.discard("w"),
    "make_ready": lambda durable, turn: durable.scheduler.make_ready("w"),
    "revive": lambda durable, turn: durable.scheduler.make_ready("u", revive=True),
    "renew the delivery": lambda durable, turn: durable.scheduler.renew(turn.delivery),
    "wake_at": lambda durable, turn: durable.scheduler.wake_at(turn.delivery, turn.delivery.due, attempt=3),
    "done": lambda durable, turn: durable.scheduler.done(turn.delivery),
    "bury": lambda durable, turn: durable.scheduler.bury(turn.delivery, "why"),
    "cancel": lambda durable, turn: durable.scheduler.cancel("w"),
    "arrive": lambda durable, turn: durable.arrive("v", "input", 1),
    "deliver once": lambda durable, turn: durable.deliver("v", 1, once="m"),
    "delete": lambda durable, turn: durable.delete("w"),
    "renew": lambda durable, turn: durable.renew(turn),
    "finish": lambda durable, turn: durable.finish(turn, 1),
    "pause": lambda durable, turn: durable.pause(turn, None),
    "pause until": lambda durable, turn: durable.pause(turn, turn.delivery.due + LONG),
    "fail": lambda durable, turn: durable.fail(turn, "why", LONG),
    "fail for good": lambda durable, turn: durable.fail(turn, "why", None),
    "hand_back": lambda durable, turn: durable.hand_back(turn, LONG),
    "sweep": lambda durable, turn: durable.sweep(turn.delivery.due + LONG),
}


def counted(cursor: EffectCursor) -> None:
    cursor.execute("CREATE TABLE IF NOT EXISTS counter (x)")
    cursor.execute("INSERT INTO counter VALUES (1)")


async def state(durable: SqliteDurable) -> list[list[tuple[object, ...]]]:
    """Everything but the instants that a sign of life moves."""
    found: list[list[tuple[object, ...]]] = []
    for query in (
        "SELECT seq, workflow, key, value, at, once FROM workflow_checkpoint ORDER BY seq",
        "SELECT workflow, token, held, alive FROM workflow_claim ORDER BY workflow",
        "SELECT workflow, due FROM workflow_queue WHERE receipt IS NULL ORDER BY workflow",
        "SELECT workflow, attempt, lapses, receipt, newer, reason FROM workflow_queue ORDER BY workflow",
        "SELECT last FROM workflow_counter",
        "SELECT name FROM sqlite_schema ORDER BY name",
    ):
        found.append(await durable.checkpointer.connection.read(lambda tx, text: tx.execute(text).fetchall(), query))
    return found


@pytest.mark.parametrize("name", CALLS)
async def test_repeat_leaves_the_same_state(durable: SqliteDurable, name: str) -> None:
    """[ANY-REPEAT] Once or three times is the same, with wakeups and messages from before and after in place."""
    await durable.arrive("u", "input", 1)
    (doomed,) = await durable.begin(NOW, LONG)
    await durable.fail(doomed, "why", None)
    await durable.checkpointer.supply("t", "outcome:", 1)
    await durable.arrive("w", "input", 1)
    (turn,) = await durable.begin(NOW, LONG)
    await durable.deliver("w", "meanwhile", once="earlier")
    await CALLS[name](durable, turn)
    once = await state(durable)
    for _ in range(2):
        await CALLS[name](durable, turn)
    assert await state(durable) == once


async def test_a_pass_that_renews_is_alone(durable: SqliteDurable, other: SqliteDurable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 1: for five windows nobody else is granted the claim or given the turn of a pass that renews; then it ends, once."""
    now = _tx.clock()
    monkeypatch.setattr(_tx, "clock", lambda: now)
    await durable.arrive("w", "input", 1)
    (turn,) = await durable.begin(NOW, LONG)
    third = _tx.micros(durable.scheduler.lease) // 3
    for _ in range(15):
        now += third
        assert await durable.renew(turn) == turn
        assert await other.checkpointer.claim("w", LONG, LONG) is None
        assert await other.begin(NOW, LONG) == []
    assert (await durable.finish(turn, "done")).first
    now += third * 10
    assert await other.begin(NOW, LONG) == []
    assert [(one.state, one.attempt) for one in await other.workflows()] == [("finished", None)]


async def test_a_pass_that_does_not_renew_is_taken_over(
    durable: SqliteDurable, other: SqliteDurable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[CKP-CLAIM-LAPSE] [SCH-NEXT-LAPSED] To the microsecond: held until its window is over, and given out again from then on."""
    now = _tx.clock() + 1_000_000
    monkeypatch.setattr(_tx, "clock", lambda: now)
    await durable.arrive("w", "input", 1)
    (turn,) = await durable.begin(NOW, LONG)
    lapses = _tx.micros_at(turn.holder.at + durable.scheduler.lease)
    now = lapses - 1_000
    assert await other.begin(NOW, LONG) == []
    now = lapses
    (again,) = await other.begin(NOW, LONG)
    assert (again.delivery.attempt, again.delivery.lapses) == (2, 1)
    assert again.holder.token > turn.holder.token
