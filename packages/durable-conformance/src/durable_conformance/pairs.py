"""What the kit makes of the stores that a harness opens."""

from __future__ import annotations

from typing import cast

from durable_conformance.harness import Stores
from durable_core.contract import Durable


def paired(stores: object) -> Durable[object]:
    """Give the durable that a harness opened, or put its two halves into a `SplitDurable`."""
    opened = cast("Stores[object]", stores)  # it is what a harness opened, and gets effects of that harness only
    if isinstance(opened, tuple):
        from durable_core.split import SplitDurable

        checkpointer, scheduler = opened
        return SplitDurable(checkpointer, scheduler)
    return opened
