"""What the kit makes of the stores that a harness opens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from durable_conformance.harness import Stores
from durable_core.contract import Durable

if TYPE_CHECKING:
    from durable_core.testing import ManualClock


def paired(stores: object, clock: ManualClock | None = None) -> Durable[object]:
    """Give the durable that a harness opened, or put its two halves into a `SplitDurable`, whose time passes as theirs does."""
    opened = cast("Stores[object]", stores)  # it is what a harness opened, and gets effects of that harness only
    if not isinstance(opened, tuple):
        return opened
    from durable_core.split import SplitDurable

    if clock is None:
        return SplitDurable(*opened)
    passes = clock.monotonic

    class Clocked(SplitDurable[object]):
        @property
        def monotonic(self) -> Callable[[], float]:
            return passes

    return Clocked(*opened)
