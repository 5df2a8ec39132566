"""`SqliteCheckpointer`: each clause of the checkpointer at least once, on real files."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from durable_core.contract import Entry, Pass, Recorded
from durable_core.errors import Fenced, NotEncodable
from durable_core.keys import inbox_key
from durable_sqlite import SqliteCheckpointer, SqliteDurable

LONG = timedelta(hours=1)
MOMENT = timedelta(milliseconds=20)


@pytest.fixture
def checkpointer(durable: SqliteDurable) -> SqliteCheckpointer:
    return durable.checkpointer


async def claimed(
    checkpointer: SqliteCheckpointer, workflow: str = "w", budget: timedelta = LONG, alive: timedelta = LONG
) -> Pass:
    """Claim, as soon as that is possible."""
    async with asyncio.timeout(30):
        while (holder := await checkpointer.claim(workflow, budget, alive)) is None:  # noqa: ASYNC110 - until it lapses
            await asyncio.sleep(0.001)
    return holder


# ---------------------------------------------------------------------------------------------------------------- load


async def test_load_empty_creates_nothing(checkpointer: SqliteCheckpointer, statements: list[str]) -> None:
    """[CKP-LOAD-EMPTY] Reading what is not there gives nothing and writes nothing."""
    assert await checkpointer.load("nobody") == {}
    assert await checkpointer.history("nobody") == {}
    assert len(statements) == 2
    assert all(statement.startswith("SELECT") for statement in statements)


async def test_load_order_is_that_of_the_first_record(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-LOAD-ORDER] Keys stand in the order in which they were first recorded, whoever wrote them; `skip` leaves out from
    the front.
    """
    holder = await claimed(checkpointer)
    await checkpointer.supply("w", "z", 1)
    await checkpointer.record(holder, "a", 2)
    await checkpointer.append("w", 3)
    await checkpointer.transact(holder, "m", lambda _cursor: 4)
    await checkpointer.supply("w", "z", "late")
    assert list(await checkpointer.load("w")) == ["z", "a", inbox_key(1), "m"]
    assert await checkpointer.load("w", skip=2) == {inbox_key(1): 3, "m": 4}
    assert await checkpointer.load("w", skip=9) == {}


async def test_load_prefix_holds_for_a_reader_beside_writers(checkpointer: SqliteCheckpointer, other: SqliteDurable) -> None:
    """[CKP-LOAD-PREFIX] What one load gave is a prefix of what every later one gives, while two stores write."""

    async def write(store: SqliteCheckpointer, name: str) -> None:
        for number in range(40):
            await store.supply("w", f"{name}{number}", number)

    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(write(checkpointer, "a")), group.create_task(write(other.checkpointer, "b"))]
        seen: list[str] = []
        while not all(writer.done() for writer in writers):
            now = list(await other.checkpointer.load("w"))
            assert now[: len(seen)] == seen
            seen = now
    assert len(await checkpointer.load("w")) == 80


async def test_load_codec_gives_no_object_back_by_identity(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-LOAD-CODEC] What comes back has crossed the codec, each time anew."""
    value = {"a": [1]}
    recorded = await checkpointer.supply("w", "k", value)
    loaded = await checkpointer.load("w")
    assert recorded.value == value
    assert recorded.value is not value
    assert loaded["k"] is not (await checkpointer.load("w"))["k"]
    assert checkpointer.roundtrip((1, 2)) == [1, 2]


@pytest.mark.parametrize("workflow", ["W", "w ", "w%", "w_", "é", "e\u0301", "w'--", 'w"', "*", "w/1", "🦆", "w\n", "1", "01"])
async def test_load_isolated_from_strange_neighbours(checkpointer: SqliteCheckpointer, workflow: str) -> None:
    """[CKP-LOAD-ISOLATED] No id sees or disturbs another's records, claim or wakeups, and each is itself."""
    await checkpointer.supply("w", "k", "w's")
    holder = await claimed(checkpointer)
    assert await checkpointer.load(workflow) == {}
    assert (await checkpointer.supply(workflow, "k", "other")).first
    assert await checkpointer.claim(workflow, LONG, LONG) is not None
    assert await checkpointer.discard(workflow) == 1
    assert (await checkpointer.record(holder, "l", 1)).first
    assert await checkpointer.load("w") == {"k": "w's", "l": 1}


