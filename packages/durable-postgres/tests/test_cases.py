"""Cases of people who do this job, as they are on Postgres; those of other files are named there."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pytest
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from durable_core.codec import JsonCodec
from durable_core.contract import Entry, Pass, Recorded
from durable_core.errors import NotEncodable, NotParsed
from durable_core.keys import MAX_BYTES, inbox_key
from durable_core.outcome import Completed
from durable_core.resume import resume
from durable_core.run import Run
from durable_postgres import PostgresDurable, SqlEffect

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
MakePool = Callable[..., AbstractAsyncContextManager[Pool]]
NOW = timedelta(0)
LONG = timedelta(hours=1)


async def claimed(durable: PostgresDurable, workflow: str = "w") -> Pass:
    holder = await durable.checkpointer.claim(workflow, LONG, LONG)
    assert holder is not None
    return holder


def giving(value: object) -> SqlEffect:
    async def effect(_: AsyncCursor[TupleRow]) -> object:
        return value

    return effect


VALUES: list[object] = ["a\x00b", {"k\x00": 1}, "😀", 2**53 + 1, 2**63, 2**64 - 1, -(2**80), None, 0, False, "", [], {}]


@pytest.mark.parametrize("value", VALUES, ids=[str(number) for number in range(len(VALUES))])
async def test_case_58_61_132_values_come_back(durable: PostgresDurable, value: object) -> None:
    """Cases 58, 61, 132: NUL, emoji, large numbers and what is empty come back as they are, through every door."""
    cp, holder = durable.checkpointer, await claimed(durable)
    assert await cp.record(holder, "r", value) == Recorded(value, True)
    assert await cp.supply("w", "s", value) == Recorded(value, True)
    assert await cp.transact(holder, "t", giving(value)) == value
    assert await durable.arrive("w", "a", value) == Recorded(value, True)
    assert await cp.append("w", value) == Entry(inbox_key(1), value)
    loaded = await cp.load("w")
    assert list(loaded.values()) == [value] * 5
    assert all(type(one) is type(value) for one in loaded.values())


async def test_case_60_a_lone_surrogate_is_refused_before_anything_is_sent(durable: PostgresDurable) -> None:
    """Case 60: what UTF-8 cannot hold is refused by name, an effect's result undoes it, and the next record works."""
    holder = await claimed(durable)
    with pytest.raises(NotEncodable):
        await durable.checkpointer.record(holder, "k", "x\ud83d")
    with pytest.raises(NotEncodable):
        await durable.checkpointer.transact(holder, "k", giving("x\ud83d"))
    assert (await durable.checkpointer.record(holder, "k", "x")).first


async def test_case_64_large_values(durable: PostgresDurable) -> None:
    """Case 64: ten megabytes as a result and as a message, beside small ones; `begin` leaves such a history to `load`."""
    large = "x" * 10_000_000
    await durable.deliver("w", large)
    (turn,) = await durable.begin(NOW, LONG)
    assert turn.records is None
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(durable.checkpointer.record(turn.holder, f"k{number}", large if number == 3 else number))
    loaded = await durable.checkpointer.load("w")
    assert loaded[inbox_key(1)] == loaded["k3"] == large
    assert len(loaded) == 6


async def test_case_66_long_names(durable: PostgresDurable) -> None:
    """Case 66: the longest id and key that are allowed fit into every index; one byte more is refused before anything is done."""
    name = "".join(chr(33 + (number * 7919) % 90) for number in range(MAX_BYTES))
    await durable.arrive(name, name, 1)
    (turn,) = await durable.begin(NOW, LONG)
    await durable.deliver(name, "m", once=name)
    await durable.checkpointer.record(turn.holder, f"failed:{name}", 1)
    await durable.finish(turn, 1)
    assert len(await durable.checkpointer.load(name)) == 4
    for call in (durable.arrive(name + "x", "k", 1), durable.arrive("w", name + "x", 1)):
        with pytest.raises(ValueError, match="limit"):
            await call


async def test_case_69_the_column_holds_what_the_codec_gave(
    durable: PostgresDurable, operator: psycopg.Connection[TupleRow]
) -> None:
    """Case 69: the column holds exactly what the codec gave, so the same value again is a tie."""
    value = {"b": 1, "a": [1.0, 1.10, 1e2]}
    first = await durable.checkpointer.record(await claimed(durable), "k", value)
    stored = operator.execute("SELECT value, value::jsonb ->> 'b' FROM workflow_checkpoint").fetchone()
    assert stored is not None
    assert stored[0].replace(" ", "") == '{"a":[1.0,1.1,100.0],"b":1}'
    assert stored[1] == "1"
    assert await durable.checkpointer.supply("w", "k", value) == first


