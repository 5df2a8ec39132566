"""What an application does with workflows from outside: start one, read its result, fork it, open a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Protocol, TypeVar, cast, runtime_checkable

from durable_core import keys
from durable_core.contract import Client, Durable, Failed, Finished, Recorded, Torn
from durable_core.errors import EffectTorn, Misconfigured
from durable_core.parsing import Parser, check_parser, parsed

T = TypeVar("T")
E = TypeVar("E")

ENTRY_POINTS = "durable.stores"
_ZERO = timedelta(0)
_DISTRIBUTIONS = {
    "sqlite": "durable-sqlite",
    "postgresql": "durable-postgres",
    "postgres": "durable-postgres",
    "redis": "durable-redis",
    "rediss": "durable-redis",
}


async def start(client: Client, workflow: str, value: object = None, /) -> Recorded:
    """Start a workflow with its input, in one call.

    [RUN-START] It is `arrive` under the key `input`, for which `run.input` waits; `first` is false when the id was started with
        another one.

    Raises: `NotEncodable`.
    """
    return await client.arrive(workflow, keys.INPUT, value)


async def result(
    durable: Durable[E], workflow: str, parse: Parser[T], /, *, wait: timedelta = _ZERO
) -> Finished[T] | Failed | None:
    """Give how the workflow ended, waiting for it at most `wait`; `None` when it has not. [DUR-RESULT]

    Raises: `NotParsed` when the parser refuses the outcome.
    """
    keys.check_workflow(workflow)
    check_parser(parse)
    monotonic = durable.monotonic if isinstance(durable, _Timed) else time.monotonic
    until = monotonic() + keys.check_wait(wait).total_seconds()
    while True:
        ended = await durable.result(workflow)
        if isinstance(ended, Finished):
            return Finished(parsed(workflow, keys.OUTCOME, parse, ended.value))
        left = until - monotonic()
        if ended is not None or left <= 0:
            return ended
        await durable.watch(workflow, timedelta(seconds=left))


@runtime_checkable
class _Timed(Protocol):
    """A durable with a clock of its own, as the memory double is."""

    @property
    def monotonic(self) -> Callable[[], float]: ...


async def fork(durable: Durable[E], source: str, new: str, /, *, before: str) -> None:
    """Begin a workflow with the records that another had before one of its steps, and let it run.

    `before` is a step's name, or any key that `load` shows.

    [RUN-FORK] Entries keep their keys; a step's `start:` and `until:` are copied with its result only; the outcome never is.
        `new` is empty or holds a prefix of what is copied, so that a fork that broke off can be repeated.

    Raises: `ValueError` when `source` has no such key or `new` holds something else; `EffectTorn` when a copied key is torn.
    """
    keys.check_workflow(source)
    keys.check_workflow(new)
    checkpointer = durable.checkpointer
    copied = copied_before(source, await checkpointer.load(source), before)
    _check_prefix(new, list(copied), list(await checkpointer.load(new)))
    for key, value in copied.items():
        if not (await checkpointer.supply(new, key, value)).first:
            raise ValueError(f"{new!r} holds another value under {key!r} than {source!r}: fork into an id of its own")
    if list(await checkpointer.load(new)) != list(copied):
        raise ValueError(f"{new!r} was written by somebody else meanwhile: fork into an id of its own")
    await durable.scheduler.make_ready(new)


def copied_before(source: str, records: Mapping[str, object], before: str) -> dict[str, object]:
    """Give what a fork copies, in order."""
    names = list(records)[: _cut(source, records, before)]
    taken = set(names)
    copied = {key: records[key] for key in names if _is_copied(key, taken)}
    for key, value in copied.items():
        if isinstance(value, Torn):
            raise EffectTorn(source, key, value.reason)
    return copied


def _cut(source: str, records: Mapping[str, object], before: str) -> int:
    """Give the position of the step's result; of what it left behind, when it has none."""
    order = {key: position for position, key in enumerate(records)}
    for found in ([before, keys.FAILED + before], [keys.START + before, keys.UNTIL + before]):
        positions = [order[key] for key in found if key in order]
        if positions:
            return min(positions)
    raise ValueError(f"workflow {source!r} has no record {before[:80]!r} to fork before")


def _is_copied(key: str, taken: set[str]) -> bool:
    """Say whether a key before the cut is copied. [CKP-KEY-RESERVED]"""
    if key.startswith(keys.UNTIL):
        return key[len(keys.UNTIL) :] in taken
    if key.startswith(keys.START):
        step = key[len(keys.START) :]
        return step in taken or keys.FAILED + step in taken
    return not key.startswith(keys.OUTCOME)


def _check_prefix(new: str, copied: list[str], held: list[str]) -> None:
    if held != copied[: len(held)]:
        raise ValueError(f"{new!r} holds records that this fork does not begin with: fork into an id of its own")


def open(url: str, /, **options: object) -> AbstractAsyncContextManager[Durable]:
    """Open the installed store for a URL, such as `sqlite:///shop.db`, `postgresql://…` or `redis://…`: use it with `async with`.

    The options are the store's own, and `queue`, `lease` and `codec`.

    Raises: `Misconfigured` when no installed distribution has such a store, naming the one to install.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or not scheme:
        raise Misconfigured("a store is opened by a URL, such as sqlite:///shop.db, postgresql://… or redis://…")
    return _opener(scheme.lower())(url, **options)


class _Opener(Protocol):
    def __call__(self, url: str, /, **options: object) -> AbstractAsyncContextManager[Durable]: ...


def _opener(scheme: str) -> _Opener:
    from importlib.metadata import entry_points  # costs as much as all else here, and most programs never call it

    found = {point.value: point for point in entry_points(group=ENTRY_POINTS, name=scheme)}
    if not found:
        raise Misconfigured(_missing(scheme))
    if len(found) > 1:
        raise Misconfigured(f"several stores are installed for {scheme}://: {', '.join(sorted(found))}; open one by its own name")
    opener: object = next(iter(found.values())).load()
    return cast("_Opener", opener)  # what the entry point group promises


def _missing(scheme: str) -> str:
    if scheme in _DISTRIBUTIONS:
        return f"no store for {scheme}:// is installed: pip install {_DISTRIBUTIONS[scheme]}"
    return f"no store for {scheme}:// is installed, and the ones we know are {', '.join(_DISTRIBUTIONS)}"
