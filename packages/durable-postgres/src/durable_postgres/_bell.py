"""Who waits is told: within the process at once, from other processes by NOTIFY, which is a hint and no guarantee. [SCH-NEXT-WAIT]"""

from __future__ import annotations

import asyncio
import hashlib
import secrets

import psycopg
from psycopg_pool import PoolTimeout

from durable_postgres import sql
from durable_postgres._pool import Connection, Connections, undone

TOLD_POLL, UNTOLD_POLL = 5.0, 0.5  # seconds between two looks, where hints arrive and where they do not
_PROBE = 1.0  # seconds that the first hint to ourselves may take
_AGAIN = 5.0  # seconds before listening is tried again
_LEAST = 3  # connections that a pool must have for one to listen


class Bell:
    """Counts rings. A ring here wakes those who wait here, and sends one hint, after the commit, for all rings meanwhile."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        digest = hashlib.sha256((connections.schema or "").encode()).hexdigest()[:16]
        self._channel = f"durable_{digest}"
        self._me = secrets.token_hex(8)
        self._rings = 0
        self._sleepers: set[asyncio.Future[None]] = set()
        self._owed = False
        self._sending: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self.told = False

    def __repr__(self) -> str:
        return f"<Bell {self._channel}, {'told' if self.told else 'not told'}>"

    @property
    def poll(self) -> float:
        """Seconds between two looks at most."""
        return TOLD_POLL if self.told else UNTOLD_POLL

    def mark(self) -> int:
        """Give the count of rings, to be compared by `heard`."""
        return self._rings

    def ring(self) -> None:
        """Something may have become due, or may have ended: its commit is over."""
        self._wake()
        self._owed = True
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def heard(self, mark: int, seconds: float) -> None:
        """Return after a ring since the mark, or after so many seconds, or when it is time to look."""
        if self._rings != mark or seconds <= 0:
            return
        if self._listening is None and self._connections.pool.max_size >= _LEAST:
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.add(sleeper)
        try:
            async with asyncio.timeout(min(seconds, self.poll)):
                await sleeper
        except TimeoutError:
            pass
        finally:
            self._sleepers.discard(sleeper)

    async def aclose(self) -> None:
        """Stop listening."""
        for task in (self._listening, self._sending):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))

    def _wake(self) -> None:
        self._rings += 1
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)

    async def _send(self) -> None:
        try:
            while self._owed:
                self._owed = False
                await self._connections.call(sql.NOTIFY, (self._channel, self._me))
        except (psycopg.Error, PoolTimeout):
            pass  # a hint: whoever waits looks by itself
        finally:
            self._sending = None

    async def _listen(self) -> None:
        """Hold one connection that listens, as long as hints arrive on it."""
        try:
            async with self._connections.connection() as connection:
                try:
                    await self._hear(connection)
                finally:
                    self.told = False
                    await connection.close()  # its LISTEN is session state, and must not come back to the pool
        except (psycopg.Error, PoolTimeout):
            pass
        await asyncio.sleep(_AGAIN)
        self._listening = None

    async def _hear(self, connection: Connection) -> None:
        await connection.execute(self._connections.statement(f"LISTEN {self._channel}"))
        await self._connections.call(sql.NOTIFY, (self._channel, self._me))
        async for _ in connection.notifies(timeout=_PROBE, stop_after=1):
            self.told = True
        while self.told:
            await undone(connection)
            async for notice in connection.notifies():
                if notice.payload != self._me:
                    self._wake()
