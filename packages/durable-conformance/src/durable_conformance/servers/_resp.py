"""Just enough of Redis' protocol to ask a server whether it is ready, and to set up replicas and clusters, without a client."""

from __future__ import annotations

import socket
import ssl
from types import TracebackType
from urllib.parse import unquote, urlsplit

Reply = bytes | int | list["Reply"] | None

_SECONDS = 5.0


class ReplyError(Exception):
    """The server answered with an error; its text is the message."""


class Resp:
    """A connection to the server at a URL such as `redis://user:password@127.0.0.1:6379/0`; `rediss:` encrypts it.

    Raises:
        OSError: nobody listens there.
        ReplyError: the server does not take the password.
    """

    def __init__(self, url: str, seconds: float = _SECONDS) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 6379
        self._socket = _connect(host, port, seconds, encrypted=parts.scheme == "rediss")
        self._input = self._socket.makefile("rb")
        try:
            if parts.password:
                self.call("AUTH", *([unquote(parts.username)] if parts.username else []), unquote(parts.password))
            if parts.path.strip("/"):
                self.call("SELECT", parts.path.strip("/"))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Resp:
        """Gives itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Closes the connection."""
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._input.close()
        self._socket.close()

    def call(self, *arguments: str | bytes | int) -> Reply:
        """Sends a command and returns the answer.

        Raises:
            ReplyError: the answer is an error, or an error is among several answers.
            OSError: the connection is gone.
        """
        encoded = [each if isinstance(each, bytes) else str(each).encode() for each in arguments]
        self._socket.sendall(b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(each), each) for each in encoded))
        return self._reply()

    def _reply(self) -> Reply:
        line = self._input.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise ReplyError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._input.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._reply() for _ in range(int(rest))]
        return rest


def _connect(host: str, port: int, seconds: float, *, encrypted: bool) -> socket.socket:
    plain = socket.create_connection((host, port), seconds)
    if not encrypted:
        return plain
    try:
        return ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def call(url: str, *arguments: str | bytes | int, seconds: float = _SECONDS) -> Reply:
    """Sends one command on a connection of its own. Raises as `Resp` does."""
    with Resp(url, seconds) as connection:
        return connection.call(*arguments)


def info(url: str, section: str) -> dict[str, str]:
    """A section of what `INFO` says."""
    said = call(url, "INFO", section)
    lines = said.decode(errors="replace").splitlines() if isinstance(said, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def delete_keys(url: str, prefix: str) -> None:
    """Deletes every key that begins with the prefix, on this node."""
    with Resp(url) as connection:
        pattern = "".join(f"\\{letter}" if letter in "*?[]^\\" else letter for letter in prefix) + "*"
        cursor: Reply = b"0"
        while True:
            found = connection.call("SCAN", cursor if isinstance(cursor, bytes) else b"0", "MATCH", pattern, "COUNT", 1000)
            if not isinstance(found, list) or not isinstance(found[1], list):
                raise ReplyError(f"SCAN answered {found!r}")
            cursor = found[0]
            for key in found[1]:
                if isinstance(key, bytes):
                    connection.call("UNLINK", key)  # one at a time: on a cluster they are in different slots
            if cursor == b"0":
                return
