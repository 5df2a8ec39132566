"""The numbered schema files, and how they are applied: in one immediate transaction, once, by whoever comes first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import cache

from durable_core.errors import SchemaMismatch
from durable_sqlite import sql

VERSION = 1


@cache
def migrations() -> tuple[str, ...]:
    """Give the text of each schema file, in order."""
    from importlib.resources import files  # only whoever opens a file pays for its import

    folder = files("durable_sqlite") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)


def verify(connection: sqlite3.Connection, path: str) -> bool:
    """Say whether the schema is there and is this code's. Raises: `SchemaMismatch` when it is newer."""
    found = _version(connection)
    if found > VERSION:
        raise SchemaMismatch(f"{path!r} has schema version {found}, and this durable-sqlite knows {VERSION}: upgrade it")
    return found == VERSION


def create(connection: sqlite3.Connection, path: str) -> None:
    """Apply what is missing. Safe when several processes do it at once. Raises: `SchemaMismatch` when the schema is newer."""
    if verify(connection, path):
        return
    connection.execute(sql.BEGIN)
    try:
        if not verify(connection, path):
            for number in range(_version(connection) + 1, VERSION + 1):
                for statement in _statements(migrations()[number - 1]):
                    connection.execute(statement)
                connection.execute(sql.SCHEMA_APPLIED, (number,))
        connection.execute(sql.COMMIT)
    finally:
        if connection.in_transaction:
            connection.execute(sql.ROLLBACK)


def _version(connection: sqlite3.Connection) -> int:
    if not connection.execute(sql.SCHEMA_EXISTS).fetchall():
        return 0
    version: int = connection.execute(sql.SCHEMA_VERSION).fetchall()[0][0]
    return version


def _statements(script: str) -> Iterator[str]:
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
