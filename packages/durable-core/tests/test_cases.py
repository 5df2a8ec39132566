"""Cases from people who do this job, as far as the engine alone decides them: here on memory."""

import asyncio
import contextvars
import os
import random
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

import pytest

from durable_core._probe import Effect, Held, Probe
from durable_core._thread import in_thread
from durable_core.codec import JsonCodec
from durable_core.errors import (
    DuplicateStep,
    Fenced,
    NotEncodable,
    NotParsed,
    OutcomeUnknown,
    StepFailed,
    Swallowed,
)
from durable_core.memory import MemoryCheckpointer, MemoryEffect
from durable_core.outcome import Blocked, Completed, Sleeping
from durable_core.parsing import dict_of, list_of
from durable_core.resume import resume
from durable_core.run import Run

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


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


@pytest.fixture(params=["Europe/Paris", "America/New_York", "Pacific/Kiritimati"])
def _zone(request: pytest.FixtureRequest) -> Generator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = str(request.param)
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="this system has one zone")
@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize("month", [3, 10, 11])
async def test_case_96_a_day_is_24_hours_in_every_zone(month: int) -> None:
    """Case 96: the deadline of a sleep is an instant; what is recorded and what comes back has an offset."""
    probe = Probe()
    probe.clock.advance(datetime(2024, month, 1, tzinfo=UTC) + timedelta(days=8) - probe.clock.now())
    began = probe.clock.now()

    async def body(run: Run) -> str:
        now = await run.now("now")
        assert now == began
        assert now.tzinfo is not None
        await run.sleep("day", timedelta(hours=24))
        return now.isoformat()

    for _ in range(24):
        assert await probe.advance(body) == Sleeping("day", began + timedelta(hours=24), ("day",), ())
        probe.tick(3_600)
    assert await probe.advance(body) == Completed(began.isoformat())
    assert str((await probe.inner.load("w"))["day"]).endswith("+00:00")


async def test_case_97_instants_that_somebody_else_wrote(probe: Probe) -> None:
    """Case 97: text with a Z or any offset is that instant; naive text is refused, and never taken as local time."""
    for key, text in (("a", "2024-01-01T01:00:00Z"), ("b", "2024-01-01T03:30:00+02:30"), ("c", "2024-01-01T01:00:00")):
        await probe.supply_now(key, text)

    async def body(run: Run) -> None:
        await run.sleep("a", DAY)
        await run.sleep("b", DAY)

    async def naive(run: Run) -> None:
        await run.sleep("c", DAY)

    assert await probe.advance(body) == Sleeping("a", START + HOUR, ("a",), ())
    with pytest.raises(NotParsed, match="'c' of workflow 'w'"):
        await probe.advance(naive)
    probe.tick(3_600)
    assert await probe.advance(body) == Completed(None)


@pytest.mark.parametrize("days", [25, 60, 36_500, 365_000, 2_900_000])
async def test_case_100_very_long_sleeps_park(probe: Probe, days: int) -> None:
    """Case 100: with the right instant, whether they wait alone or are held beside a step."""

    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.sleep("long", timedelta(days=days)))
            group.create_task(run.step("x", Effect("done"), str))

    due = START + timedelta(days=days)
    for _ in range(2):
        assert await probe.advance(body) == Sleeping("long", due, ("long",), ())


@pytest.mark.parametrize("duration", [timedelta.max, timedelta(days=3_000_000)])
async def test_case_100_what_cannot_be_represented_is_refused(probe: Probe, duration: timedelta) -> None:
    """Case 100: ValueError at the call, nothing recorded, for sleeps and timeouts alike."""

    async def body(run: Run) -> None:
        with pytest.raises(ValueError, match="'long'"):
            await run.sleep("long", duration)
        with pytest.raises(ValueError, match="'long'"):
            await run.awaiting("long", str, timeout=duration, default="")

    assert await probe.advance(body) == Completed(None)
    assert await probe.keys() == []


async def test_case_102_a_deploy_adds_and_renames_steps(probe: Probe) -> None:
    """Case 102: no mismatch; the old record stays, the new steps run once, the wait is as before."""
    effects = {name: Effect(name) for name in ("a", "b", "a2", "b_new", "c")}

    async def steps(run: Run, *names: str) -> None:
        for name in names:
            await run.step(name, effects[name], str)

    async def before(run: Run) -> str:
        await steps(run, "a", "b")
        return await run.awaiting("wait", str)

    async def after(run: Run) -> str:
        await steps(run, "a", "a2", "b_new")
        answer = await run.awaiting("wait", str)
        await steps(run, "c")
        return answer

    for body in (before, after, after):
        assert await probe.advance(body) == Blocked(("wait",), ())
    await probe.supply_now("wait", "go")
    assert await probe.advance(after) == Completed("go")
    assert [effect.runs for effect in effects.values()] == [1, 1, 1, 1, 1]
    assert await probe.keys() == ["a", "b", "a2", "b_new", "wait", "c"]
    assert (await probe.inner.history("w"))["b"].value == "b"


