"""Whether a value comes back from a round trip as it went, type for type at every level."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime, time
from decimal import Decimal
from itertools import zip_longest
from typing import TypeAlias, TypeGuard

from durable_core.errors import shortened

_Path: TypeAlias = tuple["_Path", object] | None

_SHOWN = (float, complex, datetime, time, Decimal)  # their repr tells more than `==`: -0.0, an offset, a NaN


class _Nothing:
    """Stands where one of the two values has no such part."""


_NOTHING = _Nothing()


def difference(before: object, after: object) -> str | None:
    """Say where the value changed, or give `None`. It does not recurse, and meets a value that contains itself once."""
    pending: list[tuple[_Path, object, object]] = [(None, before, after)]
    met: set[tuple[int, int]] = set()
    while pending:
        path, one, other = pending.pop()
        if one is other or (id(one), id(other)) in met:
            continue
        if type(one) is not type(other):
            return f"{_where(path)} is {_kind(one)} and comes back as {_kind(other)}"
        if _is_whole(one) and not _is_equal(one, other):
            return f"{_where(path)} is {shortened(one, 80)} and comes back as {shortened(other, 80)}"
        if type(one) is not str:
            met.add((id(one), id(other)))
            parts = [((path, name), part, twin) for name, part, twin in _parts(one, other)]
            pending.extend(reversed(parts))
    return None


def _is_whole(value: object) -> bool:
    """Say whether the value itself is compared, and not only its parts."""
    if _is_sequence(value) or _is_mapping(value) or _is_set(value) or _is_dataclass(value):
        return False
    return type(value).__eq__ is not object.__eq__ or _state(value) is None


def _is_equal(one: object, other: object) -> bool:
    if isinstance(one, _SHOWN):
        return repr(one) == repr(other)
    try:
        return bool(one == other)
    except Exception:
        return False


def _parts(one: object, other: object) -> Iterator[tuple[object, object, object]]:
    """Give the parts of both values by name; `_NOTHING` where one has none."""
    if _is_sequence(one) and _is_sequence(other):
        for index, (part, twin) in enumerate(zip_longest(one, other, fillvalue=_NOTHING)):
            yield index, part, twin
    elif _is_mapping(one) and _is_mapping(other):
        keys = {key: key for key in other}
        for name, part in one.items():
            if name in keys:
                yield name, name, keys.pop(name)  # equal keys may be of different types
            yield name, part, other.get(name, _NOTHING)
        for name in keys:
            yield name, _NOTHING, other[name]
    elif _is_set(one) and _is_set(other):
        members = {member: member for member in other}
        for member in one:
            yield member, member, members.pop(member, _NOTHING)
        for member in members:
            yield member, _NOTHING, member
    elif dataclasses.is_dataclass(one) and not isinstance(one, type):
        for field in dataclasses.fields(one):
            yield field.name, getattr(one, field.name, _NOTHING), getattr(other, field.name, _NOTHING)
        return
    state, twin_state = _state(one), _state(other)
    if state and twin_state is not None:
        yield "__dict__", state, twin_state


def _state(value: object) -> dict[str, object] | None:
    state: object = getattr(value, "__dict__", None)
    return state if _is_state(state) else None


def _is_state(value: object) -> TypeGuard[dict[str, object]]:
    return type(value) is dict


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, (list, tuple))


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, dict)


def _is_set(value: object) -> TypeGuard[Set[object]]:
    return isinstance(value, (set, frozenset))


def _is_dataclass(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _kind(value: object) -> str:
    if value is _NOTHING:
        return "nothing"
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _where(path: _Path) -> str:
    names: list[str] = []
    while path is not None:
        path, name = path
        names.append(f"[{shortened(name, 80)}]")
    text = "".join(["the value", *reversed(names)])
    return text if len(text) <= 200 else f"{text[:100]}...{text[-97:]}"
