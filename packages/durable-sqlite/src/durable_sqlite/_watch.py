"""Seeing that another process has committed, without asking the database."""

from __future__ import annotations

import os
import time

POLL = 0.02  # seconds between two looks at the file
_PAUSES = (0.02, 0.04, 0.08, 0.16, 0.32, 0.64)  # between the looks at the database that follow a change
_RECENT = 1_500_000_000
_AT_LEAST_EVERY = 5.0


class FileWatch:
    """Says when the database is worth a look, by the state of its write-ahead log.

    The log changes before the commit can be seen (by as long as the sync takes), and two changes within one tick of the file
    system's clock look like one: so after each change it asks for some more looks, at growing pauses.
    """

    def __init__(self, path: str) -> None:
        self._path, self._log = path, path + "-wal"
        self._state: tuple[int, int, int] | None = None
        self._pauses: list[float] = []
        self._next_stat = self._next_look = 0.0

    def __repr__(self) -> str:
        return f"<FileWatch {self._log!r}>"

    def begin(self) -> None:
        """Note the state before a look at the database; what changes from now on is seen."""
        self._state = self._stat()
        changed = self._state is not None and time.time_ns() - self._state[0] < _RECENT
        self._looked(time.monotonic(), changed=changed)

    def poll(self) -> bool:
        """Say whether to look at the database now."""
        now = time.monotonic()
        if now < self._next_stat:
            return False
        state = self._stat()
        changed, self._state = state != self._state, state
        if not changed and now < self._next_look:
            self._next_stat = now + POLL
            return False
        self._looked(now, changed=changed)
        return True

    def _looked(self, now: float, *, changed: bool) -> None:
        if changed:
            self._pauses = list(_PAUSES)
        self._next_stat = now + POLL
        self._next_look = now + (self._pauses.pop(0) if self._pauses else _AT_LEAST_EVERY)

    def _stat(self) -> tuple[int, int, int] | None:
        for path in (self._log, self._path):
            try:
                found = os.stat(path)
            except OSError:
                continue
            return found.st_mtime_ns, found.st_size, found.st_ino
        return None
