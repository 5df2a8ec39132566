"""The test suite that holds a store to the contract of durable-core.

What is here is loaded when it is asked for: the pytest plugin imports this package in every session, and needs none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from durable_conformance.door import Conformance
    from durable_conformance.harness import Application, Effects, Harness, Hook, Meter, Opening, Stores, Wire
    from durable_conformance.report import Report
    from durable_conformance.run import check

__all__ = ["Application", "Conformance", "Effects", "Harness", "Hook", "Meter", "Opening", "Report", "Stores", "Wire", "check"]

_HOMES = {"Conformance": "door", "Report": "report", "check": "run"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'harness')}"), name)
