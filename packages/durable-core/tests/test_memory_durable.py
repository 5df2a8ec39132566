"""The memory double as a whole: turns, contention, results, listings, threads and event loops."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from durable_core._clock import ManualClock
from durable_core.contract import Entry, Failed, Finished, Recorded, Turn
from durable_core.errors import Fenced, Misconfigured, NotEncodable, ReservedKey
from durable_core.memory import Memory, MemoryCheckpointer, MemoryDurable

LEASE = timedelta(seconds=10)
BUDGET = timedelta(seconds=60)
SECOND = timedelta(seconds=1)
ZERO = timedelta(0)
YEAR = timedelta(days=365)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def durable(clock: ManualClock) -> MemoryDurable:
    return MemoryDurable(clock=clock, lease=LEASE)


async def begun(durable: MemoryDurable) -> Turn:
    [turn] = await durable.begin(ZERO, BUDGET)
    return turn


async def settled() -> None:
    """Let every task that can go on without the clock do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def read(records: Mapping[str, object] | None) -> dict[str, object]:
    assert records is not None
    return dict(records)


# --------------------------------------------------------------------------------------------------------- the client


async def test_arrive_before_any_pass_is_found_by_the_first(durable: MemoryDurable) -> None:
    """Case 77: neither the value nor the message is lost. [DUR-ARRIVE] [DUR-DELIVER] [DUR-BEGIN-FRESH]"""
    assert await durable.arrive("w", "payment", 5) == Recorded(5, True)
    entry = await durable.deliver("w", "hello")
    assert read((await begun(durable)).records) == {"payment": 5, entry.key: "hello"}
    assert await durable.begin(ZERO, BUDGET) == []


async def test_arrive_by_many_senders_is_one_value_and_one_wakeup(durable: MemoryDurable) -> None:
    """Case 80: all calls succeed; delivered without `once` each makes an entry. [DUR-ARRIVE] [DUR-DELIVER]"""
    async with asyncio.TaskGroup() as group:
        arrivals = [group.create_task(durable.arrive("w", "order", number)) for number in range(200)]
        plain = [group.create_task(durable.deliver("w", "paid")) for _ in range(200)]
        once = [group.create_task(durable.deliver("w", "paid", once="id")) for _ in range(200)]
    assert sum(arrival.result().first for arrival in arrivals) == 1
    assert len({arrival.result().value for arrival in arrivals}) == 1
    assert (len({sender.result().key for sender in plain}), len({sender.result().key for sender in once})) == (200, 1)
    assert len(await durable.begin(ZERO, BUDGET, limit=10)) == 1
    assert len(await durable.checkpointer.load("w")) == 202


async def test_first_decision_stands_and_the_second_is_told_so(durable: MemoryDurable) -> None:
    """Case 81: the late one returns normally, with the first value, and wakes too. [DUR-ARRIVE] [CKP-SUPPLY-ONCE]"""
    assert await durable.arrive("w", "decision", "approve") == Recorded("approve", True)
    await durable.pause(await begun(durable), None)
    assert await durable.arrive("w", "decision", "reject") == Recorded("approve", False)
    assert read((await begun(durable)).records) == {"decision": "approve"}


async def test_deliveries_during_and_after_the_last_pass_stay_readable(durable: MemoryDurable) -> None:
    """Case 79: a finished workflow keeps them, and is answered without a turn. [CKP-APPEND-RECORD] [DUR-BEGIN] [DUR-FINISH]"""
    await durable.deliver("w", 1)
    turn = await begun(durable)
    await durable.deliver("w", 2)
    await durable.finish(turn, "done")
    await durable.deliver("w", 3)
    assert await durable.begin(ZERO, BUDGET) == []
    assert list((await durable.checkpointer.load("w")).values()) == [1, 2, "done", 3]
    assert await durable.scheduler.next_ready(ZERO) is None


