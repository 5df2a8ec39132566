# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
# redis-py leaves its **kwargs untyped.
"""Replies that are lost, servers that die, callers that go: every answer belongs to its question, and nothing happens twice."""

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from durable_conformance.proxy import Proxy
from durable_conformance.servers import Address, RedisServer, Replicated, Watched
from durable_core.contract import Recorded
from durable_core.errors import Misconfigured
from durable_redis import LuaEffect, RedisDurable, open
from durable_redis._connection import Connection

HOUR = timedelta(hours=1)
NOW = timedelta(0)
COUNT = "redis.call('INCR', KEYS[1]) return redis.call('GET', KEYS[1])"


@pytest.fixture
def proxy(shared_redis: Address) -> Iterator[Proxy]:
    """What stands between the store and its server."""
    with Proxy(shared_redis.url) as between:
        yield between


@asynccontextmanager
async def lossy(proxy: Proxy, namespace: str, **options: object) -> AsyncGenerator[RedisDurable]:
    """Give a store behind the proxy, on a client of these options."""
    client = Redis.from_url(proxy.url, **options)  # type: ignore[arg-type] # pyright: ignore
    try:
        async with RedisDurable(client, namespace=namespace) as durable:
            yield durable
    finally:
        await client.aclose()


@pytest.mark.parametrize("retries", [0, 3])
async def test_case_30_and_31_a_lost_reply_is_asked_for_again(proxy: Proxy, namespace: str, retries: int) -> None:
    """case 30, case 31: claim, record, append, transact, discard, release, each reply lost once, whatever the client's policy."""
    async with lossy(proxy, namespace, retry=Retry(NoBackoff(), retries)) as durable:
        store = durable.checkpointer
        faults = [proxy.lose_reply(b"EVAL")]
        holder = await store.claim("w", HOUR, HOUR)
        assert holder is not None
        faults.append(proxy.lose_reply(b"EVAL"))
        assert await store.record(holder, "k", 1) == Recorded(1, True)
        faults.append(proxy.lose_reply(b"EVAL"))
        await store.append("w", "message")
        faults.append(proxy.lose_reply(b"EVAL"))
        assert await store.transact(holder, "e", LuaEffect(COUNT, [durable.hash_key("n")])) == 1
        assert len(await store.load("w")) == 3
        faults.append(proxy.lose_reply(b"EVAL"))
        await store.release(holder)
        faults.append(proxy.lose_reply(b"EVAL"))
        assert await store.discard("w") == 3
        assert all(fault.struck for fault in faults)


async def test_a_reply_that_never_comes_is_asked_for_again(proxy: Proxy, namespace: str) -> None:
    """The connection stays open and silent: the socket timeout counts it as lost."""
    async with lossy(proxy, namespace, socket_timeout=0.3) as durable:
        fault = proxy.lose_reply(b"EVAL", cut=False)
        async with asyncio.timeout(5):
            assert (await durable.arrive("w", "input", 1)).first
        assert fault.struck


async def test_calls_that_share_a_lost_connection_are_all_answered(proxy: Proxy, namespace: str) -> None:
    """Forty calls at once, the connection cut among them: each gets its own answer, once. [CKP-RECORD-CONCURRENT]"""
    async with lossy(proxy, namespace) as durable:
        await durable.arrive("w", "input", 1)
        proxy.lose_reply(b"EVALSHA", nth=5)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(durable.checkpointer.append("w", number)) for number in range(40)]
        entries = {task.result().key: task.result().value for task in tasks}
        loaded = await durable.checkpointer.load("w")
        assert len(entries) == 40
        assert {key: value for key, value in loaded.items() if key != "input"} == dict(sorted(entries.items()))


@pytest.mark.parametrize("size", [1, 2, 6])
async def test_case_34_every_answer_belongs_to_its_question(shared_redis: Address, namespace: str, size: int) -> None:
    """case 34: callers are cancelled at any moment; the next call gets its own answer, also where the pool has one connection."""
    pool = BlockingConnectionPool.from_url(shared_redis.url, max_connections=size, timeout=5)
    async with Redis.from_pool(pool) as client, RedisDurable(client, namespace=namespace) as durable:
        chance = random.Random(size)
        for workflow in ("a", "b"):
            await durable.checkpointer.supply(workflow, "name", workflow)
        for number in range(120):
            calls = (
                lambda: durable.checkpointer.load("a"),
                lambda: durable.checkpointer.supply("a", f"k{chance.random()}", "x"),
                lambda: durable.arrive("a", f"k{chance.random()}", "x"),
            )
            task: asyncio.Task[object] = asyncio.ensure_future(chance.choice(calls)())
            await asyncio.sleep(chance.random() * 0.003)
            task.cancel()
            await asyncio.wait([task])
            loaded = await durable.checkpointer.load("b")
            assert loaded == {"name": "b"}, number
            assert await durable.checkpointer.supply("b", "name", "other") == Recorded("b", False)


