# pyright: reportUnknownMemberType=false
# redis-py leaves its **kwargs untyped.
"""What one taker knows when it dies, closes or has its hands full, another comes to know."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta

import pytest
from redis.asyncio import Connection, ConnectionPool, Redis

from durable_conformance.servers import RedisServer
from durable_core.contract import Turn
from durable_redis import RedisDurable, RedisScheduler, RedisStreamScheduler, open

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
NOW = timedelta(0)

Make = Callable[..., RedisDurable]


@pytest.fixture(params=[RedisScheduler, RedisStreamScheduler])
async def make(own_redis: RedisServer, request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Makes stores with clients of their own, as other processes would have them."""
    made = list[RedisDurable]()

    def another(lease: timedelta = HOUR) -> RedisDurable:
        made.append(open(own_redis.url, lease=lease, stream=request.param is RedisStreamScheduler))
        return made[-1]

    yield another
    for durable in made:
        await durable.aclose()


async def _waiting(server: RedisServer, *stores: RedisDurable) -> list[asyncio.Task[Sequence[Turn]]]:
    """Have stores wait for a workflow, each once the server has the wait of the one before."""
    tasks = list[asyncio.Task[Sequence[Turn]]]()
    for count, store in enumerate(stores, 1):
        tasks.append(asyncio.create_task(store.begin(HOUR, HOUR)))
        async with asyncio.timeout(5):
            await asyncio.to_thread(_blocked, server, count)
    return tasks


def _blocked(server: RedisServer, count: int) -> None:
    while int(server.info("clients")["blocked_clients"]) < count:
        pass


async def _sleepers(durable: RedisDurable, *seconds: float) -> list[tuple[Turn, timedelta]]:
    """Give turns of workflows, to be paused until so many seconds from then."""
    for number in range(len(seconds)):
        await durable.arrive(f"s{number}", "input", 1)
    turns = [turn for _ in seconds for turn in await durable.begin(NOW, HOUR)]
    return [(turn, timedelta(seconds=one)) for turn, one in zip(turns, seconds, strict=True)]


async def test_an_idle_taker_takes_up_what_another_died_with(own_redis: RedisServer, make: Make) -> None:
    """Both wait when the workflow comes; one takes it and dies: the other has it after the lease. [SCH-NEXT-LAPSED]"""
    waiting = await _waiting(own_redis, make(SECOND), make(SECOND))
    await make().arrive("w", "input", 1)
    async with asyncio.timeout(5):
        for turns in asyncio.as_completed(waiting):
            assert [turn.holder.workflow for turn in await turns] == ["w"]


async def test_who_has_its_hands_full_tells_another_when_to_look(own_redis: RedisServer, make: Make) -> None:
    """One taker knows two sleepers and takes the first; the other, ignorant so far, takes the second. [SCH-NEXT-WAIT]"""
    setting, knows, ignorant = make(), make(), make()
    sleepers = await _sleepers(setting, 0.4, 0.8)
    await setting.scheduler.connection.call("DEL", setting.scheduler.places[0].bell)
    waiting = await _waiting(own_redis, knows, ignorant)
    for turn, seconds in sleepers:
        await setting.pause(turn, await setting.scheduler.now() + seconds)
    async with asyncio.timeout(5):
        taken = [await task for task in waiting]
    assert {turn.holder.workflow for turns in taken for turn in turns} == {"s0", "s1"}


async def test_who_closes_tells_another_when_to_look(own_redis: RedisServer, make: Make) -> None:
    """The taker that was told of a sleeper is closed; another that waits gives the sleeper its turn. [SCH-NEXT-WAIT]"""
    setting, knows, ignorant = make(), make(), make()
    ((turn, seconds),) = await _sleepers(setting, 0.6)
    await setting.scheduler.connection.call("DEL", setting.scheduler.places[0].bell)
    told, waits = await _waiting(own_redis, knows, ignorant)
    await setting.pause(turn, await setting.scheduler.now() + seconds)
    async with asyncio.timeout(5):
        await knows.scheduler.bell.wait([0], 5)
        told.cancel()
        await asyncio.wait([told])
        await knows.aclose()
        assert [turn.holder.workflow for turn in await waits] == ["s0"]


class Losing(Connection):
    """A connection that loses the first cancellation of a read, as a client may on Python 3.11."""

    lost = 0

    async def read_response(self, *args: object, **options: object) -> object:
        try:
            return await super().read_response(*args, **options)  # type: ignore[arg-type] # pyright: ignore
        except asyncio.CancelledError:
            Losing.lost += 1
            if Losing.lost == 1:
                return None
            raise


async def test_closing_does_not_wait_for_a_listener_that_missed_its_cancellation(own_redis: RedisServer) -> None:
    """A listener whose client lost the cancellation is cancelled again."""
    pool = ConnectionPool.from_url(own_redis.url, connection_class=Losing)
    async with Redis.from_pool(pool) as client, RedisDurable(client) as durable:
        begun = asyncio.create_task(durable.begin(HOUR, HOUR))
        while not any("blpop" in str(one) for one in await client.client_list()):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)
        begun.cancel()
        await asyncio.wait((begun,))
        async with asyncio.timeout(30):
            await durable.aclose()
    assert Losing.lost > 0
