"""The stores that every case runs on, each started once a process."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from conformance.cases.place import Place
from conformance.memory import MemoryHarness
from conformance.postgres import PostgresHarness
from conformance.redis import RedisHarness
from conformance.sqlite import SqliteHarness
from durable_conformance import Harness
from durable_core.contract import Durable

HARNESSES = {
    one.title().lower(): cast("type[Harness[object]]", one)  # the cases take effects from the harness that opens the store
    for one in (MemoryHarness, SqliteHarness, PostgresHarness, RedisHarness)
}


class Started:
    """Harnesses that run, with their addresses."""

    def __init__(self, exits: ExitStack) -> None:
        self._exits = exits
        self._running: dict[str, tuple[Harness[object], str]] = {}

    def given(self, name: str) -> tuple[Harness[object], str]:
        """Give one, started when it is asked for first."""
        if name not in self._running:
            harness = HARNESSES[name]()
            self._running[name] = harness, harness.start()
            self._exits.callback(harness.stop)
        return self._running[name]


@pytest.fixture(scope="session")
def started() -> Iterator[Started]:
    """What this process has started."""
    with ExitStack() as exits:
        yield Started(exits)


@pytest.fixture(params=HARNESSES)
def place(request: pytest.FixtureRequest, started: Started, tmp_path: Path) -> Place:
    """A datastore of the case's own."""
    return Place.fresh(*started.given(str(request.param)), tmp_path)


@pytest.fixture(params=[name for name in HARNESSES if name != "memory"])
def shared_place(request: pytest.FixtureRequest, started: Started, tmp_path: Path) -> Place:
    """A datastore that several processes can open."""
    return Place.fresh(*started.given(str(request.param)), tmp_path)


@pytest.fixture
async def durable(place: Place) -> AsyncIterator[Durable[object]]:
    """The store, open."""
    async with place.open() as opened:
        yield opened
