"""A graph runs durably: recorded node by node, type for type, stopped as a whole. [RUN-GRAPH]"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import assert_type, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_core import in_thread
from durable_core.contract import Pass, Recorded, Torn
from durable_core.errors import Contended, DurableError, EffectTorn, Fenced, Misconfigured
from durable_core.graph import Graph, Node, Source, run_durably
from durable_core.memory import MemoryCheckpointer

MINUTE = timedelta(minutes=1)


@pytest.fixture
def store() -> MemoryCheckpointer:
    return MemoryCheckpointer()


async def claimed(store: MemoryCheckpointer, workflow: str = "w") -> Pass:
    holder = await store.claim(workflow, MINUTE, MINUTE)
    assert holder is not None
    return holder


class Calls:
    """Counts how often each node's function runs."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def giving(self, name: str, value: object) -> Callable[..., Awaitable[object]]:
        async def function(*values: object) -> object:
            self.made.append(name)
            return value

        return function

    def raising(self, name: str, error: BaseException) -> Callable[..., Awaitable[object]]:
        async def function(*values: object) -> object:
            self.made.append(name)
            raise error

        return function


class Held:
    """A node's function that runs until it is let go, and tells what became of it."""

    def __init__(self, value: object = None) -> None:
        self.began, self.let_go = asyncio.Event(), asyncio.Event()
        self.ending = "not begun"
        self._value = value

    async def __call__(self) -> object:
        self.began.set()
        self.ending = "at work"
        try:
            await self.let_go.wait()
            self.ending = "returned"
            return self._value
        except asyncio.CancelledError:
            try:
                await asyncio.sleep(0)
            finally:
                self.ending = "cancelled"
            raise


async def add(one: int, other: int) -> int:
    return one + other


async def double(number: int) -> int:
    return 2 * number


async def total(*numbers: int) -> int:
    return sum(numbers)


async def five() -> int:
    return 5


# --------------------------------------------------------------------------------------------------------------- running


