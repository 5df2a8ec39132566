# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
# redis-py leaves its **kwargs untyped.
"""Opening by URL, and what a store says of itself."""

import asyncio
from datetime import timedelta

import pytest
from redis.asyncio import Redis

import durable_redis
from durable_conformance.servers import Address, Fsync, RedisServer, redis
from durable_core.client import open as open_any
from durable_core.client import start
from durable_core.errors import Misconfigured
from durable_redis import RedisDurable, RedisScheduler, RedisStreamScheduler

HOUR = timedelta(hours=1)


async def test_a_url_is_enough(shared_redis: Address, namespace: str) -> None:
    """`open` connects, prepares and closes."""
    async with durable_redis.open(shared_redis.url, namespace=namespace, queue="q") as durable:
        assert (await durable.arrive("w", "input", 1)).first
        assert type(durable.scheduler) is RedisScheduler
    async with durable_redis.open(shared_redis.url, namespace=namespace, queue="q", stream=True) as durable:
        assert type(durable.scheduler) is RedisStreamScheduler
        assert await durable.checkpointer.load("w") == {"input": 1}


async def test_core_finds_it_by_its_scheme(shared_redis: Address, namespace: str) -> None:
    """`durable_core.client.open` knows redis:// once the distribution is installed."""
    async with open_any(shared_redis.url, namespace=namespace) as durable:
        assert (await start(durable, "w", 1)).first


@pytest.mark.parametrize(
    "url", ["http://x", "redis+sentinel://", "redis+sentinel://host", "redis+sentinel://host/name/x", "localhost"]
)
def test_another_url_is_refused(url: str) -> None:
    """The error says what is known, or what the form is."""
    with pytest.raises(Misconfigured, match="redis"):
        durable_redis.open(url)


async def test_what_is_no_client_is_refused() -> None:
    """A URL, a synchronous client and a pool are not what a store takes."""
    import redis as synchronous

    for thing in ("redis://localhost", synchronous.Redis(), Redis().connection_pool):
        with pytest.raises(Misconfigured, match=r"redis\.asyncio"):
            RedisDurable(thing)  # type: ignore[arg-type] # pyright: ignore


async def test_the_clients_stay_the_applications(shared_redis: Address, namespace: str) -> None:
    """A store on the application's client leaves it open, with its other database and its decoding."""
    async with Redis.from_url(shared_redis.url, db=3, decode_responses=True) as client:
        async with RedisDurable(client, namespace=namespace) as durable:
            await durable.deliver("w", {"é": 1})
        assert await client.ping()
        assert await client.exists(durable.checkpointer.layout.of("w").records.decode()) == 1


@pytest.mark.parametrize(
    ("appendonly", "fsync", "kill", "cut"),
    [(True, "always", "yes", "yes"), (True, "everysec", "no", "no"), (True, "no", "yes", "no"), (False, "always", "no", "no")],
)
async def test_describe_says_how_far_durable_goes(appendonly: bool, fsync: Fsync, kill: str, cut: str, namespace: str) -> None:
    """As the server is configured now, and `unknown` where it may not be asked. [DUR-DESCRIBE]"""
    with redis("redis", appendonly=appendonly, appendfsync=fsync) as server:
        async with durable_redis.open(server.url, namespace=namespace) as durable:
            said = await durable.describe()
            assert (said.product, said.survives_kill, said.survives_power_cut, said.survives_failover) == (
                "Redis",
                kill,
                cut,
                "no",
            )
            assert said.version.startswith("8.")
        server.call("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all", "-config", "-info")
        poor = server.url.replace("redis://", "redis://poor:secret@")
        async with durable_redis.open(poor, namespace=namespace) as durable:
            said = await durable.describe()
            assert (said.version, said.survives_kill, said.survives_power_cut) == ("unknown", "unknown", "unknown")


async def test_a_server_that_refuses_undeclared_keys(own_redis: RedisServer) -> None:
    """`begin` picks workflows inside its script, unless the server refuses the key that `prepare` tries. [DUR-BEGIN]"""
    ours = ["~*:layout", "~*:queues", "~*:q:*", "~*:r:*", "~*:c:*", "~*:a:*", "~*:i", "~*:f"]
    own_redis.call("ACL", "SETUSER", "strict", "on", ">secret", *ours, "&*", "+@all")
    async with durable_redis.open(own_redis.url.replace("redis://", "redis://strict:secret@")) as durable:
        assert await durable.begin(timedelta(0), HOUR) == []
        for workflow in ("a", "b"):
            await durable.arrive(workflow, "input", 1)
        assert own_redis.call("CONFIG", "RESETSTAT") == b"OK"
        begun = [turn.holder.workflow for _ in range(2) for turn in await durable.begin(timedelta(0), HOUR)]
        assert begun == ["a", "b"]
        assert "calls=3," in own_redis.info("commandstats")["cmdstat_evalsha"]  # the first asks whom to declare
        assert await durable.begin(timedelta(0), HOUR) == []


async def test_every_end_of_a_process_leaves_the_loop(shared_redis: Address, namespace: str) -> None:
    """A store in each of three event loops, one after the other: each with a client of its own."""

    async def once(number: int) -> None:
        async with durable_redis.open(shared_redis.url, namespace=namespace) as durable:
            await durable.deliver("w", number)

    for number in range(3):
        await asyncio.to_thread(asyncio.run, once(number))
    async with durable_redis.open(shared_redis.url, namespace=namespace) as durable:
        assert list((await durable.checkpointer.load("w")).values()) == [0, 1, 2]
