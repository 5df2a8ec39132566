"""The claim of a pass: who holds it, for how long, and what keeps it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from durable_core.contract import Pass
from durable_core.errors import Fenced
from durable_sqlite import SqliteCheckpointer, SqliteDurable, _tx

LONG = timedelta(hours=1)
MOMENT = timedelta(milliseconds=20)


@pytest.fixture
def checkpointer(durable: SqliteDurable) -> SqliteCheckpointer:
    return durable.checkpointer


async def claimed(
    checkpointer: SqliteCheckpointer, workflow: str = "w", budget: timedelta = LONG, alive: timedelta = LONG
) -> Pass:
    """Claim, as soon as that is possible."""
    async with asyncio.timeout(30):
        while (holder := await checkpointer.claim(workflow, budget, alive)) is None:  # noqa: ASYNC110 - until it lapses
            await asyncio.sleep(0.001)
    return holder


# --------------------------------------------------------------------------------------------------------------- claim


async def test_claim_one_for_any_number_of_claimants(checkpointer: SqliteCheckpointer, other: SqliteDurable) -> None:
    """[CKP-CLAIM-ONE] [CKP-CLAIM-REFUSED] Of many at once one is granted, and the refused changed nothing."""
    async with asyncio.TaskGroup() as group:
        stores = (checkpointer, other.checkpointer)
        tasks = [group.create_task(stores[number % 2].claim("w", LONG, LONG)) for number in range(40)]
    granted = [holder for task in tasks if (holder := task.result()) is not None]
    assert len(granted) == 1
    assert (await checkpointer.record(granted[0], "k", 1)).first


async def test_claim_rising_for_ever(checkpointer: SqliteCheckpointer, path: Path) -> None:
    """[CKP-CLAIM-RISING] Tokens rise across release, lapse, discard and restart."""
    first = await claimed(checkpointer)
    await checkpointer.release(first)
    second = await claimed(checkpointer, alive=MOMENT)
    third = await claimed(checkpointer)
    await checkpointer.discard("w")
    fourth = await claimed(checkpointer)
    await checkpointer.discard("w")
    await checkpointer.connection.aclose()
    async with SqliteDurable.at(path) as again:
        fifth = await claimed(again.checkpointer)
    assert first.token < second.token < third.token < fourth.token < fifth.token


async def test_claim_lapse_and_clock(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-CLAIM-LAPSE] [CKP-CLAIM-CLOCK] It lapses with the window and with the budget, not before either, by the store's
    clock.
    """
    for budget, alive in ((MOMENT, LONG), (LONG, MOMENT)):
        one = await claimed(checkpointer, budget=budget, alive=alive)
        two = await claimed(checkpointer)
        assert two.at - one.at >= MOMENT
        await checkpointer.release(two)


async def test_extend_grants_from_now_and_never_less(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-EXTEND-GRANT] [CKP-EXTEND-LAPSED] A lapsed claim that nobody took is extended; a granted budget is not brought
    forward.
    """
    holder = await claimed(checkpointer, budget=MOMENT)
    await claimed(checkpointer, "probe", budget=MOMENT)
    await claimed(checkpointer, "probe")
    assert await checkpointer.renew(holder, LONG) is False
    assert await checkpointer.extend(holder, LONG, LONG) is True
    assert await checkpointer.extend(holder, MOMENT, LONG) is True
    await claimed(checkpointer, "probe2", budget=MOMENT)
    await claimed(checkpointer, "probe2")
    assert await checkpointer.renew(holder, LONG) is True
    assert await checkpointer.claim("w", LONG, LONG) is None


async def test_renew_does_not_touch_the_budget(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-RENEW-LIVE] [CKP-RENEW-BUDGET] It is a sign of life while there is budget, and False afterwards."""
    holder = await claimed(checkpointer, budget=MOMENT * 3, alive=MOMENT)
    async with asyncio.timeout(30):
        while await checkpointer.renew(holder, MOMENT):  # noqa: ASYNC110 - until the budget is spent
            await asyncio.sleep(0)
    assert await checkpointer.claim("w", LONG, LONG) is not None


async def test_hold_lost_answers_false_and_changes_nothing(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-HOLD-LOST] [CKP-RELEASE-FREE] [CKP-RELEASE-FINAL] After a release or a rival's claim there is nothing to keep."""
    old = await claimed(checkpointer)
    await checkpointer.release(old)
    assert await checkpointer.renew(old, LONG) is False
    assert await checkpointer.extend(old, LONG, LONG) is False
    assert (await checkpointer.record(old, "k", 1)).first  # lands: nobody has claimed, and it takes nothing back
    new = await claimed(checkpointer)
    assert await checkpointer.renew(old, LONG) is False
    assert await checkpointer.extend(old, LONG, LONG) is False
    await checkpointer.release(old)
    with pytest.raises(Fenced):
        await checkpointer.record(old, "l", 1)
    assert await checkpointer.claim("w", LONG, LONG) is None
    assert (await checkpointer.record(new, "l", 2)).first


