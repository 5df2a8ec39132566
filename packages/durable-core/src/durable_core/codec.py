"""How a value becomes what a store holds: `JsonCodec`, and the calls through which every store uses a codec."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from json.scanner import make_scanner
from typing import NoReturn, TypeGuard

from durable_core.contract import CheckpointCodec, Encoded
from durable_core.errors import NotEncodable, NotParsed
from durable_core.errors import shortened as shortened

MAX_DEPTH = 200
MAX_DIGITS = 4_300  # what Python reads back, unless it is told otherwise
_FIRST_TOO_LONG = 10**MAX_DIGITS
_SAFE_BITS = _FIRST_TOO_LONG.bit_length() - 1


class JsonCodec:
    """JSON text by the standard library: None, bool, int, float, str, list, and dict with str keys, of exactly these types.

    A tuple or namedtuple comes back as a list: that is the parser's matter. Equal values give equal text, but for -0.0, which
    stays what it is. Everything else is refused: other types and subclasses, NaN and infinities, lone surrogates, keys that are
    not str, integers of more than 4 300 digits, nesting deeper than 200 levels. [CDC-ROUND] [CDC-SAME] [CDC-REFUSE]
    """

    def __repr__(self) -> str:
        return "JsonCodec()"

    def encode(self, value: object, /) -> str:
        """Give the JSON text; keys are sorted. Raises: `NotEncodable`."""
        if type(value) is str and value.isascii() and "\x7f" not in value:
            return _encode_ascii(value)  # the same text, sooner: this is where large values spend their time
        _check(value)
        return _encode(value)

    def decode(self, encoded: str, /) -> object:
        """Give the value back. Raises: `ValueError` for a text that is not JSON."""
        value: object
        end: int
        try:
            value, end = _scan(encoded, 0)
        except StopIteration:  # it begins with white space, or is not JSON
            value, end = None, -1
        return value if end == len(encoded) else _decode(encoded)


def encoded_for(codec: CheckpointCodec[Encoded], workflow: str, key: str, value: object) -> Encoded:
    """Encode a value, or raise `NotEncodable` that names workflow and key. [CKP-RECORD-REFUSED]"""
    try:
        return _encoded(codec, value)
    except NotEncodable as refused:
        raise NotEncodable(refused.reason, workflow, key) from refused


def decoded_for(codec: CheckpointCodec[Encoded], workflow: str, key: str, encoded: Encoded) -> object:
    """Decode what the store holds, or raise `NotParsed` that names workflow and key."""
    try:
        return codec.decode(encoded)
    except Exception as refused:
        raise _unreadable(workflow, key, encoded, refused) from refused


def all_decoded(codec: CheckpointCodec[Encoded], workflow: str, records: Iterable[tuple[str, Encoded]]) -> dict[str, object]:
    """Decode what the store holds under many keys, or raise `NotParsed` that names workflow and key."""
    decode, values = codec.decode, dict[str, object]()
    for key, encoded in records:
        try:
            values[key] = decode(encoded)
        except Exception as refused:
            raise _unreadable(workflow, key, encoded, refused) from refused
    return values


def roundtripped(codec: CheckpointCodec[Encoded], value: object) -> object:
    """Give `decode(encode(value))`, or raise `NotEncodable`, naming neither workflow nor key; also where it does not decode."""
    encoded = _encoded(codec, value)
    try:
        return codec.decode(encoded)
    except Exception as refused:
        raise NotEncodable(f"its encoding cannot be decoded: {type(refused).__name__}: {refused}") from refused


def _unreadable(workflow: str, key: str, encoded: object, refused: Exception) -> NotParsed:
    return NotParsed(workflow, key, shortened(encoded), f"{type(refused).__name__}: {refused}")


def _encoded(codec: CheckpointCodec[Encoded], value: object) -> Encoded:
    try:
        encoded = codec.encode(value)
        if isinstance(encoded, str):
            _check_text(encoded)
    except NotEncodable:
        raise
    except Exception as refused:
        raise NotEncodable(f"{type(refused).__name__}: {refused}") from refused
    return encoded


def _check_text(text: str) -> None:
    if "\0" in text:
        raise NotEncodable("the encoded text contains NUL, which not every store can hold")
    if not text.isascii():
        text.encode()


def _check(value: object) -> None:
    """Refuse what would not come back as it is; depth first, so that a value that contains itself is soon too deep."""
    if type(value) is str and value.isascii():
        return
    held: list[object] = []  # the containers that are open, from the outermost in
    rest: list[Iterator[object]] = [iter((value,))]  # what of each is still to be looked at
    while rest:
        for part in rest[-1]:
            if type(part) is str:
                if not part.isascii() and _is_torn(part):
                    _refuse(held, part, f"text with a lone surrogate: {shortened(part, 80)}")
            elif type(part) is int:
                if part.bit_length() > _SAFE_BITS and abs(part) >= _FIRST_TOO_LONG:
                    _refuse(held, part, f"an integer of more than {MAX_DIGITS} digits")
            elif type(part) is float:
                if not math.isfinite(part):
                    _refuse(held, part, f"{part}, which JSON does not have")
            elif type(part) is not bool and part is not None:
                rest.append(_parts(held, part))
                held.append(part)
                break
        else:
            rest.pop()
            if held:
                held.pop()


def _parts(held: list[object], part: object) -> Iterator[object]:
    """Give the parts of a list, tuple or dict, or refuse what is none of them."""
    if len(held) >= MAX_DEPTH:
        raise NotEncodable(f"it is nested deeper than {MAX_DEPTH} levels, or contains itself, at {_where(held, part)}")
    if _is_mapping(part):
        for name in part:
            if type(name) is not str:
                key = f"the key {shortened(name, 80)} of type {type(name).__qualname__}"
                _refuse(held, part, f"a mapping with {key}, and keys must be str")
            if not name.isascii() and _is_torn(name):
                _refuse(held, part, f"a mapping with a lone surrogate in the key {shortened(name, 80)}")
        return iter(part.values())
    if _is_sequence(part):
        return iter(part)
    kind = type(part)
    _refuse(held, part, f"of type {kind.__module__}.{kind.__qualname__}, which JsonCodec does not carry")


def _is_mapping(value: object) -> TypeGuard[dict[object, object]]:
    return type(value) is dict


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    kind = type(value)
    if kind is list or kind is tuple:
        return True
    return kind.__bases__ == (tuple,) and isinstance(getattr(kind, "_fields", None), tuple)


def _is_torn(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse(held: list[object], part: object, what: str) -> NoReturn:
    raise NotEncodable(f"{_where(held, part)} is {what}")


def _where(held: list[object], part: object) -> str:
    """Name the part: it is found by identity, and the first that fits is the one that was looked at."""
    path = "the value"
    for container, inner in pairwise([*held, part]):
        path += next(f"[{name!r}]" for name, item in _named(container) if item is inner)
    return path if len(path) <= 200 else f"{path[:100]}...{path[-97:]}"


def _named(container: object) -> Iterable[tuple[object, object]]:
    if _is_mapping(container):
        return container.items()
    return enumerate(container) if _is_sequence(container) else ()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_encode = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
_encode_ascii = json.encoder.encode_basestring_ascii
_decoder = json.JSONDecoder(parse_constant=_no_constant)
_decode = _decoder.decode
_scan = make_scanner(_decoder)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # their stub wants a scanner
