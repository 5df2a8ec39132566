"""How a stored value becomes what a body expects: what a class means as a parser, and the parsers that come with the library."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from inspect import CO_COROUTINE
from types import FunctionType, MethodType, NoneType
from typing import NewType, TypeAlias, TypeVar, get_origin

from durable_core.errors import DurableError, Misconfigured, NotParsed, shortened

T = TypeVar("T")

Parser: TypeAlias = type[T] | Callable[[object], T]
"""A function that takes what is stored and gives what is expected, or raises; or a class.

A class means exactly that type, by `type(value) is cls`, and is one of str, int, float, bool, list, dict, NoneType. Nothing is
converted: `int` takes no bool, and `float` takes no int, so an effect that gives 3 is not read with `float`. Any other class is
`Misconfigured`.
"""

_EXACT: frozenset[type] = frozenset({str, int, float, bool, list, dict, NoneType})
_MEANING = "a class means exactly that type, of str int float bool list dict NoneType"


class _Refused(ValueError):
    """A part of a value is not what its parser takes; `path` leads to it."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"at {path}: {reason}" if path else reason)
        self.reason, self.path = reason, path


def parsed(workflow: str, key: str, parse: Parser[T], stored: object, *, fresh: bool = False) -> T:
    """Give what a parser that passed `check_parser` makes of a stored value. [RUN-PARSE]

    Raises: `NotParsed`, naming workflow, key and what is stored, for whatever exception the parser raises, which is its cause; a
    `DurableError` passes as it is.
    """
    try:
        return _read(parse, stored)
    except DurableError:
        raise
    except _Refused as refused:
        raise NotParsed(workflow, key, shortened(stored), str(refused), fresh) from refused
    except Exception as refused:
        raise NotParsed(workflow, key, shortened(stored), _told(refused), fresh) from refused


def check_parser(parse: object) -> None:
    """Refuse, with `Misconfigured`, what could only fail or lie: other classes, `list[int]`, `int | None`, an async function."""
    if isinstance(parse, type):
        if parse not in _EXACT:
            raise Misconfigured(f"the class {parse.__name__} is no parser: {_MEANING}; write {_instead(parse)}")
    elif type(parse) is not FunctionType:
        _check_callable(parse)
    elif parse.__code__.co_flags & CO_COROUTINE:
        raise Misconfigured(f"{parse!r} is async, and a parser is a plain function")


def _check_callable(parse: object) -> None:
    if isinstance(parse, MethodType):
        return check_parser(parse.__func__)
    if isinstance(parse, NewType):
        raise Misconfigured(f"{parse.__name__} is a NewType, which checks nothing: write a function")
    if get_origin(parse) is not None:
        raise Misconfigured(f"{parse!r} is no parser: write list_of(...), dict_of(...) or optional(...)")
    if not callable(parse):
        raise Misconfigured(
            f"{shortened(parse)} is no parser: write a function that takes what is stored, or a class such as str"
        )


def _instead(kind: type) -> str:
    if issubclass(kind, datetime):
        return "moment"
    if issubclass(kind, tuple):
        return "list_of(...) or a function: a tuple is stored as a list"
    return f"a function that makes a {kind.__name__} of what is stored"


def moment(value: object) -> datetime:
    """Read an aware datetime from ISO 8601 text; text without an offset is refused."""
    if type(value) is not str:
        raise _Refused(f"{shortened(value)} is of type {type(value).__name__}, and a moment is stored as text")
    read = datetime.fromisoformat(value)
    if read.utcoffset() is None:
        raise _Refused(f"{shortened(value)} has no offset from UTC")
    return read


def nothing(value: object) -> None:
    """Take `None` and nothing else: for an effect that gives nothing."""
    if value is not None:
        raise _Refused(f"{shortened(value)} is not None")


def list_of(parse: Parser[T]) -> Callable[[object], list[T]]:
    """Take a list, and each item as the parser takes it."""
    check_parser(parse)

    def read_list(value: object) -> list[T]:
        return [_part(parse, index, item) for index, item in enumerate(_read(_LIST, value))]

    return read_list


def dict_of(parse: Parser[T]) -> Callable[[object], dict[str, T]]:
    """Take a dict with keys of type str, and each value as the parser takes it."""
    check_parser(parse)

    def read_dict(value: object) -> dict[str, T]:
        return {_part(str, name, name): _part(parse, name, item) for name, item in _read(_DICT, value).items()}

    return read_dict


def optional(parse: Parser[T]) -> Callable[[object], T | None]:
    """Take `None`, and anything else as the parser takes it."""
    check_parser(parse)

    def read_optional(value: object) -> T | None:
        return None if value is None else _read(parse, value)

    return read_optional


def _read(parse: Parser[T], value: object) -> T:
    if not isinstance(parse, type):
        return parse(value)
    if type(value) is not parse:
        raise _Refused(f"{shortened(value)} is of type {type(value).__name__}, and must be exactly {parse.__name__}")
    # By the line above its type is the class that T stands for; `cast` would cost a call of each replayed step.
    return value  # type: ignore[return-value] # pyright: ignore[reportReturnType]


def _part(parse: Parser[T], name: object, item: object) -> T:
    try:
        return _read(parse, item)
    except DurableError:
        raise
    except _Refused as refused:
        raise _Refused(refused.reason, f"[{name!r}]{refused.path}") from refused
    except Exception as refused:
        raise _Refused(_told(refused), f"[{name!r}]") from refused


def _told(refused: Exception) -> str:
    try:
        return f"{type(refused).__name__}: {refused}"
    except Exception:
        return type(refused).__name__


# What the checkers need to know of a stored list and dict: nothing about the parts.
_LIST: type[list[object]] = list
_DICT: type[dict[object, object]] = dict
