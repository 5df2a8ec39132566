"""Cases from people who do this job, as far as the engine alone decides them: control flow, types, decisions."""

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

import pytest

from durable_core._thread import in_thread
from durable_core.codec import JsonCodec
from durable_core.errors import (
    DuplicateStep,
    Fenced,
    NotEncodable,
    NotParsed,
    Swallowed,
)
from durable_core.memory import MemoryCheckpointer, MemoryEffect
from durable_core.outcome import Blocked, Completed
from durable_core.parsing import dict_of, list_of
from durable_core.resume import resume
from durable_core.run import Run
from probe import Effect, Held, Probe

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def same(stored: object) -> object:
    return stored


async def test_case_21_losing_the_workflow_compensates_nothing(probe: Probe) -> None:
    """Case 21: a pass that was taken over while it stalled in "ship" is Fenced past `except Exception`; nothing is refunded."""
    charge, refund, stalled = Effect("charged"), Effect("refunded"), Held("shipped late")

    async def body(run: Run, ship: Effect) -> str:
        try:
            await run.step("charge", charge, str)
            return await run.step("ship", ship, str)
        except Exception:
            return await run.step("refund", refund, str)

    first = await probe.take()
    task = asyncio.create_task(probe.advance(lambda run: body(run, stalled), holder=first))
    await stalled.began.wait()
    probe.tick(3_600)
    assert await probe.advance(lambda run: body(run, Effect("shipped"))) == Completed("shipped")
    stalled.go.set()
    with pytest.raises(Fenced):
        await task
    assert (charge.runs, refund.runs) == (1, 0)
    assert await probe.inner.load("w") == {"charge": "charged", "ship": "shipped"}


async def test_case_38_nested_scopes_and_an_outer_cancellation_at_once(probe: Probe) -> None:
    """Case 38: a scope of the body and the worker's cancellation at one moment never make a finished pass."""
    effect = Held("done")

    async def body(run: Run) -> str:
        async with asyncio.timeout(0.02):
            async with asyncio.TaskGroup() as group:
                group.create_task(run.step("slow", effect, str))
        return "done"

    task = asyncio.create_task(probe.advance(body))
    await effect.began.wait()
    asyncio.get_running_loop().call_later(0.02, task.cancel)
    with pytest.raises((TimeoutError, asyncio.CancelledError)):
        await task
    assert await probe.keys() == []
    assert (await probe.take()).token > 0


async def test_case_39_a_pause_for_a_human_is_not_an_exception(probe: Probe) -> None:
    """Case 39: `except Exception` around a wait does not see it."""

    async def body(run: Run) -> str:
        try:
            return await run.awaiting("approval", str)
        except Exception:
            return "failed"

    assert await probe.advance(body) == Blocked(("approval",), ())
    assert await probe.keys() == []


async def by_gather(run: Run, step: Awaitable[str]) -> None:
    await asyncio.gather(run.awaiting("a", str), run.awaiting("b", str), step, return_exceptions=True)


async def by_wait(run: Run, step: Awaitable[str]) -> None:
    async def stepped() -> str:
        return await step

    await asyncio.wait([asyncio.create_task(call) for call in (run.awaiting("a", str), run.awaiting("b", str), stepped())])


@pytest.mark.parametrize("collect", [by_gather, by_wait])
async def test_case_40_exceptions_handed_back_as_values(
    probe: Probe, collect: Callable[[Run, Awaitable[str]], Awaitable[None]]
) -> None:
    """Case 40: always Swallowed with both keys; "c" has run once and is recorded; "ok" is no outcome."""
    effect = Effect("c")

    async def body(run: Run) -> str:
        await collect(run, run.step("c", effect, str))
        return "ok"

    for _ in range(3):
        with pytest.raises(Swallowed) as swallowed:
            await probe.advance(body)
        assert swallowed.value.keys == ("a", "b")
    assert effect.runs == 1
    assert await probe.keys() == ["c"]


