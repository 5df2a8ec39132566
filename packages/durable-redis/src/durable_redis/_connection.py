"""What a store and its halves share: the application's client, and how scripts reach the server through it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TypeVar

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from durable_core.errors import Misconfigured
from durable_redis._coding import Reply
from durable_redis._describe import check_server
from durable_redis._scripts import Script, Variant, script
from durable_redis._shared import SharedWire, enough_connections
from durable_redis._wire import Argument, Client, PooledWire, Wire

T = TypeVar("T")

_TIDYING = 5.0  # seconds that closing waits for what is being put back


class Connection:
    """The application's client, and what is under way through it."""

    def __init__(self, client: Client, replicas: int = 0, flushed: bool = False) -> None:
        check_client(client)
        self.client: Client = client
        self.flushed: bool = flushed
        if (replicas or flushed) and not (isinstance(client, Redis) and enough_connections(client)):
            raise Misconfigured(
                "replicas= and flushed= wait on the connection that wrote: they take a redis.asyncio.Redis whose pool has four "
                "connections; a cluster's client does not let us choose one"
            )
        self._wire: Wire = SharedWire(client, replicas, flushed) if isinstance(client, Redis) else PooledWire(client)
        self._tidying: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"Connection({self.client!r})"

    async def run(self, name: str, keys: Sequence[bytes], *arguments: Argument, variant: Variant = "set") -> Reply:
        """Run the script of an operation."""
        return await self._at_home().run(script(name, variant), keys, *arguments)

    async def run_script(self, made: Script, keys: Sequence[bytes], *arguments: Argument) -> Reply:
        """Run a script that was looked up before."""
        return await self._at_home().run(made, keys, *arguments)

    async def call(self, *command: Argument) -> Reply:
        """Send a command that only reads."""
        return await self._at_home().call(*command)

    async def ask(self, *command: str) -> Reply:
        """Ask any one node what it is; on a cluster they are taken to be alike."""
        return await self._at_home().ask(*command)

    def _at_home(self) -> Wire:
        """Give the wire to the event loop that used it first, and refuse any other: its answers come there."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise Misconfigured(
                    "this store belongs to the event loop that first used it, and this is another: make a store in each loop, "
                    "with a client of its own, and close it there"
                )
            self._loop = loop
        return self._wire

    async def heard(self, call: Coroutine[object, object, T], take_back: Callable[[T], Awaitable[None]]) -> T:
        """Await a call; when its caller is cancelled meanwhile, undo what it will have granted."""
        task = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                self.tidy(_taken_back(task, take_back))
            raise

    async def check_server(self) -> None:
        """Refuse a server that cannot keep the contract. Raises: `Misconfigured`."""
        await check_server(self)

    def tidy(self, call: Coroutine[object, object, None]) -> None:
        """Do something that nobody waits for; closing does, for a while."""
        task = asyncio.ensure_future(call)
        self._tidying.add(task)
        task.add_done_callback(self._tidied)

    def _tidied(self, task: asyncio.Task[None]) -> None:
        self._tidying.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for it, and what it was to put right is put right another time

    async def aclose(self) -> None:
        """Wait for what is being put back, and end what is under way. The client stays open: it is the application's."""
        if self._loop is not asyncio.get_running_loop():
            return  # never used, or its loop is gone and everything with it
        if self._tidying:
            _, late = await asyncio.wait(self._tidying, timeout=_TIDYING)
            for task in late:
                task.cancel()
        await self._wire.aclose()


async def _taken_back(task: asyncio.Future[T], take_back: Callable[[T], Awaitable[None]]) -> None:
    try:
        await take_back(await task)
    except Exception:
        return  # nobody is there to hear it, and what was granted lapses by itself


def check_client(client: object) -> None:
    """Refuse what is no client of redis-py, or one that may read from replicas, which lag. [CKP-LOAD-PREFIX]"""
    if not isinstance(client, (Redis, RedisCluster)):
        raise Misconfigured(f"a store takes a redis.asyncio.Redis or RedisCluster, and not {type(client).__name__}")
    if isinstance(client, RedisCluster) and (client.read_from_replicas or client.load_balancing_strategy):
        raise Misconfigured("this RedisCluster reads from replicas, which lag behind: give the store a client that does not")


def nonce() -> str:
    """Give a name for one call, so that its repetition is known. [ANY-REPEAT]"""
    return os.urandom(12).hex()
