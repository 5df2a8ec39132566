"""Cases from people who do this job, as far as the engine alone decides them: time, deploys, crashes, parking."""

import asyncio
import os
import time
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest

from durable_core.errors import (
    NotParsed,
    OutcomeUnknown,
    StepFailed,
)
from durable_core.memory import MemoryEffect
from durable_core.outcome import Blocked, Completed, Sleeping
from durable_core.run import Run
from probe import Effect, Held, Probe

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def same(stored: object) -> object:
    return stored


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
