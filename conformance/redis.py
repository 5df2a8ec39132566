"""The harnesses of durable-redis: on one node, on a cluster, through Sentinel, with every kind of client, and split."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.sentinel import Sentinel

from durable_conformance import Effects, Harness, Hook, Meter, Opening, Stores, Wire
from durable_conformance.proxy import Fault, Proxy
from durable_conformance.servers import Flavour, RedisServer, redis, redis_cluster, sentinel
from durable_core.contract import Durable
from durable_redis import LuaEffect, RedisCheckpointer, RedisDurable, RedisScheduler, RedisStreamScheduler

ADD = "redis.call('INCR', KEYS[1]) if ARGV[1] == 'nothing' then return end return ARGV[2]"
FAIL = "if ARGV[1] == 'later' then redis.call('INCR', KEYS[1]) end error('the effect failed')"


@asynccontextmanager
async def connected(url: str, cluster: bool, options: dict[str, object]) -> AsyncGenerator[Redis | RedisCluster]:
    """Give a client of the application's, and close it."""
    kind: type[Redis] | type[RedisCluster] = RedisCluster if cluster else Redis
    client = kind.from_url(url, **options)  # type: ignore[arg-type] # pyright: ignore
    try:
        yield client
    finally:
        await client.aclose()


class RedisEffects(Effects[LuaEffect]):
    """Effects on counters in the workflow's slot."""

    def __init__(self, harness: RedisHarness, at: Opening) -> None:
        self._harness, self._at = harness, at

    def _key(self, counter: str) -> str:
        return f"{{{self._at.name}}}/{counter}"

    def add(self, counter: str, gives: object, /) -> LuaEffect | None:
        from durable_core.codec import JsonCodec

        kind = "nothing" if gives is None else "text"
        return LuaEffect(ADD, [self._key(counter)], [kind, JsonCodec().encode(gives)])

    def fail(self, counter: str, /, *, first: bool) -> LuaEffect:
        return LuaEffect(FAIL, [self._key(counter)], ["at once" if first else "later"])

    async def applied(self, counter: str, /) -> int:
        return int(await self._harness.observer.get(self._key(counter)) or 0)


@dataclass
class LossyWire:
    """The store behind a proxy that loses replies."""

    stores: object
    proxy: Proxy
    faults: list[Fault]

    def lose_reply(self) -> None:
        self.faults.append(self.proxy.lose_reply(b"EVAL"))

    @property
    def lost(self) -> int:
        return sum(fault.struck for fault in self.faults)


class RedisMeter:
    """Counts the commands of servers: `asked` those that were sent, `touched` also those inside scripts."""

    def __init__(self, *servers: RedisServer) -> None:
        self._servers = servers
        self._began = self._read()

    def _read(self) -> tuple[int, int]:
        asked, touched = zip(*map(self._count, self._servers), strict=True)
        return sum(asked), sum(touched)

    def _count(self, server: RedisServer) -> tuple[int, int]:
        stats = server.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): int(said.split(",")[0].removeprefix("calls=")) for name, said in stats.items()}
        sent = sum(calls.get(name, 0) for name in ("eval", "evalsha", "blpop"))
        return sent, sum(count for name, count in calls.items() if name not in ("info", "client|setinfo", "hello"))

    @property
    def asked(self) -> int:
        return self._read()[0] - self._began[0]

    @property
    def touched(self) -> int:
        return self._read()[1] - self._began[1]