async def test_load_shared_with_a_store_that_opens_later(
    checkpointer: SqliteCheckpointer, other: SqliteDurable, path: Path
) -> None:
    """[CKP-LOAD-SHARED] A second store and one that is opened after a restart see the same."""
    await checkpointer.supply("w", "k", 1)
    assert await other.checkpointer.load("w") == {"k": 1}
    await checkpointer.connection.aclose()
    await other.aclose()
    async with SqliteDurable.at(path) as again:
        assert await again.checkpointer.load("w") == {"k": 1}


# -------------------------------------------------------------------------------------------------------------- record


async def test_record_once_in_every_interleaving(checkpointer: SqliteCheckpointer, other: SqliteDurable) -> None:
    """[CKP-RECORD-ONCE] Case 17: of two at once one is first, both get its value, and it stays where it is."""
    holder = await claimed(checkpointer)
    for number in range(200):
        stores = (checkpointer, other.checkpointer) if number % 2 else (checkpointer, checkpointer)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store.record(holder, f"k{number}", index)) for index, store in enumerate(stores)]
        one, two = (task.result() for task in tasks)
        assert one.first is not two.first
        assert one.value == two.value
    loaded = await checkpointer.load("w")
    assert list(loaded) == [f"k{number}" for number in range(200)]


async def test_record_first_is_a_matter_of_the_encoding(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-RECORD-FIRST] A tie is a win for both, and so is a value that the codec reshapes; a different one loses and learns
    to what.
    """
    holder = await claimed(checkpointer)
    assert await checkpointer.record(holder, "k", (1, 2)) == Recorded([1, 2], True)
    assert await checkpointer.record(holder, "k", [1, 2]) == Recorded([1, 2], True)
    assert await checkpointer.record(holder, "k", [1, 2.0]) == Recorded([1, 2], False)
    assert await checkpointer.supply("w", "d", {"a": 1, "b": 2}) == Recorded({"a": 1, "b": 2}, True)
    assert (await checkpointer.supply("w", "d", {"b": 2, "a": 1})).first


async def test_record_fenced_once_another_token_was_issued(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-RECORD-FENCED] A superseded pass changes nothing: no record, no position, no liveness; nor does one that never was."""
    old = await claimed(checkpointer)
    await checkpointer.record(old, "k", 1)
    await checkpointer.release(old)
    new = await claimed(checkpointer)
    for holder in (old, Pass("w", new.token + 1, new.at), Pass("nobody", new.token, new.at)):
        for key in ("k", "l"):
            with pytest.raises(Fenced) as fenced:
                await checkpointer.record(holder, key, 1)
            assert (fenced.value.workflow, fenced.value.token, fenced.value.key) == (holder.workflow, holder.token, key)
    assert await checkpointer.load("w") == {"k": 1}
    assert await checkpointer.load("nobody") == {}
    assert await checkpointer.claim("nobody", LONG, LONG) is not None


async def test_record_still_moves_nothing_when_it_loses(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-RECORD-STILL] A losing or repeated write moves neither value, nor position, nor time."""
    holder = await claimed(checkpointer)
    await checkpointer.record(holder, "a", 1)
    await checkpointer.record(holder, "b", 2)
    before = await checkpointer.history("w")
    await checkpointer.record(holder, "a", 1)
    await checkpointer.record(holder, "a", 9)
    await checkpointer.supply("w", "a", 9)
    after = await checkpointer.history("w")
    assert list(before.items()) == list(after.items())


async def test_record_refused_leaves_the_claim_usable(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-RECORD-REFUSED] A value that the codec refuses is named with workflow and key, before anything is written."""
    holder = await claimed(checkpointer)
    with pytest.raises(NotEncodable) as refused:
        await checkpointer.record(holder, "k", {"a": [float("nan")]})
    assert (refused.value.workflow, refused.value.key) == ("w", "k")
    assert await checkpointer.load("w") == {}
    assert (await checkpointer.record(holder, "k", 1)).first


