"""A small typed graph of async functions, and `run_durably`: every node is recorded before what depends on it starts."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Generic, TypeAlias, TypeVar, TypeVarTuple, cast, overload

from durable_core import keys
from durable_core._running import Plan, Running
from durable_core.contract import Checkpointer, Pass, T_co, Torn
from durable_core.errors import EffectTorn, Misconfigured, shortened

__all__ = ["Graph", "Handle", "Node", "Source", "run_durably"]

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
F = TypeVar("F")
G = TypeVar("G")
E = TypeVar("E")
Ins = TypeVarTuple("Ins")
Is = TypeVarTuple("Is")

After: TypeAlias = "tuple[Node[object] | str, ...]"

LIMIT = 16


class Source(Generic[T_co]):
    """An input of a graph: `order = Source[Order]("order")`. It is handed on as it is, and not recorded."""

    __slots__ = ("_name",)

    def __init__(self, name: str, /) -> None:
        keys.check_name(name, "the name of a source")
        self._name = name

    def __repr__(self) -> str:
        return f"<Source {self._name!r}>"

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self._name


class Node(Generic[T_co]):
    """A name, an async function, and the handles whose values it is called with.

    The value is recorded under the name. `after` gives nodes, or the names of nodes, that are recorded before this one starts and
    whose values it does not take.

    Raises: `ValueError` for a name that cannot be a key, `Misconfigured` for a function that is not async.
    """

    __slots__ = ("_after", "_depends", "_function", "_name")

    @overload
    def __init__(self, name: str, function: Callable[[], Awaitable[T_co]], /, *, after: After = ()) -> None: ...
    @overload
    def __init__(self, name: str, function: Callable[[A], Awaitable[T_co]], a: Handle[A], /, *, after: After = ()) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        function: Callable[[A, B], Awaitable[T_co]],
        a: Handle[A],
        b: Handle[B],
        /,
        *,
        after: After = (),
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        function: Callable[[A, B, C], Awaitable[T_co]],
        a: Handle[A],
        b: Handle[B],
        c: Handle[C],
        /,
        *,
        after: After = (),
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        function: Callable[[A, B, C, D], Awaitable[T_co]],
        a: Handle[A],
        b: Handle[B],
        c: Handle[C],
        d: Handle[D],
        /,
        *,
        after: After = (),
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        function: Callable[[A, B, C, D, F], Awaitable[T_co]],
        a: Handle[A],
        b: Handle[B],
        c: Handle[C],
        d: Handle[D],
        f: Handle[F],
        /,
        *,
        after: After = (),
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        function: Callable[[A, B, C, D, F, G], Awaitable[T_co]],
        a: Handle[A],
        b: Handle[B],
        c: Handle[C],
        d: Handle[D],
        f: Handle[F],
        g: Handle[G],
        /,
        *,
        after: After = (),
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        function: Callable[[*tuple[A, ...]], Awaitable[T_co]],
        /,
        *depends: Handle[A],
        after: After = (),
    ) -> None: ...
    def __init__(
        self,
        name: str,
        function: Callable[..., Awaitable[T_co]],
        /,
        *depends: Handle[object],
        after: After = (),
    ) -> None:
        keys.check_name(name, "the name of a node")
        if keys.is_reserved(name) or name == keys.INPUT:
            raise ValueError(f"the name of node {name!r} is reserved")
        _refuse_function(name, function)
        self._name, self._function, self._depends, self._after = name, function, depends, after

    def __repr__(self) -> str:
        return f"<Node {self._name!r} of {len(self._depends)} handles>"

    @property
    def name(self) -> str:
        """The key under which its value is recorded."""
        return self._name

    @property
    def function(self) -> Callable[..., Awaitable[T_co]]:
        """What it calls."""
        return self._function

    @property
    def depends(self) -> tuple[Handle[object], ...]:
        """The handles whose values it takes."""
        return self._depends

    @property
    def after(self) -> tuple[str, ...]:
        """The names of the nodes that it comes after without taking their values."""
        return tuple(other if isinstance(other, str) else other.name for other in self._after)

    @property
    def leads(self) -> tuple[Handle[object], ...]:
        """The handles through which a graph reaches on from it."""
        return (*self._depends, *(other for other in self._after if isinstance(other, Node)))


Handle: TypeAlias = Node[T_co] | Source[T_co]


class Graph(Generic[T, *Ins]):
    """What leads to an output: `Graph(output, *sources)`, and a run takes an input for each source.

    Raises: `ValueError` for two handles of one name, a source that is not listed, an unknown name in `after`, a cycle.
    """

    @overload
    def __init__(self: Graph[R], output: Handle[R], /) -> None: ...
    @overload
    def __init__(self: Graph[R, A], output: Handle[R], a: Source[A], /) -> None: ...
    @overload
    def __init__(self: Graph[R, A, B], output: Handle[R], a: Source[A], b: Source[B], /) -> None: ...
    @overload
    def __init__(self: Graph[R, A, B, C], output: Handle[R], a: Source[A], b: Source[B], c: Source[C], /) -> None: ...
    @overload
    def __init__(
        self: Graph[R, A, B, C, D], output: Handle[R], a: Source[A], b: Source[B], c: Source[C], d: Source[D], /
    ) -> None: ...
    def __init__(self: Graph[R, *Is], output: Handle[R], /, *sources: Source[object]) -> None:
        self._sources = tuple(source.name for source in sources)
        self._plan = _planned(output, sources)

    def __repr__(self) -> str:
        return f"<Graph of {len(self._plan.calls)} nodes, giving {self._plan.output!r}>"

    @property
    def plan(self) -> Plan:
        """The graph without its types."""
        return self._plan

    def given(self, inputs: Sequence[object]) -> dict[str, object]:
        """Give the inputs by the names of their sources."""
        if len(inputs) != len(self._sources):
            raise TypeError(f"the graph takes {len(self._sources)} inputs, and was given {len(inputs)}")
        return dict(zip(self._sources, inputs, strict=True))


async def run_durably(
    graph: Graph[T, *Ins], checkpointer: Checkpointer[E], holder: Pass, /, *inputs: *Ins, limit: int = LIMIT
) -> T:
    """Run every node that is not recorded, at most `limit` at once, and give the output's value.

    [RUN-GRAPH] A node is recorded before what depends on it starts; that gets the value as it came back from the codec, a copy of
        its own. A value that does not come back type for type is refused before it is recorded. The first failure cancels the
        nodes at work and waits for them; what a node has returned by then is still recorded, for at most ten seconds.

    A node whose value is not recorded runs again on the next pass. Nothing renews the claim but the records, and nothing records
    the inputs: give every pass the same ones.

    Raises: `Fenced`, before everything else; `Contended` when another pass recorded a node; `NotEncodable`, naming the node;
    `EffectTorn`; `ValueError` when the workflow holds a key that is no node; and what a node raises.
    """
    keys.check_limit(limit)
    values = graph.given(inputs)
    values |= _recorded(graph.plan, holder.workflow, await checkpointer.load(holder.workflow))
    running = Running(checkpointer, holder, graph.plan, values, limit)
    await running.finish()
    # The output's function gave a T, and its value came back from the store type for type.
    return cast("T", running.value(graph.plan.output))


def _refuse_function(name: str, function: object) -> None:
    if isinstance(function, Coroutine):
        function.close()
        raise Misconfigured(f"node {name!r} was given a call: pass the function, not its call")
    inner: object = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not iscoroutinefunction(inner) and not (callable(inner) and iscoroutinefunction(type(inner).__call__)):
        raise Misconfigured(
            f"node {name!r} was given {shortened(function, 80)}, which is not async: write `async def`, "
            "or in_thread(f) for a function that blocks"
        )


def _planned(output: Handle[object], sources: Sequence[Source[object]]) -> Plan:
    """Collect what leads to the output, and check that it is a graph."""
    known: dict[str, Handle[object]] = {}
    nodes: dict[str, Node[object]] = {}
    pending: deque[Handle[object]] = deque([*sources, output])
    while pending:
        handle = pending.popleft()
        if known.setdefault(handle.name, handle) is not handle or sources.count(handle) > 1:
            raise ValueError(f"two handles of the graph have the name {handle.name!r}")
        if isinstance(handle, Node):
            if handle.name not in nodes:
                nodes[handle.name] = handle
                pending.extend(handle.leads)
        elif handle not in sources:
            raise ValueError(f"source {handle.name!r} is not listed: write Graph(output, {handle.name})")
    plan = Plan(
        {name: node.function for name, node in nodes.items()},
        {name: tuple(handle.name for handle in node.depends) for name, node in nodes.items()},
        {name: node.after for name, node in nodes.items()},
        output.name,
    )
    _check_after(plan)
    plan.sorter()
    return plan


def _check_after(plan: Plan) -> None:
    for name, after in plan.after.items():
        for other in after:
            if other not in plan.calls:
                raise ValueError(f"node {name!r} comes after {other!r}, which is no node of this graph")


def _recorded(plan: Plan, workflow: str, records: Mapping[str, object]) -> dict[str, object]:
    """Give what is recorded of the nodes, or refuse records that are none of them."""
    found = {key: value for key, value in records.items() if key != keys.INPUT and not keys.is_reserved(key)}
    if unknown := [key for key in found if key not in plan.calls]:
        raise ValueError(f"workflow {workflow!r} holds {shortened(unknown)}, which are no nodes of this graph")
    for key, value in found.items():
        if isinstance(value, Torn):
            raise EffectTorn(workflow, key, value.reason)
    return found
