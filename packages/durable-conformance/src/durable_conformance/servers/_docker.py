"""Servers in containers, through testcontainers. They use the host's network, so that a cluster's nodes find one another."""

from __future__ import annotations

import importlib
import importlib.metadata
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

_PING = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n"
_PING_SECONDS = 1.0


def engine_answers(environ: Mapping[str, str]) -> bool:
    """Whether a Docker engine answers. The client's program being there says nothing, and a hung engine is none."""
    address = urlsplit(environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    try:
        with _connect(address.scheme, address.path, address.hostname or "", address.port or 2375) as engine:
            engine.settimeout(_PING_SECONDS)
            engine.sendall(_PING)
            return b" 200 " in engine.recv(64)
    except OSError:
        return False


def _connect(scheme: str, path: str, host: str, port: int) -> socket.socket:
    if scheme != "unix":
        return socket.create_connection((host, port), _PING_SECONDS)
    engine = socket.socket(socket.AF_UNIX)
    engine.settimeout(_PING_SECONDS)
    try:
        engine.connect(path)
    except OSError:
        engine.close()
        raise
    return engine


def version_of_testcontainers() -> str | None:
    """The version of testcontainers, or None where it is not installed."""
    try:
        return importlib.metadata.version("testcontainers")
    except importlib.metadata.PackageNotFoundError:
        return None


class _DockersContainer(Protocol):
    """What we use of a container of the docker package."""

    status: str

    def start(self) -> None: ...
    def stop(self, *, timeout: int) -> None: ...
    def kill(self) -> None: ...
    def wait(self, *, timeout: int) -> object: ...
    def pause(self) -> None: ...
    def unpause(self) -> None: ...
    def reload(self) -> None: ...
    def logs(self, *, tail: int) -> bytes: ...


class _TestsContainer(Protocol):
    """What we use of a container of testcontainers."""

    def with_env(self, key: str, value: str) -> object: ...
    def with_command(self, command: list[str]) -> object: ...
    def with_kwargs(self, *, network_mode: str) -> object: ...
    def start(self) -> object: ...
    def stop(self) -> None: ...
    def get_wrapped_container(self) -> _DockersContainer: ...


class Container:
    """A server in a container. testcontainers' reaper removes it when this process is killed.

    Args:
        image: the image's name.
        command: the server's command line.
        env: variables for it.
    """

    def __init__(self, image: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._image, self._command, self._env = image, list(command), dict(env)
        self._made: _TestsContainer | None = None
        self._paused = False

    def start(self) -> None:
        """Makes and starts it, or starts it again with the data it has."""
        if self._made is not None:
            return self._made.get_wrapped_container().start()
        # Imported here: it takes a second, and is needed by few.
        make: Callable[[str], _TestsContainer] = importlib.import_module("testcontainers.core.container").DockerContainer
        made = make(self._image)
        made.with_kwargs(network_mode="host")
        made.with_command(self._command)
        for name, value in self._env.items():
            made.with_env(name, value)
        made.start()
        self._made = made

    def exited(self) -> str | None:
        """How it ended, or None while it runs."""
        if self._made is None:
            return "it was never started"
        container = self._made.get_wrapped_container()
        container.reload()
        return (
            None if container.status in ("created", "running", "paused", "restarting") else f"its container is {container.status}"
        )

    def end(self, grace: float) -> None:
        """Stops it in order, or kills it when the grace is over."""
        if self._made is not None and self.exited() is None:
            self.resume()
            self._made.get_wrapped_container().stop(timeout=round(grace))

    def kill(self) -> None:
        """Kills it, and returns when it is gone."""
        if self._made is not None and self.exited() is None:
            self.resume()  # the engine does not kill a paused one
            container = self._made.get_wrapped_container()
            container.kill()
            container.wait(timeout=10)

    def pause(self) -> None:
        """Freezes all its processes."""
        if self._made is not None and not self._paused:
            self._made.get_wrapped_container().pause()
            self._paused = True

    def resume(self) -> None:
        """Lets them run again."""
        if self._made is not None and self._paused:
            self._made.get_wrapped_container().unpause()
            self._paused = False

    def remove(self) -> None:
        """Ends it and removes it with its data."""
        if self._made is not None:
            self.resume()
            self._made.stop()
            self._made = None

    def pids(self) -> tuple[int, ...]:
        """Nothing: its processes may be on another machine."""
        return ()

    def log(self) -> str:
        """The end of what it wrote."""
        return "" if self._made is None else self._made.get_wrapped_container().logs(tail=20).decode(errors="replace")