async def test_case_44_results_belong_to_names_and_not_to_their_order() -> None:
    """Case 44: after a crash anywhere, and whatever order the branches take next time, every step has its own value."""
    names = [f"step {number}" for number in range(20)]
    order = random.Random(44)
    for _ in range(100):
        probe = Probe()
        effects = {name: Effect(f"value of {name}") for name in names}
        crash_after = order.randrange(20)
        for name in order.sample(names, crash_after):
            probe.fail("record", name, ConnectionError("crash"))

        async def branch(run: Run, effect: Effect, name: str) -> str:
            for _ in range(order.randrange(4)):
                await asyncio.sleep(0)
            return await run.step(name, effect, str)

        async def body(run: Run, effects: dict[str, Effect] = effects) -> list[str]:
            return sorted(await asyncio.gather(*(branch(run, effects[name], name) for name in order.sample(names, 20))))

        with suppress(ConnectionError):
            await probe.advance(body)
        recorded = await probe.keys()
        probe.forget_rules()
        assert await probe.advance(body) == Completed(sorted(f"value of {name}" for name in names))
        assert await probe.inner.load("w") == {name: f"value of {name}" for name in await probe.keys()}
        assert {effects[name].runs for name in recorded} <= {1}


async def test_case_45_one_name_for_two_in_any_form(probe: Probe) -> None:
    """Case 45: always DuplicateStep, for waits too, on the first pass as on a replay; the second effect never runs."""
    effects = [Effect("first"), Effect("second")]

    async def one_after_the_other(run: Run) -> None:
        for effect in effects:
            await run.step("charge", effect, str)

    async def at_once(run: Run) -> None:
        await asyncio.gather(*(run.step("charge", effect, str) for effect in effects))

    async def waits(run: Run) -> None:
        await asyncio.gather(run.awaiting("answer", str), run.awaiting("answer", str))

    for body in (one_after_the_other, at_once, waits):
        for _ in range(2):
            with pytest.raises(DuplicateStep):
                await probe.advance(body)
    assert [effect.runs for effect in effects] == [1, 0]


async def test_case_48_from_threads_loops_and_effects(probe: Probe) -> None:
    """Case 48: a call is recorded under the right workflow or refused at once; context variables of the body go along."""
    variable = contextvars.ContextVar("variable", default="unset")
    effects = {name: Effect(name) for name in ("loop", "threadsafe", "inner")}

    async def body(run: Run) -> list[str]:
        variable.set("body")
        loop = asyncio.get_running_loop()

        async def outer() -> str:
            return f"{await run.step('inner', effects['inner'], str)} of {variable.get()}"

        def other_loop() -> str:
            try:
                return asyncio.run(run.step("loop", effects["loop"], str))
            except Exception as refused:
                return type(refused).__name__

        def threadsafe() -> str:
            return asyncio.run_coroutine_threadsafe(run.step("threadsafe", effects["threadsafe"], str), loop).result(10)

        return [
            await run.step("outer", outer, str),
            await loop.run_in_executor(None, other_loop),
            await run.step("thread", in_thread(threadsafe), lambda value: f"{value} read by {variable.get()}"),
        ]

    for _ in range(2):
        assert await probe.advance(body) == Completed(["inner of body", "Misconfigured", "threadsafe read by body"])
    assert await probe.keys() == ["inner", "outer", "threadsafe", "thread"]
    assert [effect.runs for effect in effects.values()] == [0, 1, 1]


class Point(NamedTuple):
    """Another."""

    x: int
    y: int


@dataclass
class Quote:
    """A result as applications have them."""

    price: int


@pytest.mark.parametrize("value", [Quote(1), START, Decimal("1.5"), UUID(int=1), b"bytes", {1}, [Quote(1)]])
async def test_case_49_what_the_codec_does_not_carry(probe: Probe, value: object) -> None:
    """Case 49: NotEncodable on the first pass, naming key and type; nothing is recorded."""

    async def body(run: Run) -> object:
        return await run.step("quote", Effect(value), same)

    kind = "Quote" if isinstance(value, list) else type(value).__name__
    with pytest.raises(NotEncodable, match=f"'quote' of workflow 'w'.*{kind}"):
        await probe.advance(body)
    assert await probe.keys() == []


