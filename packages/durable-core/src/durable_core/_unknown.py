"""Names that a worker has no body for. [RUN-WORK-UNKNOWN]"""

from __future__ import annotations

from datetime import timedelta

from durable_core._answers import HandBack
from durable_core._retry import doubled
from durable_core.observer import log

_FIRST = timedelta(seconds=1)
_MOST = timedelta(minutes=1)
_NAMES = 10_000  # remembered


def name_of(workflow: str) -> str:
    """Give the part of an id that names its body. [RUN-WORK]"""
    return workflow.partition("/")[0]


class Unknown:
    """How often each unknown name came: another worker, newer or older than this one, may know it."""

    def __init__(self) -> None:
        self._met: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Unknown: {len(self._met)} names>"

    def answer(self, workflow: str) -> HandBack:
        """Put the workflow off, for twice as long each time its name is met; said once."""
        name = name_of(workflow)
        met = self._met.get(name, 0)
        if not met:
            if len(self._met) == _NAMES:
                self._met.clear()
            log.warning("no body has this name", extra={"durable_name": name, "durable_workflow": workflow})
        self._met[name] = met + 1
        return HandBack("no body of this worker has its name", doubled(_FIRST, met, _MOST))
