"""The stores that are open in this process: those on one file wake each other, and a fork leaves them alone."""

from __future__ import annotations

import os
import threading
from typing import Protocol


class Opened(Protocol):
    """A store that is open."""

    @property
    def path(self) -> str:
        """The file that it is open on."""
        ...

    def nudge(self) -> None:
        """Have those that wait in it look again."""
        ...

    def forked(self) -> None:
        """Stop working: this is another process."""
        ...


_guard = threading.Lock()
_opened: dict[str, list[Opened]] = {}


def add(store: Opened) -> None:
    """Note a store that is open from now on."""
    with _guard:
        # Replaced and not changed, so that `nudge` reads without the lock.
        _opened[store.path] = [*_opened.get(store.path, ()), store]


def remove(store: Opened) -> None:
    """Forget a store that is closed."""
    with _guard:
        others = [other for other in _opened.get(store.path, ()) if other is not store]
        if others:
            _opened[store.path] = others
        else:
            _opened.pop(store.path, None)


def nudge(store: Opened) -> None:
    """Have those that wait in other stores on the same file look again."""
    for other in _opened.get(store.path, ()):
        if other is not store:
            other.nudge()


def _forked() -> None:
    global _guard
    _guard = threading.Lock()
    for stores in _opened.values():
        for store in stores:
            store.forked()
    _abandoned.extend(stores for stores in _opened.values())
    _opened.clear()


_abandoned: list[list[Opened]] = []  # kept for ever: closing an inherited connection would harm the process it belongs to

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