async def test_delete_while_a_pass_is_inside(durable: MemoryDurable, clock: ManualClock) -> None:
    """Case 91: the pass is fenced at its record, and its answer reinstates nothing. [DUR-DELETE] [SCH-WAKE-CANCELLED]"""
    await durable.arrive("w", "input", 1)
    turn = await begun(durable)
    assert await durable.delete("w") == 1
    with pytest.raises(Fenced):
        await durable.checkpointer.record(turn.holder, "k", 1)
    with pytest.raises(Fenced):
        await durable.finish(turn, 1)
    assert await durable.renew(turn) is None
    await durable.pause(turn, clock.now())
    await durable.fail(turn, "why", None)
    await durable.hand_back(turn, ZERO)
    clock.advance(YEAR)
    assert (await durable.begin(ZERO, BUDGET), await durable.checkpointer.history("w")) == ([], {})
    assert (await durable.workflows(), await durable.result("w"), repr(durable.memory)) == ([], None, "<Memory of 0 workflows>")


async def test_new_life_of_a_deleted_id_sees_nothing_of_the_old_one(durable: MemoryDurable) -> None:
    """Case 92: not its records, nor the ids of its senders; and its tokens rise. [DUR-DELETE] [CKP-CLAIM-RISING]"""
    await durable.arrive("w", "input", "old")
    await durable.deliver("w", "old", once="id")
    old = await begun(durable)
    await durable.finish(old, "old")
    await durable.delete("w")
    await durable.arrive("w", "input", "new")
    assert await durable.deliver("w", "new", once="id") == Entry("inbox:00000000000000000001", "new")
    new = await begun(durable)
    assert list(read(new.records).values()) == ["new", "new"]
    assert new.holder.token > old.holder.token
    with pytest.raises(Fenced):
        await durable.finish(old, "old")


async def test_clients_may_not_use_reserved_keys_but_may_start(durable: MemoryDurable) -> None:
    """[CKP-KEY-RESERVED] [ANY-VALID]"""
    for key in ("outcome:", "inbox:00000000000000000001", "until:k", "start:k", "failed:k"):
        with pytest.raises(ReservedKey):
            await durable.arrive("w", key, 1)
    with pytest.raises(ValueError):
        await durable.deliver("w", 1, once="\0")
    with pytest.raises(NotEncodable):
        await durable.arrive("w", "input", object())
    assert await durable.workflows() == []


# ---------------------------------------------------------------------------------------------------------- the turns


async def test_records_of_a_turn_decode_anew_on_each_access(durable: MemoryDurable) -> None:
    """And they show what was there when the claim was granted. [DUR-BEGIN-FRESH] [CKP-LOAD-CODEC]"""
    await durable.arrive("w", "input", [1])
    turn = await begun(durable)
    records = turn.records
    assert records is not None
    await durable.checkpointer.record(turn.holder, "k", 1)
    assert (records["input"], records["input"] is records["input"], "k" in records, len(records)) == ([1], False, False, 1)
    with pytest.raises(KeyError):
        records["k"]
    assert repr(records) == "<1 records of 'w'>"


async def test_begin_takes_a_batch_and_waits_for_the_first_only(durable: MemoryDurable) -> None:
    """[DUR-BEGIN]"""
    waiting = asyncio.ensure_future(durable.begin(YEAR, BUDGET, limit=10))
    await settled()
    assert not waiting.done()
    await durable.arrive("a", "input", 1)
    assert [turn.holder.workflow for turn in await waiting] == ["a"]
    for workflow in "bcd":
        await durable.arrive(workflow, "input", 1)
    assert [turn.holder.workflow for turn in await durable.begin(YEAR, BUDGET, limit=2)] == ["b", "c"]