async def test_case_77_before_any_pass(durable: PostgresDurable) -> None:
    """Case 77: what arrives before a workflow ever ran is there when it does, in order."""
    await durable.arrive("w", "payment", 5)
    entry = await durable.deliver("w", "m")
    (turn,) = await durable.begin(NOW, LONG)
    assert dict(turn.records or {}) == {"payment": 5, entry.key: "m"}


async def test_case_80_two_hundred_senders(durable: PostgresDurable, other: PostgresDurable) -> None:
    """Case 80: of two hundred arrivals at once one is first; of two hundred messages none is lost, and an id makes one."""
    stores = (durable, other)
    async with asyncio.TaskGroup() as group:
        arrivals = [group.create_task(stores[number % 2].arrive("w", "order", number)) for number in range(200)]
        messages = [group.create_task(stores[number % 2].deliver("v", number)) for number in range(200)]
        repeats = [group.create_task(stores[number % 2].deliver("u", number, once="id")) for number in range(50)]
    assert sum(task.result().first for task in arrivals) == 1
    assert len({task.result().key for task in messages}) == 200
    assert list(await durable.checkpointer.load("v")) == [inbox_key(number + 1) for number in range(200)]
    assert len({task.result().key for task in repeats}) == 1


async def test_case_86_made_ready_while_it_runs(durable: PostgresDurable) -> None:
    """Case 86: wakeups during a delivery are one further delivery, after it is answered."""
    scheduler = durable.scheduler
    await scheduler.make_ready("w")
    delivery = await scheduler.next_ready(NOW)
    assert delivery is not None
    for _ in range(3):
        await scheduler.make_ready("w")
    await durable.arrive("w", "k", 1)
    assert await scheduler.next_ready(NOW) is None
    await scheduler.done(delivery)
    again = await scheduler.next_ready(NOW)
    assert again is not None
    assert again.attempt == 1
    await scheduler.done(again)
    assert await scheduler.next_ready(NOW) is None


GATE = b"""
CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NULL; END $$;
CREATE TRIGGER gate AFTER DELETE ON workflow_queue FOR EACH ROW EXECUTE FUNCTION gate();
"""


async def test_case_14_done_and_a_taker_at_one_moment(
    durable: PostgresDurable, make_pool: MakePool, operator: psycopg.Connection[TupleRow]
) -> None:
    """Case 14: whoever takes passes over what `done` is answering; what was answered is given to nobody, lapsed or not."""
    async with make_pool(2) as pool, PostgresDurable.on(pool, lease=timedelta(milliseconds=1)) as hasty:
        await hasty.scheduler.make_ready("w")
        delivery = await hasty.scheduler.next_ready(LONG)
        assert delivery is not None
        operator.execute(GATE)
        operator.execute("SELECT pg_advisory_lock(77)")
        answering = asyncio.ensure_future(hasty.scheduler.done(delivery))
        waiting = b"SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
        while operator.execute(waiting).fetchone() == (0,):  # noqa: ASYNC110 - the server's word
            await asyncio.sleep(0.005)
        assert await durable.scheduler.next_ready(NOW) is None  # lapsed, and locked by who answers it
        operator.execute("SELECT pg_advisory_unlock(77)")
        await answering
        assert await durable.scheduler.next_ready(NOW) is None
    assert await durable.workflows() == []


async def test_case_14_answered_too_late(durable: PostgresDurable, make_pool: MakePool) -> None:
    """Case 14: a lapsed delivery that somebody else has is not answered by its old receipt; a finished one runs nothing."""
    async with make_pool(2) as pool, PostgresDurable.on(pool, lease=timedelta(milliseconds=1)) as hasty:
        await hasty.arrive("w", "input", 1)
        (late,) = await hasty.begin(LONG, LONG)
        (turn,) = await durable.begin(LONG, LONG)
        await hasty.scheduler.done(late.delivery)
        assert await durable.renew(turn)
        await durable.finish(turn, 1)
        await durable.scheduler.make_ready("w")
        assert await durable.begin(NOW, LONG) == []
        assert [listed.state for listed in await durable.workflows()] == ["finished"]


class Broken(JsonCodec):
    """A codec that has forgotten how to read."""

    def decode(self, encoded: str, /) -> object:
        raise LookupError("an unknown class")


