"""What this store can commit beside a record: the application's own statements, in the same transaction."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from psycopg import AsyncCursor
from psycopg.rows import TupleRow

from durable_core.errors import Misconfigured

SqlEffect: TypeAlias = Callable[[AsyncCursor[TupleRow]], Awaitable[object]]
"""An async function that is handed a cursor in an open transaction, and gives what is recorded.

It must not end the transaction: a COMMIT, a PREPARE TRANSACTION or a ROLLBACK in it fails, and undoes what it did. So does SET
CONSTRAINTS ALL IMMEDIATE. Where it catches an error of the database it needs a savepoint around the statement:
`async with cursor.connection.transaction(): …`.
"""


def check(effect: object) -> None:
    """Refuse what cannot be called, with `Misconfigured`."""
    if not callable(effect):
        raise Misconfigured(f"transact on Postgres takes an async function of a cursor, and not {type(effect).__name__}")


async def applied(effect: SqlEffect, cursor: AsyncCursor[TupleRow]) -> object:
    """Apply an effect. Raises: `Misconfigured` for a plain function, which could not have waited for the database."""
    made = effect(cursor)
    if not inspect.isawaitable(made):
        raise Misconfigured(f"transact on Postgres takes `async def effect(cursor)`, and {effect!r} gave {type(made).__name__}")
    return await made