# -------------------------------------------------------------------------------------------------------- signs of life


async def test_record_lapsed_still_writes_until_somebody_claims(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-RECORD-LAPSED] [CKP-RECORD-LIVE] A lapsed claim that nobody took may write, and lives again by that, within its
    budget.
    """
    holder = await claimed(checkpointer, alive=MOMENT)
    probe = await claimed(checkpointer, "probe", alive=MOMENT)
    await claimed(checkpointer, "probe")  # by now, the window of both has passed
    assert probe.at >= holder.at
    await checkpointer.renew(holder, LONG)
    assert await checkpointer.claim("w", LONG, LONG) is None
    assert (await checkpointer.record(holder, "k", 1)).first


class Clock:
    """The store's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = _tx.clock()

    def __call__(self) -> int:
        return self.now

    def advance(self, duration: timedelta) -> None:
        self.now += _tx.micros(duration)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    by_hand = Clock()
    monkeypatch.setattr(_tx, "clock", by_hand)
    return by_hand


WRITES: dict[str, Callable[[SqliteCheckpointer, Pass, int], Awaitable[object]]] = {
    "record": lambda checkpointer, holder, number: checkpointer.record(holder, f"k{number}", 1),
    "losing record": lambda checkpointer, holder, number: checkpointer.record(holder, "k", number),
    "transact": lambda checkpointer, holder, number: checkpointer.transact(holder, f"k{number}", lambda _cursor: 1),
    "transact again": lambda checkpointer, holder, number: checkpointer.transact(holder, "k", lambda _cursor: 1),
    "renew": lambda checkpointer, holder, number: checkpointer.renew(holder, LONG / 10),
    "extend": lambda checkpointer, holder, number: checkpointer.extend(holder, LONG, LONG / 10),
}


@pytest.mark.parametrize("write", WRITES)
async def test_record_live_keeps_the_claim(checkpointer: SqliteCheckpointer, clock: Clock, write: str) -> None:
    """[CKP-RECORD-LIVE] [CKP-TRANSACT-LIVE] [CKP-RENEW-LIVE] Each accepted write counts, a losing one too; silence does not."""
    holder = await claimed(checkpointer, alive=LONG / 10)
    for number in range(9):
        clock.advance(LONG / 15)
        assert await checkpointer.claim("w", LONG, LONG) is None
        await WRITES[write](checkpointer, holder, number)
    for number in range(9):
        await checkpointer.supply("w", f"s{number}", 1)
        clock.advance(LONG / 80)
    assert await checkpointer.claim("w", LONG, LONG) is not None


async def test_record_live_counts_from_a_third_of_the_window(checkpointer: SqliteCheckpointer, clock: Clock) -> None:
    """[CKP-RECORD-LIVE] It is left out while the last one is younger than a third of the window, and not afterwards."""
    holder = await claimed(checkpointer, budget=LONG * 10, alive=LONG)
    signs: list[timedelta] = []
    for number in range(30):
        clock.advance(LONG / 10)
        await checkpointer.record(holder, f"k{number}", 1)
        rows = await checkpointer.connection.read(lambda tx: tx.execute("SELECT seen FROM workflow_claim").fetchall())
        signs.append(_tx.moment(clock.now) - _tx.moment(rows[0][0]))
    assert max(signs) < LONG / 3
    assert sum(sign < timedelta(seconds=1) for sign in signs) == 7


async def test_record_live_revives_a_lapsed_claim_and_no_released_one(checkpointer: SqliteCheckpointer, clock: Clock) -> None:
    """[CKP-RECORD-LAPSED] [CKP-RELEASE-FINAL] Writing after the lapse takes it back; writing after the release does not."""
    holder = await claimed(checkpointer, alive=LONG / 10)
    clock.advance(LONG / 5)
    assert (await checkpointer.record(holder, "k", 1)).first
    assert await checkpointer.claim("w", LONG, LONG) is None
    await checkpointer.release(holder)
    assert (await checkpointer.record(holder, "l", 1)).first
    assert await checkpointer.claim("w", LONG, LONG) is not None


async def test_record_live_never_past_the_budget(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-RECORD-LIVE] [CKP-CLAIM-LAPSE] However often it writes, a pass ends with its budget."""
    holder = await claimed(checkpointer, budget=MOMENT * 3)

    async def write() -> None:
        number = 0
        while True:
            try:
                await checkpointer.record(holder, f"k{number}", number)
            except Fenced:
                return
            number += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        assert (await claimed(checkpointer)).token > holder.token


async def test_record_live_is_left_out_while_the_last_sign_is_young(durable: SqliteDurable, statements: list[str]) -> None:
    """[CKP-RECORD-LIVE] A plain step is one insert beside one select; the claim is written once a third of the window."""
    holder = await claimed(durable.checkpointer)
    del statements[:]
    await durable.checkpointer.record(holder, "k", 1)
    verbs = [statement.split()[0] for statement in statements]
    assert verbs == ["BEGIN", "SELECT", "INSERT", "COMMIT"]
