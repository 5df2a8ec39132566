# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
# redis-py leaves its **kwargs untyped.
"""Wakeups: the bell, idle cost, and what a stream adds."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from durable_redis import RedisDurable, RedisScheduler, RedisStreamScheduler

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
NOW = timedelta(0)


@pytest.fixture
async def stream(client: Redis, namespace: str) -> AsyncIterator[RedisStreamScheduler]:
    """A stream scheduler by itself, and its keys."""
    scheduler = RedisStreamScheduler(client, namespace=namespace, lease=SECOND / 5)
    yield scheduler
    await scheduler.aclose()


def _stream_of(scheduler: RedisScheduler) -> bytes:
    return scheduler.places[0].keys[4]


@pytest.mark.usefixtures("own_redis")
async def test_an_idle_taker_asks_twice_and_then_waits(durable: RedisDurable, client: Redis) -> None:
    """One look and one blocking read; nothing else while nothing happens. [SCH-NEXT-WAIT]"""
    await durable.begin(SECOND / 20, HOUR)  # the connections are there
    before = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]
    await durable.begin(SECOND / 2, HOUR)
    after = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]
    assert after - before <= 3


async def test_a_block_longer_than_the_socket_timeout_waits(client: Redis, namespace: str) -> None:
    """The bell waits ten seconds on a client whose socket times out sooner, and hears what comes. [SCH-NEXT-WAIT]"""
    async with Redis.from_url(_url(client), socket_timeout=0.2) as hasty, RedisDurable(hasty, namespace=namespace) as durable:
        waiting = asyncio.create_task(durable.begin(HOUR, HOUR))
        await asyncio.sleep(0.7)  # more than three times the timeout
        assert not waiting.done()
        await durable.arrive("w", "input", 1)
        async with asyncio.timeout(2):
            (turn,) = await waiting
        assert turn.holder.workflow == "w"


def _url(client: Redis) -> str:
    options = client.connection_pool.connection_kwargs
    return f"redis://{options['host']}:{options['port']}/0"


async def test_one_token_wakes_one_and_is_passed_on(durable: RedisDurable, client: Redis, namespace: str) -> None:
    """Of many takers each of many workflows finds one, and the bell never has more than one token. [SCH-READY-EVENTUALLY]"""
    async with RedisDurable(client, namespace=namespace) as other:
        takers = [asyncio.create_task(store.begin(HOUR, HOUR)) for store in (durable, other) * 4]
        await asyncio.sleep(0.05)
        for number in range(8):
            await durable.arrive(f"w{number}", "input", 1)
        async with asyncio.timeout(5):
            turns = [turn for taker in takers for turn in await taker]
        assert sorted(turn.holder.workflow for turn in turns) == [f"w{number}" for number in range(8)]
        assert await client.llen(durable.scheduler.places[0].bell) <= 1


async def test_a_token_heard_by_nobody_is_given_back(durable: RedisDurable, client: Redis) -> None:
    """A taker that stopped waiting leaves the token for others."""
    await durable.begin(SECOND / 50, HOUR)  # its read goes on after it
    await durable.arrive("w", "input", 1)
    async with asyncio.timeout(2):
        while await client.llen(durable.scheduler.places[0].bell) == 0:  # noqa: ASYNC110 - no event of ours
            await asyncio.sleep(0.005)


async def test_a_cancelled_begin_gives_back_what_it_took(durable: RedisDurable, client: Redis) -> None:
    """A turn that nobody heard of is handed back: the workflow runs again at once, with its counts unchanged. [DUR-BEGIN]"""
    await durable.arrive("w", "input", 1)
    for ticks in range(1, 6):
        task = asyncio.create_task(durable.begin(NOW, HOUR))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await durable.hand_back(task.result()[0], NOW)
        async with asyncio.timeout(2):
            while not (turns := await durable.begin(SECOND, HOUR)):
                pass
        assert (turns[0].delivery.attempt, turns[0].delivery.lapses) == (1, 0)
        await durable.hand_back(turns[0], NOW)


async def test_partitions_are_taken_from_in_turn(client: Redis, namespace: str) -> None:
    """No partition waits for another to be empty. [SCH-NEXT-OLDEST]"""
    async with RedisDurable(client, namespace=namespace, partitions=4) as durable:
        names = [f"w{number}" for number in range(80)]
        for name in names:
            await durable.arrive(name, "input", 1)
        seen = [turn.holder.workflow for _ in range(40) for turn in await durable.begin(NOW, HOUR)]
        places = [durable.checkpointer.layout.of(name).records[:20] for name in seen]
        assert len(set(places[:4])) == 4
        assert {name for name in names if name not in seen}


async def test_a_cancelled_workflow_leaves_no_entry(stream: RedisStreamScheduler, client: Redis) -> None:
    """Cancelled while ready, taken and asleep: the stream is empty, and so is the group. [SCH-CANCEL-ALL]"""
    await stream.make_ready("ready")
    await stream.make_ready("taken")
    first = await stream.next_ready(NOW)
    second = await stream.next_ready(NOW)
    assert first is not None
    assert second is not None
    await stream.wake_at(first, await stream.now() + HOUR)
    for workflow in ("ready", "taken"):
        await stream.cancel(workflow)
    assert await client.xlen(_stream_of(stream)) == 0
    assert (await client.xpending(_stream_of(stream), "durable"))["pending"] == 0
    assert await stream.next_ready(NOW) is None


async def test_memory_comes_back(stream: RedisStreamScheduler, client: Redis) -> None:
    """After many cycles beside one entry that is never answered, the stream holds that one. [SCH-NEXT-DEEP]"""
    await stream.make_ready("stuck")
    assert await stream.next_ready(NOW) is not None
    for number in range(300):
        await stream.make_ready(f"w{number}")
        delivery = await stream.next_ready(NOW)
        assert delivery is not None
        await stream.done(delivery)
    assert await client.xlen(_stream_of(stream)) == 1


@pytest.mark.parametrize("kind", [RedisScheduler, RedisStreamScheduler])
async def test_a_scheduler_by_itself_leaves_nothing(client: Redis, namespace: str, kind: type[RedisScheduler]) -> None:
    """Of workflows that were done nothing is left but the bell and the empty stream."""
    scheduler = kind(client, namespace=namespace)
    for number in range(5):
        await scheduler.make_ready(f"w{number}")
        delivery = await scheduler.next_ready(NOW)
        assert delivery is not None
        await scheduler.done(delivery)
    left: set[bytes] = {key async for key in client.scan_iter(f"{{{namespace}}}*")}  # pyright: ignore[reportUnknownVariableType]
    _, _, receipts, bell, *stream = scheduler.places[0].keys  # a stream keeps a cursor beside the receipts
    assert left <= {bell, *(stream and (receipts, stream[0]))}
    await scheduler.aclose()


async def test_a_dead_taker_is_followed_by_its_lease(stream: RedisStreamScheduler) -> None:
    """What a taker that died had is given out again after its lease, counted. [SCH-NEXT-LAPSED]"""
    await stream.make_ready("w")
    assert await stream.next_ready(NOW) is not None
    again = await stream.next_ready(5 * SECOND)
    assert again is not None
    assert (again.workflow, again.attempt, again.lapses) == ("w", 2, 1)


async def test_a_group_that_is_gone_is_made_anew(stream: RedisStreamScheduler, client: Redis) -> None:
    """What was ready is given out, what was taken is not given out twice, and can be answered. [SCH-READY-EVENTUALLY]"""
    for workflow in ("taken", "ready"):
        await stream.make_ready(workflow)
    taken = await stream.next_ready(NOW)
    assert taken is not None
    await client.xgroup_destroy(_stream_of(stream), "durable")
    ready = await stream.next_ready(NOW)
    assert ready is not None
    assert ready.workflow == "ready"
    assert await stream.next_ready(NOW) is None
    await stream.done(taken)
    await stream.done(ready)
    assert await client.xlen(_stream_of(stream)) == 0


async def test_a_trimmed_stream_is_mended(stream: RedisStreamScheduler, client: Redis) -> None:
    """What somebody trimmed comes back by itself, and at once for what is made ready. [SCH-READY-EVENTUALLY]"""
    for workflow in ("a", "b", "c"):
        await stream.make_ready(workflow)
    await client.xtrim(_stream_of(stream), maxlen=0)
    await stream.make_ready("b")
    found = set[str]()
    async with asyncio.timeout(5):
        while len(found) < 3:
            delivery = await stream.next_ready(SECOND / 10)
            if delivery is not None:
                found.add(delivery.workflow)
                await stream.done(delivery)
    assert found == {"a", "b", "c"}


async def test_a_foreign_entry_is_taken_out(stream: RedisStreamScheduler, client: Redis) -> None:
    """Somebody else's entry in the stream is nobody's wakeup."""
    await client.xadd(_stream_of(stream), {"who": "knows"})
    await stream.make_ready("w")
    delivery = await stream.next_ready(NOW)
    assert delivery is not None
    assert delivery.workflow == "w"
    assert await client.xlen(_stream_of(stream)) == 1


async def test_wake_due_moves_what_is_due(stream: RedisStreamScheduler, client: Redis) -> None:
    """Sleepers that are due become entries, as many as asked for at a time."""
    now = await stream.now()
    for number in range(5):
        await stream.make_ready(f"w{number}")
    for _ in range(5):
        delivery = await stream.next_ready(NOW)
        assert delivery is not None
        await stream.wake_at(delivery, now + SECOND)
    assert await stream.wake_due() == 0
    while await stream.now() < now + SECOND:  # noqa: ASYNC110 - the server's clock
        await asyncio.sleep(0.02)
    assert await stream.wake_due(2) == 2
    assert await client.xlen(_stream_of(stream)) == 2
    assert await stream.wake_due() == 3


async def _cost_of_a_take(stream: RedisStreamScheduler, client: Redis) -> int:
    await stream.make_ready("w")
    before = await _commands(client)
    delivery = await stream.next_ready(NOW)
    cost = await _commands(client) - before
    assert delivery is not None
    assert delivery.workflow == "w"
    await stream.done(delivery)
    return cost


@pytest.mark.usefixtures("own_redis")
async def test_pending_entries_change_nothing_of_a_take(stream: RedisStreamScheduler, client: Redis) -> None:
    """Pending entries are not looked through: as many commands at five thousand as at none. [SCH-NEXT-DEEP]"""
    costs = list[int]()
    for size in (0, 5_000):
        async with asyncio.TaskGroup() as group:
            gate = asyncio.Semaphore(100)

            async def take(number: int, gate: asyncio.Semaphore = gate) -> None:
                async with gate:
                    await stream.make_ready(f"p{number}")

            for number in range(size):
                group.create_task(take(number))
        patient = RedisStreamScheduler(client, namespace=stream.layout.namespace, lease=HOUR)
        for _ in range(size):
            assert await patient.next_ready(NOW) is not None
        costs.append(min([await _cost_of_a_take(stream, client) for _ in range(3)]))  # the first may load a script
        await patient.aclose()
    assert costs[1] <= costs[0] + 2


async def _commands(client: Redis) -> int:
    return sum(said["calls"] for said in (await client.info("commandstats")).values())
