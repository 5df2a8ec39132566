"""A Redis or Valkey of one's own: alone, with a replica, or watched by sentinels."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from durable_conformance.servers._docker import Container
from durable_conformance.servers._find import Image, Kind, NoServer, Program, find
from durable_conformance.servers._proxy import Proxy
from durable_conformance.servers._resp import Reply, ReplyError, call, info
from durable_conformance.servers._server import Server, start_on_free_port, wait_until
from durable_conformance.servers._units import Keeper, Process, Unit, own_keeper

Flavour = Literal["redis", "valkey"]
Fsync = Literal["always", "everysec", "no"]

_CONFIG = {"bind": "127.0.0.1", "protected-mode": "no", "save": "", "daemonize": "no"}
_SENTINELS = 3
_WATCHED = "durable"


class RedisServer(Server):
    """A Redis or Valkey server without a password."""

    def call(self, *arguments: str | bytes | int) -> Reply:
        """Sends one command on a connection of its own, and returns the answer as it is on the wire.

        Raises:
            ReplyError: the answer is an error.
            OSError: it is not running.
        """
        return call(self.url, *arguments)

    def info(self, section: str) -> dict[str, str]:
        """A section of what `INFO` says."""
        return info(self.url, section)

    def _version(self) -> str:
        return version_of(self.url)

    def _answers(self) -> bool:
        try:
            self.call("PING")  # which is refused while it loads its data; INFO is not
            pid = self.info("server").get("process_id")
        except (OSError, ReplyError):
            return False
        if pids := self.pids:
            return str(pids[0]) == pid
        # A container: its processes are not ours to see. One that did not get the port does not say this.
        return self.running and bool(re.search("Ready to accept connections|Sentinel ID is", self._unit.log()))


def version_of(url: str) -> str:
    """The version that a server says it is; a Valkey also says which Redis it stands in for."""
    said = info(url, "server")
    return said.get("valkey_version") or said["redis_version"]


def find_redis(flavour: Flavour | None) -> Program:
    """What to start one from: of this flavour, or a Redis before a Valkey.

    Raises:
        NoServer: there is none.
    """
    if flavour is not None:
        return find(flavour)
    try:
        return find("redis")
    except NoServer as error:
        try:
            return find("valkey")
        except NoServer:
            raise error from None


def persistence(*, appendonly: bool, appendfsync: Fsync) -> dict[str, str]:
    """The configuration of the append-only file."""
    return {"appendonly": "yes" if appendonly else "no", "appendfsync": appendfsync}


@contextmanager
def redis(
    flavour: Flavour | None = None,
    *,
    appendonly: bool = True,
    appendfsync: Fsync = "always",
    maxmemory: str | None = None,
    maxmemory_policy: str = "noeviction",
    config: Mapping[str, str] | None = None,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Generator[RedisServer]:
    """Gives a Redis or a Valkey of one's own, and ends it.

    Args:
        flavour: which of the two; a Redis before a Valkey, whichever is there, otherwise.
        appendonly: whether it keeps what it is told.
        appendfsync: when it flushes that: before it answers, every second, or when the system likes.
        maxmemory: its limit, such as `10mb`.
        maxmemory_policy: what it does at the limit.
        config: more of redis.conf. It wins over the arguments.
        folder: where its data shall be, on a disk of your choice. A temporary folder otherwise.
        env: variables for its process, such as `LD_PRELOAD`.

    Raises:
        NoServer: there is nothing to start it from.
        DidNotStart: it was found and does not start.
    """
    asked = {
        **persistence(appendonly=appendonly, appendfsync=appendfsync),
        "maxmemory-policy": maxmemory_policy,
        **({"maxmemory": maxmemory} if maxmemory else {}),
        **(config or {}),
    }
    with start_redis(own_keeper(), find_redis(flavour), config=asked, folder=folder, env=env) as server:
        yield server


def start_redis(
    keeper: Keeper,
    program: Program,
    *,
    config: Mapping[str, str],
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> RedisServer:
    """Starts a server that lives until it is removed, or its keeper goes."""

    return start_on_free_port(lambda port: make_redis(port, keeper, program, config, folder, env or {}))


def make_redis(
    port: int, keeper: Keeper, program: Program, config: Mapping[str, str], folder: Path | None, env: Mapping[str, str]
) -> RedisServer:
    """Makes a server without starting it.

    Raises:
        ValueError: the configuration names a port; the server's URL would be wrong.
    """
    if "port" in config:
        raise ValueError("the port is chosen when the server is started, and kept: see `Server.port`")
    settings = {**_CONFIG, "port": str(port), **config}
    flags = [flag for name, value in settings.items() for flag in (f"--{name}", value)]
    unit = _unit(keeper, program, flags, folder, env)
    return RedisServer(program.kind, f"redis://127.0.0.1:{port}/0", program.origin, unit, config)


def _unit(keeper: Keeper, program: Program, flags: list[str], folder: Path | None, env: Mapping[str, str]) -> Unit:
    if folder is not None and isinstance(program, Image):
        raise NoServer(program.kind, (f"{program.origin}: its data would not be in the folder that was asked for",))
    if isinstance(program, Image):
        return Container(program.name, [_executable(program.kind), *flags], env)
    home = keeper.make_folder(program.kind, folder)
    return Process(keeper, [str(program.path), *flags, "--dir", str(home)], home, env)


def _executable(kind: Kind) -> str:
    return f"{kind}-server"


@dataclass(frozen=True, slots=True)
class Replicated:
    """A primary and its replica, which hears from it through a proxy: cut or freeze the link to part them."""

    primary: RedisServer
    replica: RedisServer
    link: Proxy

    def wait_until_in_sync(self) -> None:
        """Returns once the replica has everything the primary had when this was called.

        Raises:
            TimeoutError: that did not come about.
        """
        wanted = int(self.primary.info("replication")["master_repl_offset"])

        def caught_up() -> bool:
            said = self.replica.info("replication")
            return said.get("master_link_status") == "up" and int(said.get("slave_repl_offset", "-1")) >= wanted

        wait_until(caught_up, f"{self.replica!r} in sync")

    def promote(self) -> None:
        """Makes the replica a primary, whatever it has or has not heard."""
        self.replica.call("REPLICAOF", "NO", "ONE")


@contextmanager
def redis_replica(flavour: Flavour | None = None, *, config: Mapping[str, str] | None = None) -> Generator[Replicated]:
    """Gives a primary with a replica that is in sync, and ends both.

    Args:
        flavour: Redis or Valkey.
        config: more of redis.conf, for both, such as `{"min-replicas-to-write": "1"}`.

    Raises:
        NoServer: there is nothing to start them from.
        DidNotStart: it was found and does not start.
    """
    program, keeper = find_redis(flavour), own_keeper()
    both = {**persistence(appendonly=True, appendfsync="always"), "repl-diskless-sync-delay": "0", **(config or {})}
    with ExitStack() as stack:
        primary = stack.enter_context(start_redis(keeper, program, config=both))
        link = stack.enter_context(Proxy(primary.url))
        follow = {"replicaof": f"127.0.0.1 {link.port}", **both}
        replicated = Replicated(primary, stack.enter_context(start_redis(keeper, program, config=follow)), link)
        replicated.wait_until_in_sync()
        yield replicated


@dataclass(frozen=True, slots=True)
class Watched:
    """A primary and its replica, and the sentinels that promote the replica when the primary is gone.

    Args:
        name: what the sentinels call the pair.
    """

    name: str
    primary: RedisServer
    replica: RedisServer
    sentinels: tuple[RedisServer, ...]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each sentinel, as clients want them."""
        return [("127.0.0.1", sentinel.port) for sentinel in self.sentinels]


