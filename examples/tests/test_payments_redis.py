"""The payments example on Redis, while more than its workers dies: its server, or a master of its cluster."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from durable_conformance.servers import RedisServer, redis, redis_cluster

pytestmark = pytest.mark.timing


def _run(store: str, trouble: Callable[[], object]) -> str:
    """Run the example, and make trouble once some of the orders have ended; gives what it printed. It has to end well."""
    command = [sys.executable, "-m", "examples.payments", "--orders", "8", "--seed", "11", "--store", store]
    printed, made = "", False
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed += line
            if not made and " of 8 orders" in line and " 0 of 8" not in line:
                made = True
                trouble()
    assert made, printed
    assert process.returncode == 0, printed
    assert printed.endswith("The books balance.\n")
    return printed


def test_its_books_balance_when_the_server_is_killed() -> None:
    """One server, AOF flushed every second: SIGKILL, and started again."""
    with redis("redis", appendfsync="everysec") as server:

        def restart() -> None:
            server.kill()
            server.start()

        _run(server.url, restart)
        assert int(server.info("server")["uptime_in_seconds"]) < 60


def test_its_books_balance_when_a_master_fails_over() -> None:
    """A cluster of three masters and three replicas: the master that has the orders and the stock dies, its replica goes on."""
    with redis_cluster("redis") as cluster:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
        owner = cluster.owner("{durable}")
        _run(f"redis+cluster://{hosts}", owner.kill)
        successor: RedisServer = cluster.owner("{durable}")
        assert successor in cluster.replicas