async def test_begin_contended_comes_back_when_the_claim_is_released(durable: MemoryDurable) -> None:
    """Its counts are unchanged, and nothing looks in between. [DUR-BEGIN]"""
    holder = await durable.checkpointer.claim("w", BUDGET, LEASE)
    assert holder is not None
    await durable.arrive("w", "input", 1)
    waiting = asyncio.ensure_future(durable.begin(YEAR, BUDGET))
    await settled()
    assert not waiting.done()
    await durable.checkpointer.release(holder)
    [turn] = await waiting
    assert (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)


async def test_begin_contended_comes_back_when_the_claim_lapses(durable: MemoryDurable, clock: ManualClock) -> None:
    """And not before, however often it was renewed meanwhile. [DUR-BEGIN]"""
    holder = await durable.checkpointer.claim("w", BUDGET, LEASE)
    assert holder is not None
    await durable.arrive("w", "input", 1)
    waiting = asyncio.ensure_future(durable.begin(YEAR, BUDGET))
    await settled()
    clock.advance(LEASE / 2)
    await durable.checkpointer.renew(holder, LEASE)
    clock.advance(LEASE - SECOND)
    await settled()
    assert not waiting.done()
    clock.advance(SECOND)
    [turn] = await waiting
    assert (turn.delivery.attempt, turn.delivery.lapses, turn.holder.at) == (1, 0, clock.now())


async def test_begin_after_the_taker_died(durable: MemoryDurable, clock: ManualClock) -> None:
    """Claim and delivery lapse together; both counts rise, and the dead one is fenced. [SCH-NEXT-LAPSED] [DUR-TURN-FENCED]"""
    await durable.arrive("w", "input", 1)
    dead = await begun(durable)
    waiting = asyncio.ensure_future(durable.begin(YEAR, BUDGET))
    await settled()
    clock.advance(LEASE)
    [turn] = await waiting
    assert (turn.delivery.attempt, turn.delivery.lapses) == (2, 1)
    with pytest.raises(Fenced):
        await durable.finish(dead, 1)
    await durable.pause(dead, None)
    assert await durable.renew(turn) == turn
    assert await durable.finish(turn, 2) == Recorded(2, True)


async def test_begin_gives_a_sleeper_no_earlier_than_its_due_instant(durable: MemoryDurable, clock: ManualClock) -> None:
    """And the pass's clock is never behind it. [ANY-CLOCK] [DUR-PAUSE]"""
    await durable.arrive("w", "input", 1)
    due = clock.now() + timedelta(days=3, microseconds=1)
    await durable.pause(await begun(durable), due)
    waiting = asyncio.ensure_future(durable.begin(YEAR, BUDGET))
    await settled()
    clock.advance(timedelta(days=3))
    await settled()
    assert not waiting.done()
    clock.advance(timedelta(microseconds=1))
    [turn] = await waiting
    assert turn.holder.at == turn.delivery.due == due


async def test_wakeup_during_a_pass_is_due_at_once_after_it(durable: MemoryDurable, clock: ManualClock) -> None:
    """Whatever deadline the pass chose. [SCH-WAKE-NEWER] [DUR-PAUSE]"""
    await durable.arrive("w", "input", 1)
    turn = await begun(durable)
    await durable.arrive("w", "answer", 2)
    await durable.pause(turn, clock.now() + YEAR)
    assert read((await begun(durable)).records) == {"input": 1, "answer": 2}


async def test_finish_refused_by_the_codec_changes_nothing(durable: MemoryDurable) -> None:
    """The turn goes on. [DUR-FINISH]"""
    await durable.arrive("w", "input", 1)
    turn = await begun(durable)
    with pytest.raises(NotEncodable, match=r"'outcome:' of workflow 'w'"):
        await durable.finish(turn, {1: 2})
    assert await durable.renew(turn) == turn
    assert await durable.finish(turn, None) == Recorded(None, True)
    assert await durable.result("w") == Finished(None)