@contextmanager
def sentinel(flavour: Flavour | None = None, *, down_after_ms: int = 500) -> Generator[Watched]:
    """Gives a primary, a replica and three sentinels that know one another, and ends them all.

    Args:
        flavour: Redis or Valkey.
        down_after_ms: after how many milliseconds of silence the primary counts as gone.

    Raises:
        NoServer: there is nothing to start them from.
        DidNotStart: it was found and does not start.
    """
    program, keeper = find_redis(flavour), own_keeper()
    both = {**persistence(appendonly=True, appendfsync="always"), "repl-diskless-sync-delay": "0"}
    with ExitStack() as stack:
        primary = stack.enter_context(start_redis(keeper, program, config=both))
        follow = {"replicaof": f"127.0.0.1 {primary.port}", **both}
        replica = stack.enter_context(start_redis(keeper, program, config=follow))
        made = [_start_sentinel(keeper, program, primary.port, down_after_ms) for _ in range(_SENTINELS)]
        watched = Watched(_WATCHED, primary, replica, tuple(stack.enter_context(each) for each in made))
        wait_until(lambda: all(map(_knows_all, watched.sentinels)), "sentinels that know one another and the replica")
        yield watched


def _start_sentinel(keeper: Keeper, program: Program, primary: int, down_after_ms: int) -> RedisServer:
    def make(port: int) -> RedisServer:
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"sentinel monitor {_WATCHED} 127.0.0.1 {primary} 2",
            f"sentinel down-after-milliseconds {_WATCHED} {down_after_ms}",
            f"sentinel failover-timeout {_WATCHED} 3000",
        ]
        unit = _sentinel_unit(keeper, program, "\n".join(lines) + "\n")
        return RedisServer(program.kind, f"redis://127.0.0.1:{port}", program.origin, unit, {})

    return start_on_free_port(make)


def _sentinel_unit(keeper: Keeper, program: Program, configuration: str) -> Unit:
    """A sentinel rewrites its configuration, so that has to be a file, also in a container."""
    if isinstance(program, Image):
        script = f'printf %s "$1" >/tmp/sentinel.conf && exec {_executable(program.kind)} /tmp/sentinel.conf --sentinel'
        return Container(program.name, ["sh", "-c", script, "sh", configuration], {})
    home = keeper.make_folder("sentinel")
    file = home / "sentinel.conf"
    file.write_text(f"dir {home}\n{configuration}")
    return Process(keeper, [str(program.path), str(file), "--sentinel"], home)


def _knows_all(sentinel: RedisServer) -> bool:
    said = sentinel.call("SENTINEL", "MASTER", _WATCHED)
    if not isinstance(said, list):
        return False
    facts = dict(zip(said[::2], said[1::2], strict=True))  # pairs
    return facts.get(b"num-slaves") == b"1" and facts.get(b"num-other-sentinels") == b"%d" % (_SENTINELS - 1)
