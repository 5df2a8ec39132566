"""The codec at the rim of the store: what it gives is text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from durable_core.codec import all_decoded, decoded_for, encoded_for, roundtripped
from durable_core.contract import CheckpointCodec
from durable_core.errors import NotEncodable


class Coding:
    """Encodes for the table, and decodes what is in it."""

    __slots__ = ("_codec",)

    def __init__(self, codec: CheckpointCodec[str]) -> None:
        self._codec = codec

    def __repr__(self) -> str:
        return f"Coding({self._codec!r})"

    def encode(self, workflow: str, key: str, value: object) -> str:
        """Give text. Raises: `NotEncodable`."""
        encoded = encoded_for(self._codec, workflow, key, value)
        if not isinstance(encoded, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NotEncodable(f"the codec gave {type(encoded).__name__}, and Postgres holds text", workflow, key)
        return encoded

    def decode(self, workflow: str, key: str, stored: str) -> object:
        """Give the value. Raises: `NotParsed`."""
        return decoded_for(self._codec, workflow, key, stored)

    def decode_all(self, workflow: str, records: Iterable[tuple[str, str]]) -> dict[str, object]:
        """Give the value of each record. Raises: `NotParsed`."""
        return all_decoded(self._codec, workflow, records)

    def roundtrip(self, value: object) -> object:
        """Give what a value is once it was stored. Raises: `NotEncodable`."""
        return roundtripped(self._codec, value)


class Decoded(Mapping[str, object]):
    """Records that are decoded when they are asked for, each time anew. [CKP-LOAD-CODEC]"""

    __slots__ = ("_coding", "_stored", "_workflow")

    def __init__(self, coding: Coding, workflow: str, stored: dict[str, str]) -> None:
        self._coding, self._workflow, self._stored = coding, workflow, stored

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
