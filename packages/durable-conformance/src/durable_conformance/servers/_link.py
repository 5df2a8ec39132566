"""One connection through the proxy: what it carries, counts and loses."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Literal

LONGEST = 4_096  # bytes of a pattern
_CHUNK = 65_536


@dataclass(slots=True, eq=False)
class Order:
    """What shall go wrong, and whether it has."""

    loses: Literal["request", "reply"]
    pattern: bytes
    left: int
    cut: bool
    struck: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Switchboard:
    """What the links of one proxy look at. Only its loop writes to it."""

    flowing: asyncio.Event
    orders: list[Order]
    request_delay: float = 0.0
    reply_delay: float = 0.0
    round_trips: int = 0

    async def let_pass(self, delay: float) -> None:
        if delay:
            await asyncio.sleep(delay)
        await self.flowing.wait()


class Link:
    """One client's connection, and the one to the server that belongs to it."""

    def __init__(self, board: Switchboard, client: Streams, server: Streams) -> None:
        self._board = board
        self._client, self._server = client, server
        self._asked = False  # whether the client spoke since the server last did
        self._tail = b""  # the end of what it said then
        self._counted: list[Order] = []  # the orders that have counted this request
        self._deaf = False
        self._swallowing: Order | None = None
        self._pumps: tuple[asyncio.Task[None], ...] = ()

    async def carry(self) -> None:
        """Carries bytes both ways until one side is gone."""
        self._pumps = (asyncio.create_task(self._carry_requests()), asyncio.create_task(self._carry_replies()))
        try:
            await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in self._pumps:
                pump.cancel()
            await asyncio.wait(self._pumps)
            await _close(self._client)
            await _close(self._server)

    def abort(self) -> None:
        """Drops both connections, and with them what they still had to carry."""
        self._client.writer.transport.abort()
        self._server.writer.transport.abort()
        for pump in self._pumps:
            pump.cancel()

    async def _carry_requests(self) -> None:
        while chunk := await _read(self._client):
            order = None if self._deaf else self._struck_by(chunk)
            if order is not None and order.loses == "request":
                order.struck.set()
                if order.cut:
                    return self.abort()
                self._deaf = True
            if self._deaf:
                continue
            self._swallowing = order or self._swallowing
            await self._board.let_pass(self._board.request_delay)
            await _write(self._server, chunk)
        await self._board.let_pass(self._board.request_delay)

    async def _carry_replies(self) -> None:
        while chunk := await _read(self._server):
            if self._swallowing is not None:
                self._swallowing.struck.set()
                if self._swallowing.cut:
                    return self.abort()
                continue
            if self._asked:
                self._board.round_trips += 1
                self._asked, self._tail = False, b""
                self._counted.clear()
            await self._board.let_pass(self._board.reply_delay)
            await _write(self._client, chunk)
        await self._board.let_pass(self._board.reply_delay)

    def _struck_by(self, chunk: bytes) -> Order | None:
        """Takes in a piece of a request; answers the order whose moment this is, which is thereby used up."""
        window = self._tail + chunk
        self._asked, self._tail = True, window[-LONGEST:]
        for order in self._board.orders:
            if order in self._counted or order.pattern not in window:
                continue
            self._counted.append(order)
            order.left -= 1
            if order.left == 0:
                self._board.orders.remove(order)
                return order
        return None


@dataclass(frozen=True, slots=True)
class Streams:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def _read(side: Streams) -> bytes:
    try:
        return await side.reader.read(_CHUNK)
    except OSError:
        return b""


async def _write(side: Streams, chunk: bytes) -> None:
    side.writer.write(chunk)
    try:
        await side.writer.drain()
    except OSError:
        return  # the next read says so too


async def _close(side: Streams) -> None:
    side.writer.close()
    try:
        await side.writer.wait_closed()
    except OSError:
        return
