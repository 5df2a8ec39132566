"""A Redis or Valkey of one's own: alone, with a replica, watched by sentinels, and in a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_conformance import servers
from durable_conformance.servers import _resp
from durable_conformance.servers._redis import find_redis, make_redis
from durable_conformance.servers._server import start_on_free_port, wait_until
from durable_conformance.servers._units import own_keeper

ours = pytest.mark.skipif(
    os.environ.get("DURABLE_TEST_SERVERS") == "docker", reason="looks at processes and files of this machine, not of a container"
)


@pytest.fixture
def server() -> Iterator[servers.RedisServer]:
    with servers.redis() as server:
        yield server


def _setting(server: servers.RedisServer, name: str) -> str:
    said = server.call("CONFIG", "GET", name)
    assert isinstance(said, list)
    assert isinstance(said[1], bytes)
    return said[1].decode()


@pytest.mark.parametrize("flavour", ["redis", "valkey"])
def test_both_flavours_are_there(flavour: servers.Flavour) -> None:
    """A flavour that is asked for is the one that runs, or the test says what to install."""
    try:
        servers.find(flavour)
    except servers.NoServer:
        if flavour == "valkey" or sys.version_info < (3, 14):
            raise
        pytest.skip(
            "there is no wheel with a Redis for this Python, nor another Redis here; tests that take either ran on Valkey"
        )
    with servers.redis(flavour) as server:
        assert server.kind == flavour
        assert (server.info("server").get("server_name") == "valkey") is (flavour == "valkey")


def test_it_is_safe_unless_asked_otherwise(server: servers.RedisServer) -> None:
    """It flushes before it answers, and evicts nothing."""
    assert [_setting(server, name) for name in ("appendonly", "appendfsync", "maxmemory-policy")] == [
        "yes",
        "always",
        "noeviction",
    ]


def test_settings_are_taken() -> None:
    """Arguments and more of redis.conf go to the server; the latter wins."""
    with servers.redis(
        appendonly=False, appendfsync="everysec", maxmemory="10mb", maxmemory_policy="allkeys-lru", config={"databases": "3"}
    ) as server:
        asked = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy", "databases")
        assert [_setting(server, name) for name in asked] == ["no", "everysec", "10485760", "allkeys-lru", "3"]


def test_it_listens_on_the_loopback_only(server: servers.RedisServer) -> None:
    """Nobody but this machine reaches it."""
    assert _setting(server, "bind") == "127.0.0.1"


def test_what_was_acknowledged_survives_a_kill(server: servers.RedisServer) -> None:
    """Killed and started again, it has what it had, at the same URL."""
    server.call("SET", "k", "v")
    server.kill()
    assert not server.running
    with pytest.raises(ConnectionRefusedError):
        server.call("PING")

    server.start()

    assert server.call("GET", "k") == b"v"


def test_it_is_ready_when_it_has_loaded_its_data(server: servers.RedisServer) -> None:
    """`start` returns when commands are taken, not when the port is open."""
    server.call("EVAL", "for i = 1, 200000 do redis.call('SET', i, i) end", 0)
    server.kill()
    server.start()

    assert server.call("DBSIZE") == 200_000


def test_a_running_server_is_not_started_again(server: servers.RedisServer) -> None:
    """There is one process behind a URL."""
    with pytest.raises(RuntimeError, match="it runs"):
        server.start()


def test_a_paused_server_hangs(server: servers.RedisServer) -> None:
    """While it is paused it takes connections and answers none; afterwards it goes on."""
    with server.paused():
        with pytest.raises(TimeoutError):
            _resp.call(server.url, "PING", seconds=0.2)

    assert server.call("PING") == b"PONG"


@ours
def test_its_data_go_with_it() -> None:
    """Nothing of a server stays: no process, no folder."""
    with servers.redis() as server:
        home = Path(_setting(server, "dir"))
        assert home.exists()

    assert server.pids == ()
    assert not home.exists()


@ours
def test_its_data_may_be_put_elsewhere(tmp_path: Path) -> None:
    """The folder that was asked for holds the data, and is empty afterwards."""
    with servers.redis(folder=tmp_path) as server:
        assert Path(_setting(server, "dir")).is_relative_to(tmp_path)

    assert list(tmp_path.iterdir()) == []


@ours
def test_a_taken_port_is_exchanged_for_another(server: servers.RedisServer) -> None:
    """A stranger that answers on the port is not taken for ours: the start goes on to another port."""
    ports = [server.port, servers.free_port()]
    wanted = ports[1]

    def make(_: int) -> servers.RedisServer:
        return make_redis(ports.pop(0), own_keeper(), find_redis(None), {}, None, {})

    with start_on_free_port(make) as other:
        assert other.port == wanted
        assert other.pids != server.pids


def test_a_port_may_not_be_chosen() -> None:
    """A port in the configuration would make the URL a lie."""
    with pytest.raises(ValueError, match="port"):
        with servers.redis(config={"port": "6379"}):
            pass


def test_a_namespace_is_empty_and_goes(server: servers.RedisServer) -> None:
    """Its keys are deleted, others stay."""
    server.call("SET", "mine", "1")
    with servers.fresh_namespace(server) as prefix:
        for number in range(20):
            server.call("SET", f"{prefix}[*]{number}", "1")

    assert server.call("KEYS", "*") == [b"mine"]


def test_a_replica_hears_through_a_link_that_can_be_frozen() -> None:
    """In sync it has everything; parted from its primary it does not, and may be promoted."""
    with servers.redis_replica() as pair:
        pair.primary.call("SET", "k", "1")
        pair.wait_until_in_sync()
        assert pair.replica.call("GET", "k") == b"1"

        pair.link.freeze()
        pair.primary.call("SET", "k", "2")
        pair.promote()
        assert pair.replica.call("GET", "k") == b"1"
        assert pair.replica.call("INCR", "k") == 2


def test_sentinels_promote_the_replica() -> None:
    """Three sentinels know one another, and agree on the replica once the primary is gone."""
    with servers.sentinel(down_after_ms=200) as watched:
        watched.primary.kill()

        def promoted() -> bool:
            try:
                return watched.replica.info("replication")["role"] == "master"
            except ConnectionError:
                return False  # sentinels disconnect the clients of a server that changes its role

        wait_until(promoted, "the replica's promotion")


def test_a_cluster_has_three_masters_and_three_replicas() -> None:
    """All slots are served, every master has a replica, and a killed master's slots are taken over by it."""
    with servers.redis_cluster() as cluster:
        assert [len(cluster.masters), len(cluster.replicas)] == [3, 3]
        roles = [node.info("replication") for node in cluster.nodes]
        assert [said["role"] for said in roles] == ["master"] * 3 + ["slave"] * 3
        assert [int(said["master_port"]) for said in roles[3:]] == [master.port for master in cluster.masters]

        with servers.fresh_namespace(cluster) as prefix:
            for key in (f"{prefix}{number}" for number in range(20)):
                assert cluster.owner(key).call("SET", key, "1") == b"OK"
        assert [node.call("DBSIZE") for node in cluster.masters] == [0, 0, 0]

        owner = cluster.owner("k")
        owner.kill()
        wait_until(lambda: cluster.owner("k") is not owner, "another owner of the slot")
        assert cluster.owner("k") in cluster.replicas
        owner.start()
        cluster.wait_until_whole()


def test_a_cluster_of_one_refuses_keys_of_two_slots() -> None:
    """One node that has all slots is enough for what a cluster refuses."""
    with servers.redis_cluster(masters=1, replicas=0) as cluster:
        with pytest.raises(servers.ReplyError, match="CROSSSLOT"):
            cluster.masters[0].call("MGET", "a", "b")