async def test_fail_comes_back_later_and_hand_back_as_it_was(durable: MemoryDurable, clock: ManualClock) -> None:
    """Attempts rise by one a failure; a hand-back leaves both counts. [DUR-FAIL] [DUR-HAND-BACK]"""
    await durable.arrive("w", "input", 1)
    await durable.fail(await begun(durable), "why", SECOND)
    clock.advance(SECOND)
    turn = await begun(durable)
    assert (turn.delivery.attempt, turn.delivery.lapses) == (2, 0)
    clock.advance(LEASE)
    turn = await begun(durable)
    await durable.hand_back(turn, ZERO)
    again = await begun(durable)
    assert (again.delivery.attempt, again.delivery.lapses) == (turn.delivery.attempt, turn.delivery.lapses) == (3, 1)
    await durable.fail(again, "at last", None)
    assert (await durable.begin(ZERO, BUDGET), await durable.result("w")) == ([], Failed("at last"))


async def test_arguments_are_checked_before_anything_is_done(durable: MemoryDurable) -> None:
    """Case 97 with the rest. [ANY-VALID]"""
    await durable.arrive("w", "input", 1)
    turn = await begun(durable)
    naive = datetime(2024, 1, 1)
    for call in (
        durable.begin(ZERO, ZERO),
        durable.begin(ZERO, BUDGET, limit=0),
        durable.pause(turn, naive),
        durable.fail(turn, "why", ZERO),
        durable.hand_back(turn, -SECOND),
        durable.watch("", ZERO),
        durable.result("\0"),
        durable.workflows(limit=0),
        durable.workflows(state="lost"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        durable.sweep(naive),
    ):
        with pytest.raises(ValueError):
            await call
    assert await durable.renew(turn) == turn


# ---------------------------------------------------------------------------------------------- results and listings


async def test_watch_returns_when_there_is_a_result(durable: MemoryDurable) -> None:
    """Of either kind, also when it was there already. [DUR-RESULT]"""
    for workflow in ("finished", "buried"):
        await durable.arrive(workflow, "input", 1)
    finished, buried = await durable.begin(ZERO, BUDGET, limit=2)
    watches = [asyncio.ensure_future(durable.watch(turn.holder.workflow, YEAR)) for turn in (finished, buried)]
    await durable.checkpointer.record(finished.holder, "k", 1)
    await settled()
    assert [watch.done() for watch in watches] == [False, False]
    await durable.finish(finished, None)
    await durable.fail(buried, "why", None)
    for watch in watches:
        await watch
    await durable.watch("finished", YEAR)
    assert not durable.memory._watchers  # pyright: ignore[reportPrivateUsage]


async def test_watch_ends_with_the_wait(durable: MemoryDurable, clock: ManualClock) -> None:
    """[DUR-RESULT]"""
    watch = asyncio.ensure_future(durable.watch("w", YEAR))
    await settled()
    clock.advance(YEAR - SECOND)
    await settled()
    assert not watch.done()
    clock.advance(SECOND)
    await watch
    assert await durable.result("w") is None


async def test_workflows_pages_in_order_of_the_ids_and_reads_only(durable: MemoryDurable, clock: ManualClock) -> None:
    """By prefix, state and last id seen. [CAT-LIST]"""
    for workflow in ("b/2", "a/1", "b/1", "b/3"):
        await durable.arrive(workflow, "input", 1)
    turns = await durable.begin(ZERO, BUDGET, limit=3)
    await durable.finish(turns[0], 1)
    await durable.fail(turns[1], "why", None)
    before = repr(durable.memory.states("default"))
    page = await durable.workflows(prefix="b/", limit=2)
    assert [(one.workflow, one.state) for one in page] == [("b/1", "running"), ("b/2", "finished")]
    assert (page[0].held_until, page[0].records, page[0].attempt) == (clock.now() + LEASE, 1, 1)
    assert [one.workflow for one in await durable.workflows(prefix="b/", after="b/2")] == ["b/3"]
    [buried] = await durable.workflows(state="buried")
    assert (buried.workflow, buried.reason) == ("a/1", "why")
    assert await durable.workflows(prefix="c") == []
    assert repr(durable.memory.states("default")) == before


async def test_sweep_discards_only_what_finished_before(durable: MemoryDurable, clock: ManualClock) -> None:
    """Nor what is woken in another queue. [CAT-SWEEP]"""
    other = MemoryDurable(memory=durable.memory, queue="other")
    for workflow in ("early", "woken", "elsewhere", "late"):
        await durable.arrive(workflow, "input", 1)
    turns = await durable.begin(ZERO, BUDGET, limit=4)
    for turn in turns[:3]:
        await durable.finish(turn, 1)
    clock.advance(SECOND)
    await durable.finish(turns[3], 1)
    await durable.scheduler.make_ready("woken")
    await other.scheduler.make_ready("elsewhere")
    assert await durable.sweep(clock.now()) == 1
    assert [one.workflow for one in await durable.workflows()] == ["elsewhere", "late", "woken"]


# -------------------------------------------------------------------------------------- instances, loops and threads


async def test_second_instance_on_the_same_memory_sees_the_same(clock: ManualClock) -> None:
    """In the same queue, or only the records in another. [CKP-LOAD-SHARED] [SCH-QUEUE-NAMED]"""
    memory = Memory(clock)
    one, same, other = (MemoryDurable(memory=memory, queue=queue) for queue in ("one", "one", "other"))
    async with one, same, other:
        await one.prepare()
        await one.arrive("w", "input", 1)
        assert await other.begin(ZERO, BUDGET) == []
        turn = await begun(same)
        await other.deliver("w", 2)
        assert await other.begin(ZERO, BUDGET) == []
        await one.finish(turn, 3)
        assert (await other.result("w"), await other.begin(ZERO, BUDGET)) == (Finished(3), [])
    with pytest.raises(Misconfigured):
        MemoryDurable(memory=memory, clock=clock)


async def test_contended_in_another_queue_comes_back_too(clock: ManualClock) -> None:
    """A release is a release in every queue. [DUR-BEGIN]"""
    memory = Memory(clock)
    one, other = MemoryDurable(memory=memory, queue="one"), MemoryDurable(memory=memory, queue="other")
    await one.arrive("w", "input", 1)
    turn = await begun(one)
    await other.deliver("w", 2)
    waiting = asyncio.ensure_future(other.begin(YEAR, BUDGET))
    await settled()
    assert not waiting.done()
    await one.pause(turn, None)
    assert len(await waiting) == 1


async def test_monotonic_passes_as_the_store_s_clock_does(durable: MemoryDurable, clock: ManualClock) -> None:
    """The engine measures a pass by it. [ANY-CLOCK]"""
    before = durable.monotonic()
    clock.advance(YEAR)
    assert durable.monotonic() - before == YEAR.total_seconds()
    assert durable.checkpointer.monotonic() == durable.monotonic()


async def test_cancelled_begin_leaves_no_half(durable: MemoryDurable) -> None:
    """Whenever it is cancelled, the workflow is either untouched or wholly taken. [DUR-CO-COMMIT]"""
    for turns in range(4):
        await durable.arrive("w", "input", 1)
        beginning = asyncio.ensure_future(durable.begin(YEAR, BUDGET))
        for _ in range(turns):
            await asyncio.sleep(0)
        beginning.cancel()
        taken = await asyncio.wait({beginning})
        assert taken[0] == {beginning}
        if beginning.cancelled():
            await durable.pause(await begun(durable), None)
        else:
            await durable.pause(beginning.result()[0], None)


def in_threads(count: int, work: Callable[[int], Coroutine[object, object, object]]) -> None:
    """Run the work in as many threads, each with an event loop of its own, and raise what any of them raised."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            asyncio.run(work(number))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_hundred_threads_at_once_claim_record_and_apply_effects_once() -> None:
    """Case 129: exclusion and fencing hold across threads and event loops, and no effect is lost. [CKP-CLAIM-ONE]"""
    store = MemoryCheckpointer()
    tokens: list[int] = []

    def reserve(data: dict[str, object]) -> object:
        count = data.get("count", 0)
        assert isinstance(count, int)
        data["count"] = count + 1
        return count

    async def work(number: int) -> None:
        own = await store.claim(f"w{number}", BUDGET, BUDGET)
        shared = await store.claim("shared", BUDGET, BUDGET)
        assert own is not None
        if shared is not None:
            tokens.append(shared.token)
        assert (await store.record(own, "k", number)).first
        await store.transact(own, "effect", reserve)
        await store.append("inbox", number)

    in_threads(100, work)
    assert len(tokens) == 1
    inbox = asyncio.run(store.load("inbox"))
    assert (store.data, sorted(inbox.values(), key=str)) == ({"count": 100}, sorted(range(100), key=str))
    assert list(inbox) == sorted(inbox)


def test_workers_in_several_threads_are_woken_by_another_one_and_share_the_work() -> None:
    """Each workflow is begun once, and a waiting `begin` is woken across event loops. [SCH-NEXT-ONE] [SCH-NEXT-WAIT]"""
    durable, finished = MemoryDurable(), list[str]()

    async def work(number: int) -> None:
        if number == 0:
            for index in range(50):
                await durable.arrive(f"w{index}", "input", index)
            return
        while len(finished) < 50:
            for turn in await durable.begin(timedelta(milliseconds=50), BUDGET, limit=3):
                assert (await durable.finish(turn, "done")).first
                finished.append(turn.holder.workflow)

    in_threads(6, work)
    assert sorted(finished) == sorted(f"w{index}" for index in range(50))


def test_several_event_loops_one_after_the_other() -> None:
    """Nothing of the double is bound to the loop in which it was first used."""
    durable = MemoryDurable()
    for number in range(3):
        asyncio.run(durable.arrive("w", f"k{number}", number))
        [turn] = asyncio.run(durable.begin(SECOND, BUDGET))
        asyncio.run(durable.pause(turn, None))
    assert asyncio.run(durable.checkpointer.load("w")) == {"k0": 0, "k1": 1, "k2": 2}


def test_manual_clock_advanced_in_a_thread_wakes_a_sleeper_in_another_loop() -> None:
    """[SCH-NEXT-WAIT]"""
    clock = ManualClock(datetime(2024, 1, 1, tzinfo=UTC))
    durable = MemoryDurable(clock=clock)

    async def work() -> None:
        await durable.arrive("w", "input", 1)
        await durable.pause(await begun(durable), clock.now() + YEAR)
        waiting = asyncio.ensure_future(durable.begin(2 * YEAR, BUDGET))
        await settled()
        thread = threading.Thread(target=clock.advance, args=(YEAR,))
        thread.start()
        assert len(await waiting) == 1
        thread.join()

    asyncio.run(work())


async def test_effect_in_another_thread_is_waited_for_and_a_joined_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 129: an effect that waits for an effect of another thread does not hang for ever. [CKP-TRANSACT-ATOMIC]"""
    monkeypatch.setattr("durable_core._memory._EFFECT_PATIENCE", 0.01)
    store, refused = MemoryCheckpointer(), list[BaseException]()
    holder = await store.claim("w", BUDGET, BUDGET)
    assert holder is not None

    def inside() -> None:
        try:
            asyncio.run(_transact(store, holder.workflow))
        except Misconfigured as refusal:
            refused.append(refusal)

    def effect(data: dict[str, object]) -> object:
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        return "outer"

    assert await store.transact(holder, "outer", effect) == "outer"
    assert len(refused) == 1


async def _transact(store: MemoryCheckpointer, workflow: str) -> object:
    holder = await store.claim(workflow + "/other", BUDGET, BUDGET)
    assert holder is not None
    return await store.transact(holder, "inner", lambda data: None)