async def test_a_pool_without_room_is_used_call_by_call(shared_redis: Address, namespace: str) -> None:
    """With two connections the store shares none and keeps none, but for the one that waits."""
    pool = ConnectionPool.from_url(shared_redis.url, max_connections=2)
    async with Redis.from_pool(pool) as client, RedisDurable(client, namespace=namespace) as durable:
        await durable.arrive("w", "input", 1)
        waiting = asyncio.create_task(durable.begin(HOUR, HOUR))
        async with asyncio.timeout(5):
            (turn,) = await waiting
        await durable.finish(turn, "done")


async def test_case_122_a_server_that_restarts_is_found_again(own_redis: RedisServer, namespace: str) -> None:
    """case 122: killed and started again, without its scripts: what was acknowledged is there, and the store goes on."""
    async with open(own_redis.url, namespace=namespace) as durable:
        await durable.arrive("w", "input", 1)
        (turn,) = await durable.begin(NOW, HOUR)
        for number in range(50):
            await durable.checkpointer.record(turn.holder, f"k{number}", number)
        await asyncio.to_thread(own_redis.kill)
        with pytest.raises((RedisError, OSError)):
            await durable.checkpointer.record(turn.holder, "down", 1)
        await asyncio.to_thread(own_redis.start)
        assert len(await durable.checkpointer.load("w")) == 51
        assert (await durable.checkpointer.record(turn.holder, "up", 1)).first
        assert (await durable.finish(turn, "done")).first


async def test_a_taker_that_waits_survives_a_restart(own_redis: RedisServer, namespace: str) -> None:
    """A begin that waits hears of what comes after its server was away. [SCH-NEXT-WAIT]"""
    async with open(own_redis.url, namespace=namespace) as durable:

        async def taken() -> str:
            while True:
                try:
                    for turn in await durable.begin(HOUR, HOUR):
                        return turn.holder.workflow
                except (RedisError, OSError):
                    await asyncio.sleep(0.05)

        waiting = asyncio.create_task(taken())
        await asyncio.sleep(0.1)
        await asyncio.to_thread(own_redis.restart)
        async with open(own_redis.url, namespace=namespace) as client:
            await client.arrive("w", "input", 1)
        async with asyncio.timeout(10):
            assert await waiting == "w"


async def test_a_script_that_holds_the_server_up_is_no_fence(own_redis: RedisServer, namespace: str) -> None:
    """While an effect hangs others are told BUSY or wait; nobody is Fenced, and after SCRIPT KILL nothing is recorded."""
    async with open(own_redis.url, namespace=namespace) as durable, Redis.from_url(own_redis.url) as admin:
        await admin.config_set("busy-reply-threshold", "50")
        holder = await durable.checkpointer.claim("w", HOUR, HOUR)
        assert holder is not None
        hung = asyncio.create_task(durable.checkpointer.transact(holder, "k", LuaEffect("while true do end")))
        await asyncio.sleep(0.3)
        await admin.script_kill()
        with pytest.raises(ResponseError):
            await hung
        assert await durable.checkpointer.load("w") == {}
        assert (await durable.checkpointer.record(holder, "k", 1)).first


async def test_a_wait_for_replicas(own_redis_replica: Replicated, namespace: str) -> None:
    """With `replicas` a write returns when the replica has it, and says so when it has not."""
    async with open(own_redis_replica.primary.url, namespace=namespace, replicas=1) as durable:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(durable.checkpointer.supply("w", f"k{number}", number))
        async with Redis.from_url(own_redis_replica.replica.url) as replica:
            assert await replica.hlen(durable.checkpointer.layout.of("w").records.decode()) >= 20
        own_redis_replica.link.freeze()
        with pytest.raises(RedisTimeoutError, match="0 of 1 replicas"):
            await durable.checkpointer.supply("w", "late", 1)
        assert (await durable.checkpointer.load("w"))["late"] == 1


