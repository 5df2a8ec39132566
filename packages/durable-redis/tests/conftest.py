"""What the tests share: servers, clients, and stores in namespaces of their own."""

# pyright: reportUnusedImport=false, reportUnknownMemberType=false

import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from durable_conformance.servers import Address
from durable_conformance.servers.fixtures import (  # noqa: F401
    own_redis,
    own_redis_cluster,
    own_redis_replica,
    own_sentinel,
    shared_redis,
    shared_redis_cluster,
    shared_valkey,
)
from durable_core.contract import Pass
from durable_redis import RedisDurable, RedisStreamScheduler

HOUR = timedelta(hours=1)


@pytest.fixture
def namespace() -> str:
    """A namespace that nobody else uses."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Address:
    """The server that all share, or the test's own where it uses `own_redis`: for what counts, empties or configures it."""
    source = "own_redis" if "own_redis" in request.fixturenames else "shared_redis"
    given: Address = request.getfixturevalue(source)
    return given


@pytest.fixture
async def client(address: Address) -> AsyncIterator[Redis]:
    """The application's client."""
    async with Redis.from_url(address.url) as redis:
        yield redis


@pytest.fixture
async def durable(client: Redis, namespace: str) -> AsyncIterator[RedisDurable]:
    """A store on one node."""
    async with RedisDurable(client, namespace=namespace) as store:
        yield store


@pytest.fixture
async def streamed(client: Redis, namespace: str) -> AsyncIterator[RedisDurable]:
    """A store whose wakeups are in a stream."""
    async with RedisDurable(client, namespace=namespace, scheduler=RedisStreamScheduler) as store:
        yield store


@pytest.fixture
async def holder(durable: RedisDurable) -> Pass:
    """A pass of a workflow `w`."""
    granted = await durable.checkpointer.claim("w", HOUR, HOUR)
    assert granted is not None
    return granted
