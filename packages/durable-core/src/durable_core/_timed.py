"""By which clock to measure what passes: a store in memory brings its own, so that a test can move it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable


@runtime_checkable
class Timed(Protocol):
    """A store whose clock need not be the system's."""

    @property
    def monotonic(self) -> Callable[[], float]:
        """Seconds that pass as the store's clock does."""
        ...


def monotonic_of(store: object) -> Callable[[], float]:
    """Give the clock that passes as the store's does."""
    return store.monotonic if isinstance(store, Timed) else time.monotonic
