"""A TCP proxy between a client and its server that cuts, delays, and loses requests or replies when it is told to.

It runs a loop of its own in a thread of its own, so that synchronous and asynchronous tests use it alike. It knows no protocol: a
request is what a client sends on one connection until the server answers, a round trip is a request and its answer.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlsplit

from durable_conformance.servers._link import LONGEST, Link, Order, Streams, Switchboard
from durable_conformance.servers._ports import free_port

_DEFAULT_PORTS = {"postgresql": 5432, "postgres": 5432, "redis": 6379, "rediss": 6379, "valkey": 6379}
_NOTHING = timedelta(0)
_PORT_TRIES = 20
_ANSWER_SECONDS = 10.0  # how long a call into the proxy's loop may take before something is badly wrong

_T = TypeVar("_T")


class Fault:
    """One thing that shall go wrong, and the way to learn that it has."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def __repr__(self) -> str:
        state = "struck" if self.struck else f"to strike at match {self._order.left}"
        return f"<Fault: lose the {self._order.loses} with {self._order.pattern!r}, {state}>"

    @property
    def struck(self) -> bool:
        """Whether it has happened. A test that asks for a fault and never looks at this may have proved nothing."""
        return self._order.struck.is_set()

    def wait(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Returns once the fault has happened.

        Raises:
            TimeoutError: it did not within `timeout`.
        """
        if not self._order.struck.wait(timeout.total_seconds()):
            raise TimeoutError(f"{self!r} did not strike within {timeout}")


class Proxy:
    """A proxy in front of the server at a URL, listening on a port of 127.0.0.1.

    Use it as a context manager. Faults hold for connections that exist and for those that will; every method may be called from
    any thread and returns when the fault is in force.

    Args:
        url: where the server is, such as `redis://127.0.0.1:6379/0`. User, path and query are kept in `Proxy.url`.

    Raises:
        ValueError: the URL names no host, or no port and none is known for its scheme.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
        if parts.hostname is None or port is None:
            raise ValueError(f"{url!r} does not say which host and port to forward to")
        self._target, self._target_port = parts.hostname, port
        self._parts = parts
        self._listener: socket.socket | None = None
        self._links: set[Link] = set()
        self._handlers: set[asyncio.Task[None]] = set()
        self._port = 0
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._live, name=f"proxy to {self._target}:{port}", daemon=True)
        # Set by the thread before `_started` is.
        self._loop: asyncio.AbstractEventLoop
        self._board: Switchboard
        self._over: asyncio.Event

    def __repr__(self) -> str:
        return f"<Proxy 127.0.0.1:{self._port} to {self._target}:{self._target_port}>"

    def __enter__(self) -> Proxy:
        """Starts to listen."""
        self._thread.start()
        self._started.result(_ANSWER_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cuts every connection and stops listening."""
        self.close()

    @property
    def port(self) -> int:
        """The port of 127.0.0.1 that it listens on."""
        return self._port

    @property
    def url(self) -> str:
        """The server's URL with the proxy's host and port."""
        login, at, _ = self._parts.netloc.rpartition("@")
        return self._parts._replace(netloc=f"{login}{at}127.0.0.1:{self._port}").geturl()

    @property
    def connections(self) -> int:
        """How many connections it carries now."""
        return len(self._links)

    @property
    def round_trips(self) -> int:
        """How many requests have been answered, over all connections. What a server says unasked does not count."""
        return self._board.round_trips

    def close(self) -> None:
        """Cuts every connection and stops listening. Does nothing the second time."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()

    def cut(self) -> None:
        """Cuts every connection there is, in both directions and without a farewell. New ones are served."""
        self._within(self._abort_links)

    def refuse(self) -> None:
        """Stops listening: whoever connects is refused. Connections there are stay."""
        self._within(self._stop_listening)

    def accept(self) -> None:
        """Listens again, on the same port."""
        if self._listener is None:
            self._within(self._listen)

    def freeze(self) -> None:
        """Stops carrying anything, while every connection stays open and new ones are accepted: the network went silent."""
        self._within(self._board.flowing.clear)

    def thaw(self) -> None:
        """Carries on, beginning with what was held back."""
        self._within(self._board.flowing.set)

    def delay(self, *, requests: timedelta = _NOTHING, replies: timedelta = _NOTHING) -> None:
        """Holds each piece back for so long before it is carried; the order stays. Without arguments nothing is held back."""

        def change() -> None:
            self._board.request_delay, self._board.reply_delay = requests.total_seconds(), replies.total_seconds()

        self._within(change)

    def lose_request(self, pattern: bytes = b"", *, nth: int = 1, cut: bool = True) -> Fault:
        """Loses the n-th request from now on that contains the pattern: the server never sees it whole.

        Args:
            pattern: bytes that the request must contain; every request contains the empty one.
            nth: which of the matching requests it is, counted over all connections.
            cut: cut the connection then. Otherwise it stays open, and the client waits for an answer that never comes.
        """
        return self._order(Order("request", pattern, nth, cut))

    def lose_reply(self, pattern: bytes = b"", *, nth: int = 1, cut: bool = True) -> Fault:
        """Loses the answer to the n-th request from now on that contains the pattern: the server did it, nobody is told.

        The connection is cut when the server has begun to answer, so not before it has seen the request. Arguments as for
        `lose_request`.
        """
        return self._order(Order("reply", pattern, nth, cut))

    def _order(self, order: Order) -> Fault:
        if order.left < 1:
            raise ValueError(f"nth counts from 1, not {order.left}")
        if len(order.pattern) > LONGEST:
            raise ValueError(f"a pattern has at most {LONGEST} bytes, not {len(order.pattern)}")
        self._within(lambda: self._board.orders.append(order))
        return Fault(order)

    def _within(self, change: Callable[[], _T]) -> _T:
        """Runs a change in the proxy's own loop, and waits for it."""
        done: Future[_T] = Future()

        def run() -> None:
            try:
                done.set_result(change())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(_ANSWER_SECONDS)

    def _live(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._board = Switchboard(asyncio.Event(), [])
        self._board.flowing.set()
        self._listen()
        self._started.set_result(None)
        await self._over.wait()
        self._stop_listening()
        while self._handlers:
            for handler in self._handlers:
                handler.cancel()
            await asyncio.wait(self._handlers)

    def _listen(self) -> None:
        for left in reversed(range(_PORT_TRIES)):
            port = self._port or free_port()
            try:
                self._listener = socket.create_server(("127.0.0.1", port))
            except OSError:
                if self._port or not left:
                    raise
            else:
                self._port = port
                self._listener.setblocking(False)
                self._loop.add_reader(self._listener, self._greet, self._listener)
                return

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _abort_links(self) -> None:
        for link in self._links:
            link.abort()

    def _greet(self, listener: socket.socket) -> None:
        # Not `asyncio.start_server`: connections that wait to be accepted when it is closed leave transports that nobody closes.
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connection.setblocking(False)
        handler = self._loop.create_task(self._connect(connection))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        handler.add_done_callback(lambda _: connection.close())

    async def _connect(self, connection: socket.socket) -> None:
        client = Streams(*await asyncio.open_connection(sock=connection))
        try:
            await self._join_to_server(client)
        finally:
            client.writer.transport.abort()

    async def _join_to_server(self, client: Streams) -> None:
        try:
            server = Streams(*await asyncio.open_connection(self._target, self._target_port))
        except OSError:
            return  # the client is cut off
        link = Link(self._board, client, server)
        self._links.add(link)
        try:
            await link.carry()
        finally:
            self._links.discard(link)
            link.abort()
