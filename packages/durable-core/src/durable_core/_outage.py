"""A store that does not answer: said once when it goes and once when it is back, and asked again ever less often."""

from __future__ import annotations

import math
import random
from datetime import timedelta

from durable_core._retry import reason_of
from durable_core.observer import Observer, StoreBack, StoreLost, log, notify

_FIRST = 0.05
_MOST = 2.0


class Outage:
    """Whether the store answers, by what was asked of it: `begin` or `renew`."""

    def __init__(self, lease: timedelta, observer: Observer | None) -> None:
        self._most = min(_MOST, lease.total_seconds() / 6)
        self._observer = observer
        self._failing: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Outage of {', '.join(self._failing) or 'nothing'}>"

    def lost(self, asked: str, error: Exception) -> float:
        """Note that a call failed, and give after how many seconds to ask again."""
        if not self._failing:
            log.warning("the store does not answer", extra={"durable_asked": asked, "durable_error": type(error).__name__})
            notify(self._observer, StoreLost(reason_of(error)))
        self._failing[asked] = self._failing.get(asked, 0) + 1
        return self.delay(self._failing[asked])

    def answered(self, asked: str) -> None:
        """Note that a call was answered."""
        if self._failing and self._failing.pop(asked, None) is not None and not self._failing:
            log.warning("the store answers again", extra={"durable_asked": asked})
            notify(self._observer, StoreBack())

    def delay(self, failures: int) -> float:
        """Give how many seconds to wait after so many failures in a row."""
        return min(self._most, math.ldexp(_FIRST, min(failures, 32))) * random.uniform(0.5, 1)
