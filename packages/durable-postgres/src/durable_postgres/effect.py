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
    """Refuse what is no async function, with `Misconfigured`."""
    if not callable(effect):
        raise Misconfigured(f"transact on Postgres takes an async function of a cursor, and not {type(effect).__name__}")
    function = inspect.unwrap(effect)
    if inspect.isfunction(function) and not inspect.iscoroutinefunction(function):
        raise Misconfigured(f"{function.__qualname__} is a plain function: transact on Postgres takes `async def effect(cursor)`")