async def test_case_49_a_tuple_is_a_list_on_both_passes(probe: Probe) -> None:
    """Case 49: the parser makes the right type of it again, from the same thing on every pass."""
    seen: list[object] = []

    def point(value: object) -> Point:
        seen.append(value)
        return Point(*list_of(int)(value))

    async def body(run: Run) -> bool:
        return await run.step("point", Effect(Point(1, 2)), point) == Point(1, 2)

    for _ in range(2):
        assert await probe.advance(body) == Completed(True)
    assert seen == [[1, 2], [1, 2]]


a_dict = dict_of(same)


class Failing:
    """A codec whose decoding can be broken."""

    def __init__(self, broken: Callable[[object], object]) -> None:
        self._broken, self.sound = broken, True

    def encode(self, value: object, /) -> str:
        return JsonCodec().encode(value)

    def decode(self, encoded: str, /) -> object:
        return JsonCodec().decode(encoded) if self.sound else self._broken(encoded)


def unknown_class(encoded: object) -> object:
    raise LookupError("an unknown class")


@pytest.mark.parametrize("call", ["step", "awaiting", "transact"])
async def test_case_50_a_decode_error_surfaces(call: str) -> None:
    """Case 50: it names the key, chains the original, and never becomes a value."""
    codec = Failing(unknown_class)
    checkpointer = MemoryCheckpointer(codec=codec)
    await checkpointer.supply("w", "key", {"a": 1})
    codec.sound = False

    async def body(run: Run[MemoryEffect]) -> object:
        match call:
            case "step":
                return await run.step("key", Effect("again"), a_dict)
            case "awaiting":
                return await run.awaiting("key", a_dict)
            case _:
                return await run.transact("key", lambda data: data, a_dict)

    holder = await checkpointer.claim("w", HOUR, HOUR)
    assert holder is not None
    with pytest.raises(NotParsed, match="'key' of workflow 'w'") as refused:
        await resume(checkpointer, holder, body)
    assert isinstance(refused.value.__cause__, LookupError)


async def test_case_50_what_decodes_to_nothing_is_refused_by_the_parser() -> None:
    """Case 50: a codec that gives None for what it does not know is found by whoever expects something else."""
    codec = Failing(lambda encoded: None)
    checkpointer = MemoryCheckpointer(codec=codec)
    await checkpointer.supply("w", "key", {"a": 1})
    codec.sound = False

    async def body(run: Run) -> object:
        return await run.step("key", Effect("again"), a_dict)

    holder = await checkpointer.claim("w", HOUR, HOUR)
    assert holder is not None
    with pytest.raises(NotParsed, match="holds None"):
        await resume(checkpointer, holder, body)


async def test_case_81_two_decisions(probe: Probe) -> None:
    """Case 81: the first decision stands for all passes, and the second operator learns it."""
    before = Effect("prepared")

    async def body(run: Run) -> str:
        await run.step("prepare", before, str)
        return await run.awaiting("decision", str)

    assert await probe.advance(body) == Blocked(("decision",), ())
    first = await probe.durable.arrive("w", "decision", "approve")
    second = await probe.durable.arrive("w", "decision", "reject")
    assert (first.first, second.first, second.value) == (True, False, "approve")
    for _ in range(3):
        assert await probe.advance(body) == Completed("approve")
    assert before.runs == 1


async def test_case_82_parallel_approvals(probe: Probe) -> None:
    """Case 82: each answer lets its own branch go on, once, and the rest is still waited for."""
    effects = {name: Effect(f"{name} did") for name in ("legal", "finance", "ops")}

    async def branch(run: Run, name: str) -> str:
        await run.awaiting(name, bool)
        return await run.step(f"after {name}", effects[name], str)

    async def body(run: Run) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch(run, name)) for name in effects]
        return [task.result() for task in tasks]

    assert await probe.advance(body) == Blocked(("finance", "legal", "ops"), ())
    await probe.durable.arrive("w", "finance", True)
    for _ in range(2):
        assert await probe.advance(body) == Blocked(("legal", "ops"), ())
    assert [effect.runs for effect in effects.values()] == [0, 1, 0]
    await probe.durable.arrive("w", "legal", True)
    await probe.durable.arrive("w", "ops", True)
    for _ in range(2):
        assert await probe.advance(body) == Completed(["legal did", "finance did", "ops did"])
    assert [effect.runs for effect in effects.values()] == [1, 1, 1]
