"""Cases of one pass and the next, on every store: who decides, what is replayed, what parks, what comes to an end."""

import asyncio
import random
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from conformance.cases.place import MINUTE, Effect, Place, advance, claimed, recorded, same
from durable_core.contract import Durable, Finished
from durable_core.errors import DuplicateStep, Fenced, NotParsed, Swallowed
from durable_core.keys import INBOX
from durable_core.outcome import Blocked, Completed, Sleeping
from durable_core.resume import resume
from durable_core.run import Run
from durable_core.worker import Worker

HOUR = timedelta(hours=1)
NOW = timedelta(0)


class Stalled(Effect):
    """An effect that waits until it is let go."""

    def __init__(self, answer: object) -> None:
        super().__init__(answer)
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> object:
        self.began.set()
        await self.go.wait()
        return await super().__call__()


async def test_an_effect_that_blocks_the_loop(place: Place) -> None:
    """Case 7: past its window, and claimed by somebody else meanwhile, the pass is Fenced at its record and goes no further."""
    later = Effect("later")

    async def rival() -> None:
        async with place.open() as elsewhere:
            while await elsewhere.checkpointer.claim("w", MINUTE, MINUTE) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def blocks() -> str:
        thread = threading.Thread(target=lambda: asyncio.run(rival()))
        thread.start()
        thread.join()
        return "late"

    async def body(run: Run[object]) -> str:
        await run.step("cpu", blocks, str)
        return await run.step("later", later, str)

    async with place.open() as durable:
        short = timedelta(seconds=0.2)
        holder = await durable.checkpointer.claim("w", MINUTE, short)
        assert holder is not None
        with pytest.raises(Fenced):
            await resume(durable.checkpointer, holder, body, budget=MINUTE, alive=short)
        assert later.runs == 0
        assert not await recorded(durable)


async def test_two_writers_of_one_key(durable: Durable[object]) -> None:
    """Case 17: one is first, both get its value, which is what is loaded, and no error of a driver comes out."""
    holder = await claimed(durable)
    for number in range(100):
        key = f"k{number}"
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(durable.checkpointer.record(holder, key, value)) for value in ("a", "b")]
        answers = [task.result() for task in tasks]
        assert sorted(answer.first for answer in answers) == [False, True]
        assert len({answer.value for answer in answers}) == 1
        assert (await recorded(durable))[key] == answers[0].value


async def test_losing_the_workflow_compensates_nothing(durable: Durable[object]) -> None:
    """Case 21: a pass that was taken over while it stalled is Fenced past `except Exception`; nothing is refunded."""
    charge, refund, stalled = Effect("charged"), Effect("refunded"), Stalled("shipped late")

    async def body(run: Run[object], ship: Effect) -> str:
        try:
            await run.step("charge", charge, str)
            return await run.step("ship", ship, str)
        except Exception:
            return await run.step("refund", refund, str)

    first = await claimed(durable)
    task = asyncio.create_task(resume(durable.checkpointer, first, lambda run: body(run, stalled), budget=MINUTE, alive=MINUTE))
    await stalled.began.wait()
    await durable.checkpointer.release(first)
    assert await advance(durable, lambda run: body(run, Effect("shipped"))) == Completed("shipped")
    stalled.go.set()
    with pytest.raises(Fenced):
        await task
    assert (charge.runs, refund.runs) == (1, 0)
    assert await recorded(durable) == {"charge": "charged", "ship": "shipped"}


async def test_a_pause_for_a_human_is_no_exception(durable: Durable[object]) -> None:
    """Case 39: `except Exception` around a wait does not see it, and nothing is recorded."""

    async def body(run: Run[object]) -> str:
        try:
            return await run.awaiting("approval", str)
        except Exception:
            return "failed"

    assert await advance(durable, body) == Blocked(("approval",), ())
    assert not await recorded(durable)


async def test_exceptions_handed_back_as_values(durable: Durable[object]) -> None:
    """Case 40: a body that hid two waits is Swallowed with both keys; the step beside them has run once."""
    effect = Effect("c")

    async def body(run: Run[object]) -> str:
        waits = [run.awaiting(key, str) for key in ("a", "b")]
        await asyncio.gather(*waits, run.step("c", effect, str), return_exceptions=True)
        return "ok"

    for _ in range(2):
        with pytest.raises(Swallowed) as swallowed:
            await advance(durable, body)
        assert swallowed.value.keys == ("a", "b")
    assert effect.runs == 1
    assert await recorded(durable) == {"c": "c"}


