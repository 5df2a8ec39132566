"""The schema: applied once under a lock, or verified only."""

from __future__ import annotations

from importlib import resources
from typing import LiteralString, cast

import psycopg
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Identifier

from durable_core.errors import SchemaMismatch

from durable_postgres._pool import Connection, Connections, undone

_LOCK = 7041988311  # of the transaction that applies migrations, beside the position locks
_MISSING = ("42P01", "3F000", "42883")

TABLES = ("workflow_checkpoint", "workflow_claim", "workflow_queue", "workflow_guard", "workflow_never")
VERSION = "SELECT coalesce(max(version), 0) FROM {schema}workflow_schema"
APPLIED = "INSERT INTO {schema}workflow_schema (version) VALUES (%s)"
CURRENT = "SELECT current_schema()"


def migrations() -> list[tuple[int, str, str]]:
    """Give number, name and text of every migration, in order."""
    files = resources.files("durable_postgres") / "migrations"
    found = sorted(file.name for file in files.iterdir() if file.name.endswith(".sql"))
    return [(int(name[:4]), name, (files / name).read_text("utf-8")) for name in found]


def printed(schema: str | None = None) -> str:
    """Give the whole schema as text to be run with `psql`, for a schema of that name or the first of the search path."""
    parts: list[str] = []
    for version, name, body in migrations():
        applied = f"INSERT INTO @schema@.workflow_schema (version) VALUES ({version});\n"
        parts.append(f"-- {name}\n{body}{applied}")
    text = "\n".join(parts)
    return text.replace("@schema@.", "") if schema is None else text.replace("@schema@", quoted(schema))


def quoted(schema: str) -> str:
    """Give the schema's name as an identifier."""
    return '"' + schema.replace('"', '""') + '"'


async def prepare(connections: Connections, *, create: bool) -> None:
    """Create the schema, or verify it. Raises: `SchemaMismatch`, saying what is missing or newer."""
    async with connections.connection() as connection:
        try:
            if create:
                await _apply(connections, connection)
            await _verify(connections, connection)
        except BaseException:
            await undone(connection)
            raise


async def _apply(connections: Connections, connection: Connection) -> None:
    if await _version(connections, connection) >= migrations()[-1][0]:
        return
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        schema = connections.schema
        if schema is None:
            async with connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(CURRENT)
                ((name,),) = await cursor.fetchall()
            if not isinstance(name, str):
                raise SchemaMismatch("the search path names no schema that exists: name one with schema=")
            schema = name
        else:
            await connection.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(Identifier(schema)))
        version = await _version(connections, connection)
        for number, _, body in migrations():
            if number > version:
                # The text is ours, and the name in it is quoted.
                await connection.execute(SQL(cast("LiteralString", body.replace("@schema@", quoted(schema)))))
                await connection.execute(connections.statement(APPLIED), (number,))


async def _version(connections: Connections, connection: Connection) -> int:
    """Give the version that is there, zero for none."""
    async with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        name = "workflow_schema" if connections.schema is None else f"{quoted(connections.schema)}.workflow_schema"
        await cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (name,))
        ((there,),) = await cursor.fetchall()
        if not there:
            return 0
        await cursor.execute(connections.statement(VERSION))
        ((version,),) = await cursor.fetchall()
    assert isinstance(version, int)
    return version


async def _verify(connections: Connections, connection: Connection) -> None:
    known = migrations()[-1][0]
    version = await _version(connections, connection)
    where = "the search path" if connections.schema is None else f"schema {connections.schema!r}"
    if version == 0:
        raise SchemaMismatch(f"{where} has no durable tables: apply what `python -m durable_postgres schema` prints")
    if version < known:
        raise SchemaMismatch(f"{where} has version {version} of the schema, and this code needs {known}: apply what is missing")
    if version > known:
        raise SchemaMismatch(
            f"{where} has version {version} of the schema, and this code knows {known}: upgrade durable-postgres"
        )
    await _verify_use(connections, connection, where)


async def _verify_use(connections: Connections, connection: Connection, where: str) -> None:
    for table in TABLES:
        name = table if connections.schema is None else f"{quoted(connections.schema)}.{table}"
        async with connection.cursor(row_factory=tuple_row) as cursor:
            try:
                await cursor.execute("SELECT has_table_privilege(%s, 'SELECT, INSERT, UPDATE, DELETE')", (name,))
                ((usable,),) = await cursor.fetchall()
            except psycopg.Error as error:
                if error.sqlstate not in _MISSING:
                    raise
                raise SchemaMismatch(f"{where} lacks the table {table}") from error
        if not usable:
            raise SchemaMismatch(
                f"this role may not read and write {table} in {where}: grant it SELECT, INSERT, UPDATE and DELETE"
            )
