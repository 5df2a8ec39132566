"""The bell of a queue: a list with one token at most, on which the idle takers of a process wait together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Protocol

from redis.asyncio.cluster import RedisCluster
from redis.exceptions import RedisError

from durable_redis._connection import Connection

LONGEST = 10.0  # seconds for which one read waits at most
_SHORTEST = 0.25
_KEPT = 30.0  # seconds for which a connection is kept that nobody waits on
_SLACK = 5.0  # seconds more until the read counts as lost
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds after an error
_GOODBYE = 1.0  # seconds that closing may take for the sake of others


class _Line(Protocol):
    """What is used of a redis-py connection."""

    async def send_command(self, *command: object) -> None: ...

    async def read_response(self, disable_decoding: bool = ..., timeout: float | None = ...) -> object: ...

    async def disconnect(self, nowait: bool = ...) -> None: ...


class Bell:
    """Listens while somebody waits, on one connection for each partition; `heard` counts what was heard from each.

    What a taker knew that died, a token or when something is due, is known again after `block` seconds: every waiter looks then.
    """

    def __init__(self, connection: Connection, keys: Sequence[bytes], lease: timedelta) -> None:
        self._connection, self._keys = connection, keys
        self.block: float = max(min(LONGEST, lease.total_seconds() / 4), _SHORTEST)
        self.heard: list[int] = [0] * len(keys)
        self._waiting: set[asyncio.Future[None]] = set()
        self._wanted = asyncio.Event()  # set while somebody waits
        self._listening: list[asyncio.Task[None] | None] = [None] * len(keys)

    def __repr__(self) -> str:
        return f"<Bell of {len(self._keys)} partitions, {len(self._waiting)} waiting>"

    async def wait(self, since: Sequence[int], seconds: float) -> None:
        """Return when something was heard since, or after so many seconds."""
        if list(since) != self.heard:
            return
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _over, waiting)
        self._waiting.add(waiting)
        self._wanted.set()
        try:
            for place, task in enumerate(self._listening):
                if task is None or task.done():
                    self._listening[place] = asyncio.create_task(self._listen(place), name=f"durable-redis bell {place}")
            await waiting
        finally:
            timer.cancel()
            self._waiting.discard(waiting)
            if not self._waiting:
                self._wanted.clear()

    def _ring(self, place: int) -> None:
        self.heard[place] += 1
        for waiting in self._waiting:
            _over(waiting)
        self._waiting.clear()
        self._wanted.clear()

    async def _listen(self, place: int) -> None:
        key, pause = self._keys[place], _FIRST_PAUSE
        while True:
            try:
                async with self._line(key) as line:
                    pause = _FIRST_PAUSE
                    while await self._is_wanted():
                        rung = await _read(line, key, self.block)
                        if rung and not self._waiting:
                            await self._give_back(key)
                        self._ring(place)
                return
            except (RedisError, OSError):
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            self._ring(place)

    async def _is_wanted(self) -> bool:
        """Say whether somebody waits, and keep the connection for a while when nobody does."""
        try:
            async with asyncio.timeout(_KEPT):
                await self._wanted.wait()
        except TimeoutError:
            return False
        return True

    async def _give_back(self, key: bytes) -> None:
        try:
            await self._connection.run("ring", [key])
        except (RedisError, OSError):
            return  # the token is lost, as with a taker that died

    @asynccontextmanager
    async def _line(self, key: bytes) -> AsyncGenerator[_Line]:
        """Give a connection to wait on by itself: a block may be longer than the client's socket timeout."""
        client = self._connection.client
        if isinstance(client, RedisCluster):
            await self._connection.call("EXISTS", key)  # follows a slot that has moved
            node = client.get_node_from_key(key.decode())
            assert node is not None
            held = node.acquire_connection()
            try:
                yield held
            finally:
                node.release(held)
        else:
            pool = client.connection_pool
            line = await pool.get_connection()  # type: ignore[no-untyped-call]
            try:
                yield line
            finally:
                await pool.release(line)

    async def aclose(self) -> None:
        """Stop listening, and have another taker look, who may not know what this one waited for."""
        listening = [(key, task) for key, task in zip(self._keys, self._listening, strict=True) if task and not task.done()]
        left = {task for _, task in listening}
        while left:  # a client that loses a cancellation is asked again
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=_GOODBYE)
        if listening:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE), asyncio.TaskGroup() as group:
                    for key, _ in listening:
                        group.create_task(self._give_back(key))


def _over(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def _read(line: _Line, key: bytes, seconds: float) -> bool:
    try:
        await line.send_command("BLPOP", key, seconds)
        return await line.read_response(disable_decoding=True, timeout=seconds + _SLACK) is not None
    except BaseException:
        await line.disconnect(nowait=True)
        raise
