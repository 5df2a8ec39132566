"""What the kit makes of the stores that a harness opens."""

from __future__ import annotations

from durable_core.contract import Durable

from durable_conformance.harness import Stores


def paired(stores: Stores[object]) -> Durable[object]:
    """Give the durable that a harness opened, or put its two halves into a `SplitDurable`."""
    if isinstance(stores, tuple):
        from durable_core.split import SplitDurable

        checkpointer, scheduler = stores
        return SplitDurable(checkpointer, scheduler)
    return stores
