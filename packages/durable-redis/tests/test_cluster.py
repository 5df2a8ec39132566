# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
# redis-py leaves its **kwargs untyped.
"""A real cluster: slots that move, masters that die, shards that are away, and partitions over all of them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from redis.asyncio.cluster import RedisCluster
from redis.cluster import LoadBalancingStrategy
from redis.crc import key_slot
from redis.exceptions import RedisClusterException, RedisError

from durable_conformance.servers import Cluster, RedisServer
from durable_core.errors import Misconfigured
from durable_redis import LuaEffect, RedisCheckpointer, RedisDurable, RedisScheduler, open

HOUR = timedelta(hours=1)
NOW = timedelta(0)
SECOND = timedelta(seconds=1)
AWAY = (RedisError, RedisClusterException, OSError)


@pytest.fixture
async def durable(own_redis_cluster: Cluster, namespace: str) -> AsyncIterator[RedisDurable]:
    """A store with six partitions on a cluster of the test's own."""
    url = own_redis_cluster.url.replace("redis://", "redis+cluster://")
    async with open(url, namespace=namespace, partitions=6) as store:
        yield store


def _owner(durable: RedisDurable, cluster: Cluster, workflow: str) -> RedisServer:
    """The master that has a workflow's slot."""
    client = durable.checkpointer.connection.client
    assert isinstance(client, RedisCluster)
    node = client.get_node_from_key(durable.checkpointer.layout.of(workflow).records.decode())
    assert node is not None
    return next(server for server in cluster.nodes if server.port == node.port)


def _names(count: int = 40) -> Iterator[str]:
    return (f"w{number}" for number in range(count))


async def _finish_all(durable: RedisDurable, wanted: set[str]) -> dict[str, int]:
    """Begin and finish until all are finished; gives how often each step ran, as Redis has counted it."""
    done = set[str]()
    async with asyncio.timeout(60):
        while done != wanted:
            try:
                for turn in await durable.begin(SECOND, HOUR, limit=4):
                    workflow = turn.holder.workflow
                    count = LuaEffect("redis.call('INCR', KEYS[1]) return '1'", [durable.hash_key(workflow, workflow)])
                    await durable.checkpointer.transact(turn.holder, "step", count)
                    await durable.finish(turn, workflow)
                    done.add(workflow)
            except AWAY:
                await asyncio.sleep(0.1)
                for workflow in wanted - done:
                    try:
                        if await durable.result(workflow) is not None:
                            done.add(workflow)
                    except AWAY:
                        continue
    client = durable.checkpointer.connection.client
    return {workflow: int(await client.get(durable.hash_key(workflow, workflow)) or 0) for workflow in wanted}


async def test_workflows_spread_over_the_masters(durable: RedisDurable, own_redis_cluster: Cluster) -> None:
    """Forty workflows in six partitions use every master, and all are finished once. [DUR-BEGIN]"""
    wanted = set(_names())
    assert len({_owner(durable, own_redis_cluster, workflow).port for workflow in wanted}) >= 2
    for workflow in wanted:
        await durable.arrive(workflow, "input", 1)
    assert set((await _finish_all(durable, wanted)).values()) == {1}
    assert len(await durable.workflows(state="finished", limit=100)) == 40


async def test_a_master_fails_over_while_workflows_run(durable: RedisDurable, own_redis_cluster: Cluster) -> None:
    """Its workflows go on at its replica, which has no scripts; those of the others do not wait for it. [ANY-REPEAT]"""
    wanted = set(_names())
    for workflow in wanted:
        await durable.arrive(workflow, "input", 1)
    victim = _owner(durable, own_redis_cluster, "w0")
    working = asyncio.create_task(_finish_all(durable, wanted))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(victim.kill)
    counts = await working
    # A write may be acknowledged and lost with its master: then the workflow was finished from the records that were left.
    assert set(counts.values()) <= {0, 1}