async def test_results_belong_to_names(durable: Durable[object]) -> None:
    """Case 44: after a crash anywhere, and whatever order the branches take next time, every step has its own value."""
    names, chance = [f"step {number}" for number in range(20)], random.Random(44)
    for attempt in range(10):
        workflow = f"w{attempt}"
        crashing = chance.sample(names, chance.randrange(20))
        effects = {name: Effect(*[ConnectionError()] * (name in crashing), f"of {name}") for name in names}

        async def body(run: Run[object], effects: dict[str, Effect] = effects) -> list[str]:
            async def branch(name: str) -> str:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                return await run.step(name, effects[name], str)

            return sorted(await asyncio.gather(*(branch(name) for name in chance.sample(names, 20))))

        with suppress(ConnectionError):
            await advance(durable, body, workflow)
        kept = await recorded(durable, workflow)
        ran = {name: effects[name].runs for name in kept}
        for _ in range(2):
            while True:
                with suppress(ConnectionError):
                    assert await advance(durable, body, workflow) == Completed(sorted(f"of {name}" for name in names))
                    break
        assert await recorded(durable, workflow) == {name: f"of {name}" for name in await recorded(durable, workflow)}
        assert {name: effects[name].runs for name in kept} == ran


async def test_one_name_for_two(durable: Durable[object]) -> None:
    """Case 45: always DuplicateStep, on the first pass as on a replay; the second effect never runs."""
    effects = [Effect("first"), Effect("second")]

    async def one_after_the_other(run: Run[object]) -> None:
        for effect in effects:
            await run.step("charge", effect, str)

    async def at_once(run: Run[object]) -> None:
        await asyncio.gather(*(run.step("charge", effect, str) for effect in effects))

    async def waits(run: Run[object]) -> None:
        await asyncio.gather(run.awaiting("answer", str), run.awaiting("answer", str))

    for body in (one_after_the_other, at_once, waits):
        for _ in range(2):
            with pytest.raises(DuplicateStep):
                await advance(durable, body)
    assert [effect.runs for effect in effects] == [1, 0]


async def test_what_came_before_the_first_pass(durable: Durable[object]) -> None:
    """Case 77: a value and a message that came before the workflow ever ran are there when it does."""
    await durable.arrive("w", "payment", 5)
    await durable.deliver("w", "m")

    async def body(run: Run[object]) -> list[object]:
        payment = await run.awaiting("payment", int)
        (entry,) = await run.receive("read", str, after=None)
        return [payment, entry.value]

    assert await advance(durable, body) == Completed([5, "m"])


async def test_messages_to_one_that_is_ending(durable: Durable[object]) -> None:
    """Case 79: those that come after the last read, or after the end, stay readable, and no effect runs again."""
    effect = Effect("sent")

    async def body(run: Run[object]) -> str:
        (entry,) = await run.receive("read", str, after=None, limit=1)
        await run.step("send", effect, str)
        await durable.deliver("w/1", "during")
        return entry.value

    await durable.deliver("w/1", "first")
    await Worker(durable).settle({"w": body})
    await durable.deliver("w/1", "after")
    await Worker(durable).settle({"w": body})
    assert await durable.result("w/1") == Finished("first")
    assert effect.runs == 1
    held = await recorded(durable, "w/1")
    assert [held[key] for key in sorted(held) if key.startswith(INBOX)] == ["first", "during", "after"]


async def test_senders_at_once(durable: Durable[object]) -> None:
    """Case 80: of many arrivals one is first and one delivery follows; no message is lost; with an id there is one."""
    async with asyncio.TaskGroup() as group:
        arrivals = [group.create_task(durable.arrive("w", "order", number)) for number in range(50)]
        messages = [group.create_task(durable.deliver("w", "m")) for _ in range(50)]
        repeated = [group.create_task(durable.deliver("w", "once", once="id")) for _ in range(50)]
    assert sum(task.result().first for task in arrivals) == 1
    assert len({task.result().value for task in arrivals}) == 1
    assert len({task.result().key for task in messages}) == 50
    assert len({task.result().key for task in repeated}) == 1
    assert len(await recorded(durable)) == 52
    assert len(await durable.begin(NOW, MINUTE, limit=10)) == 1


async def test_two_decisions(durable: Durable[object]) -> None:
    """Case 81: the first stands for all passes, the second operator learns it, and what came before runs once."""
    before = Effect("prepared")

    async def body(run: Run[object]) -> str:
        await run.step("prepare", before, str)
        return await run.awaiting("decision", str)

    assert await advance(durable, body) == Blocked(("decision",), ())
    answers = [await durable.arrive("w", "decision", word) for word in ("approve", "reject")]
    assert [(answer.first, answer.value) for answer in answers] == [(True, "approve"), (False, "approve")]
    for _ in range(3):
        assert await advance(durable, body) == Completed("approve")
    assert before.runs == 1


