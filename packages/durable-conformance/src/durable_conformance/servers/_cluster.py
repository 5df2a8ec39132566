"""A Redis Cluster of one's own, put together without redis-cli."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from durable_conformance.servers._find import Program
from durable_conformance.servers._redis import Flavour, RedisServer, find_redis, persistence, start_redis
from durable_conformance.servers._resp import ReplyError, call
from durable_conformance.servers._server import Address, wait_until
from durable_conformance.servers._units import Keeper, own_keeper

SLOTS = 16_384


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes of a cluster that belongs to the test; each can be killed, paused and started again.

    Args:
        kind: `redis-cluster` or `valkey-cluster`.
        masters: the nodes that were given slots when it was made, in the order of the slots.
        replicas: the nodes that follow them; the i-th follows the i-th of the masters, counted round.
    """

    kind: str
    masters: tuple[RedisServer, ...]
    replicas: tuple[RedisServer, ...]

    @property
    def nodes(self) -> tuple[RedisServer, ...]:
        """All of them."""
        return (*self.masters, *self.replicas)

    @property
    def url(self) -> str:
        """Where a client begins: the first node. A client learns the others from it."""
        return self.masters[0].url.removesuffix("/0")

    @property
    def address(self) -> Address:
        """Where it is, as a plain value."""
        first = self.masters[0]
        return Address(self.kind, self.url, first.version, first.origin)

    def remove(self) -> None:
        """Ends every node for good and removes its data."""
        for node in self.nodes:
            node.remove()

    def owner(self, key: str | bytes) -> RedisServer:
        """The node that has the key's slot now, by the word of the first node that answers.

        Raises:
            LookupError: no running node knows one of ours as the slot's owner.
        """
        for node in self.nodes:
            with suppress(OSError):  # this one does not answer; the next may
                slot, ranges = node.call("CLUSTER", "KEYSLOT", key), _ranges(node.url)
                ports = {port for _, port, first, last in ranges if isinstance(slot, int) and first <= slot <= last}
                for owner in self.nodes:
                    if owner.port in ports:
                        return owner
        raise LookupError(f"no running node knows who has the slot of {key!r}")

    def wait_until_whole(self) -> None:
        """Returns once every running node says that all slots are served.

        Raises:
            TimeoutError: that did not come about.
        """
        running = [node for node in self.nodes if node.running]
        wait_until(lambda: all(_whole(node, 1) for node in running), "a whole cluster")


@contextmanager
def redis_cluster(
    flavour: Flavour | None = None,
    *,
    masters: int = 3,
    replicas: int = 3,
    node_timeout_ms: int = 1000,
    config: Mapping[str, str] | None = None,
) -> Generator[Cluster]:
    """Gives a cluster that serves all its slots, and ends it. Takes a little over two seconds, whatever its size.

    Args:
        flavour: Redis or Valkey.
        masters: how many nodes have slots; one is enough for what a server refuses across slots.
        replicas: how many nodes follow them.
        node_timeout_ms: after how many milliseconds of silence a node counts as gone.
        config: more of redis.conf, for every node.

    Raises:
        NoServer: there is nothing to start it from.
        DidNotStart: it was found and does not start.
    """
    asked = {"cluster-node-timeout": str(node_timeout_ms), **(config or {})}
    program = find_redis(flavour)
    cluster = start_cluster(own_keeper(), program, masters=masters, replicas=replicas, config=asked)
    try:
        yield cluster
    finally:
        cluster.remove()


def start_cluster(keeper: Keeper, program: Program, *, masters: int, replicas: int, config: Mapping[str, str]) -> Cluster:
    """Starts a cluster that lives until its nodes are removed, or their keeper goes."""
    if masters < 1 or replicas < 0:
        raise ValueError(f"a cluster has at least one master, not {masters}, and not {replicas} replicas")
    each = {
        **persistence(appendonly=True, appendfsync="always"),
        "cluster-enabled": "yes",
        "cluster-config-file": "nodes.conf",
        "repl-diskless-sync-delay": "0",
        **config,
    }
    with ExitStack() as undo:
        nodes = [undo.enter_context(start_redis(keeper, program, config=each)) for _ in range(masters + replicas)]
        _join(nodes, masters)
        undo.pop_all()
    return Cluster(f"{program.kind}-cluster", tuple(nodes[:masters]), tuple(nodes[masters:]))


def _join(nodes: Sequence[RedisServer], masters: int) -> None:
    """Deals the slots out, makes the nodes meet, and the last of them follow the first."""
    for number, node in enumerate(nodes):
        node.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        if number < masters:
            first, end = SLOTS * number // masters, SLOTS * (number + 1) // masters
            node.call("CLUSTER", "ADDSLOTS", *range(first, end))  # not ADDSLOTSRANGE: Redis 6.2 has only this
        if number:
            node.call("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
    wait_until(lambda: all(_cluster_info(node)["cluster_known_nodes"] == str(len(nodes)) for node in nodes), "nodes that met")
    for number, node in enumerate(nodes[masters:]):
        _follow(node, nodes[number % masters])
    wait_until(lambda: all(_whole(node, masters) for node in nodes), "a whole cluster")
    wait_until(lambda: all(map(_in_sync, nodes[masters:])), "replicas in sync")


def _follow(replica: RedisServer, master: RedisServer) -> None:
    name = master.call("CLUSTER", "MYID")
    assert isinstance(name, bytes)

    def followed() -> bool:
        try:
            replica.call("CLUSTER", "REPLICATE", name)
        except ReplyError as error:
            if "unknown node" not in str(error).lower():
                raise
            return False
        return True

    wait_until(followed, f"{replica!r} to know {master!r}")


def _cluster_info(node: RedisServer) -> dict[str, str]:
    said = node.call("CLUSTER", "INFO")
    return dict(line.split(":", 1) for line in said.decode().splitlines()) if isinstance(said, bytes) else {}


def _whole(node: RedisServer, masters: int) -> bool:
    said = _cluster_info(node)
    served = said["cluster_state"] == "ok" and said["cluster_slots_ok"] == str(SLOTS)
    return served and int(said["cluster_size"]) >= masters


def _in_sync(replica: RedisServer) -> bool:
    return replica.info("replication").get("master_link_status") == "up"


def _ranges(url: str) -> list[tuple[str, int, int, int]]:
    """The master's host and port, and the first and the last slot, of every range that the node at the URL knows."""
    said = call(url, "CLUSTER", "SLOTS")
    found: list[tuple[str, int, int, int]] = []
    for entry in said if isinstance(said, list) else []:
        match entry:
            case [int(first), int(last), [bytes(host), int(port), *_], *_]:
                found.append((host.decode() or urlsplit(url).hostname or "", port, first, last))
            case _:
                raise ReplyError(f"CLUSTER SLOTS answered {entry!r}")
    return found


def master_urls(url: str) -> set[str]:
    """The URLs of all masters that the node at the URL knows, with its user and password."""
    parts = urlsplit(url)
    login, at, _ = parts.netloc.rpartition("@")
    return {parts._replace(netloc=f"{login}{at}{host}:{port}").geturl() for host, port, _, _ in _ranges(url)}