async def test_workflows_elsewhere_go_on_while_a_shard_is_away(durable: RedisDurable, own_redis_cluster: Cluster) -> None:
    """With a shard wholly away, without its replica, everything else finishes. [DUR-BEGIN]"""
    wanted = set(_names())
    for workflow in wanted:
        await durable.arrive(workflow, "input", 1)
    client = durable.checkpointer.connection.client
    assert isinstance(client, RedisCluster)
    await client.config_set("cluster-require-full-coverage", "no", target_nodes=RedisCluster.ALL_NODES)
    victim = _owner(durable, own_redis_cluster, "w0")
    elsewhere = {workflow for workflow in wanted if _owner(durable, own_redis_cluster, workflow) is not victim}
    place = own_redis_cluster.masters.index(victim)
    for server in (own_redis_cluster.replicas[place], victim):
        await asyncio.to_thread(server.kill)
    assert 0 < len(elsewhere) < len(wanted)
    done = set[str]()
    async with asyncio.timeout(60):
        while done != elsewhere:
            for turn in await durable.begin(SECOND, HOUR, limit=4):
                await durable.finish(turn, 1)
                done.add(turn.holder.workflow)


async def test_a_slot_moves_while_workflows_run(durable: RedisDurable, own_redis_cluster: Cluster) -> None:
    """A half-migrated slot is tried again and never Fenced; every step is recorded once, in order. [CKP-RECORD-ONCE]"""
    await durable.arrive("w", "input", 1)
    source = _owner(durable, own_redis_cluster, "w")
    target = next(server for server in own_redis_cluster.masters if server is not source)
    (turn,) = await durable.begin(SECOND, HOUR)

    async def record() -> None:
        for number in range(60):
            await durable.checkpointer.record(turn.holder, f"k{number}", number)
            await asyncio.sleep(0.005)

    working = asyncio.create_task(record())
    await asyncio.to_thread(_move, own_redis_cluster, source, target, key_slot(durable.checkpointer.layout.of("w").records))
    async with asyncio.timeout(30):
        await working
    assert list(await durable.checkpointer.load("w")) == ["input", *(f"k{number}" for number in range(60))]
    assert (await durable.finish(turn, "done")).first
    assert _owner(durable, own_redis_cluster, "w") is target


def _move(cluster: Cluster, source: RedisServer, target: RedisServer, slot: int) -> None:
    """Move a slot key by key, as redis-cli does."""
    ids = {server: _text(server.call("CLUSTER", "MYID")) for server in (source, target)}
    target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, 1):
        assert isinstance(keys, list)
        key = keys[0]
        assert isinstance(key, bytes)
        source.call("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
    for server in (target, source, *cluster.masters):
        server.call("CLUSTER", "SETSLOT", slot, "NODE", ids[target])


def _text(reply: object) -> str:
    assert isinstance(reply, bytes)
    return reply.decode()


async def test_partitions_must_be_given(own_redis_cluster: Cluster) -> None:
    """On a cluster the number is a decision: 1 keeps everything on one node. Clients that read from replicas are refused."""
    async with RedisCluster.from_url(own_redis_cluster.url) as client:
        with pytest.raises(Misconfigured, match="partitions="):
            RedisDurable(client)
    async with RedisCluster.from_url(own_redis_cluster.url, load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN) as lagging:
        with pytest.raises(Misconfigured, match="replicas"):
            RedisCheckpointer(lagging)


async def test_another_node_answers_for_one_that_is_down(own_redis_cluster: Cluster, namespace: str) -> None:
    """A URL that names several nodes opens the store though the first of them is away."""
    await asyncio.to_thread(own_redis_cluster.replicas[0].kill)
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in (own_redis_cluster.replicas[0], *own_redis_cluster.masters))
    async with open(f"redis+cluster://{hosts}", namespace=namespace, partitions=3) as durable:
        for workflow in _names(6):
            assert (await durable.arrive(workflow, "input", 1)).first


async def test_a_bare_checkpointer_spreads_one_by_one(own_redis_cluster: Cluster, namespace: str) -> None:
    """With a scheduler beside it, it is a SplitDurable that works on a cluster. [DUR-SPLIT-ORDER]"""
    from durable_core.split import SplitDurable

    async with RedisCluster.from_url(own_redis_cluster.url) as client:
        checkpointer = RedisCheckpointer(client, namespace=namespace)
        scheduler = RedisScheduler(client, namespace=namespace, partitions=3)
        split = SplitDurable(checkpointer, scheduler)
        for workflow in _names(6):
            await split.arrive(workflow, "input", 1)
        done = set[str]()
        async with asyncio.timeout(20):
            while len(done) < 6:
                for turn in await split.begin(SECOND, HOUR):
                    await split.finish(turn, 1)
                    done.add(turn.holder.workflow)
        await scheduler.aclose()
        await checkpointer.aclose()
