"""Records that wait together go in one commit; nobody waits for a workflow that somebody else holds. [CKP-RECORD-CONCURRENT]"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg.types.numeric import Int8

from durable_core.errors import Fenced
from durable_postgres import sql
from durable_postgres._pool import Connections, Rows

_GROUP = 256  # items in one statement at most,
_SIZE = 1_000_000  # and so many characters of values, but for a single one
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05  # seconds before an item whose workflow was held is tried again

_WRITTEN, _LOST, _FENCED, _BUSY = range(4)


@dataclass(slots=True)
class Item:
    """One record on its way; `token` is `None` for a supply, and the future gets what is stored instead, or `None`."""

    workflow: str
    token: int | None
    key: str
    value: str
    done: asyncio.Future[str | None]
    pause: float = field(default=_FIRST_PAUSE)


class Lane:
    """Flushes what is waiting in one statement, one flush at a time; a lone item is never delayed for company."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._waiting: list[Item] = []
        self._flushing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Lane, {len(self._waiting)} waiting>"

    async def record(self, workflow: str, token: int | None, key: str, value: str) -> str | None:
        """Record, and give what is stored instead, or `None`. Raises: `Fenced`. The item of a cancelled caller may still land."""
        item = Item(workflow, token, key, value, asyncio.get_running_loop().create_future())
        self._put(item)
        return await item.done

    def _put(self, item: Item) -> None:
        self._waiting.append(item)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch = [item for item in self._next() if not item.done.done()]
                if batch:
                    batch.sort(key=lambda item: item.workflow)
                    await self._group(batch)
        finally:
            for item in self._waiting:  # only when the flush itself was cancelled, with its loop
                item.done.cancel()
            self._waiting.clear()

    def _next(self) -> list[Item]:
        """Take from the front what fits into one statement."""
        count = size = 0
        for item in self._waiting[:_GROUP]:
            size += len(item.value)
            if count and size > _SIZE:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _group(self, batch: Sequence[Item]) -> None:
        try:
            rows = await self._made(batch)
        except psycopg.Error as error:
            # The statement is undone as a whole, and one item need be at fault: each goes again alone.
            if len(batch) == 1 or _unreachable(error):
                _fail(batch, error)
            else:
                for item in batch:
                    await self._group([item])
        except BaseException as error:
            _fail(batch, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._answer(batch, rows)

    async def _made(self, batch: Sequence[Item]) -> Rows:
        if len(batch) == 1:
            (one,) = batch
            return await self._connections.call(sql.RECORD, (one.workflow, one.token, one.key, one.value, False))
        return await self._connections.call(
            sql.RECORD_GROUP,
            (
                [item.workflow for item in batch],
                [None if item.token is None else Int8(item.token) for item in batch],
                [item.key for item in batch],
                [item.value for item in batch],
            ),
        )

    def _answer(self, batch: Sequence[Item], rows: Rows) -> None:
        for item, (state, stored) in zip(batch, rows, strict=True):
            if item.done.done():
                continue
            if state == _BUSY:
                asyncio.get_running_loop().call_later(item.pause, self._put, item)
                item.pause = min(item.pause * 2, _LONGEST_PAUSE)
            elif state == _FENCED:
                assert item.token is not None
                item.done.set_exception(Fenced(item.workflow, item.token, item.key))
            else:
                item.done.set_result(stored if isinstance(stored, str) else None)


def _unreachable(error: psycopg.Error) -> bool:
    """Say whether the connection or the server is gone, rather than a statement refused."""
    return isinstance(error, psycopg.InterfaceError) or error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def _fail(batch: Sequence[Item], error: BaseException) -> None:
    for item in batch:
        if item.done.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            item.done.cancel()
        else:
            item.done.set_exception(error)
