"""The payments example on a Postgres of its own that is restarted, or killed, in the middle of a batch."""

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from durable_conformance import servers
from durable_conformance.servers.fixtures import or_say_so

HALFWAY = 8  # workers killed, of twenty
BURN = "while True: pass"


def killed(server: servers.PostgresServer) -> None:
    server.kill()
    server.start()


TROUBLES: dict[str, Callable[[servers.PostgresServer], None]] = {"restarted": servers.PostgresServer.restart, "killed": killed}


def batch(url: str, seed: int, orders: int, trouble: Callable[[], None]) -> str:
    """Run the example, make trouble in the middle, and give what it printed."""
    command = [sys.executable, "-m", "examples.payments", "--orders", str(orders), "--seed", str(seed), "--store", url]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ran:
        assert ran.stdout is not None
        made = False
        for line in ran.stdout:
            lines.append(line)
            if not made and any(f"{kills:2} workers killed" in line for kills in range(HALFWAY, 21)):
                trouble()
                made = True
    said = "".join(lines)
    assert made, said
    assert ran.returncode == 0, said
    return said


@contextmanager
def busy(processes: int) -> Generator[None]:
    """Have so many processes use the machine."""
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


@pytest.mark.timing
@pytest.mark.timeout(150)
def test_the_books_balance_though_workers_are_killed_and_the_server_restarted() -> None:
    """Twenty workers are killed and the server is restarted: every order ends, once, and so does its money and its goods."""
    with or_say_so(servers.postgres()) as server:
        assert batch(server.url, 7, 40, server.restart).endswith("The books balance.\n")


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("load", [0, 4])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_books_balance_again_and_again(seed: int, trouble: str, load: int) -> None:
    """The same with other orders and other moments, on a machine that has other things to do, and with SIGKILL of the server."""
    with or_say_so(servers.postgres()) as server, busy(load):
        assert batch(server.url, seed, 40, lambda: TROUBLES[trouble](server)).endswith("The books balance.\n")
