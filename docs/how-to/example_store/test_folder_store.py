"""The store in a folder, held to the contract."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Never

from folder_store import FolderCheckpointer, FolderScheduler

from durable_conformance import Conformance, Harness, Opening, Stores


class FolderHarness(Harness[Never]):
    """How the kit opens the store, and what it may do to it."""

    offers = frozenset({"queues", "restart", "processes"})
    lacks = {
        "wire": "its client is the store: no reply can be lost",
        "kill": "it has no server",
        "loss": "a claim's storage cannot be lost",
        "retention": "nothing expires",
        "clock": "its clock is the machine's",
        "skew": "its clock is the machine's, which all its clients share",
    }

    @asynccontextmanager
    async def open(self, at: Opening, /) -> AsyncGenerator[Stores[Never]]:
        yield FolderCheckpointer(at.folder), FolderScheduler(at.folder, at.queue, at.lease)


class TestFolderStore(Conformance):
    harness = FolderHarness
    gaps = Path(__file__).with_name("gaps.toml")
