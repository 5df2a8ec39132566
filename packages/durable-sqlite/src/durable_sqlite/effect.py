"""What `transact` commits beside a record: an ordinary function, handed a cursor in the open transaction."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Never, TypeAlias

from durable_core.errors import Misconfigured

if TYPE_CHECKING:
    from sqlite3 import _Parameters  # pyright: ignore[reportPrivateUsage] - of a cursor's own methods

_DENIED = frozenset(
    (sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA)
)
_WRITES = frozenset(
    (
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_CREATE_TRIGGER,
        sqlite3.SQLITE_CREATE_INDEX,
    )
)
_OURS = frozenset(("workflow_checkpoint", "workflow_claim", "workflow_queue", "workflow_counter", "workflow_schema"))


class EffectCursor(sqlite3.Cursor):
    """A cursor in the transaction that will also hold the record. It ends with the effect.

    It is a `sqlite3.Cursor` that cannot end the transaction: statements that begin, commit, roll back, savepoint, attach or
    detach, a PRAGMA, and what writes to the store's own tables raise `sqlite3.DatabaseError`; `connection` and `executescript`
    are refused. Once a statement has raised, the effect fails with that error (`failed`) even if it catches it.
    [CKP-TRANSACT-OWN]
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.__connection = connection
        self.failed: sqlite3.Error | None = None

    def __repr__(self) -> str:
        return "<EffectCursor>"

    @property
    def connection(self) -> Never:
        """Refuse: the connection is the store's."""
        raise Misconfigured("an effect has a cursor and no connection: the transaction is the store's")

    def execute(self, sql: str, parameters: _Parameters = (), /) -> EffectCursor:
        """Run one statement."""
        try:
            self.__open()
            super().execute(sql, parameters)
        except sqlite3.Error as error:
            self.__note(error)
            raise
        return self

    def executemany(self, sql: str, parameters: Iterable[_Parameters], /) -> EffectCursor:
        """Run one statement once per row of parameters."""
        try:
            self.__open()
            super().executemany(sql, parameters)
        except sqlite3.Error as error:
            self.__note(error)
            raise
        return self

    def executescript(self, sql_script: str, /) -> Never:
        """Refuse: it would commit first."""
        raise Misconfigured("an effect cannot use executescript, which commits: execute one statement at a time")

    if not TYPE_CHECKING:  # so that rows keep the type which sqlite3 gives them

        def __next__(self):
            return self.__noted(super().__next__)

        def fetchone(self):
            """Give the next row, or `None`."""
            return self.__noted(super().fetchone)

        def fetchmany(self, size=None):
            """Give the next rows."""
            return self.__noted(super().fetchmany, self.arraysize if size is None else size)

        def fetchall(self):
            """Give the rows that are left."""
            return self.__noted(super().fetchall)

        def __noted(self, call, *args):
            try:
                return call(*args)
            except sqlite3.Error as error:
                self.__note(error)
                raise

    def __open(self) -> None:
        if not self.__connection.in_transaction:
            raise sqlite3.ProgrammingError("the transaction of this effect is over: a statement rolled it back")

    def __note(self, error: sqlite3.Error) -> None:
        if self.failed is None:
            self.failed = error


SqliteEffect: TypeAlias = Callable[[EffectCursor], object]
"""`def effect(cursor): …`: runs in the store's thread, in the open transaction; what it returns is recorded with it."""


def check(effect: SqliteEffect) -> None:
    """Refuse what is not an ordinary function."""
    if not callable(effect):
        raise Misconfigured(f"on SQLite an effect is a function that takes a cursor, and this is {type(effect).__name__}")
    if inspect.iscoroutinefunction(effect):
        raise Misconfigured(
            "on SQLite an effect is an ordinary function and not `async def`: it runs while the transaction is open"
        )


class Guard:
    """The authorizer of a connection, which asks it about each statement that is prepared; it minds only those of effects."""

    __slots__ = ("effect",)

    def __init__(self) -> None:
        self.effect: bool = False

    def __repr__(self) -> str:
        return f"<Guard{' of an effect' if self.effect else ''}>"

    def __call__(self, action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
        """Say whether SQLite may prepare it."""
        if self.effect and (action in _DENIED or (action in _WRITES and (first in _OURS or second in _OURS))):
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


class GuardedConnection(sqlite3.Connection):
    """The store's connection. Its guard is there from the start, so that turning it on for an effect costs nothing."""

    def guarded(self) -> None:
        """Set the guard up."""
        self.guard: Guard = Guard()
        self.set_authorizer(self.guard)


def apply(connection: sqlite3.Connection, effect: SqliteEffect) -> object:
    """Run the effect and give its result. Raises: what it raises, or the database error that it swallowed."""
    assert isinstance(connection, GuardedConnection)
    cursor = EffectCursor(connection)
    connection.guard.effect = True
    try:
        result = effect(cursor)
    finally:
        connection.guard.effect = False
        cursor.close()
    if cursor.failed is not None:
        raise cursor.failed
    if not connection.in_transaction:
        raise sqlite3.ProgrammingError("the effect ended the transaction that it was handed")
    return result
