"""The codec at the rim of the store, and what the scripts give back: bytes, whole numbers and lists of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, cast

from durable_core.codec import JsonCodec, decoded_for, encoded_for, roundtripped
from durable_core.contract import CheckpointCodec, Recorded, Torn
from durable_core.errors import EffectTorn, NotEncodable, NotParsed, shortened

RedisCodec: TypeAlias = CheckpointCodec[str] | CheckpointCodec[bytes]
Reply: TypeAlias = "bytes | int | Sequence[Reply] | None"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TEXT, _BYTES, _TORN = b"v", b"b", b"t"


def micros(duration: timedelta) -> int:
    """Give a duration in microseconds."""
    return duration // _MICROSECOND


def micros_at(moment: datetime) -> int:
    """Give an instant in microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(at: int) -> datetime:
    """Give an instant from microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=at)


def number(reply: Reply) -> int:
    """Give a whole number, sent as one or as its digits."""
    assert isinstance(reply, (int, bytes)), reply
    return int(reply)


def text(reply: Reply) -> str:
    """Give a name."""
    assert isinstance(reply, bytes), reply
    return reply.decode()


def parts(reply: Reply) -> Sequence[Reply]:
    """Give the members of a list."""
    assert isinstance(reply, (list, tuple)), reply
    return reply


def names(reply: Reply) -> list[bytes]:
    """Give the members of a list of names."""
    found = parts(reply)
    assert all(isinstance(name, bytes) for name in found), reply
    return cast("list[bytes]", found)


Stored: TypeAlias = tuple[int, bytes, bytes, bytes]
"""A record as it is in the hash: its position, its key, the microseconds at which it was written, its encoding behind a mark."""


def in_order(fields: Mapping[bytes, bytes]) -> list[Stored]:
    """Give the records of a hash in the order in which they were written; one that begins with NUL is none. [CKP-LOAD-ORDER]"""
    records = list[Stored]()
    for key, raw in fields.items():
        if key[:1] != b"\0":
            position, at, marked = raw.split(b":", 2)
            records.append((int(position), key, at, marked))
    records.sort()
    return records


def pairs(reply: Reply) -> dict[bytes, bytes]:
    """Give a hash that came as a flat list."""
    flat = cast("Sequence[bytes]", parts(reply))  # HGETALL gives fields and values, which are bytes
    return dict(zip(flat[::2], flat[1::2], strict=True))


class Coding:
    """Encodes for the store, and decodes what is in it."""

    __slots__ = ("_codec", "is_json")

    def __init__(self, codec: RedisCodec) -> None:
        # What is decoded was encoded by the same codec, or by another that the application replaced: then decoding refuses it.
        self._codec = cast("CheckpointCodec[str | bytes]", codec)
        self.is_json: bool = type(codec) is JsonCodec

    def __repr__(self) -> str:
        return f"Coding({self._codec!r})"

    def encode(self, workflow: str, key: str, value: object) -> bytes:
        """Give the encoding with its mark. Raises: `NotEncodable`."""
        encoded = encoded_for(self._codec, workflow, key, value)
        if isinstance(encoded, str):
            return _TEXT + encoded.encode()
        if isinstance(encoded, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            return _BYTES + encoded
        raise NotEncodable(f"the codec gave {type(encoded).__name__}, and Redis holds str or bytes", workflow, key)

    def decode(self, workflow: str, key: str, marked: bytes) -> object:
        """Give the value, or `Torn`. Raises: `NotParsed`."""
        if marked[:1] == _TORN:
            return Torn(marked[1:].decode(errors="replace"))
        if marked[:1] == _TEXT:
            try:
                return decoded_for(self._codec, workflow, key, marked[1:].decode())
            except UnicodeDecodeError as refused:
                raise NotParsed(workflow, key, shortened(marked[1:]), f"it is not UTF-8: {refused}") from refused
        return decoded_for(self._codec, workflow, key, marked[1:])

    def decode_all(self, workflow: str, records: Iterable[Stored]) -> dict[str, object]:
        """Give the value of each record, or `Torn`. Raises: `NotParsed`."""
        decode, values = self._codec.decode, dict[str, object]()
        for _, key, _, marked in records:
            name = key.decode()
            try:
                values[name] = decode(marked[1:].decode()) if marked[:1] == _TEXT else self.decode(workflow, name, marked)
            except Exception:
                values[name] = self.decode(workflow, name, marked)  # which says what is wrong with it
        return values

    def roundtrip(self, value: object) -> object:
        """Give what a value is once it was stored. Raises: `NotEncodable`."""
        return roundtripped(self._codec, value)

    def recorded(self, workflow: str, key: str, mine: bytes, reply: Reply) -> Recorded:
        """Give the answer of a write: 1, or what was there instead. Raises: `EffectTorn`, `NotParsed`."""
        if not isinstance(reply, bytes):
            return Recorded(self.decode(workflow, key, mine), True)
        return Recorded(self.whole(workflow, key, reply), False)

    def whole(self, workflow: str, key: str, marked: bytes) -> object:
        """Give a value. Raises: `EffectTorn` where it is torn, `NotParsed`."""
        value = self.decode(workflow, key, marked)
        if isinstance(value, Torn):
            raise EffectTorn(workflow, key, value.reason)
        return value


class Decoded(Mapping[str, object]):
    """Records that are decoded when they are asked for, each time anew. [CKP-LOAD-CODEC]"""

    __slots__ = ("_coding", "_stored", "_workflow")

    def __init__(self, coding: Coding, workflow: str, records: Sequence[Stored]) -> None:
        self._coding, self._workflow = coding, workflow
        self._stored = {key.decode(): marked for _, key, _, marked in records}

    def __repr__(self) -> str:
        return f"<Decoded: {len(self._stored)} records of {self._workflow!r}>"

    def __getitem__(self, key: str) -> object:
        return self._coding.decode(self._workflow, key, self._stored[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, key: object) -> bool:
        return key in self._stored
