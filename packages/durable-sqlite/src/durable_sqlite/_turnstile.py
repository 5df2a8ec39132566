"""Fairness between processes that write to one file. SQLite's own waiting starves some of them for seconds under load."""

from __future__ import annotations

import os
import sys
import time

_POLL = 0.0002  # how often who waits asks for the turn
_GAP = 0.0006  # how long who had the turn stays away when others wait: they ask several times meanwhile
_SULK = 10.0  # for how long not to ask again, when who holds the turn seems to be frozen

if sys.platform != "win32":
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _read(descriptor: int) -> bool:
        return os.pread(descriptor, 1, 0) == b"1"

    def _write(descriptor: int, flag: bytes) -> None:
        os.pwrite(descriptor, flag, 0)

else:
    import msvcrt

    _BYTE = 1  # locked regions cannot be read there, and byte 0 is the flag

    def _lock(descriptor: int) -> bool:
        os.lseek(descriptor, _BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def _read(descriptor: int) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, 1) == b"1"

    def _write(descriptor: int, flag: bytes) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, flag)


class Turnstile:
    """A lock on a file beside the database, passed around each transaction.

    It decides who asks SQLite first and nothing else: who cannot get it for long goes ahead without, so that a frozen process
    holds up nobody longer than SQLite does. The first byte of the file is set by who waits; who has just had the turn leaves a
    gap then.
    """

    def __init__(self, path: str, patience: float) -> None:
        self._path, self._patience = path, patience
        self._descriptor: int | None = None
        self._sulks_until = self._stays_away_until = 0.0
        self._held = False

    def __repr__(self) -> str:
        return f"<Turnstile {self._path!r}{', held' if self._held else ''}>"

    def open(self) -> None:
        """Open the file; where that is not possible there is no fairness, and everything else works."""
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            self._descriptor = None

    def close(self) -> None:
        """Close the file, which gives the turn back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def enter(self) -> None:
        """Wait for the turn."""
        descriptor = self._descriptor
        if descriptor is None:
            return
        gap = self._stays_away_until - time.monotonic()
        if gap > 0:
            time.sleep(gap)
        if _lock(descriptor):
            self._held = True
        elif time.monotonic() >= self._sulks_until:
            self._held = self._wait(descriptor)

    def leave(self) -> None:
        """Pass the turn on."""
        descriptor = self._descriptor
        if descriptor is None or not self._held:
            return
        waited_for = _read(descriptor)
        _unlock(descriptor)
        self._held = False
        if waited_for:
            _write(descriptor, b"0")
            self._stays_away_until = time.monotonic() + _GAP

    def _wait(self, descriptor: int) -> bool:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            _write(descriptor, b"1")
            time.sleep(_POLL)
            if _lock(descriptor):
                return True
        self._sulks_until = time.monotonic() + _SULK
        return False