async def test_parallel_approvals(durable: Durable[object]) -> None:
    """Case 82: each answer lets its own branch go on, once, and the rest is still waited for."""
    effects = {name: Effect(name) for name in ("finance", "legal", "ops")}

    async def branch(run: Run[object], name: str) -> str:
        await run.awaiting(name, bool)
        return await run.step(f"after {name}", effects[name], str)

    async def body(run: Run[object]) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch(run, name)) for name in effects]
        return [task.result() for task in tasks]

    assert await advance(durable, body) == Blocked(("finance", "legal", "ops"), ())
    await durable.arrive("w", "finance", True)
    assert await advance(durable, body) == Blocked(("legal", "ops"), ())
    for name in ("legal", "ops"):
        await durable.arrive("w", name, True)
    assert await advance(durable, body) == Completed(["finance", "legal", "ops"])
    assert [effect.runs for effect in effects.values()] == [1, 1, 1]


async def test_wakeups_during_a_pass(durable: Durable[object]) -> None:
    """Case 86: however many come while it runs, exactly one further delivery follows, at once."""
    await durable.arrive("w", "input", 1)
    (turn,) = await durable.begin(NOW, MINUTE)
    for number in range(3):
        await durable.scheduler.make_ready("w")
        await durable.arrive("w", f"k{number}", number)
    await durable.pause(turn, None)
    (again,) = await durable.begin(NOW, MINUTE, limit=10)
    await durable.pause(again, None)
    assert not await durable.begin(NOW, MINUTE, limit=10)


async def test_deleted_inside_a_step(durable: Durable[object]) -> None:
    """Cases 91, 144: the delete waits for nobody; the pass is Fenced at its record, and nothing comes back."""
    effect = Stalled("late")

    async def body(run: Run[object]) -> str:
        return await run.step("slow", effect, str)

    await durable.arrive("w/1", "input", 1)
    worker = Worker(durable)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.settle({"w": body}))
        await effect.began.wait()
        assert await durable.delete("w/1") == 1
        effect.go.set()
    assert effect.runs == 1
    assert not await recorded(durable, "w/1")
    assert not await durable.checkpointer.history("w/1")
    assert await durable.result("w/1") is None
    assert not await durable.begin(NOW, MINUTE)
    await durable.arrive("w/1", "input", 2)
    (turn,) = await durable.begin(NOW, MINUTE)
    assert dict(turn.records or {}) == {"input": 2}


async def test_instants_without_a_zone(durable: Durable[object]) -> None:
    """Case 97: refused at the call; one that somebody else wrote with an offset is that instant, a naive one is refused."""
    await durable.arrive("w", "input", 1)
    (turn,) = await durable.begin(NOW, MINUTE)
    naive = datetime(2024, 1, 1)
    with pytest.raises(ValueError, match=r"offset|zone|aware"):
        await durable.pause(turn, naive)
    with pytest.raises(ValueError, match=r"offset|zone|aware"):
        await durable.scheduler.wake_at(turn.delivery, naive)
    await durable.pause(turn, None)
    await durable.checkpointer.supply("v", "a", "2999-01-01T01:00:00Z")
    await durable.checkpointer.supply("u", "a", "2999-01-01T01:00:00")

    async def body(run: Run[object]) -> None:
        await run.sleep("a", HOUR)

    assert await advance(durable, body, "v") == Sleeping("a", datetime(2999, 1, 1, 1, tzinfo=UTC), ("a",), ())
    with pytest.raises(NotParsed, match="'a' of workflow 'u'"):
        await advance(durable, body, "u")


@pytest.mark.parametrize("days", [25, 36_500, 2_900_000])
async def test_very_long_sleeps(durable: Durable[object], days: int) -> None:
    """Case 100: they park with the right instant and stay asleep; what no calendar holds is refused, nothing recorded."""

    async def body(run: Run[object]) -> None:
        with pytest.raises(ValueError, match="'absurd'"):
            await run.sleep("absurd", timedelta.max)
        await run.sleep("none", timedelta(0))
        await run.sleep("long", timedelta(days=days))

    await durable.arrive("w/1", "input", 1)
    await Worker(durable).settle({"w": body})
    held = await recorded(durable, "w/1")
    assert sorted(held) == ["input", "long"]
    due = datetime.fromisoformat(str(held["long"]))
    assert abs(due - await durable.scheduler.now() - timedelta(days=days)) < HOUR
    assert not await durable.begin(NOW, MINUTE)


