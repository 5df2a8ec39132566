"""What the server is, and what that means for what was promised. [DUR-DESCRIBE]"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from redis.exceptions import NoPermissionError, ResponseError

from durable_core.contract import Description, Word
from durable_core.errors import Misconfigured
from durable_redis._coding import Reply, parts


class _Asked(Protocol):
    async def ask(self, *command: str) -> Reply: ...


async def check_server(connection: _Asked, *, retention: bool = False, evictions: bool = False) -> None:
    """Refuse a server that may forget by itself what it was told. Raises: `Misconfigured`."""
    policy = (await _config(connection, "maxmemory-policy")).get("maxmemory-policy", "noeviction")
    harmless = policy == "noeviction" or (policy.startswith("volatile-") and not retention)
    if not harmless and not evictions:
        raise Misconfigured(
            f"the server's maxmemory-policy is {policy}: under pressure it would drop records, claims and wakeups. Set it to "
            "noeviction, or open the store with evictions=True if you accept that workflows are forgotten"
        )


async def describe(
    connection: _Asked, *, lists: bool, co_commits: bool, poll: timedelta = timedelta(0), flushed: bool = False
) -> Description:
    """Ask the server, and say what that means."""
    said = await _info(connection)
    config = await _config(connection, "append*")
    return Description(
        product="Valkey" if "valkey_version" in said else "Redis",
        version=said.get("valkey_version", said.get("redis_version", "unknown")),
        # What is acknowledged with `flushed` is on the disk: without an append-only file nothing is acknowledged.
        survives_kill="yes" if flushed else _survives_kill(said, config),
        survives_power_cut="yes" if flushed else _survives_power_cut(said, config),
        # Replicas hear of a write after it was acknowledged, and WAIT does not take back what a failover has dropped.
        survives_failover="no",
        transacts=True,
        undoes=False,
        interleaves=False,
        co_commits=co_commits,
        joins=False,
        lists=lists,
        poll=poll,
    )


def _survives_kill(said: Mapping[str, str], config: Mapping[str, str]) -> Word:
    kept, fsync = _is_kept(said, config), config.get("appendfsync")
    if kept != "yes":
        return kept
    # With everysec the server holds writes back in its own memory, for up to two seconds, while the last flush is not over.
    return "unknown" if fsync is None else "no" if fsync == "everysec" else "yes"


def _survives_power_cut(said: Mapping[str, str], config: Mapping[str, str]) -> Word:
    kept, fsync = _is_kept(said, config), config.get("appendfsync")
    if kept != "yes":
        return kept
    return "unknown" if fsync is None else "yes" if fsync == "always" else "no"


def _is_kept(said: Mapping[str, str], config: Mapping[str, str]) -> Word:
    enabled = said.get("aof_enabled", {"yes": "1", "no": "0"}.get(config.get("appendonly", ""), ""))
    return {"1": "yes", "0": "no"}.get(enabled, "unknown")  # type: ignore[return-value] # pyright: ignore[reportReturnType]


async def _info(connection: _Asked) -> dict[str, str]:
    try:
        reply = await connection.ask("INFO")
    except (NoPermissionError, ResponseError):
        return {}
    if isinstance(reply, bytes):
        return dict(line.split(":", 1) for line in reply.decode(errors="replace").splitlines() if ":" in line)
    flat = [str(part) for part in parts(reply)]  # redis-py has parsed it
    return dict(zip(flat[::2], flat[1::2], strict=False))


async def _config(connection: _Asked, pattern: str) -> dict[str, str]:
    try:
        reply = await connection.ask("CONFIG", "GET", pattern)
    except (NoPermissionError, ResponseError):
        return {}
    flat = [part.decode() if isinstance(part, bytes) else str(part) for part in parts(reply)]
    return dict(zip(flat[::2], flat[1::2], strict=False))
