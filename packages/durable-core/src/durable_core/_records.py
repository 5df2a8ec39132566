"""What a pass knows of its workflow's records: what was loaded, and what it wrote or learnt since."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping

from durable_core.keys import FAILED, INBOX


class Records:
    """Loaded records under those that came since; values are read when they are asked for."""

    def __init__(self, loaded: Mapping[str, object]) -> None:
        self._base = loaded
        self._since: dict[str, object] = {}
        self._inbox: list[str] | None = None
        self._has_failures = any(key.startswith(FAILED) for key in loaded)
        self.loaded = len(loaded)

    def __repr__(self) -> str:
        return f"<Records: {self.loaded} loaded, {len(self._since)} since>"

    def has(self, key: str) -> bool:
        """Say whether the key is recorded."""
        return key in self._since or key in self._base

    def get(self, key: str) -> object:
        """Give the value that the store holds under a key that is recorded."""
        return self._since[key] if key in self._since else self._base[key]

    def failed(self, key: str) -> bool:
        """Say whether a failure of the step is recorded."""
        return self._has_failures and self.has(FAILED + key)

    def find(self, key: str, missing: object) -> object:
        """Give the value that the store holds under a key, or `missing`."""
        if key in self._since:
            return self._since[key]
        return self._base[key] if key in self._base else missing  # noqa: SIM401 (what was loaded may be decoded when asked for)

    def put(self, key: str, value: object) -> None:
        """Note what the store holds under a key."""
        self._since[key] = value
        self._has_failures = self._has_failures or key.startswith(FAILED)

    def merge(self, skip: int, found: Mapping[str, object]) -> None:
        """Note what a load that left out `skip` records gave."""
        for key, value in found.items():
            if self.has(key):
                continue
            self.put(key, value)
            if key.startswith(INBOX):
                insort(self._entries(), key)
        self.loaded = max(self.loaded, skip + len(found))

    def entries(self, after: str | None, upto: str | None = None) -> list[str]:
        """Give the inbox keys after one, and up to another, in order."""
        inbox = self._entries()
        begin = 0 if after is None else bisect_right(inbox, after)
        return inbox[begin:] if upto is None else inbox[begin : bisect_right(inbox, upto)]

    def _entries(self) -> list[str]:
        if self._inbox is None:
            self._inbox = sorted(key for key in self._base if key.startswith(INBOX))
        return self._inbox
