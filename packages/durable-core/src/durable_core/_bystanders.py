"""What a body can reach without its run, and whether it changed: nothing may, while every effect is only pretended."""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TypeAlias, TypeGuard, cast

_DEPTH = 5
_ITEMS = 1_000
_PLAIN = (bool, int, float, complex, str, bytes, bytearray, type(None))
_Container: TypeAlias = list[object] | dict[object, object] | set[object] | tuple[object, ...] | frozenset[object] | deque[object]
_OURS = ("durable_core", "durable_sqlite", "durable_postgres", "durable_redis", "durable_conformance")


class Bystanders:
    """Looks at variables of closures, modules and objects that a function can reach, and tells which ones changed."""

    def __init__(self, root: Callable[..., object], ignore: Sequence[object]) -> None:
        self._root, self._ignore = root, {id(one) for one in ignore}
        self._kept = ignore  # so that no id is used anew
        self._seen = self._looked()

    def __repr__(self) -> str:
        return f"<Bystanders: {len(self._seen)} variables>"

    def changed(self) -> list[str]:
        """Give the names of what changed since the last look."""
        before, self._seen = self._seen, self._looked()
        return sorted(name for name in before.keys() & self._seen.keys() if before[name] != self._seen[name])

    def _looked(self) -> dict[str, object]:
        found: dict[str, object] = {}
        visited = set(self._ignore)
        todo: deque[tuple[str, object, int]] = deque([("", self._root, 0)])
        while todo:
            name, value, depth = todo.popleft()
            if id(value) in self._ignore or depth > _DEPTH:
                continue
            if isinstance(value, _PLAIN) or _is_container(value):
                found[name] = _token(value, _DEPTH, self._ignore)
            if not isinstance(value, _PLAIN) and id(value) not in visited:
                visited.add(id(value))
                todo.extend((inner, held, depth + 1) for inner, held in _reached(name, value))
        return found


def _reached(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Give what a value leads to, with a name for each."""
    if isinstance(value, functools.partial):
        partial = cast("functools.partial[object]", value)  # whatever it gives
        yield from ((name, one) for one in (partial.func, *partial.args, *partial.keywords.values()))
    elif isinstance(value, MethodType):
        yield from ((name, one) for one in (value.__self__, value.__func__))
    elif isinstance(value, FunctionType):
        if _is_theirs(value.__module__):
            yield from _variables(value)
    elif _is_container(value):
        items = list(value.values() if isinstance(value, dict) else value)
        yield from ((f"{name}[…]", item) for item in items if not isinstance(item, _PLAIN))
    elif not isinstance(value, (type, ModuleType)) and _is_theirs(type(value).__module__):
        yield from ((f"{name}.{inner}", held) for inner, held in _attributes(value))


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    held: Mapping[str, object] = getattr(value, "__dict__", {})
    yield from held.items()
    for kind in type(value).__mro__:
        if _is_theirs(kind.__module__):
            slots: object = kind.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else cast("Sequence[str]", slots):  # what Python takes as slots
                if hasattr(value, slot):
                    yield slot, getattr(value, slot)
            yield from ((inner, one) for inner, one in kind.__dict__.items() if _is_container(one) and inner != "__slots__")


def _variables(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not bound yet
            pass
    names = _names(function.__code__)
    for name in names:
        value: object = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            if _is_theirs(value.__name__):
                yield from ((f"{name}.{inner}", vars(value)[inner]) for inner in names if inner in vars(value))
        elif isinstance(value, type):
            if _is_theirs(value.__module__):
                yield from ((f"{name}.{inner}", held) for inner, held in vars(value).items() if _is_container(held))
        elif name in function.__globals__:
            yield name, value


def _names(code: CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


def _is_container(value: object) -> TypeGuard[_Container]:
    return isinstance(value, (list, dict, set, tuple, frozenset, deque))


def _is_theirs(module: str | None) -> bool:
    """Say whether a module is the application's own."""
    top = (module or "").partition(".")[0]
    return top not in _OURS and top not in sys.stdlib_module_names


def _token(value: object, depth: int, ignore: AbstractSet[int]) -> object:
    """Give something that is equal as long as the value is."""
    if id(value) in ignore:
        return "ignored"
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, _PLAIN):
        return type(value).__name__, value if value == value else "nan"
    if not _is_container(value) or depth == 0:
        return id(value)
    items: list[object] = list(value.items() if isinstance(value, dict) else value)
    if len(items) > _ITEMS:
        return len(items)
    tokens = [_token(item, depth - 1, ignore) for item in items]
    return frozenset(map(repr, tokens)) if isinstance(value, (set, frozenset)) else tuple(tokens)