async def test_case_126_a_step_costs_the_same_however_long_the_history(probe: Probe) -> None:
    """Case 126: store calls of steps 9 001 to 10 000 equal those of 1 to 1 000; one load a pass, one more for each `pending`."""
    text = "x" * 200
    costs: list[int] = []

    async def effect() -> str:
        return text

    async def body(run: Run) -> None:
        for number in range(10_000):
            if number % 1_000 == 0:
                costs.append(len(probe.calls))
            await run.step(f"{number}", effect, str)
        costs.append(len(probe.calls))
        await run.pending("read", str, after=None)

    await probe.advance(body, budget=timedelta(days=1))
    assert {later - earlier for earlier, later in pairwise(costs)} == {1_000}
    assert probe.count("load") == 2
    probe.calls.clear()
    await probe.advance(body)
    assert probe.calls == [("load", "w from 0")]


async def test_case_131_killed_between_retries_of_a_failing_step(probe: Probe) -> None:
    """Case 131: an attempt that raised records nothing; a declared failure is met again; at most once runs nothing more."""
    effect = Effect(ConnectionError("1"), ConnectionError("2"), "third")

    async def body(run: Run) -> str:
        return await run.step("a", effect, str)

    for _ in range(2):
        with pytest.raises(ConnectionError):
            await probe.advance(body)
        assert await probe.keys() == []
    assert await probe.advance(body) == Completed("third")

    declared, once = Effect(ValueError("no"), "yes"), Held("done")

    async def failing(run: Run) -> str:
        return await run.step("b", declared, str, failures=(ValueError,))

    for _ in range(3):
        with pytest.raises(StepFailed):
            await probe.advance(failing)
    assert declared.runs == 1

    async def guarded(run: Run) -> str:
        return await run.step("c", once, str, at_most_once=True)

    task = asyncio.create_task(probe.advance(guarded))
    await once.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(OutcomeUnknown):
        await probe.advance(guarded)
    assert once.runs == 1


EMPTY: list[object] = [None, 0, False, "", [], {}]


@pytest.mark.parametrize("value", EMPTY, ids=repr)
async def test_case_132_empty_results_are_results(probe: Probe, value: object) -> None:
    """Case 132: over five passes each effect runs once, and a supplied None is an answer."""
    effect = Effect(value)
    transacted: list[int] = []

    def transaction(data: dict[str, object]) -> object:
        transacted.append(1)
        return value

    answer = await probe.supply_now("answer", value)
    await probe.inner.append("w", value)
    assert (answer.value, answer.first) == (value, True)

    async def body(run: Run[MemoryEffect]) -> list[object]:
        return [
            await run.step("a", effect, same),
            await run.awaiting("answer", same),
            await run.transact("b", transaction, same),
            *[entry.value for entry in await run.receive("c", same, after=None)],
        ]

    for _ in range(5):
        assert await probe.advance(body) == Completed([value] * 4)
    assert effect.runs == len(transacted) == 1


async def test_case_134_the_idempotency_key_of_a_charge_is_stable() -> None:
    """Case 134: a charge that is made again after a crash has the key of the first; the gateway shows one."""
    gateway: dict[str, int] = {}
    calls = 0

    async def charge(key: str, amount: int) -> int:
        nonlocal calls
        calls += 1
        return gateway.setdefault(key, amount)

    async def body(run: Run) -> int:
        return await run.step("charge", charge, int, run.idempotency_key("charge"), 42)

    probe = Probe("order/7")
    for _ in range(3):
        probe.fail("record", "charge", ConnectionError("killed"))
        with pytest.raises(ConnectionError):
            await probe.advance(body)
        probe.tick(3_600)
    assert await probe.advance(body) == Completed(42)
    assert calls == 4
    assert len(gateway) == 1


async def test_case_136_intent_first() -> None:
    """Case 136: wherever it breaks, the history alone shows an intent without a result, in order and with times."""
    sent: list[str] = []

    async def intend(order: str) -> str:
        return f"request for {order}"

    async def send(request: str) -> str:
        sent.append(request)
        return "receipt"

    async def body(run: Run) -> str:
        request = await run.step("intent", intend, str, run.workflow)
        return await run.step("charge", send, str, request)

    unfinished: list[str] = []
    points = [("record", "intent", False), ("record", "intent", True), ("record", "charge", False), ("record", "charge", True)]
    for number, (method, key, after) in enumerate(points):
        probe = Probe(f"order/{number}")
        probe.fail(method, key, ConnectionError("killed"), after=after)
        probe.then("record", "charge", partial(probe.tick, 1))
        with pytest.raises(ConnectionError):
            await probe.advance(body)
        history = await probe.inner.history(probe.workflow)
        if "intent" in history and "charge" not in history:
            unfinished.append(probe.workflow)
        assert await probe.advance(body) == Completed("receipt")
        history = await probe.inner.history(probe.workflow)
        assert list(history) == ["intent", "charge"]
        assert history["intent"].at <= history["charge"].at
    assert unfinished == ["order/1", "order/2"]
    assert set(sent) == {f"request for order/{number}" for number in range(4)}


async def test_case_141_a_parked_workflow_names_everything_and_keeps_what_it_did(probe: Probe) -> None:
    """Case 141: the sleep's key and instant, the awaited key with it, the received one apart; no task, nothing redone."""
    effect = Effect("done")

    async def body(run: Run) -> None:
        await asyncio.gather(
            run.step("step", effect, str),
            run.awaiting("answer", str),
            run.sleep("nap", HOUR),
            run.receive("read", str, after=None),
        )

    before = asyncio.all_tasks()
    for _ in range(3):
        assert await probe.advance(body) == Sleeping("nap", START + HOUR, ("answer", "nap"), ("read",))
        assert asyncio.all_tasks() == before
    assert effect.runs == 1
    assert sorted(await probe.keys()) == ["nap", "step"]