async def test_a_graph_gives_the_value_of_its_output(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: values flow along the handles, and every node is recorded under its name."""
    number, other = Source[int]("number"), Source[int]("other")
    twice = Node("twice", double, number)
    both = Node("both", add, twice, other)
    assert await run_durably(Graph(both, number, other), store, await claimed(store), 4, 3) == 11
    assert await store.load("w") == {"twice": 8, "both": 11}


async def test_a_node_is_recorded_before_what_depends_on_it_starts(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: whoever depends on a value finds it in the store."""
    seen: list[list[str]] = []

    async def look(number: int) -> int:
        seen.append(list(await store.load("w")))
        return number

    first = Node("first", five)
    second = Node("second", look, first)
    third = Node("third", look, second)
    await run_durably(Graph(third), store, await claimed(store))
    assert seen == [["first"], ["first", "second"]]


async def test_a_recorded_node_does_not_run_again(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: a later pass takes what is recorded and runs the rest."""
    calls = Calls()
    await store.supply("w", "a", 1)
    a = Node("a", calls.giving("a", 100))
    b = Node("b", calls.giving("b", 2))
    c = Node("c", total_of(calls, "c"), a, b)
    holder = await claimed(store)
    for _ in range(2):
        assert await run_durably(Graph(c), store, holder) == 3
    assert sorted(calls.made) == ["b", "c"]


def total_of(calls: Calls, name: str) -> Callable[..., Awaitable[object]]:
    async def function(*numbers: int) -> object:
        calls.made.append(name)
        return sum(numbers)

    return function


async def test_nodes_run_at_once_up_to_the_limit(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: as many as the limit says are at work together, and never more."""
    at_work, most, full = 0, 0, asyncio.Event()

    async def work() -> int:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if at_work == 3:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        at_work -= 1
        return 1

    nodes = [Node(f"n{index}", work) for index in range(10)]
    assert await run_durably(Graph(Node("all", total, *nodes)), store, await claimed(store), limit=3) == 10
    assert most == 3


async def test_a_slow_node_does_not_hold_up_its_neighbours(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: a node starts when what it depends on is recorded, whatever else is at work."""
    slow = Held(1)

    async def release(number: int) -> int:
        slow.let_go.set()
        return number

    fast = Node("fast", release, Node("five", five))
    assert (
        await run_durably(Graph(Node("all", Calls().giving("all", 1), Node("slow", slow), fast)), store, await claimed(store))
        == 1
    )


async def test_after_orders_nodes_without_a_value(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: `after` takes a node or the name of one, and such a node runs too."""
    calls = Calls()
    charged = Node("charged", calls.giving("charged", 1))
    noted = Node("noted", calls.giving("noted", 1), after=("charged",))
    shipped = Node("shipped", calls.giving("shipped", "yes"), after=(charged, noted))
    assert await run_durably(Graph(shipped), store, await claimed(store)) == "yes"
    assert calls.made == ["charged", "noted", "shipped"]


async def test_a_chain_of_thousands_and_a_fan_of_thousands_run(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: depth is no matter of the interpreter's stack."""
    number = Source[int]("number")
    link = Node("n0", double, number)
    for index in range(1, 2000):
        link = Node(f"n{index}", total, link, after=(link,))
    fan = Node("fan", total, link, *[Node(f"f{index}", five) for index in range(1000)])
    assert await run_durably(Graph(fan, number), store, await claimed(store), 1, limit=500) == 5002


async def test_every_taker_gets_a_copy_of_its_own(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: what one node does to its argument, no other node sees, and neither does the caller."""
    given_out: list[object] = []

    async def make() -> list[int]:
        return [1]

    async def spoil(numbers: list[int], again: list[int]) -> int:
        given_out.extend([numbers, again])
        numbers.append(2)
        return len(again)

    made = Node("made", make)
    one, other = Node("one", spoil, made, made), Node("other", spoil, made, made)

    async def last(numbers: list[int], *lengths: int) -> list[list[int]]:
        return [numbers, list(lengths)]

    assert await run_durably(Graph(Node("last", last, made, one, other)), store, await claimed(store)) == [[1], [1, 1]]
    assert len({id(value) for value in given_out}) == 4


async def test_a_node_keeps_no_hold_on_what_it_gave(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: what is handed on came back from the codec; the node's own object may change without harm."""
    mine = [1]

    async def make() -> list[int]:
        return mine

    async def take(numbers: list[int]) -> list[int]:
        mine.append(2)
        return numbers

    assert await run_durably(Graph(Node("taken", take, Node("made", make))), store, await claimed(store)) == [1]


async def test_a_source_is_handed_on_as_it_is(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: an input is not recorded and needs no codec; a graph may even give it back."""

    async def ask(client: object) -> str:
        return type(client).__name__

    client = Source[object]("client")
    assert (
        await run_durably(Graph(Node("asked", ask, client), client), store, await claimed(store), store) == "MemoryCheckpointer"
    )
    assert await run_durably(Graph(client, client), MemoryCheckpointer(), await claimed(store, "x"), store) is store


async def test_every_kind_of_async_function_is_a_node(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: a method, a partial, an object with an async `__call__`, a blocking function in a thread."""

    class Shop:
        async def price(self, number: int) -> int:
            return number + 1

        async def __call__(self, number: int) -> int:
            return number + 2

    def block(number: int) -> int:
        return number + 3

    number = Source[int]("number")
    nodes = [
        Node("method", Shop().price, number),
        Node("object", Shop(), number),
        Node("partial", functools.partial(add, 10), number),
        Node("thread", in_thread(block), number),
    ]
    assert await run_durably(Graph(Node("all", total, *nodes), number), store, await claimed(store), 0) == 16


# ---------------------------------------------------------------------------------------------------- refused when built


async def test_two_handles_of_one_name_are_refused() -> None:
    """RUN-GRAPH: duplicate names, of nodes, sources, or one of each."""
    source = Source[int]("x")
    for output, sources in (
        (Node("all", total, Node("x", five), Node("x", five)), ()),
        (Node("x", double, Node("x", five)), ()),
        (Node("all", total, Node("x", five), source), (source,)),
        (Node("all", total, source), (source, Source[int]("x"))),
        (Node("all", total, source), (source, source)),
    ):
        build = cast("Callable[..., object]", Graph)  # they are built in a loop, which no overload takes
        with pytest.raises(ValueError, match="'x'"):
            build(output, *sources)


async def test_an_unlisted_source_is_refused() -> None:
    """RUN-GRAPH: a run could not give it a value."""
    with pytest.raises(ValueError, match="source 'x' is not listed"):
        Graph(Node("a", double, Source[int]("x")))


async def test_an_unknown_name_in_after_is_refused() -> None:
    """RUN-GRAPH: a misspelt name would order nothing; a source is no node."""
    with pytest.raises(ValueError, match="'a' comes after 'b', which is no node"):
        Graph(Node("a", five, after=("b",)))
    source = Source[int]("x")
    with pytest.raises(ValueError, match="'a' comes after 'x', which is no node"):
        Graph(Node("a", double, source, after=("x",)), source)


async def test_a_cycle_is_refused_by_its_names() -> None:
    """RUN-GRAPH: nodes that wait for each other would never run."""
    with pytest.raises(ValueError, match="cycle: 'a' -> 'a'"):
        Graph(Node("a", five, after=("a",)))
    a = Node("a", five, after=("c",))
    with pytest.raises(ValueError, match=r"cycle: '\w' -> '\w' -> '\w' -> '\w'$"):
        Graph(Node("c", double, Node("b", double, a)))


@pytest.mark.parametrize(
    "name", ["", "a\0b", "k" * 1001, "\ud800", "input", "inbox:1", "until:a", "start:a", "failed:a", "outcome:"]
)
async def test_a_name_that_cannot_be_a_key_is_refused(name: str) -> None:
    """RUN-GRAPH, ANY-VALID: before anything runs."""
    with pytest.raises(ValueError):
        Node(name, five)


async def test_a_function_that_is_not_async_is_refused_with_what_to_write() -> None:
    """RUN-GRAPH: a plain function would block the loop, and a call runs once and not again."""
    build = cast("Callable[..., object]", Node)  # what the type checkers refuse is the matter here
    for function in (len, lambda: five(), print, functools.partial(len, []), int, None, 3, Calls()):
        with pytest.raises(Misconfigured, match=r"node 'a' .* write `async def`"):
            build("a", function)
    with pytest.raises(Misconfigured, match="node 'a' was given a call: pass the function"):
        build("a", five())


async def test_a_run_refuses_what_does_not_fit(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: the number of inputs and the limit are looked at before anything is loaded."""
    number = Source[int]("number")
    graph = Graph(Node("a", double, number), number)
    run = cast("Callable[..., Awaitable[object]]", run_durably)  # what the type checkers refuse is the matter here
    with pytest.raises(TypeError, match="takes 1 inputs, and was given 2"):
        await run(graph, store, await claimed(store), 1, 2)
    with pytest.raises(ValueError, match="limit"):
        await run_durably(graph, store, Pass("w", 1, (await claimed(store, "x")).at), 1, limit=0)


# ----------------------------------------------------------------------------------------------------- refused on resuming


async def test_a_record_that_is_no_node_is_refused_by_name(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: the workflow belongs to another graph, or the graph has changed: nothing runs."""
    calls = Calls()
    await store.supply("w", "a", 1)
    await store.supply("w", "removed", 1)
    with pytest.raises(ValueError, match=r"'w' holds \['removed'\], which are no nodes"):
        await run_durably(Graph(Node("a", five, after=(Node("b", calls.giving("b", 1)),))), store, await claimed(store))
    assert calls.made == []


async def test_the_librarys_own_keys_are_no_nodes_and_no_obstacle(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH, CKP-KEY-RESERVED: the input, entries and reserved keys stand beside the nodes."""
    for key in ("input", "until:x", "start:x", "failed:x"):
        await store.supply("w", key, 1)
    await store.append("w", "hello")
    assert await run_durably(Graph(Node("a", five)), store, await claimed(store)) == 5


class Wrapped:
    """A store of a third party: the double, with one method changed in each test."""

    def __init__(self, store: MemoryCheckpointer) -> None:
        self.store = store
        self.roundtrip, self.transact, self.supply, self.append = store.roundtrip, store.transact, store.supply, store.append
        self.claim, self.extend, self.renew, self.release = store.claim, store.extend, store.renew, store.release
        self.history, self.discard, self.describe = store.history, store.discard, store.describe

    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        return await self.store.load(workflow, skip=skip)

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        return await self.store.record(holder, key, value)


class TornRecords(Wrapped):
    async def load(self, workflow: str, /, *, skip: int = 0) -> dict[str, object]:
        return {key: Torn("it raised after a write") for key in await super().load(workflow, skip=skip)}


async def test_a_torn_node_is_refused(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH, CKP-TRANSACT-TORN: a mark is no value."""
    await store.supply("w", "a", 1)
    with pytest.raises(EffectTorn, match="'a' of workflow 'w' is torn"):
        await run_durably(Graph(Node("a", five)), TornRecords(store), await claimed(store))


# ----------------------------------------------------------------------------------------------------- stopped as a whole


async def test_a_failure_is_raised_as_it_is_and_names_its_node(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: what the node raised, with a note; nothing is recorded under it and nothing after it runs."""
    calls = Calls()
    error = ConnectionError("no bank")
    a = Node("a", calls.giving("a", 1))
    b = Node("b", calls.raising("b", error), a)
    c = Node("c", calls.giving("c", 1), b)
    with pytest.raises(ConnectionError) as raised:
        await run_durably(Graph(c), store, await claimed(store))
    assert raised.value is error
    assert error.__notes__ == ["in node 'b' of workflow 'w'"]
    assert await store.load("w") == {"a": 1}
    assert calls.made == ["a", "b"]


async def test_siblings_of_a_failure_are_cancelled_and_waited_for(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: when the failure is raised, no task of the graph is left, and what was ready has not started."""
    sibling, calls = Held(), Calls()

    async def fail() -> None:
        await sibling.began.wait()
        raise ValueError("no")

    nodes = [Node("sibling", sibling), Node("failing", fail), Node("waiting", calls.giving("waiting", 1))]
    with pytest.raises(ValueError, match="no"):
        await run_durably(Graph(Node("all", Calls().giving("all", 1), *nodes)), store, await claimed(store), limit=2)
    assert sibling.ending == "cancelled"
    assert calls.made == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await store.load("w") == {}


async def test_a_second_failure_is_noted_on_the_first(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: one failure is raised, and none is lost."""
    errors = [ValueError("first"), OSError("second")]
    nodes = [Node(name, Calls().raising(name, error)) for name, error in zip("ab", errors, strict=True)]
    with pytest.raises(ValueError, match="first") as raised:
        await run_durably(Graph(Node("all", Calls().giving("all", 1), *nodes)), store, await claimed(store))
    assert raised.value.__notes__ == ["in node 'a' of workflow 'w'", "and node 'b' failed with OSError: second"]


class Gated(Wrapped):
    """Lets a record of one key wait."""

    def __init__(self, store: MemoryCheckpointer, key: str) -> None:
        super().__init__(store)
        self.key, self.asked, self.let_go = key, asyncio.Event(), asyncio.Event()

    async def record(self, holder: Pass, key: str, value: object, /) -> Recorded:
        if key == self.key:
            self.asked.set()
            await self.let_go.wait()
        return await super().record(holder, key, value)


async def test_what_a_node_has_returned_is_recorded_though_a_sibling_fails(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH, RUN-STEP-KEPT: an effect that was paid for is not paid for again."""
    gated = Gated(store, "paid")

    async def fail() -> None:
        await gated.asked.wait()
        asyncio.get_running_loop().call_later(0.01, gated.let_go.set)
        raise ValueError("no")

    output = Node("all", Calls().giving("all", 1), Node("paid", five), Node("failing", fail))
    with pytest.raises(ValueError, match="no"):
        await run_durably(Graph(output), gated, await claimed(store))
    assert await store.load("w") == {"paid": 5}


async def test_a_record_that_does_not_come_back_is_not_waited_for_for_ever(
    store: MemoryCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RUN-GRAPH, kind 10: the wait for a record is bounded, and the failure is raised all the same."""
    monkeypatch.setattr("durable_core._running._KEPT_FOR", 0.01)
    gated = Gated(store, "paid")

    async def fail() -> None:
        await gated.asked.wait()
        raise ValueError("no")

    output = Node("all", Calls().giving("all", 1), Node("paid", five), Node("failing", fail))
    with pytest.raises(ValueError, match="no"):
        await run_durably(Graph(output), gated, await claimed(store))
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancellation_is_not_swallowed_by_a_failure(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH, kind 10: a run that is cancelled while it stops is cancelled, and still leaves nothing at work."""
    gated = Gated(store, "paid")
    failed = asyncio.Event()

    async def fail() -> None:
        await gated.asked.wait()
        failed.set()
        raise ValueError("no")

    output = Node("all", Calls().giving("all", 1), Node("paid", five), Node("failing", fail))
    running = asyncio.create_task(run_durably(Graph(output), gated, await claimed(store)))
    await failed.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.sleep(0)
    gated.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await store.load("w") == {"paid": 5}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancelled_run_leaves_no_node_at_work(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH, kind 10: a cancellation reaches every node, is waited for, and is not swallowed, however often it comes."""
    one, other = Held(), Held()
    output = Node("all", Calls().giving("all", 1), Node("one", one), Node("other", other))
    running = asyncio.create_task(run_durably(Graph(output), store, await claimed(store)))
    await one.began.wait()
    await other.began.wait()
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (one.ending, other.ending) == ("cancelled", "cancelled")
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await store.load("w") == {}


async def test_a_node_that_cancels_itself_is_a_failure(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH: a node that vanished must not look like one that was never there."""
    calls = Calls()
    output = Node("all", calls.giving("all", 1), Node("gone", calls.raising("gone", asyncio.CancelledError())))
    with pytest.raises(DurableError, match="'gone' of workflow 'w' was cancelled, and not by"):
        await run_durably(Graph(output), store, await claimed(store))
    assert calls.made == ["gone"]


@pytest.mark.parametrize("left", [SystemExit(3), GeneratorExit()])
async def test_a_node_that_exits_is_a_failure(store: MemoryCheckpointer, left: BaseException) -> None:
    """RUN-GRAPH, RUN-STEP-EXIT: it does not end the process."""
    with pytest.raises(DurableError, match=type(left).__name__):
        await run_durably(Graph(Node("a", Calls().raising("a", left))), store, await claimed(store))


# ------------------------------------------------------------------------------------------------------------ other passes


async def test_a_node_that_another_pass_recorded_stops_the_run(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH, kinds 6 and 32: `Contended`; what depends on it does not start, and what was recorded stands."""
    calls, sibling = Calls(), Held()

    async def late() -> int:
        await sibling.began.wait()
        await store.supply("w", "late", "theirs")
        return 1

    middle = Node("late", late)
    output = Node("all", calls.giving("all", 1), middle, Node("sibling", sibling))
    with pytest.raises(Contended) as raised:
        await run_durably(Graph(output), store, await claimed(store))
    assert (raised.value.workflow, raised.value.key) == ("w", "late")
    assert calls.made == []
    assert sibling.ending == "cancelled"
    assert await store.load("w") == {"late": "theirs"}


async def test_a_tie_is_no_contention(store: MemoryCheckpointer) -> None:
    """CKP-RECORD-FIRST: the same encoding under the same name is this run's own."""

    async def tied() -> int:
        await store.supply("w", "a", 5)
        return 5

    assert await run_durably(Graph(Node("a", tied)), store, await claimed(store)) == 5


async def test_a_lost_claim_is_fenced_and_nothing_is_written(store: MemoryCheckpointer) -> None:
    """RUN-GRAPH, CKP-RECORD-FENCED: a superseded run writes nothing and starts nothing more."""
    calls = Calls()

    async def lose() -> int:
        await store.discard("w")
        return 1

    with pytest.raises(Fenced) as raised:
        await run_durably(Graph(Node("b", calls.giving("b", 1), Node("a", lose))), store, await claimed(store))
    assert raised.value.workflow == "w"
    assert calls.made == []
    assert await store.load("w") == {}


@pytest.mark.parametrize("fenced_first", [True, False])
async def test_a_lost_claim_wins_over_every_other_failure(store: MemoryCheckpointer, fenced_first: bool) -> None:
    """RUN-GRAPH, RUN-RESUME-OUTCOME: whichever came first, the run was not this pass's any more."""
    holder = await claimed(store)
    fenced, contended = Fenced("w", holder.token, "a"), Contended("w", "b")
    errors: list[BaseException] = [fenced, contended, ValueError("c")]
    nodes = [
        Node(f"n{index}", Calls().raising("", error)) for index, error in enumerate(errors if fenced_first else errors[::-1])
    ]
    with pytest.raises(Fenced) as raised:
        await run_durably(Graph(Node("all", Calls().giving("all", 1), *nodes)), store, holder)
    assert raised.value is fenced


async def test_two_runs_of_one_pass_leave_one_value_each(store: MemoryCheckpointer) -> None:
    """Kind 32: two runs under one holder record each node once, and the one that comes second to a node is told."""
    holder = await claimed(store)
    counter = iter(range(100))

    async def next_one() -> int:
        number = next(counter)
        await asyncio.sleep(0)
        return number

    graph = Graph(Node("a", next_one))
    first = asyncio.create_task(run_durably(graph, store, holder))
    second = asyncio.create_task(run_durably(graph, store, holder))
    await asyncio.wait([first, second])
    endings = [task.exception() or task.result() for task in (first, second)]
    assert sum(isinstance(ending, Contended) for ending in endings) == 1
    assert (await store.load("w"))["a"] in endings


# ---------------------------------------------------------------------------------------------- any graph, stopped anywhere

EDGES = st.integers(min_value=1, max_value=8).flatmap(
    lambda size: st.tuples(
        *[st.sets(st.integers(0, index - 1), max_size=3) if index else st.just(set[int]()) for index in range(size)]
    )
)


@given(edges=EDGES, stops=st.lists(st.integers(0, 7), max_size=6), limit=st.integers(1, 4))
async def test_any_graph_stopped_anywhere_ends_as_if_it_had_not_been(
    edges: tuple[set[int], ...], stops: list[int], limit: int
) -> None:
    """RUN-GRAPH: over passes that fail at chosen nodes, each value is computed from recorded ones and recorded once."""
    store, broken = MemoryCheckpointer(), list(stops)
    recorded: list[str] = []

    def function(index: int) -> Callable[..., Awaitable[int]]:
        async def compute(*below: int) -> int:
            assert f"n{index}" not in await store.load("w")
            if index in broken:
                broken.remove(index)
                raise OSError(index)
            recorded.append(f"n{index}")
            return index + sum(below)

        return compute

    nodes: list[Node[int]] = []
    for index, below in enumerate(edges):
        nodes.append(Node(f"n{index}", function(index), *[nodes[each] for each in sorted(below)]))
    graph = Graph(Node("all", total, *nodes))
    holder = await claimed(store)
    results: list[int] = []
    while not results:
        try:
            results.append(await run_durably(graph, store, holder, limit=limit))
        except OSError:
            assert "all" not in await store.load("w")
    expected: list[int] = []
    for index, below in enumerate(edges):
        expected.append(index + sum(expected[each] for each in below))
    assert results == [sum(expected)]
    assert await store.load("w") == {f"n{index}": value for index, value in enumerate(expected)} | {"all": sum(expected)}
    assert sorted(set(recorded)) == sorted(f"n{index}" for index in range(len(edges)))


# ------------------------------------------------------------------------------------------------------------------ types


async def typed(store: MemoryCheckpointer, holder: Pass) -> None:
    """What the type checkers make of a graph; checked, not run."""

    async def name(number: int, word: str) -> str:
        return word * number

    number, word = Source[int]("number"), Source[str]("word")
    named = Node("named", name, number, word)
    assert_type(named, Node[str])
    assert_type(Node("five", five, after=(named, "other")), Node[int])
    assert_type(Node("sum", total, *[Node("x", five), number]), Node[int])
    graph = Graph(named, number, word)
    assert_type(graph, Graph[str, int, str])
    assert_type(await run_durably(graph, store, holder, 3, "a", limit=2), str)
    wide: list[Node[object]] = [named]
    assert_type(await run_durably(Graph(wide[0], number, word), store, holder, 3, "a"), object)
    Node("bad", name, word, number)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    Node("bad", name, number)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    Node("bad", total, word)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await run_durably(graph, store, holder, "a", 3)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await run_durably(graph, store, holder, 3)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
