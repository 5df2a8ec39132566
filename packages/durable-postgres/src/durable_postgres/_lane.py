"""Records that are waiting together go in one commit; nobody waits for a workflow that somebody else holds. [CKP-RECORD-CONCURRENT]"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg_pool import PoolTimeout

from durable_core.errors import Fenced
from durable_postgres import sql
from durable_postgres._pool import Connections, Rows

_GROUP = 256  # items in one statement at most
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
        """Record, and give what is stored instead, or `None`. Raises: `Fenced`. A cancelled caller's item may land all the same."""
        item = Item(workflow, token, key, value, asyncio.get_running_loop().create_future())
        self._put(item)
        return await item.done

    def _put(self, item: Item) -> None:
        self._waiting.append(item)
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_GROUP], self._waiting[_GROUP:]
                batch = sorted((item for item in batch if not item.done.done()), key=lambda item: item.workflow)
                if batch:
                    await self._group(batch)
        finally:
            self._flushing = None
            if self._waiting:  # only when the flush itself was cancelled, with its loop
                for item in self._waiting:
                    item.done.cancel()

    async def _group(self, batch: Sequence[Item]) -> None:
        try:
            rows = await self._connections.call(sql.RECORD, _arrays(batch))
        except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
            _fail(batch, error)
        except psycopg.Error as error:
            # The statement is undone as a whole, and one item need be at fault: each goes again alone.
            if len(batch) == 1:
                _fail(batch, error)
            else:
                for item in batch:
                    await self._group([item])
        except BaseException as error:
            _fail(batch, error)
            raise
        else:
            self._answer(batch, rows)

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


def _arrays(batch: Sequence[Item]) -> tuple[object, ...]:
    return (
        [item.workflow for item in batch],
        [item.token for item in batch],
        [item.key for item in batch],
        [item.value for item in batch],
        False,
    )


def _fail(batch: Sequence[Item], error: BaseException) -> None:
    for item in batch:
        if not item.done.done():
            item.done.set_exception(error)
