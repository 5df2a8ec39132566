"""A corner of a shared server for one test: an empty database, or a prefix that no key has."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from durable_conformance.servers._cluster import Cluster, master_urls
from durable_conformance.servers._pgwire import query
from durable_conformance.servers._postgres import PostgresServer
from durable_conformance.servers._redis import RedisServer
from durable_conformance.servers._resp import delete_keys
from durable_conformance.servers._server import Address


@contextmanager
def fresh_database(server: Address | PostgresServer) -> Generator[str]:
    """Creates an empty database, gives its URL, and drops it with whoever is still connected.

    Raises:
        QueryError: the URL's user may not create databases.
        OSError: the server does not answer.
    """
    name = f"durable_test_{secrets.token_hex(8)}"
    query(server.url, f'CREATE DATABASE "{name}" TEMPLATE template0')
    try:
        yield urlsplit(server.url)._replace(path=f"/{name}").geturl()
    finally:
        with suppress(OSError):  # the test may have killed it
            query(server.url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextmanager
def fresh_namespace(server: Address | RedisServer | Cluster) -> Generator[str]:
    """Gives a prefix that no key has, and in the end deletes the keys that begin with it, on every master of a cluster."""
    prefix = f"durable-test-{secrets.token_hex(8)}:"
    try:
        yield prefix
    finally:
        with suppress(OSError):  # the test may have killed it
            for url in master_urls(server.url) if server.kind.endswith("-cluster") else [server.url]:
                delete_keys(url, prefix)
