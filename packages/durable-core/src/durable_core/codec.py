"""How a value becomes what a store holds: `JsonCodec`, and the two calls through which every store uses a codec."""

from __future__ import annotations

import json
import math
from typing import NoReturn

from durable_core.contract import CheckpointCodec, Encoded
from durable_core.errors import NotEncodable, NotParsed

MAX_DEPTH = 200
MAX_DIGITS = 4_300
_MAX_BITS = 14_280  # every integer of so many bits has at most 4 300 digits, which is what Python reads back


class JsonCodec:
    """JSON text by the standard library: None, bool, int, float, str, list, and dict with str keys, of exactly these types.

    A tuple or namedtuple comes back as a list: that is the parser's matter. Everything else is refused: other types and subclasses, NaN and
    infinities, lone surrogates, keys that are not str, integers of more than 4 300 digits, nesting deeper than 200 levels.
    [CDC-ROUND] [CDC-SAME] [CDC-REFUSE]
    """

    def __repr__(self) -> str:
        return "JsonCodec()"

    def encode(self, value: object, /) -> str:
        """Give the JSON text; keys are sorted. Raises: `NotEncodable`."""
        _check(value)
        return _encode(value)

    def decode(self, encoded: str, /) -> object:
        """Give the value back. Raises: `ValueError` for a text that is not JSON."""
        value: object = _decode(encoded)
        return value


def encoded_for(codec: CheckpointCodec[Encoded], workflow: str, key: str, value: object) -> Encoded:
    """Encode a value, or raise `NotEncodable` that names workflow and key. [CKP-RECORD-REFUSED]"""
    try:
        encoded = codec.encode(value)
        if isinstance(encoded, str):
            _check_text(encoded)
    except NotEncodable as refused:
        raise NotEncodable(refused.reason, workflow, key) from refused
    except Exception as refused:
        raise NotEncodable(f"{type(refused).__name__}: {refused}", workflow, key) from refused
    return encoded


def decoded_for(codec: CheckpointCodec[Encoded], workflow: str, key: str, encoded: Encoded) -> object:
    """Decode what the store holds, or raise `NotParsed` that names workflow and key."""
    try:
        return codec.decode(encoded)
    except Exception as refused:
        raise NotParsed(workflow, key, shortened(encoded), f"{type(refused).__name__}: {refused}") from refused


def roundtripped(codec: CheckpointCodec[Encoded], value: object) -> object:
    """Give `decode(encode(value))`, or raise `NotEncodable`."""
    return codec.decode(encoded_for(codec, "", "", value))


def shortened(value: object, limit: int = 200) -> str:
    """Render a value for an error message, in at most so many characters, whatever its `repr` does."""
    try:
        text = repr(value)
    except Exception as broken:
        text = f"<{type(value).__name__} whose repr raises {type(broken).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _check_text(text: str) -> None:
    if "\0" in text:
        raise NotEncodable("the encoded text contains NUL, which not every store can hold")
    if not text.isascii():
        text.encode()


def _check(value: object) -> None:
    """Walk the value without recursion; the path names the offending part."""
    if _is_plain(value, "the value"):
        return
    open_parts: list[tuple[object, str, int]] = [(value, "the value", 1)]
    while open_parts:
        part, path, depth = open_parts.pop()
        if depth > MAX_DEPTH:
            raise NotEncodable(f"it is nested deeper than {MAX_DEPTH} levels, or contains itself, at {path[:200]}")
        if isinstance(part, dict):
            for name, item in part.items():  # pyright: ignore[reportUnknownVariableType]
                _check_name(name, path)  # pyright: ignore[reportUnknownArgumentType]
                if not _is_plain(item, f"{path}[{name!r}]"):  # pyright: ignore[reportUnknownArgumentType]
                    open_parts.append((item, f"{path}[{name!r}]", depth + 1))
        else:
            assert isinstance(part, (list, tuple))
            for index, item in enumerate(part):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                if not _is_plain(item, path, index):  # pyright: ignore[reportUnknownArgumentType]
                    open_parts.append((item, f"{path}[{index}]", depth + 1))


def _is_plain(value: object, path: str, index: int | None = None) -> bool:
    """Say whether the value has no parts, or refuse it; False means that its parts are to be looked at."""
    kind = type(value)
    if kind is str:
        assert isinstance(value, str)
        if not value.isascii():
            _check_surrogates(value, path, index)
        return True
    if kind is bool or value is None:
        return True
    if kind is int:
        assert isinstance(value, int)
        if value.bit_length() > _MAX_BITS:
            _refuse(path, index, f"an integer of more than {MAX_DIGITS} digits, about")
        return True
    if kind is float:
        assert isinstance(value, float)
        if not math.isfinite(value):
            _refuse(path, index, f"{value}, which JSON does not have")
        return True
    if kind is dict or kind is list or kind is tuple or _is_namedtuple(value):
        return False
    _refuse(path, index, f"of type {kind.__module__}.{kind.__qualname__}, which JsonCodec does not carry")


def _is_namedtuple(value: object) -> bool:
    kind = type(value)
    return kind.__bases__ == (tuple,) and isinstance(getattr(kind, "_fields", None), tuple)


def _check_name(name: object, path: str) -> None:
    if type(name) is not str:
        _refuse(path, None, f"a mapping with the key {shortened(name, 80)} of type {type(name).__qualname__}, and keys must be str")
    if not name.isascii():
        _check_surrogates(name, f"a key of {path}", None)


def _check_surrogates(text: str, path: str, index: int | None) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(path, index, f"text with a lone surrogate: {shortened(text, 80)}")


def _refuse(path: str, index: int | None, what: str) -> NoReturn:
    where = path if index is None else f"{path}[{index}]"
    raise NotEncodable(f"{where[:200]} is {what}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode
_decode = json.JSONDecoder(parse_constant=_no_constant).decode