async def test_a_deploy_adds_and_renames_steps(durable: Durable[object]) -> None:
    """Case 102: no mismatch; the old record stays, the new steps run once, the wait is as before."""
    effects = {name: Effect(name) for name in ("a", "b", "a2", "b_new", "c")}

    async def steps(run: Run[object], *names: str) -> None:
        for name in names:
            await run.step(name, effects[name], str)

    async def before(run: Run[object]) -> str:
        await steps(run, "a", "b")
        return await run.awaiting("wait", str)

    async def after(run: Run[object]) -> str:
        await steps(run, "a", "a2", "b_new")
        answer = await run.awaiting("wait", str)
        await steps(run, "c")
        return answer

    for body in (before, after, after):
        assert await advance(durable, body) == Blocked(("wait",), ())
    await durable.arrive("w", "wait", "go")
    assert await advance(durable, after) == Completed("go")
    assert [effect.runs for effect in effects.values()] == [1, 1, 1, 1, 1]
    assert list(await durable.checkpointer.history("w")) == ["a", "b", "a2", "b_new", "wait", "c"]


async def test_an_attempt_that_raised_records_nothing(durable: Durable[object]) -> None:
    """Case 131: the effect runs again on the next pass, and its value is recorded once."""
    effect = Effect(OSError("first"), OSError("second"), "done")

    async def body(run: Run[object]) -> str:
        return await run.step("flaky", effect, str)

    for _ in range(2):
        with pytest.raises(OSError, match=r"first|second"):
            await advance(durable, body)
        assert not await recorded(durable)
    for _ in range(2):
        assert await advance(durable, body) == Completed("done")
    assert effect.runs == 3


async def test_the_idempotency_key_outlives_passes(durable: Durable[object]) -> None:
    """Cases 134, 136: the same on every pass; an intent without a result is seen in the history, in order and in time."""
    sent: list[str] = []

    async def lost(key: str) -> None:
        sent.append(key)
        raise ConnectionError

    async def body(run: Run[object]) -> None:
        await run.step("intent", Effect("request 1"), str)
        await run.step("charge", lost, same, run.idempotency_key("charge"))

    for _ in range(3):
        with pytest.raises(ConnectionError):
            await advance(durable, body)
    assert len(sent) == 3
    assert len(set(sent)) == 1
    history = await durable.checkpointer.history("w")
    assert list(history) == ["intent"]
    assert history["intent"].at.tzinfo is not None


async def test_the_same_workflow_twice_in_one_process(place: Place) -> None:
    """Case 137: one body runs, through one store or two; the other claim is refused, and no turn is given."""
    effect = Stalled("once")

    async def body(run: Run[object]) -> str:
        return await run.step("slow", effect, str)

    async with place.open() as one, place.open() as other:
        await one.arrive("w/1", "input", 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(Worker(one).settle({"w": body}))
            await effect.began.wait()
            assert await other.checkpointer.claim("w/1", MINUTE, MINUTE) is None
            await other.scheduler.make_ready("w/1")
            assert not await other.begin(NOW, MINUTE)
            effect.go.set()
        assert effect.runs == 1
        assert await other.result("w/1") == Finished("once")


async def test_history_is_of_the_first_write(durable: Durable[object]) -> None:
    """Case 139: order, values and times are those of the first write, whatever replays and loses afterwards."""

    async def body(run: Run[object]) -> None:
        for number in range(5):
            await run.step(f"s{number}", Effect(number), int)

    await advance(durable, body)
    first = await durable.checkpointer.history("w")
    for number in range(5):
        assert not (await durable.checkpointer.supply("w", f"s{number}", "loses")).first
        await advance(durable, body)
    assert await durable.checkpointer.history("w") == first
    assert list(first) == list(await recorded(durable)) == [f"s{number}" for number in range(5)]
    times = [written.at for written in first.values()]
    assert times == sorted(times)
    assert {moment.utcoffset() for moment in times} == {NOW}
    assert abs(times[-1] - await durable.scheduler.now()) < MINUTE


async def test_what_a_parked_pass_waits_for(durable: Durable[object]) -> None:
    """Case 141: the report has every key and the earliest deadline; the sibling step is recorded, and never runs again."""
    effect = Effect("done")

    async def body(run: Run[object]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("step", effect, str))
            group.create_task(run.awaiting("answer", str))
            group.create_task(run.sleep("nap", HOUR))
            group.create_task(run.receive("read", str, after=None))

    for _ in range(2):
        before = asyncio.all_tasks()
        outcome = await advance(durable, body)
        assert isinstance(outcome, Sleeping)
        assert (outcome.key, outcome.waiting, outcome.listening) == ("nap", ("answer", "nap"), ("read",))
        assert asyncio.all_tasks() <= before
    assert effect.runs == 1
