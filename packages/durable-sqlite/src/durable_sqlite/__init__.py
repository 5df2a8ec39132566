"""Durable workflows on SQLite."""

from __future__ import annotations

from datetime import timedelta

from durable_core.errors import Misconfigured
from durable_sqlite._coding import SqliteCodec
from durable_sqlite.checkpointer import SqliteCheckpointer
from durable_sqlite.connection import BUSY_TIMEOUT, SqliteConnection, Synchronous
from durable_sqlite.durable import SqliteDurable
from durable_sqlite.effect import EffectCursor, SqliteEffect
from durable_sqlite.scheduler import LEASE, SqliteScheduler

__all__ = ["EffectCursor", "SqliteCheckpointer", "SqliteConnection", "SqliteDurable", "SqliteEffect", "SqliteScheduler", "open"]


def open(
    url: str,
    *,
    queue: str = "default",
    lease: timedelta = LEASE,
    codec: SqliteCodec | None = None,
    synchronous: Synchronous = "FULL",
    busy_timeout: timedelta = BUSY_TIMEOUT,
    create: bool = True,
) -> SqliteDurable:
    """Give the store at a URL: `async with durable_sqlite.open("sqlite:///shop.db") as durable: …`.

    Three slashes begin a relative path, four an absolute one; what is special in a URL is percent-encoded. See `SqliteConnection`
    for the options. Raises: `Misconfigured` for a URL that names no file.
    """
    path = _path_of(url)
    return SqliteDurable.at(
        path, queue=queue, lease=lease, codec=codec, synchronous=synchronous, busy_timeout=busy_timeout, create=create
    )


def _path_of(url: str) -> str:
    from urllib.parse import unquote, urlsplit  # only whoever has a URL pays for its import

    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc or parts.query or parts.fragment:
        raise Misconfigured(f"{url!r} is not sqlite:///relative/path or sqlite:////absolute/path, and options are keywords")
    path = unquote(parts.path).removeprefix("/")
    if not path or path == ":memory:":
        raise Misconfigured(f"{url!r} names no file: for a store in memory take durable_core.memory.MemoryDurable")
    return path
