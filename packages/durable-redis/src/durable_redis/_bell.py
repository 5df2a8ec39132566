"""The bell of a queue: a list with one token at most, on which the idle takers of a process wait together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from redis.asyncio.cluster import RedisCluster
from redis.exceptions import RedisError

from durable_redis._connection import Connection

BLOCK = 10  # seconds for which one read waits; a token that was lost with its taker delays others by so much
_SLACK = 5.0  # seconds more until the read counts as lost
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds after an error


class _Line(Protocol):
    """What is used of a redis-py connection."""

    async def send_command(self, *command: object) -> None: ...

    async def read_response(self, disable_decoding: bool = ..., timeout: float | None = ...) -> object: ...

    async def disconnect(self, nowait: bool = ...) -> None: ...


class Bell:
    """Listens while somebody waits, on one connection for each partition; `heard` counts what was heard from each."""

    def __init__(self, connection: Connection, keys: Sequence[bytes]) -> None:
        self._connection, self._keys = connection, keys
        self.heard = [0] * len(keys)
        self._waiting: set[asyncio.Future[None]] = set()
        self._listening: list[asyncio.Task[None] | None] = [None] * len(keys)

    def __repr__(self) -> str:
        return f"<Bell of {len(self._keys)} partitions, {len(self._waiting)} waiting>"

    async def wait(self, since: Sequence[int], seconds: float) -> None:
        """Return when something was heard since, or after so many seconds."""
        if list(since) != self.heard:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            for place, task in enumerate(self._listening):
                if task is None or task.done():
                    self._listening[place] = asyncio.create_task(self._listen(place), name=f"durable-redis bell {place}")
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            self._waiting.discard(waiting)

    def _ring(self, place: int) -> None:
        self.heard[place] += 1
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def _listen(self, place: int) -> None:
        pause = _FIRST_PAUSE
        while self._waiting:
            try:
                rung = await self._blocked(self._keys[place])
            except (RedisError, OSError):
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                pause = _FIRST_PAUSE
                if rung and not self._waiting:
                    await self._give_back(self._keys[place])
            self._ring(place)

    async def _give_back(self, key: bytes) -> None:
        try:
            await self._connection.run("ring", [key])
        except (RedisError, OSError):
            return  # the token is lost: who waits looks again within BLOCK

    async def _blocked(self, key: bytes) -> bool:
        """Wait for the token on a connection of its own: a block may be longer than the client's socket timeout."""
        client = self._connection.client
        if isinstance(client, RedisCluster):
            await self._connection.call("EXISTS", key)  # follows a slot that has moved
            node = client.get_node_from_key(key.decode())
            assert node is not None
            line = node.acquire_connection()
            try:
                return await _read(line, key)
            finally:
                node.release(line)
        pool = client.connection_pool
        line = await pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            return await _read(line, key)
        finally:
            await pool.release(line)

    async def aclose(self) -> None:
        """Stop listening."""
        tasks = [task for task in self._listening if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _read(line: _Line, key: bytes) -> bool:
    try:
        await line.send_command("BLPOP", key, BLOCK)
        return await line.read_response(disable_decoding=True, timeout=BLOCK + _SLACK) is not None
    except BaseException:
        await line.disconnect(nowait=True)
        raise
