"""What there is to know about a store before its URL can be opened, and how to put up with one that is away for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from durable_core.errors import DurableError

T = TypeVar("T")

PATIENCE: Final = 20.0
"""Seconds for which a store may be away."""


def options(url: str) -> dict[str, object]:
    """Give what `open` needs beside the URL."""
    # One warehouse for all orders: the store's keys and those of the stock are in one slot, also on a cluster.
    return {"partitions": 1} if url.startswith("redis") else {}


async def insisted(call: Callable[[], Awaitable[T]]) -> T:
    """Ask again while the store is away, and only what is safe to repeat: each store raises its driver's own errors."""
    until, pause = time.monotonic() + PATIENCE, 0.05
    while True:
        try:
            return await call()
        except DurableError:
            raise
        except Exception:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, 1.0)
