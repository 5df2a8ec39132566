"""Real servers for tests: found, started, put in trouble, and gone when the tests are, however those end.

A server comes from the first of these that is there: the path in `DURABLE_TEST_<KIND>_BIN`, a wheel, the PATH, a Docker engine
with testcontainers. Where none is, `NoServer` says what to install. `shared` gives one server to all processes of a test run, and
takes the one at `DURABLE_TEST_<KIND>_URL` before any other; the rest give servers of one's own, which can be killed and paused.

    python -m durable_conformance.servers      shows what would be used, and from where

For Linux and macOS. No client library is needed.
"""

from durable_conformance.servers._cluster import Cluster, redis_cluster
from durable_conformance.servers._find import KINDS, Binary, Image, Kind, NoServer, Program, find, may_be_missing
from durable_conformance.servers._fresh import fresh_database, fresh_namespace
from durable_conformance.servers._pgbouncer import PgBouncerServer, PoolMode, pgbouncer
from durable_conformance.servers._pgwire import QueryError
from durable_conformance.servers._ports import free_port, free_ports
from durable_conformance.servers._postgres import PostgresServer, postgres
from durable_conformance.servers._redis import (
    Flavour,
    Fsync,
    RedisServer,
    Replicated,
    Watched,
    redis,
    redis_replica,
    sentinel,
)
from durable_conformance.servers._resp import Reply, ReplyError, Resp
from durable_conformance.servers._server import Address, Server
from durable_conformance.servers._share import SHAREABLE, Shareable, given, shared
from durable_conformance.servers._units import DidNotStart

__all__ = [
    "KINDS",
    "SHAREABLE",
    "Address",
    "Binary",
    "Cluster",
    "DidNotStart",
    "Flavour",
    "Fsync",
    "Image",
    "Kind",
    "NoServer",
    "PgBouncerServer",
    "PoolMode",
    "PostgresServer",
    "Program",
    "QueryError",
    "RedisServer",
    "Replicated",
    "Reply",
    "ReplyError",
    "Resp",
    "Server",
    "Shareable",
    "Watched",
    "find",
    "free_port",
    "free_ports",
    "fresh_database",
    "fresh_namespace",
    "given",
    "may_be_missing",
    "pgbouncer",
    "postgres",
    "redis",
    "redis_cluster",
    "redis_replica",
    "sentinel",
    "shared",
]