# ----------------------------------------------------------------------------------------------------- supply, append


async def test_supply_free_of_any_claim(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-SUPPLY-FREE] [CKP-SUPPLY-ONCE] It needs no claim, is not held up by a pass, and the first writer wins against all
    others.
    """
    holder = await claimed(checkpointer)
    assert await checkpointer.supply("w", "k", "outside") == Recorded("outside", True)
    assert await checkpointer.record(holder, "k", "inside") == Recorded("outside", False)
    assert await checkpointer.supply("w", "k", "later") == Recorded("outside", False)
    assert await checkpointer.transact(holder, "k", lambda _cursor: "effect") == "outside"


async def test_append_keys_are_twenty_digits_and_rise(checkpointer: SqliteCheckpointer, other: SqliteDurable) -> None:
    """[CKP-APPEND-KEY] [CKP-APPEND-SORTED] [CKP-APPEND-RECORD] Entries are records, in the order in which they were appended."""
    keys = [(await store.append("w", number)).key for number in range(6) for store in (checkpointer, other.checkpointer)]
    assert keys == sorted(set(keys)) == list(await checkpointer.load("w"))
    assert all(len(key) == 26 and key.startswith("inbox:") for key in keys)
    assert list(await checkpointer.history("w")) == keys


async def test_append_distinct_from_many_at_once(checkpointer: SqliteCheckpointer, other: SqliteDurable) -> None:
    """[CKP-APPEND-DISTINCT] [CKP-APPEND-CURSOR] No entry is lost, and a reader that goes on from the last key it saw misses
    none.
    """
    count = 200
    seen: list[str] = []

    async def read() -> None:
        while len(seen) < count:
            last = seen[-1] if seen else ""
            seen.extend(key for key in await other.checkpointer.load("w") if key > last)

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        for number in range(count):
            group.create_task((checkpointer, other.checkpointer)[number % 2].append("w", number))
    assert seen == [inbox_key(number) for number in range(1, count + 1)]


async def test_append_above_what_was_copied(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-APPEND-ABOVE] [CKP-KEY-RESERVED] A new entry sorts above every inbox key there, however it came."""
    await checkpointer.supply("w", inbox_key(41), "copied")
    assert (await checkpointer.append("w", "new")).key == inbox_key(42)
    with pytest.raises(ValueError, match="2\\^53"):
        await checkpointer.supply("w", "inbox:" + str(2**53).zfill(20), None)


async def test_append_full_is_refused_before_anything_is_written(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-APPEND-KEY] The entry after the last number is refused by name, and its neighbours in the commit land."""
    await checkpointer.supply("w", inbox_key(2**53 - 1), "last")
    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(checkpointer.supply("w", f"k{number}", number)) for number in range(5)]
        with pytest.raises(ValueError, match="inbox of workflow 'w' is full"):
            await checkpointer.append("w", "one more")
    assert all(task.result().first for task in beside)
    assert len(await checkpointer.load("w")) == 6


async def test_append_once_gives_the_first_entry(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-APPEND-ONCE] Case 31: a repeat gives the first entry and adds none; the id is no record, and belongs to one
    workflow.
    """
    first = await checkpointer.append("w", "hello", once="m1")
    assert first == Entry(inbox_key(1), "hello")
    assert await checkpointer.append("w", "other text", once="m1") == first
    assert (await checkpointer.append("w", "hello", once="m2")).key == inbox_key(2)
    assert (await checkpointer.append("v", "hello", once="m1")).key == inbox_key(1)
    assert list(await checkpointer.load("w")) == [inbox_key(1), inbox_key(2)]
    assert await checkpointer.discard("w") == 2
    assert await checkpointer.append("w", "a new life", once="m1") == Entry(inbox_key(1), "a new life")


# ---------------------------------------------------------------------------------------------------- history, discard


