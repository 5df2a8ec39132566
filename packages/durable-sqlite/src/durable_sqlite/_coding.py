"""The codec at the rim of the store: what it gives is text or bytes, and is decoded by the codec that it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from durable_core.codec import all_decoded, decoded_for, encoded_for, roundtripped
from durable_core.contract import CheckpointCodec, Entry, Recorded
from durable_core.errors import NotEncodable

Stored: TypeAlias = str | bytes
SqliteCodec: TypeAlias = CheckpointCodec[str] | CheckpointCodec[bytes]


class Coding:
    """Encodes for the file, and decodes what is in it."""

    __slots__ = ("_codec",)

    def __init__(self, codec: SqliteCodec) -> None:
        # What is decoded was encoded by the same codec, or by another that the application replaced: then decoding refuses it.
        self._codec = cast("CheckpointCodec[Stored]", codec)

    def __repr__(self) -> str:
        return f"Coding({self._codec!r})"

    def encode(self, workflow: str, key: str, value: object) -> Stored:
        """Give text or bytes. Raises: `NotEncodable`."""
        encoded = encoded_for(self._codec, workflow, key, value)
        if isinstance(encoded, (str, bytes)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return encoded
        raise NotEncodable(f"the codec gave {type(encoded).__name__}, and SQLite holds str or bytes", workflow, key)

    def decode(self, workflow: str, key: str, stored: Stored) -> object:
        """Give the value. Raises: `NotParsed`."""
        return decoded_for(self._codec, workflow, key, stored)

    def recorded(self, workflow: str, key: str, stored: Stored, other: Stored | None) -> Recorded:
        """Give the answer of a write of `stored`, where `other` was found instead, or nothing. [CKP-RECORD-FIRST]"""
        return Recorded(self.decode(workflow, key, stored if other is None else other), other is None)

    def entry(self, workflow: str, found: tuple[str, Stored]) -> Entry[object]:
        """Give the answer of an append."""
        return Entry(found[0], self.decode(workflow, found[0], found[1]))

    def decode_all(self, workflow: str, records: Iterable[tuple[str, Stored]]) -> dict[str, object]:
        """Give the value of each record. Raises: `NotParsed`."""
        return all_decoded(self._codec, workflow, records)

    def roundtrip(self, value: object) -> object:
        """Give what a value is once it was stored. Raises: `NotEncodable`."""
        return roundtripped(self._codec, value)


class Decoded(Mapping[str, object]):
    """Records that are decoded when they are asked for, each time anew. [CKP-LOAD-CODEC]"""

    __slots__ = ("_coding", "_stored", "_workflow")

    def __init__(self, coding: Coding, workflow: str, rows: Sequence[tuple[str, Stored]]) -> None:
        self._coding, self._workflow = coding, workflow
        self._stored = dict(rows)

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
