"""Replies as they come in: in pieces of every size, in both versions of the protocol."""

from collections.abc import Iterator

import pytest
from redis.exceptions import NoScriptError, ResponseError

from durable_redis._resp import Replies

WIRE = (
    b"$5\r\na\r\nb,\r\n:-7\r\n*3\r\n$1\r\nx\r\n*0\r\n*2\r\n$-1\r\n*-1\r\n+OK\r\n"
    b"%1\r\n+k\r\n~1\r\n#t\r\n>2\r\n+message\r\n*1\r\n:1\r\n_\r\n,1.5\r\n=5\r\ntxt:a\r\n$0\r\n\r\n"
)
REPLIES = [b"a\r\nb,", -7, [b"x", [], [None, None]], b"OK", [b"k", [1]], None, b"1.5", b"txt:a", b""]


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    for place in range(0, len(data), size):
        yield data[place : place + size]


@pytest.mark.parametrize("size", [*range(1, 12), 1_000])
def test_replies_in_pieces(size: int) -> None:
    """What is given does not depend on where the pieces end, and what the server pushes is left out."""
    replies = Replies()
    assert [reply for piece in _pieces(WIRE * 3, size) for reply in replies.feed(piece)] == REPLIES * 3


@pytest.mark.parametrize("size", [1, 1_000])
def test_an_error_is_an_answer(size: int) -> None:
    """By itself, and for the whole of a list in which it is; what comes after it is the next answer."""
    replies = Replies()
    wire = b"-NOSCRIPT gone\r\n*3\r\n:1\r\n*2\r\n-ERR first\r\n-ERR second\r\n:2\r\n!9\r\nERR third\r\n:3\r\n"
    gone, first, third, last = [reply for piece in _pieces(wire, size) for reply in replies.feed(piece)]
    assert isinstance(gone, NoScriptError)
    assert [str(error) for error in (gone, first, third)] == ["gone", "first", "third"]
    assert isinstance(first, ResponseError)
    assert last == 3


def test_no_part_of_a_long_reply_is_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand parts in pieces of some hundred bytes are each looked at once, or twice where a piece ends in them."""
    from durable_redis import _resp

    looks, look = 0, _resp._part  # pyright: ignore[reportPrivateUsage]

    def counted(held: bytes, place: int) -> object:
        nonlocal looks
        looks += 1
        return look(held, place)

    monkeypatch.setattr(_resp, "_part", counted)
    replies, wire = Replies(), b"*10000\r\n" + b"$10\r\n0123456789\r\n" * 10_000
    pieces = list(_pieces(wire, 500))
    (reply,) = [reply for piece in pieces for reply in replies.feed(piece)]
    assert reply == [b"0123456789"] * 10_000
    assert looks <= 10_001 + len(pieces)