async def test_a_wait_for_the_disk(own_redis: RedisServer, namespace: str) -> None:
    """With `flushed` a write returns when it is on the disk, and fails where nothing goes there. [DUR-DESCRIBE]"""
    own_redis.call("CONFIG", "SET", "appendfsync", "everysec")
    async with open(own_redis.url, namespace=namespace, flushed=True) as durable:
        await durable.arrive("w", "input", 1)
        assert own_redis.info("commandstats")["cmdstat_waitaof"].startswith("calls=")
        said = await durable.describe()
        assert (said.survives_kill, said.survives_power_cut) == ("yes", "yes")
        own_redis.call("CONFIG", "SET", "appendonly", "no")
        with pytest.raises(ResponseError, match="WAITAOF"):
            await durable.checkpointer.supply("w", "k", 1)


async def test_a_wait_is_refused_where_it_would_be_left_out(shared_redis: Address) -> None:
    """A pool too small to share a connection cannot wait on the one that wrote."""
    pool = ConnectionPool.from_url(shared_redis.url, max_connections=2)
    async with Redis.from_pool(pool) as client:
        with pytest.raises(Misconfigured, match="four connections"):
            RedisDurable(client, replicas=1)


async def test_sentinels_name_the_next_primary(own_sentinel: Watched, namespace: str) -> None:
    """When the primary is killed the store finds the promoted replica, which has no scripts. [ANY-REPEAT]"""
    hosts = ",".join(f"{host}:{port}" for host, port in own_sentinel.addresses)
    async with open(f"redis+sentinel://{hosts}/{own_sentinel.name}", namespace=namespace) as durable:
        holder = await durable.checkpointer.claim("w", HOUR, HOUR)
        assert holder is not None
        await durable.checkpointer.record(holder, "before", 1)
        await asyncio.to_thread(_in_sync, own_sentinel)
        await asyncio.to_thread(own_sentinel.primary.kill)
        async with asyncio.timeout(30):
            while True:
                try:
                    await durable.checkpointer.record(holder, "after", 2)
                    break
                except (RedisError, OSError):
                    await asyncio.sleep(0.1)
        assert await durable.checkpointer.load("w") == {"before": 1, "after": 2}


def _in_sync(watched: Watched) -> None:
    offset = int(watched.primary.info("replication")["master_repl_offset"])
    while int(watched.replica.info("replication")["slave_repl_offset"]) < offset:
        pass


async def test_case_6_what_a_failover_drops_is_a_suffix(own_redis_replica: Replicated, namespace: str) -> None:
    """case 6: a record is not replicated and the replica is promoted: a prefix is left, and tokens go on rising by the clock."""
    async with open(own_redis_replica.primary.url, namespace=namespace) as old:
        holder = await old.checkpointer.claim("w", HOUR, timedelta(milliseconds=100))
        assert holder is not None
        await old.checkpointer.record(holder, "a", 1)
        own_redis_replica.wait_until_in_sync()
        own_redis_replica.link.freeze()
        await old.checkpointer.record(holder, "b", 2)
        own_redis_replica.promote()
        async with open(own_redis_replica.replica.url, namespace=namespace) as new:
            assert await new.checkpointer.load("w") == {"a": 1}
            await asyncio.sleep(0.15)
            later = await new.checkpointer.claim("w", HOUR, HOUR)
            assert later is not None
            assert later.token > holder.token
            assert (await new.checkpointer.record(later, "b", "other")).first


async def test_closing_ends_what_is_under_way(shared_redis: Address, namespace: str) -> None:
    """A store that is closed gives its connections back, and a call at work ends."""
    async with Redis.from_url(shared_redis.url) as client:
        durable = RedisDurable(client, namespace=namespace)
        await durable.prepare()
        waiting = asyncio.create_task(durable.begin(HOUR, HOUR))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait([waiting])
        async with asyncio.timeout(4):  # a begin that waits has nothing to put back, and holds up nobody
            await durable.aclose()
        assert len(client.connection_pool._in_use_connections) == 0  # pyright: ignore
        assert isinstance(durable.checkpointer.connection, Connection)
        with pytest.raises(Misconfigured, match="closed"):
            await durable.arrive("w", "input", 1)
