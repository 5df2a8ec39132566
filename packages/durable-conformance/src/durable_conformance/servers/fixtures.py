"""Servers as pytest fixtures: `pytest_plugins = ["durable_conformance.servers.fixtures"]` in the outermost conftest.py.

Where a server is missing, its tests fail and say what to install. They are skipped only when `DURABLE_TEST_ALLOW_MISSING` names
the kind, as in `DURABLE_TEST_ALLOW_MISSING=redis,pgbouncer`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import pytest

from durable_conformance import servers

__all__ = [
    "or_say_so",
    "own_postgres",
    "own_redis",
    "own_redis_cluster",
    "own_redis_replica",
    "own_sentinel",
    "own_valkey",
    "postgres_database",
    "shared_postgres",
    "shared_redis",
    "shared_redis_cluster",
    "shared_valkey",
    "shared_valkey_cluster",
]

_T = TypeVar("_T")


@contextmanager
def or_say_so(server: AbstractContextManager[_T]) -> Generator[_T]:
    """Enters it, for fixtures of your own: a missing server fails the test, or skips it where that was asked for."""
    try:
        entered = server.__enter__()
    except servers.NoServer as missing:
        if servers.may_be_missing(missing.kind):
            pytest.skip(f"DURABLE_TEST_ALLOW_MISSING names {missing.kind}, and there is none")
        pytest.fail(str(missing), pytrace=False)
    try:
        yield entered
    finally:
        server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[servers.Address]:
    """A Postgres that all tests of the run share. Use `postgres_database` to have a corner of it."""
    with or_say_so(servers.shared("postgres")) as address:
        yield address


@pytest.fixture
def postgres_database(shared_postgres: servers.Address) -> Iterator[str]:
    """The URL of an empty database on the shared Postgres, dropped afterwards."""
    with servers.fresh_database(shared_postgres) as url:
        yield url


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[servers.Address]:
    """A Redis that all tests of the run share."""
    with or_say_so(servers.shared("redis")) as address:
        yield address


@pytest.fixture(scope="session")
def shared_valkey() -> Iterator[servers.Address]:
    """A Valkey that all tests of the run share."""
    with or_say_so(servers.shared("valkey")) as address:
        yield address


@pytest.fixture(scope="session")
def shared_redis_cluster() -> Iterator[servers.Address]:
    """A cluster of Redis servers, three masters and three replicas, that all tests of the run share."""
    with or_say_so(servers.shared("redis-cluster")) as address:
        yield address


@pytest.fixture(scope="session")
def shared_valkey_cluster() -> Iterator[servers.Address]:
    """A cluster of Valkey servers, three masters and three replicas, that all tests of the run share."""
    with or_say_so(servers.shared("valkey-cluster")) as address:
        yield address


@pytest.fixture
def own_postgres() -> Iterator[servers.PostgresServer]:
    """A Postgres for one test, to be killed at will."""
    with or_say_so(servers.postgres()) as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[servers.RedisServer]:
    """A Redis for one test, to be killed at will."""
    with or_say_so(servers.redis("redis")) as server:
        yield server


@pytest.fixture
def own_valkey() -> Iterator[servers.RedisServer]:
    """A Valkey for one test, to be killed at will."""
    with or_say_so(servers.redis("valkey")) as server:
        yield server


@pytest.fixture
def own_redis_replica() -> Iterator[servers.Replicated]:
    """A primary and its replica for one test, Redis or Valkey."""
    with or_say_so(servers.redis_replica()) as replicated:
        yield replicated


@pytest.fixture
def own_sentinel() -> Iterator[servers.Watched]:
    """A primary, its replica and three sentinels for one test, Redis or Valkey."""
    with or_say_so(servers.sentinel()) as watched:
        yield watched


@pytest.fixture
def own_redis_cluster() -> Iterator[servers.Cluster]:
    """A cluster of three masters and three replicas for one test, Redis or Valkey."""
    with or_say_so(servers.redis_cluster()) as cluster:
        yield cluster