@pytest.mark.parametrize("call", ["load", "record", "supply", "arrive", "transact", "result"])
async def test_case_50_a_decode_error_surfaces(durable: PostgresDurable, pool: Pool, call: str) -> None:
    """Case 50: through every door it names workflow and key and chains the original, and never becomes a value."""
    await durable.arrive("w", "input", 1)
    (turn,) = await durable.begin(NOW, LONG)
    key = "outcome:" if call == "result" else "k"
    await (durable.finish(turn, 1) if call == "result" else durable.checkpointer.record(turn.holder, "k", 1))
    broken = PostgresDurable.on(pool, codec=Broken())
    made: dict[str, Callable[[], Awaitable[object]]] = {
        "load": lambda: broken.checkpointer.load("w"),
        "record": lambda: broken.checkpointer.record(turn.holder, "k", 2),
        "supply": lambda: broken.checkpointer.supply("w", "k", 2),
        "arrive": lambda: broken.arrive("w", "k", 2),
        "transact": lambda: broken.checkpointer.transact(turn.holder, "k", giving(2)),
        "result": lambda: broken.result("w"),
    }
    with pytest.raises(NotParsed, match=f"'{'input' if call == 'load' else key}' of workflow 'w'") as refused:
        await made[call]()
    assert isinstance(refused.value.__cause__, LookupError)
    await broken.aclose()


async def test_case_90_a_backlog_of_one_workflow_is_one_delivery(durable: PostgresDurable, make_pool: MakePool) -> None:
    """Case 90: a wakeup of three days ago, five more, and a delivery that lapsed, before anybody works: one delivery."""
    async with make_pool(2) as pool, PostgresDurable.on(pool, lease=timedelta(milliseconds=1)) as hasty:
        await hasty.scheduler.make_ready("w")
        delivery = await hasty.scheduler.next_ready(LONG)
        assert delivery is not None
        await hasty.scheduler.wake_at(delivery, delivery.due - timedelta(days=3))
        assert await hasty.scheduler.next_ready(LONG) is not None  # and its taker dies
        for _ in range(5):
            await hasty.scheduler.make_ready("w")
        given = await durable.scheduler.next_ready(LONG)
        assert given is not None
        assert given.lapses == 1
        assert await durable.scheduler.next_ready(NOW) is None
        await durable.scheduler.done(given)
        assert await durable.scheduler.next_ready(NOW) is None


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/New_York"])
async def test_case_97_100_instants_in_any_zone(make_pool: MakePool, zone: str) -> None:
    """Cases 97, 100: whatever zone and style the sessions have, instants are in UTC; the last one there is can be slept until."""
    async with make_pool(2, options=f"-c timezone={zone} -c datestyle=german -c intervalstyle=sql_standard") as pool:
        async with PostgresDurable.on(pool) as durable:
            scheduler = durable.scheduler
            before = datetime.now(UTC)
            now = await scheduler.now()
            assert now.tzinfo is UTC
            assert abs(now - before) < timedelta(minutes=5)
            await scheduler.make_ready("w")
            delivery = await scheduler.next_ready(NOW)
            assert delivery is not None
            with pytest.raises(ValueError, match="naive"):
                await scheduler.wake_at(delivery, datetime(2030, 1, 1))
            await scheduler.wake_at(delivery, datetime.max.replace(tzinfo=UTC))
            (listed,) = await durable.workflows()
            assert listed.due == datetime.max.replace(tzinfo=UTC)
            assert await durable.begin(NOW, LONG) == []
            await scheduler.make_ready("w")
            delivery = await scheduler.next_ready(NOW)
            assert delivery is not None
            await scheduler.wake_at(delivery, (now - timedelta(days=3)).astimezone(timezone(timedelta(hours=13))))
            (turn,) = await durable.begin(NOW, timedelta(days=365_000))
            assert turn.delivery.due == now - timedelta(days=3)
            await durable.pause(turn, now + timedelta(days=36_500))
            (listed,) = await durable.workflows()
            assert listed.due == now + timedelta(days=36_500)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_case_126_ten_thousand_steps(durable: PostgresDurable) -> None:
    """Case 126: a pass of ten thousand steps, and a replay of it that runs none of them and asks for the history once."""
    ran = 0

    async def effect() -> str:
        nonlocal ran
        ran += 1
        return "x" * 200

    async def body(run: Run[SqlEffect]) -> int:
        for number in range(10_000):
            await run.step(f"s{number}", effect, str)
        return ran

    for _ in range(2):
        holder = await claimed(durable)
        assert await resume(durable.checkpointer, holder, body, budget=LONG, alive=LONG) == Completed(10_000)
        await durable.checkpointer.release(holder)
    assert ran == 10_000
