"""How a script reaches its server: `EVALSHA`, and plain `EVAL` where that node does not know it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import ClusterDownError, ClusterError, NoScriptError, ResponseError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from durable_redis._coding import Reply
from durable_redis._scripts import Script

Argument: TypeAlias = bytes | str | int
Client: TypeAlias = "Redis | RedisCluster"  # parameters of both say what their decoding methods give, and none is called here

_NEVER_DECODE = "NEVER_DECODE"  # redis-py's option for one command: bytes, whatever `decode_responses` says
_PATIENCE = 5.0  # seconds for a slot that moves
REPEATS = 3  # times that a call is repeated whose reply was lost
_MOVING = (TryAgainError, ClusterDownError)


class Wire(Protocol):
    """Sends scripts and commands, and repeats them where a reply was lost."""

    async def run(self, script: Script, keys: Sequence[bytes], *arguments: Argument) -> Reply:
        """Run a script. Its repetition gives the same answer. [ANY-REPEAT]"""
        ...

    async def call(self, *command: Argument) -> Reply:
        """Send a command that only reads."""
        ...

    async def ask(self, *command: str) -> Reply:
        """Ask any one node about itself."""
        ...

    async def aclose(self) -> None:
        """End what is under way."""
        ...


class PooledWire:
    """Sends by the client itself, which takes a connection of its pool for each call and follows a cluster's slots."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._plain = False
        self._under_way: set[asyncio.Task[Reply]] = set()

    def __repr__(self) -> str:
        return f"PooledWire({self._client!r})"

    async def run(self, script: Script, keys: Sequence[bytes], *arguments: Argument) -> Reply:
        """Run a script."""
        try:
            return await self.call("EVALSHA", script.plain_sha if self._plain else script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            pass
        try:
            return await self.call("EVAL", script.plain if self._plain else script.text, len(keys), *keys, *arguments)
        except ResponseError as refused:
            if self._plain or not is_too_old(refused):
                raise
        self._plain = True
        return await self.call("EVAL", script.plain, len(keys), *keys, *arguments)

    async def call(self, *command: Argument) -> Reply:
        """Send a command: again while a slot moves, and a few times after a lost reply, whatever the client's policy."""
        deadline, pause, lost = time.monotonic() + _PATIENCE, 0.01, 0
        while True:
            try:
                return await self._sent(command)
            except (ResponseError, ClusterError) as refused:
                if not is_moving(refused) or time.monotonic() > deadline:
                    raise
            except (RedisConnectionError, RedisTimeoutError):
                lost += 1
                if lost > REPEATS or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.2)

    async def ask(self, *command: str) -> Reply:
        """Ask any one primary about itself."""
        if not isinstance(self._client, RedisCluster):
            return await self._sent(command)
        _ = await self._client.initialize()
        node = self._client.get_primaries()[0]
        return await self._sent(command, target_nodes=node)

    async def _sent(self, command: Sequence[Argument], **options: object) -> Reply:
        # A caller that is cancelled leaves its call to end by itself: redis-py may otherwise lose a connection of the pool, and
        # on Python 3.11 the cancellation.
        task = asyncio.create_task(self._answered(command, options))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def _answered(self, command: Sequence[Argument], options: Mapping[str, object]) -> Reply:
        # Both clients take any command, and say nothing about what it gives.
        send = cast("Callable[..., Awaitable[object]]", self._client.execute_command)  # pyright: ignore[reportUnknownMemberType]
        reply = await send(*command, **{_NEVER_DECODE: True}, **options)
        if isinstance(reply, dict):
            reply = [part for pair in reply.items() for part in pair]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(reply, set):
            reply = list(reply)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return cast("Reply", reply)  # what a server sends, undecoded: bytes, whole numbers, and lists of them

    def _ended(self, task: asyncio.Task[Reply]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # its caller has it, or is gone

    async def aclose(self) -> None:
        """Wait for what is under way, for a while."""
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=_PATIENCE)
            for task in late:
                task.cancel()


def is_too_old(refused: ResponseError) -> bool:
    """Say whether a server below 7.0 has stumbled over the first line of a script."""
    return "unexpected symbol near '#'" in str(refused)


def is_moving(refused: Exception) -> bool:
    """Say whether a slot is on its way from one node to another: to be tried again, and nothing about the pass."""
    said = str(refused).lower()
    return isinstance(refused, _MOVING) or "non local key" in said or "ttl exhausted" in said
