"""What the tests share: a file, a store on it, other processes, and the statements that a store runs."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from durable_sqlite import SqliteDurable
from durable_sqlite._tx import Tx

CHILD = Path(__file__).with_name("child.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that does not exist yet."""
    return tmp_path / "shop.db"


@pytest.fixture
async def durable(path: Path) -> AsyncIterator[SqliteDurable]:
    """A store on the file, open."""
    async with SqliteDurable.at(path, lease=timedelta(seconds=30)) as store:
        yield store


@pytest.fixture
async def other(durable: SqliteDurable, path: Path) -> AsyncIterator[SqliteDurable]:
    """A second store on the same file, with a thread and a connection of its own."""
    async with SqliteDurable.at(path, lease=timedelta(seconds=30)) as store:
        yield store


@pytest.fixture
def child(path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `child.py VERB PATH …` in a process of its own, with pipes; ends those that are left."""
    started: list[subprocess.Popen[str]] = []

    def start(verb: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, str(CHILD), verb, str(path), *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
async def statements(durable: SqliteDurable) -> list[str]:
    """Every statement that the store runs from now on."""
    seen: list[str] = []

    def trace(tx: Tx) -> None:
        tx.connection.set_trace_callback(seen.append)

    await durable.checkpointer.connection.read(trace)
    return seen
