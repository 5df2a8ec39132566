"""A server of one's own, to be killed, stopped and paused at will."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

from durable_conformance.servers._find import Kind
from durable_conformance.servers._ports import free_port
from durable_conformance.servers._units import DidNotStart, Unit

_READY_SECONDS = 60.0
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.005
_PORT_TRIES = 10


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, which may be anybody's.

    Args:
        kind: what it is: `postgres`, `redis`, `valkey`, `pgbouncer`, `redis-cluster` or `valkey-cluster`.
        url: how to reach it.
        version: what it says of itself.
        origin: where it came from, for the reader.
    """

    kind: str
    url: str
    version: str
    origin: str

    @property
    def port(self) -> int:
        """The port in the URL."""
        return urlsplit(self.url).port or 0


class Server(ABC):
    """A server that belongs to the test. It runs when the context manager that gave it enters, and is gone when that exits."""

    def __init__(self, kind: Kind, url: str, origin: str, unit: Unit, settings: Mapping[str, str]) -> None:
        self.kind, self.url, self.origin = kind, url, origin
        self.settings = dict(settings)
        """The settings that it was started with, beside its own defaults."""
        self._unit = unit

    def __repr__(self) -> str:
        state = f"pid {pids[0]}" if (pids := self.pids) else "running" if self.running else "not running"
        return f"<{type(self).__name__} {self.url} from {self.origin}, {state}>"

    def __enter__(self) -> Self:
        """Gives itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends it, with its data."""
        self.remove()

    @property
    def version(self) -> str:
        """What it says of itself."""
        return self._version()

    @property
    def address(self) -> Address:
        """Where it is, as a plain value."""
        return Address(self.kind, self.url, self.version, self.origin)

    @property
    def port(self) -> int:
        """Its port of 127.0.0.1. It keeps it when it is started again."""
        return urlsplit(self.url).port or 0

    @property
    def running(self) -> bool:
        """Whether it runs, be it paused."""
        return self._unit.exited() is None

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes, the server's first; none while it is not running, and none of a container."""
        return self._unit.pids()

    def start(self) -> None:
        """Starts it on the data it has, and returns when it answers.

        Raises:
            DidNotStart: it ended, or did not answer within a minute.
            RuntimeError: it runs.
        """
        if self.running:
            raise RuntimeError(f"{self!r} cannot be started: it runs")
        self._unit.start()
        self._wait_until_ready()

    def stop(self) -> None:
        """Ends it in order: what it has not written yet it writes. Returns when it is gone."""
        self._unit.end(_STOP_SECONDS)

    def kill(self) -> None:
        """Kills it and all its children with SIGKILL, at whatever they are. Returns when they are gone."""
        self._unit.kill()

    def restart(self) -> None:
        """Ends it in order, if it runs, and starts it again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stops it and all its children with SIGSTOP: it hangs, connections stay open and the port still accepts."""
        self._unit.pause()

    def resume(self) -> None:
        """Lets it go on after `pause`."""
        self._unit.resume()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Pauses it for as long as the block runs."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def remove(self) -> None:
        """Ends it for good and removes its data. Does nothing the second time."""
        self._unit.remove()

    @abstractmethod
    def _version(self) -> str: ...

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it is ready, and it is this one and not a stranger on the port."""

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answers():
            if (end := self._unit.exited()) is not None:
                raise DidNotStart(f"{self.kind} from {self.origin}", end, self._unit.log())
            if time.monotonic() > deadline:
                raise DidNotStart(f"{self.kind} from {self.origin}", f"no answer in {_READY_SECONDS:.0f} s", self._unit.log())
            time.sleep(_LOOK_SECONDS)


AnyServer = TypeVar("AnyServer", bound=Server)


def start_on_free_port(make: Callable[[int], AnyServer]) -> AnyServer:
    """Makes and starts a server, with another port when somebody else took the one that was free a moment ago."""
    for left in reversed(range(_PORT_TRIES)):
        server = make(free_port())
        try:
            server.start()
        except DidNotStart as error:
            server.remove()
            if not error.port_taken or not left:
                raise
        except BaseException:
            server.remove()
            raise
        else:
            return server
    raise AssertionError("the last try returns or raises")


def wait_until(seen: Callable[[], bool], what: str, seconds: float = _READY_SECONDS) -> None:
    """Returns once it is so.

    Raises:
        TimeoutError: it was not, in so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(_LOOK_SECONDS)