class RedisHarness(Harness[LuaEffect]):
    """A `RedisDurable` in a namespace of the case's own, on a Redis 8 that keeps everything."""

    name: ClassVar[str] = "Redis"
    offers: ClassVar[frozenset[Hook]] = frozenset(
        {"codec", "queues", "retention", "effects", "restart", "processes", "kill", "loss", "wire", "meter", "skew"}
    )
    lacks: ClassVar[Mapping[Hook, str]] = {
        "clock": "its clock is the server's",
        "joined": "a transaction of Redis gives nothing back before its end",
        "halves": "it makes its halves itself, on one client",
    }
    window = timedelta(milliseconds=500)
    cluster: ClassVar[bool] = False
    partitions: ClassVar[int] = 1
    options: ClassVar[dict[str, object]] = {}
    scheduler: ClassVar[type[RedisScheduler]] = RedisScheduler
    declared: ClassVar[bool] = False

    def server(self) -> AbstractContextManager[RedisServer]:
        """Give the server of a run."""
        return redis("redis")

    def start(self) -> str:
        self._exits = ExitStack()
        self._server = self._exits.enter_context(self.server())
        return self._server.url

    def stop(self) -> None:
        self._exits.close()

    @asynccontextmanager
    async def connected(self, at: Opening, options: dict[str, object]) -> AsyncGenerator[Redis | RedisCluster]:
        """Give a client of the application's, and close it."""
        async with connected(at.address, self.cluster, options) as client:
            yield client

    @asynccontextmanager
    async def open(self, at: Opening, /) -> AsyncGenerator[Stores[LuaEffect]]:
        async with self.connected(at, self.options) as client, self.connected(at, {}) as self.observer:
            async with self.built(client, at) as durable:
                yield durable

    def built(self, client: Redis | RedisCluster, at: Opening) -> RedisDurable:
        """Give an instance on the case's namespace."""
        return RedisDurable(
            client,
            namespace=at.name,
            partitions=self.partitions,
            queue=at.queue,
            lease=at.lease,
            codec=at.codec,
            retention=at.retention,
            scheduler=self.scheduler,
            declared=self.declared,
        )

    def effects(self, at: Opening, /) -> RedisEffects:
        return RedisEffects(self, at)

    async def restart(self, at: Opening, /) -> None:
        await asyncio.to_thread(self._server.restart)

    async def kill(self, at: Opening, /) -> None:
        await asyncio.to_thread(self._killed)

    def _killed(self) -> None:
        self._server.kill()
        self._server.start()

    async def lose_claim(self, at: Opening, workflow: str, /) -> None:
        await self.observer.delete(self.claim_key(at, workflow))

    def claim_key(self, at: Opening, workflow: str) -> bytes:
        """Give where the claim of a workflow is."""
        from durable_redis.keys import Partitioned

        return Partitioned(at.name, self.partitions).of(workflow).claim

    @asynccontextmanager
    async def wire(self, at: Opening, /) -> AsyncGenerator[Wire]:
        with Proxy(at.address) as proxy:
            async with connected(proxy.url, self.cluster, self.options) as client, self.built(client, at) as durable:
                yield LossyWire(durable, proxy, [])

    @asynccontextmanager
    async def meter(self, at: Opening, stores: Durable[LuaEffect], /) -> AsyncGenerator[Meter]:
        yield RedisMeter(self._server)


class ValkeyHarness(RedisHarness):
    """The same on a Valkey."""

    name = "Valkey"

    def server(self) -> AbstractContextManager[RedisServer]:
        return redis("valkey")


class DecodingRedisHarness(RedisHarness):
    """A client that decodes replies, over RESP2."""

    name = "Redis, decoding, RESP2"
    options: ClassVar[dict[str, object]] = {"decode_responses": True, "protocol": 2}


class RawRedisHarness(RedisHarness):
    """A client that does not decode, over RESP3, without redis-py's older shapes of replies."""

    name = "Redis, RESP3"
    options: ClassVar[dict[str, object]] = {"decode_responses": False, "protocol": 3}


class RedisStreamHarness(RedisHarness):
    """The wakeups in a stream."""

    name = "Redis, stream"
    scheduler = RedisStreamScheduler


class DeclaredRedisHarness(RedisHarness):
    """No script touches a key that its call did not declare, as for a service that refuses it."""

    name = "Redis, declared keys"
    declared = True


class DeclaredStreamHarness(RedisStreamHarness):
    """The same with the wakeups in a stream."""

    name = "Redis, stream, declared keys"
    declared = True


class SplitRedisHarness(RedisHarness):
    """A bare checkpointer and a bare scheduler, as a stranger would give them: the kit puts them together."""

    name = "Redis, split"
    offers = RedisHarness.offers - {"retention", "effects"}
    lacks: ClassVar[Mapping[Hook, str]] = {
        "clock": RedisHarness.lacks["clock"],
        "joined": RedisHarness.lacks["joined"],
        "halves": "these are halves: there is nothing to refuse",
        "retention": "the time to live is set where a workflow finishes, which the halves by themselves do not do",
        "effects": "the counters of the kit are not in the slots of its workflows, each of which has its own",
    }

    @asynccontextmanager
    async def open(self, at: Opening, /) -> AsyncGenerator[Stores[LuaEffect]]:
        async with self.connected(at, self.options) as client, self.connected(at, {}) as self.observer:
            async with self._halves(client, at) as halves:
                yield halves

    @asynccontextmanager
    async def _halves(
        self, client: Redis | RedisCluster, at: Opening
    ) -> AsyncGenerator[tuple[RedisCheckpointer, RedisScheduler]]:
        checkpointer = RedisCheckpointer(client, namespace=at.name, codec=at.codec)
        scheduler = RedisScheduler(client, namespace=at.name, queue=at.queue, lease=at.lease)
        try:
            yield checkpointer, scheduler
        finally:
            await scheduler.aclose()
            await checkpointer.aclose()

    @asynccontextmanager
    async def wire(self, at: Opening, /) -> AsyncGenerator[Wire]:
        with Proxy(at.address) as proxy:
            async with connected(proxy.url, self.cluster, self.options) as client, self._halves(client, at) as halves:
                yield LossyWire(halves, proxy, [])

    def claim_key(self, at: Opening, workflow: str) -> bytes:
        from durable_redis.keys import Tagged

        return Tagged(at.name).of(workflow).claim


