"""The schema: applied once under a lock, or verified only."""

from __future__ import annotations

import hashlib
import re
from importlib import resources

from psycopg.rows import tuple_row

from durable_core.errors import SchemaMismatch
from durable_postgres import sql
from durable_postgres._pool import Connection, Connections, fetched, quoted

_APPLYING = 7041988311  # the lock of a transaction that applies migrations
_TABLE = re.compile(r"CREATE TABLE @schema@\.(\w+) \(([^;]*)\) /\* partitions \*/( WITH \([^;]*\))?;")
_GRANTS = "grant SELECT, INSERT, UPDATE, DELETE on its tables and USAGE on its sequences"
_MADE = re.compile(r"CREATE (TABLE|SEQUENCE|FUNCTION) @schema@\.(\w+)")


def migrations() -> list[tuple[int, str, str]]:
    """Give number, name and text of every migration, in order."""
    files = resources.files("durable_postgres") / "migrations"
    found = sorted(file.name for file in files.iterdir() if file.name.endswith(".sql"))
    return [(int(name[:4]), name, (files / name).read_text("utf-8")) for name in found]


def made(kind: str) -> list[str]:
    """Give the names of all tables, sequences or functions that the migrations make."""
    return [name for _, _, body in migrations() for found, name in _MADE.findall(body) if found == kind.upper()]


def printed(schema: str = "public", *, partitions: int = 0) -> str:
    """Give the whole schema as text to be run with `psql`; with `partitions`, its three large tables in so many, by workflow."""
    parts = ["BEGIN;\n", f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)};\n" if schema != "public" else ""]
    for version, name, body in migrations():
        text = rendered(_partitioned(body, partitions) if partitions else body, schema)
        parts.append(f"-- {name}\n{text}INSERT INTO {quoted(schema)}.workflow_schema (version) VALUES ({version});\n")
    return "\n".join([*parts, "COMMIT;"])


def rendered(body: str, schema: str) -> str:
    """Give a migration with the schema's names in their places. Raises: `SchemaMismatch` for a name that cannot be one."""
    if "$durable$" in schema or "\0" in schema or not schema:
        raise SchemaMismatch(f"{schema!r} cannot be the name of a schema")
    name = quoted(schema)
    number = int.from_bytes(hashlib.blake2b(schema.encode(), digest_size=7).digest())
    # One pass: the name may hold what looks like another mark.
    marks = {"@schema@": name, "@literal@": name.replace("'", "''"), "@lock@": str(number)}
    return re.sub("|".join(marks), lambda mark: marks[mark.group()], body)


def _partitioned(body: str, partitions: int) -> str:
    """Give a migration whose marked tables are partitioned by hash of the workflow."""

    def table(found: re.Match[str]) -> str:
        name, columns, storage = found.group(1), found.group(2), found.group(3) or ""
        lines = [f"CREATE TABLE @schema@.{name} ({columns}) PARTITION BY HASH (workflow);"]
        for part in range(partitions):
            bounds = f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {part})"
            lines.append(f"CREATE TABLE @schema@.{name}_{part} PARTITION OF @schema@.{name} {bounds}{storage};")
        return "\n".join(lines)

    return _TABLE.sub(table, body)


async def prepare(connections: Connections, *, create: bool) -> None:
    """Create the schema, or verify it. Raises: `SchemaMismatch`, saying what is missing or newer."""
    connections.check_loop()
    async with connections.transaction() as connection:
        where = await _schema(connections, connection)
        known = migrations()[-1][0]
        if create and await _version(connection, where) < known:
            await _apply(connection, where)
        await _verify(connection, where, known)
        await connection.commit()


async def _schema(connections: Connections, connection: Connection) -> str:
    """Give the schema: the one that was named, or where the search path finds the tables, or else its first."""
    if connections.schema is not None:
        return connections.schema
    ((found, first, encoding),) = await fetched(connection, sql.WHERE.encode(), ())
    if encoding != "UTF8":
        raise SchemaMismatch(f"the database holds text as {encoding}, and the store needs one in UTF8")
    if isinstance(found, str):
        return found
    if isinstance(first, str):
        return first
    raise SchemaMismatch("the search path names no schema that exists: name one with schema=")


async def _apply(connection: Connection, schema: str) -> None:
    await fetched(connection, b"SELECT pg_advisory_xact_lock(%s)", (_APPLYING,))
    async with connection.cursor(row_factory=tuple_row) as cursor:
        if not await fetched(connection, b"SELECT FROM pg_namespace WHERE nspname = %s", (schema,)):
            await cursor.execute(f"CREATE SCHEMA {quoted(schema)}".encode())
        version = await _version(connection, schema)
        for number, _, body in migrations():
            if number > version:
                await cursor.execute(rendered(body, schema).encode())
                await cursor.execute(f"INSERT INTO {quoted(schema)}.workflow_schema (version) VALUES ({number})".encode())


async def _version(connection: Connection, schema: str) -> int:
    """Give the version that is there, zero for none."""
    table = f"{quoted(schema)}.workflow_schema"
    ((readable,),) = await fetched(connection, b"SELECT has_table_privilege(to_regclass(%s), 'SELECT')", (table,))
    if readable is None:
        return 0
    if not readable:
        raise SchemaMismatch(f"schema {schema!r} cannot be used by this role: {_GRANTS}")
    statement = f"SELECT coalesce(max(version), 0) FROM {table}".replace("%", "%%")
    ((version,),) = await fetched(connection, statement.encode(), ())
    assert isinstance(version, int)
    return version


async def _verify(connection: Connection, schema: str, known: int) -> None:
    version = await _version(connection, schema)
    where = f"schema {schema!r}"
    if version == 0:
        raise SchemaMismatch(f"{where} has no durable tables: apply what `python -m durable_postgres schema {schema}` prints")
    if version < known:
        raise SchemaMismatch(f"{where} has version {version} of the schema, and this code needs {known}: apply what is missing")
    if version > known:
        raise SchemaMismatch(f"{where} has version {version}, and this code knows {known}: upgrade durable-postgres")
    lacking = await fetched(
        connection, sql.LACKING.encode(), {"schema": schema, **{kind: made(kind) for kind in ("table", "sequence", "function")}}
    )
    if lacking:
        what = "; ".join(f"{name}: {verdict}" for name, verdict in lacking)
        raise SchemaMismatch(f"{where} cannot be used by this role: {what}")
