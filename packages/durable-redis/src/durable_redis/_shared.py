"""One connection of the application's pool that all concurrent calls share: they are sent together, and answered in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import cast

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import BusyLoadingError, MasterDownError, NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from durable_core.errors import Misconfigured
from durable_redis._coding import Reply, number, parts
from durable_redis._resp import Replies, body, packed
from durable_redis._scripts import Script
from durable_redis._wire import REPEATS, Argument, PooledWire, is_too_old

_LARGE = 64 * 1024  # bytes of an argument whose call goes by a connection of its own, so that it holds up nobody
_APART = frozenset({"renew", "renew_turn", "renew_delivery", "extend"})  # signs of life, which nothing must hold up
_PATIENCE = 30.0  # seconds until a reply counts as lost, where the client has no socket timeout
_REPLICATED, _FLUSHED = 1000, 3000  # milliseconds that a write waits for replicas, and for disks: everysec flushes once a second
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5  # seconds between two tries to connect
_AGAIN = (ReadOnlyError, BusyLoadingError, MasterDownError)  # said by a server that is not the primary, or not ready


class _Call:
    """A script on its way, and its answer. `tail` is all of the command but for its name and the script."""

    __slots__ = ("arguments", "by_text", "count", "future", "keys", "plain", "script", "sent", "tail", "tries")

    def __init__(
        self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument], tail: bytes, future: asyncio.Future[Reply]
    ) -> None:
        self.script, self.keys, self.arguments, self.tail, self.future = script, keys, arguments, tail, future
        self.count, self.plain = 3 + len(keys) + len(arguments), False
        self.tries, self.sent, self.by_text = 0, 0.0, False

    def wire(self) -> bytes:
        """Give the command as it is sent."""
        if self.by_text:
            return b"*%d\r\n" % self.count + body(("EVAL", self.script.plain if self.plain else self.script.text)) + self.tail
        sha = self.script.plain_sha if self.plain else self.script.sha
        return b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n%b" % (self.count, sha, self.tail)

    def answer(self, reply: Reply) -> None:
        """Give the answer, unless nobody waits for it."""
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: Exception) -> None:
        """Let an error be the answer."""
        if not self.future.done():
            self.future.set_exception(error)


class _Receiver(asyncio.Protocol):
    """Hands on what comes in. The protocol that redis-py had put here is told of the end, so that it can close."""

    def __init__(self, owner: SharedWire, before: asyncio.BaseProtocol) -> None:
        self._owner, self._before = owner, before
        self._replies = Replies()

    def data_received(self, data: bytes) -> None:
        """Hand on the replies that are whole."""
        for reply in self._replies.feed(data):
            self._owner.answered(reply)

    def eof_received(self) -> bool:
        """Let the transport close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on that it is over."""
        self._before.connection_lost(exc)
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """Do nothing: what is written here is small."""

    def resume_writing(self) -> None:
        """Do nothing."""


class SharedWire:
    """Sends the calls of all tasks over one connection.

    A lone call is sent at once; calls that come while others are under way are sent together with the next tick of the loop. A
    connection that is lost is replaced and what was not answered is sent again, in order: every script is safe to be repeated.
    [ANY-REPEAT]
    """

    def __init__(self, client: Redis, replicas: int = 0, flushed: bool = False) -> None:
        self._client, self._pooled = client, PooledWire(client)
        self._replicas, self._flushed = replicas, flushed
        self._wait = packed(("WAITAOF", 1, replicas, _FLUSHED)) if flushed else packed(("WAIT", replicas, _REPLICATED))
        if not replicas and not flushed:
            self._wait = b""
        timeout = client.connection_pool.connection_kwargs.get("socket_timeout")
        self._patience = float(timeout) if timeout else _PATIENCE
        self._outbox: deque[_Call] = deque()
        self._sent: deque[_Call | None] = deque()  # None stands for a WAIT
        self._unconfirmed: list[tuple[_Call, Reply]] = []
        self._line: AbstractConnection | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._receiver: _Receiver | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._flushing: asyncio.Handle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._releasing: asyncio.Future[None] | None = None
        self._plain = self._closed = False
        self._bypassed = enough_connections(client) is False

    def __repr__(self) -> str:
        return f"<SharedWire of {self._client!r}: {len(self._sent)} under way>"

    async def run(self, script: Script, keys: Sequence[bytes], *arguments: Argument) -> Reply:
        """Run a script."""
        if self._closed:
            raise Misconfigured("the store was closed: make another")
        large = any(type(part) is bytes and len(part) > _LARGE for part in arguments)
        if self._bypassed or ((large or script.name in _APART) and not self._wait):
            return await self._pooled.run(script, keys, *arguments)
        tail = body((len(keys), *keys, *arguments))
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        call = _Call(script, keys, arguments, tail, future)
        call.plain = self._plain
        self._outbox.append(call)
        if self._sent or self._transport is None:
            self._flush_soon()
        else:
            self._flush()
        return await future

    async def call(self, *command: Argument) -> Reply:
        """Send a command that only reads, on a connection of its own: its reply may be large."""
        return await self._pooled.call(*command)

    async def ask(self, *command: str) -> Reply:
        """Ask the server about itself."""
        return await self._pooled.ask(*command)

    def _flush_soon(self) -> None:
        if self._transport is None:
            if self._connecting is None or self._connecting.done():
                self._connecting = asyncio.create_task(self._connect(), name="durable-redis connection")
        elif self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Send what has gathered; with replicas to wait for, one WAIT stands for all of it."""
        self._flushing = None
        if self._transport is None or not self._outbox:
            return
        now = asyncio.get_running_loop().time()
        pieces = list[bytes]()
        for call in self._outbox:
            call.sent = now
            pieces.append(call.wire())
            self._sent.append(call)
        self._outbox.clear()
        if self._wait:
            pieces.append(self._wait)
            self._sent.append(None)
        self._transport.write(b"".join(pieces))
        if self._watching is None:
            self._watch()

    def _watch(self) -> None:
        """Count a connection as lost whose oldest reply is late."""
        self._watching = None
        loop, oldest = asyncio.get_running_loop(), next((call for call in self._sent if call is not None), None)
        if oldest is None or self._transport is None:
            return
        if loop.time() - oldest.sent > self._patience:
            self._transport.abort()
        else:
            self._watching = loop.call_later(self._patience / 4, self._watch)

    def answered(self, reply: Reply | Exception) -> None:
        """Take the next reply."""
        call = self._sent.popleft()
        if call is None:
            self._confirmed(reply)
        elif isinstance(reply, Exception):
            self._refused(call, reply)
        elif self._wait:
            self._unconfirmed.append((call, reply))
        else:
            call.answer(reply)

    def _confirmed(self, said: Reply | Exception) -> None:
        error = said if isinstance(said, Exception) else self._missing(said)
        for call, reply in self._unconfirmed:
            if error is None:
                call.answer(reply)
            else:
                call.fail(error)
        self._unconfirmed.clear()

    def _missing(self, said: Reply) -> Exception | None:
        """Say what was waited for in vain: `WAIT` gives how many replicas there are, `WAITAOF` how many disks, its own first."""
        here, others = (number(part) for part in parts(said)) if self._flushed else (1, number(said))
        if here and others >= self._replicas:
            return None
        missing = f"{others} of {self._replicas} replicas have" if here else "the server's disk has not"
        return RedisTimeoutError(f"{missing} the write in time; the primary has it: ask again")

    def _refused(self, call: _Call, error: Exception) -> None:
        if isinstance(error, NoScriptError) and not call.by_text:
            call.by_text = True
        elif isinstance(error, ResponseError) and call.by_text and not call.plain and is_too_old(error):
            self._plain = call.plain = True
        elif isinstance(error, _AGAIN) and call.tries < REPEATS and self._transport is not None:
            call.tries += 1
            self._outbox.append(call)
            self._transport.abort()  # whoever is the primary now is asked, on a new connection
            return
        else:
            call.fail(error)
            return
        self._outbox.append(call)
        self._flush_soon()

    def lost(self, receiver: _Receiver) -> None:
        """Send again what was not answered."""
        if receiver is not self._receiver:
            return
        unanswered = [call for call, _ in self._unconfirmed] + [call for call in self._sent if call is not None]
        self._unconfirmed.clear()
        self._sent.clear()
        self._drop()
        self._again(unanswered, RedisConnectionError("the connection was lost, and again each time that the call was repeated"))
        if self._outbox:
            self._flush_soon()

    def _again(self, calls: Sequence[_Call], error: Exception) -> None:
        kept = list[_Call]()
        for call in calls:
            call.tries += 1
            if call.tries > REPEATS or self._closed:
                call.fail(error)
            elif not call.future.done():
                kept.append(call)
        self._outbox.extendleft(reversed(kept))

    def _drop(self) -> None:
        line, self._line, self._transport, self._receiver = self._line, None, None, None
        if line is not None and not self._closed:
            self._releasing = asyncio.ensure_future(self._release(line))

    async def _release(self, line: AbstractConnection) -> None:
        await line.disconnect(nowait=True)
        await self._client.connection_pool.release(line)

    async def _connect(self) -> None:
        pause = _FIRST_PAUSE
        while self._outbox and not self._closed:
            try:
                await self._take_line()
            except (RedisError, OSError) as error:
                calls = list(self._outbox)
                self._outbox.clear()
                self._again(calls, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                if self._bypassed:
                    await self._by_pool()
                self._flush()
                return

    async def _by_pool(self) -> None:
        while self._outbox:
            call = self._outbox.popleft()
            try:
                call.answer(await self._pooled.run(call.script, call.keys, *call.arguments))
            except Exception as error:
                call.fail(error)

    async def _take_line(self) -> None:
        """Take a connection that redis-py has made, greetings and encryption included, and put a receiver of ours at its end."""
        pool = self._client.connection_pool
        line = await pool.get_connection()  # type: ignore[no-untyped-call]
        writer: asyncio.StreamWriter | None = getattr(line, "_writer", None)
        if writer is None:  # a connection class of the application's: it is used call by call
            if self._wait:
                raise RedisConnectionError(
                    "replicas= and flushed= wait on the connection that wrote, and this client hides its own"
                )
            self._bypassed = True
            await self._client.connection_pool.release(line)
            return
        # What a stream writes to can also be read, and paused: it is the transport of a socket, encrypted or not.
        transport = cast("asyncio.Transport", writer.transport)
        receiver = _Receiver(self, transport.get_protocol())
        transport.set_protocol(receiver)
        transport.resume_reading()
        self._line, self._transport, self._receiver = line, transport, receiver

    async def aclose(self) -> None:
        """End what is under way, and give the connection back."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        for handle in (self._flushing, self._watching):
            if handle is not None:
                handle.cancel()
        line, transport = self._line, self._transport
        for call in [*self._outbox, *(call for call in self._sent if call is not None)]:
            call.fail(RedisConnectionError("the store was closed"))
        self._line = self._transport = self._receiver = None
        if transport is not None:
            transport.abort()
        if self._releasing is not None:
            await self._releasing
        if line is not None:
            await self._release(line)
        await self._pooled.aclose()


def enough_connections(client: Redis) -> bool:
    """Say whether the pool has one to share, one to wait on, and one for what must not be held up."""
    return client.connection_pool.max_connections >= 4