class RedisClusterHarness(RedisHarness):
    """A `RedisDurable` in one slot of a cluster of three masters and three replicas."""

    name = "Redis Cluster"
    cluster = True
    flavour: ClassVar[Flavour] = "redis"
    offers = RedisHarness.offers

    def start(self) -> str:
        self._exits = ExitStack()
        self._cluster = self._exits.enter_context(redis_cluster(self.flavour))
        return self._cluster.url

    async def restart(self, at: Opening, /) -> None:
        await asyncio.to_thread(self._away, [node.stop for node in self._cluster.nodes])

    async def kill(self, at: Opening, /) -> None:
        await asyncio.to_thread(self._away, [node.kill for node in self._cluster.nodes])

    def _away(self, ends: Sequence[Callable[[], None]]) -> None:
        """End all nodes, and start them again: nobody is left to take over from another."""
        for end in ends:
            end()
        for node in self._cluster.nodes:
            node.start()
        self._cluster.wait_until_whole()

    @asynccontextmanager
    async def wire(self, at: Opening, /) -> AsyncGenerator[Wire]:
        owner = self._cluster.owner(f"{{{at.name}}}")
        with Proxy(owner.url) as proxy:

            def through(address: tuple[str, int]) -> tuple[str, int]:
                return ("127.0.0.1", proxy.port) if address[1] == owner.port else address

            options = {**self.options, "address_remap": through}
            async with connected(at.address, True, options) as client, self.built(client, at) as durable:
                yield LossyWire(durable, proxy, [])

    @asynccontextmanager
    async def meter(self, at: Opening, stores: Durable[LuaEffect], /) -> AsyncGenerator[Meter]:
        yield RedisMeter(*self._cluster.masters)


class ValkeyClusterHarness(RedisClusterHarness):
    """The same on a cluster of Valkeys."""

    name = "Valkey Cluster"
    flavour = "valkey"


class PartitionedRedisHarness(RedisClusterHarness):
    """Seven partitions on that cluster. The kit's counters are not in its workflows' partitions, so it has no effects here."""

    name = "Redis Cluster, 7 partitions"
    partitions = 7
    offers = RedisClusterHarness.offers - {"effects", "wire"}
    lacks: ClassVar[Mapping[Hook, str]] = {
        **RedisHarness.lacks,
        "effects": "the counters of the kit are not in the partitions of its workflows; with one partition they are",
        "wire": "a call goes to one of three nodes, and the kit knows not to which; with one partition it does",
    }


class SentinelRedisHarness(RedisHarness):
    """A client that asks sentinels who the primary is."""

    name = "Redis through Sentinel"
    offers = RedisHarness.offers - {"restart", "kill", "wire"}
    lacks: ClassVar[Mapping[Hook, str]] = {
        **RedisHarness.lacks,
        "restart": "a primary that goes is followed by its replica, which may lack what was acknowledged last",
        "kill": "a primary that goes is followed by its replica, which may lack what was acknowledged last",
        "wire": "sentinels say where the primary is; the connection to it is the one of the harness without them",
    }

    def start(self) -> str:
        self._exits = ExitStack()
        watched = self._exits.enter_context(sentinel("redis"))
        self._server = watched.primary
        return f"{watched.name} {' '.join(str(port) for _, port in watched.addresses)}"

    @asynccontextmanager
    async def connected(self, at: Opening, options: dict[str, object]) -> AsyncGenerator[Redis | RedisCluster]:
        name, *ports = at.address.split()
        sentinels = Sentinel([("127.0.0.1", int(port)) for port in ports])  # type: ignore[no-untyped-call]
        client: Redis = sentinels.master_for(name)  # pyright: ignore[reportUnknownMemberType]
        try:
            yield client
        finally:
            for one in (client, *sentinels.sentinels):
                await one.aclose()