async def test_history_is_the_load_with_rising_times(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-HISTORY-SAME] [CKP-HISTORY-TIME] [CKP-HISTORY-RISING] Case 139: the same records, with aware times that neither
    replays nor losers move.
    """
    holder = await claimed(checkpointer)
    for number in range(20):
        await checkpointer.record(holder, f"k{number}", number)
    history = await checkpointer.history("w")
    times = [written.at for written in history.values()]
    assert {key: written.value for key, written in history.items()} == await checkpointer.load("w")
    assert list(history) == list(await checkpointer.load("w"))
    assert times == sorted(times)
    assert all(at.tzinfo is UTC for at in times)
    assert holder.at <= times[0] <= times[-1] <= datetime.now(UTC)
    for number in range(20):
        await checkpointer.record(holder, f"k{number}", "late")
    assert await checkpointer.history("w") == history


async def test_discard_forgets_and_fences(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-DISCARD-ALL] [CKP-DISCARD-FENCE] [CKP-DISCARD-FREE] It counts, fences who is at it, and the id is free with a
    higher token.
    """
    holder = await claimed(checkpointer)
    await checkpointer.record(holder, "a", 1)
    await checkpointer.append("w", 2, once="m")
    assert await checkpointer.discard("w") == 2
    with pytest.raises(Fenced):
        await checkpointer.record(holder, "a", 1)
    assert await checkpointer.renew(holder, LONG) is False
    assert await checkpointer.load("w") == {}
    assert (await claimed(checkpointer)).token > holder.token


async def test_discard_unknown_creates_nothing(checkpointer: SqliteCheckpointer) -> None:
    """[CKP-DISCARD-UNKNOWN] Zero, and nothing is left behind; with a claim and no records the pass is fenced."""
    assert await checkpointer.discard("nobody") == 0
    holder = await claimed(checkpointer)
    assert await checkpointer.discard("w") == 0
    with pytest.raises(Fenced):
        await checkpointer.record(holder, "a", 1)
    for table in ("workflow_checkpoint", "workflow_claim", "workflow_queue"):
        rows = await checkpointer.connection.read(lambda tx, name: tx.execute(f"SELECT count(*) FROM {name}").fetchall(), table)
        assert rows == [(0,)]


# --------------------------------------------------------------------------------------------------------------- rules


async def test_valid_is_asked_before_anything_is_done(durable: SqliteDurable, statements: list[str]) -> None:
    """[ANY-VALID] Cases 66 and 97: bad ids, keys, durations and instants are refused before the file hears of them."""
    checkpointer, scheduler = durable.checkpointer, durable.scheduler
    holder = Pass("w", 1, datetime.now(UTC))
    for name in ("", "a\0b", "\ud800", "x" * 1_001, "é" * 501):
        for call in (
            checkpointer.load(name),
            checkpointer.history(name),
            checkpointer.discard(name),
            checkpointer.supply(name, "k", 1),
            checkpointer.supply("w", name, 1),
            checkpointer.record(holder, name, 1),
            checkpointer.transact(holder, name, lambda _cursor: 1),
            checkpointer.append(name, 1),
            checkpointer.append("w", 1, once=name),
            checkpointer.claim(name, LONG, LONG),
            scheduler.make_ready(name),
            scheduler.buried(name),
            scheduler.cancel(name),
            durable.arrive(name, "k", 1),
            durable.arrive("w", name, 1),
            durable.deliver(name, 1),
            durable.delete(name),
            durable.result(name),
            durable.watch(name, LONG),
        ):
            with pytest.raises(ValueError):
                await call
    for duration in (timedelta(0), timedelta(seconds=-1), timedelta(days=400_000)):
        for claim in (
            checkpointer.claim("w", duration, LONG),
            checkpointer.claim("w", LONG, duration),
            durable.begin(LONG, duration),
        ):
            with pytest.raises(ValueError):
                await claim
    with pytest.raises(ValueError):
        await checkpointer.load("w", skip=-1)
    assert statements == []


async def test_names_of_the_greatest_length_work(checkpointer: SqliteCheckpointer) -> None:
    """[ANY-VALID] Case 66: a thousand bytes of UTF-8 are taken in an id, a key and an id of a sender."""
    name = "é" * 500
    assert (await checkpointer.supply(name, name, 1)).first
    assert (await checkpointer.append(name, 1, once=name)).key == inbox_key(1)
    assert await checkpointer.claim(name, LONG, LONG) is not None
    assert list(await checkpointer.load(name)) == [name, inbox_key(1)]
