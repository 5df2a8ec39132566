"""The wire format of Redis, both versions of it: commands packed, replies parsed, as they come in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from redis.exceptions import (
    BusyLoadingError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)

from durable_redis._coding import Reply

_ERRORS: Final = {
    "NOSCRIPT": NoScriptError,
    "READONLY": ReadOnlyError,
    "LOADING": BusyLoadingError,
    "MASTERDOWN": MasterDownError,
    "NOPERM": NoPermissionError,
    "OOM": OutOfMemoryError,
}


class _Short(Exception):
    """What has come in so far ends in the middle of a reply; `wanted` bytes are the least that could end it."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted


def packed(command: Sequence[bytes | str | int]) -> bytes:
    """Give a command as it is sent."""
    return b"*%d\r\n" % len(command) + body(command)


def body(parts: Sequence[bytes | str | int]) -> bytes:
    """Give parts of a command as they are sent."""
    pieces = list[bytes]()
    for part in parts:
        if not isinstance(part, bytes):
            part = part.encode() if isinstance(part, str) else b"%d" % part
        pieces.append(b"$%d\r\n%b\r\n" % (len(part), part))
    return b"".join(pieces)


def refusal(said: str) -> Exception:
    """Give the exception of redis-py for an error that the server said."""
    code, _, rest = said.partition(" ")
    kind: Callable[[str], Exception] = _ERRORS.get(code, ResponseError)
    return kind(rest if kind is NoScriptError or code == "ERR" else said)


class _Open:
    """A list of which not every part has come in; an error in it is what the whole of it comes to."""

    __slots__ = ("error", "kind", "parts", "size")

    def __init__(self, kind: bytes, size: int) -> None:
        self.kind, self.size = kind, size
        self.parts: list[Reply] = []
        self.error: Exception | None = None

    def add(self, part: Reply | Exception) -> bool:
        """Take the next part, and say whether it was the last."""
        if isinstance(part, Exception):
            self.error = self.error or part
            part = None
        self.parts.append(part)
        return len(self.parts) == self.size


class Replies:
    """Takes replies out of what comes in. An error is given as an exception; what the server pushes is left out.

    No part is looked at twice, however small the pieces in which a long reply comes.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._wanted = 0
        self._open: list[_Open] = []

    def feed(self, data: bytes) -> list[Reply | Exception]:
        """Give the replies that are whole now."""
        replies: list[Reply | Exception] = []
        self._held += data
        if len(self._held) < self._wanted:
            return replies
        held, place = bytes(self._held), 0
        self._wanted = 0
        try:
            while place < len(held):
                kind = held[place : place + 1]
                part, place = _part(held, place)
                if isinstance(part, _Open):
                    self._open.append(part)
                else:
                    self._closed(kind, part, replies)
        except _Short as short:
            self._wanted = short.wanted - place
        del self._held[:place]
        return replies

    def _closed(self, kind: bytes, part: Reply | Exception, replies: list[Reply | Exception]) -> None:
        """Put a part that is whole where it belongs, and with it every list of which it is the last."""
        while self._open:
            around = self._open[-1]
            if not around.add(part):
                return
            self._open.pop()
            kind, part = around.kind, around.parts if around.error is None else around.error
        if kind != b">":
            replies.append(part)


def _line(held: bytes, place: int) -> tuple[bytes, int]:
    end = held.find(b"\r\n", place)
    if end < 0:
        raise _Short(len(held) + 1)
    return held[place + 1 : end], end + 2


def _part(held: bytes, place: int) -> tuple[Reply | Exception | _Open, int]:
    kind = held[place : place + 1]
    said, place = _line(held, place)
    if kind in (b"$", b"="):
        return _bulk(held, place, int(said))
    if kind == b":":
        return int(said), place
    if kind in (b"*", b"~", b">", b"%"):
        size = int(said) * (2 if kind == b"%" else 1)
        return _Open(kind, size) if size > 0 else None if size < 0 else [], place
    if kind == b"-":
        return refusal(said.decode(errors="replace")), place
    if kind == b"!":
        wrong, place = _bulk(held, place, int(said))
        return refusal(wrong.decode(errors="replace") if isinstance(wrong, bytes) else ""), place
    if kind == b"_":
        return None, place
    if kind == b"#":
        return int(said == b"t"), place
    return said, place  # a status, a double, a large number: their text


def _bulk(held: bytes, place: int, size: int) -> tuple[Reply, int]:
    if size < 0:
        return None, place
    end = place + size
    if len(held) < end + 2:
        raise _Short(end + 2)
    return held[place:end], end + 2
