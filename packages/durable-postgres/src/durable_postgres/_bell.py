"""Who waits is told: within the process at once, from others by NOTIFY, which is a hint and no guarantee. [SCH-NEXT-WAIT]"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg_pool import PoolTimeout

from durable_postgres import sql
from durable_postgres._pool import Connection, Connections, fetched

TOLD_POLL, UNTOLD_POLL = 5.0, 0.5  # seconds between two looks, where hints arrive and where they do not
_PROBE = 2.0  # seconds that the first hint to ourselves may take
_AGAIN = 5.0  # seconds before listening is tried again
_GAP = 0.002  # seconds between two hints
_LAST = 1.0  # seconds that the last hint may take
_LEAST = 3  # connections that a pool must have for one to listen
_NAMED = 100  # workflows that one hint names; of more it says so

READY = "ready"


@dataclass(slots=True)
class Topic:
    """What somebody here waits for: how often it was rung, and who sleeps until it is."""

    rings: int = 0
    users: int = 0
    sleepers: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])


class Bell:
    """Wakes takers when something may have become due, and watchers when their workflow may have ended.

    A ring here wakes those who wait here, and sends one hint, after the commit, for all rings meanwhile.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        digest = hashlib.sha256((connections.schema or "").encode()).hexdigest()[:16]
        self._channel = f"durable_{digest}"
        self._me = secrets.token_hex(8)
        self._topics: dict[str, Topic] = {}
        self._owed: set[str] = set()
        self._sending: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self.told: bool = False

    def __repr__(self) -> str:
        return f"<Bell {self._channel}, {'told' if self.told else 'not told'}>"

    @property
    def poll(self) -> float:
        """Seconds between two looks at most."""
        return TOLD_POLL if self.told else UNTOLD_POLL

    def ready(self) -> None:
        """Something may have become due: its commit is over."""
        self._ring(READY)

    def ended(self, workflow: str) -> None:
        """A workflow may have ended: its commit is over."""
        self._ring(topic_of(workflow))

    def everybody(self) -> None:
        """Anything may have happened."""
        self._told("*")
        self._owe("*")

    def _ring(self, name: str) -> None:
        self._wake(name)
        self._owe(name)

    @contextmanager
    def topic(self, name: str) -> Generator[Topic]:
        """Count the rings of a topic from here on."""
        topic = self._topics.setdefault(name, Topic())
        topic.users += 1
        try:
            yield topic
        finally:
            topic.users -= 1
            if not topic.users:
                del self._topics[name]

    async def heard(self, topic: Topic, mark: int, seconds: float) -> None:
        """Return after a ring since the mark, or after so many seconds, or when it is time to look."""
        if topic.rings == mark and seconds > 0:
            self._listen_if_possible()
            sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            topic.sleepers.add(sleeper)
            try:
                async with asyncio.timeout(min(seconds, self.poll)):
                    await sleeper
            except TimeoutError:
                pass
            finally:
                topic.sleepers.discard(sleeper)

    async def aclose(self) -> None:
        """Send what is owed, and stop listening."""
        if self._sending is not None and not self._sending.done():
            await asyncio.wait((self._sending,), timeout=_LAST)
        for task in (self._listening, self._sending):
            while task is not None and not task.done():  # a client that loses a cancellation is asked again
                task.cancel()
                await asyncio.wait((task,), timeout=_LAST)
        self._listening = self._sending = None

    def _wake(self, name: str) -> None:
        topic = self._topics.get(name)
        if topic is not None:
            topic.rings += 1
            for sleeper in topic.sleepers:
                if not sleeper.done():
                    sleeper.set_result(None)

    def _owe(self, name: str) -> None:
        self._owed.add(name)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        while self._owed:
            names, self._owed = self._owed, set()
            said = "*" if "*" in names or len(names) > _NAMED else " ".join(sorted(names))
            try:
                await self._connections.call(sql.NOTIFY, (self._channel, f"{self._me} {said}"))
            except (psycopg.Error, PoolTimeout):
                return  # a hint: whoever waits looks by itself
            await asyncio.sleep(_GAP)

    def _listen_if_possible(self) -> None:
        if self._connections.pool.max_size >= _LEAST and (self._listening is None or self._listening.done()):
            self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        """Hold one connection that listens, as long as hints arrive on it."""
        try:
            async with self._connections.connection() as connection:
                if not await _pooled_elsewhere(connection):
                    try:
                        await self._hear(connection)
                    finally:
                        self.told = False
                        await _silent(connection)
        except (psycopg.Error, PoolTimeout):
            pass
        await asyncio.sleep(_AGAIN)

    async def _hear(self, connection: Connection) -> None:
        await connection.execute(f"LISTEN {self._channel}".encode())
        await self._connections.call(sql.NOTIFY, (self._channel, self._me))
        async for _ in connection.notifies(timeout=_PROBE, stop_after=1):
            self.told = True
            self._told("*")  # what was rung before we listened
        while self.told:
            async for notice in connection.notifies():
                sender, _, said = notice.payload.partition(" ")
                if sender != self._me:
                    self._told(said)

    def _told(self, said: str) -> None:
        for name in tuple(self._topics) if said == "*" else said.split():
            self._wake(name)


async def _silent(connection: Connection) -> None:
    """Have a connection listen no more before somebody else uses it."""
    try:
        await connection.execute(b"UNLISTEN *")
    except psycopg.Error:
        await connection.close()


async def _pooled_elsewhere(connection: Connection) -> bool:
    """Say whether a pooler stands in between, which would give our LISTEN to somebody else."""
    ((server,),) = await fetched(connection, b"SELECT pg_backend_pid()", ())
    return server != connection.info.backend_pid


def topic_of(workflow: str) -> str:
    """Give a short name that cannot be mistaken for another topic, or hardly for another workflow's."""
    return hashlib.blake2b(workflow.encode(), digest_size=8).hexdigest()
