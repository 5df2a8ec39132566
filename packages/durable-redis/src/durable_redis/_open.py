"""A store from a URL: one node, a cluster, or whatever the sentinels say is the primary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.sentinel import Sentinel

from durable_core.errors import Misconfigured
from durable_redis._coding import RedisCodec
from durable_redis._wire import Client
from durable_redis.durable import Closable, RedisDurable
from durable_redis.sorted_set import LEASE, RedisScheduler
from durable_redis.stream import RedisStreamScheduler


def open(
    url: str,
    *,
    queue: str = "default",
    lease: timedelta = LEASE,
    codec: RedisCodec | None = None,
    namespace: str = "durable",
    partitions: int | None = None,
    retention: timedelta | None = None,
    replicas: int = 0,
    flushed: bool = False,
    stream: bool = False,
    evictions: bool = False,
    declared: bool = False,
) -> RedisDurable:
    """Give the store at a URL: `async with durable_redis.open("redis://localhost") as durable: …`.

    `redis://` and `rediss://` (with TLS) are one node, `redis+cluster://host,host` and `rediss+cluster://` some nodes
    of a cluster (which takes `partitions`), `redis+sentinel://host,host/primary/0` the primary that these sentinels name,
    database 0; `rediss+sentinel://` speaks TLS with it. What follows a `?` goes to redis-py. `stream` takes
    `RedisStreamScheduler`. See `RedisDurable` for the others.

    Raises: `Misconfigured` for another URL.
    """
    scheme = urlsplit(url).scheme
    made = _MAKERS.get(scheme)
    if made is None:
        raise Misconfigured(f"{scheme}:// is none of {', '.join(sorted(_MAKERS))}")
    client, also = made(url)
    kind: type[RedisScheduler] = RedisStreamScheduler if stream else RedisScheduler
    durable = RedisDurable(
        client,
        namespace=namespace,
        partitions=partitions,
        queue=queue,
        lease=lease,
        codec=codec,
        retention=retention,
        replicas=replicas,
        flushed=flushed,
        scheduler=kind,
        evictions=evictions,
        declared=declared,
    )
    durable.owns(client, *also)
    return durable


def _one(url: str) -> tuple[Client, Sequence[Closable]]:
    return Redis.from_url(url), ()  # pyright: ignore[reportUnknownMemberType]


def _cluster(url: str) -> tuple[Client, Sequence[Closable]]:
    parts = urlsplit(url.replace("+cluster", "", 1))
    login, at, hosts = parts.netloc.rpartition("@")
    first, *others = hosts.split(",")
    nodes = [ClusterNode(*_address(host, 6379)) for host in others]  # which take the options of the first one
    return RedisCluster.from_url(parts._replace(netloc=login + at + first).geturl(), startup_nodes=nodes), ()


def _sentinel(url: str) -> tuple[Client, Sequence[Closable]]:
    parts = urlsplit(url)
    place, (name, _, database) = parts.netloc, parts.path.strip("/").partition("/")
    login, _, hosts = place.rpartition("@")
    if not hosts or not name or (database and not database.isdigit()):
        raise Misconfigured(f"{url!r} is not redis+sentinel://host:port,host:port/primary or …/primary/database")
    user, _, password = login.partition(":")
    sentinel = Sentinel([_address(host, 26_379) for host in hosts.split(",")])  # type: ignore[no-untyped-call]
    client = sentinel.master_for(  # pyright: ignore[reportUnknownMemberType]
        unquote(name),
        db=int(database or 0),
        username=unquote(user) or None,
        password=unquote(password) or None,
        ssl=parts.scheme.startswith("rediss"),
    )
    return client, sentinel.sentinels


def _address(host: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    return parts.hostname or "", parts.port or port


_MAKERS: dict[str, Callable[[str], tuple[Client, Sequence[Closable]]]] = {
    "redis": _one,
    "rediss": _one,
    "unix": _one,
    "redis+cluster": _cluster,
    "rediss+cluster": _cluster,
    "redis+sentinel": _sentinel,
    "rediss+sentinel": _sentinel,
}
