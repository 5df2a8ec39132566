"""The open file: one connection, opened when it is needed and again after an error that may be its own."""

from __future__ import annotations

import os
import sqlite3
import time
from datetime import timedelta
from types import TracebackType

from durable_sqlite import _tx, sql
from durable_sqlite._file import open_file
from durable_sqlite._turnstile import Turnstile
from durable_sqlite._tx import Tx

_SUSPECT = frozenset(  # after these the connection is opened anew
    (
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_NOMEM,
    )
)
_PATIENCE = 1.0  # seconds to wait for one's turn at most
_SAME_FILE = 1.0  # seconds between two looks at whether the file is still the one that was opened


class Database:
    """A file for one thread: reads as they are, and writes in transactions that take their turn with other processes.

    `with database as tx:` is a transaction.
    """

    def __init__(self, path: str, *, synchronous: str, busy_timeout: timedelta, create: bool) -> None:
        self.path = path
        self._synchronous, self._busy_timeout, self._create = synchronous, busy_timeout, create
        self._tx: Tx | None = None
        self._file: tuple[int, int] | None = None
        self._checked = 0.0
        self._turnstile = Turnstile(path + "-turn", min(_PATIENCE, busy_timeout.total_seconds()))

    def __repr__(self) -> str:
        return f"<Database {self.path!r}{'' if self._tx is None else ', open'}>"

    def now(self) -> int:
        """Read the store's clock, from any thread."""
        tx = self._tx
        return max(_tx.clock(), 0 if tx is None else tx.now)

    def opened(self) -> Tx:
        """Give the means to read. Raises: what is wrong with the file."""
        if self._tx is None:
            connection = open_file(self.path, self._synchronous, self._busy_timeout, self._create)
            self._tx = Tx(connection)
            self._file = _identity(self.path)
            self._turnstile.open()
        self._refuse_other_file()
        return self._tx

    def __enter__(self) -> Tx:
        """Begin a transaction, which commits what is done inside, or nothing of it when something is raised there."""
        tx = self.opened()
        self._turnstile.enter()
        try:
            tx.execute(sql.BEGIN)
        except BaseException:
            self._end(tx)
            raise
        tx.ready = tx.ended = False
        return tx

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        tx = self._tx
        assert tx is not None  # only this thread closes the file, and between transactions
        try:
            if kind is None:
                tx.execute(sql.COMMIT)
        finally:
            self._end(tx)

    def _end(self, tx: Tx) -> None:
        """Undo what is not committed, and pass the turn on."""
        try:
            if tx.connection.in_transaction:
                tx.execute(sql.ROLLBACK)
        except sqlite3.Error:
            pass  # SQLite has rolled back by itself, or will when the connection is closed
        finally:
            self._turnstile.leave()

    def doubt(self, error: BaseException) -> None:
        """Open the file anew after an error that may be the connection's."""
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _SUSPECT:
            self.close()

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        tx, self._tx = self._tx, None
        self._turnstile.close()
        if tx is not None:
            try:
                tx.connection.close()
            except sqlite3.Error:
                pass  # nothing more can be done with it

    def forked(self) -> None:
        """Give up what a fork shares with its parent; the connection is not touched."""
        self._turnstile.close()

    def _refuse_other_file(self) -> None:
        """Refuse to work on a file that is not there any more; looked at once a second."""
        now = time.monotonic()
        if now - self._checked >= _SAME_FILE:
            if _identity(self.path) != self._file:
                raise sqlite3.OperationalError(f"{self.path!r} was removed or replaced while it was open: open the store again")
            self._checked = now


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
