"""The memory double's checkpointer keeps what the reference alone cannot show: codec, refusals, effects, validation."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from enum import StrEnum
from typing import cast

import pytest

from durable_core._clock import ManualClock
from durable_core.codec import JsonCodec
from durable_core.contract import Entry, Pass, Recorded
from durable_core.errors import Fenced, Misconfigured, NotEncodable, NotParsed
from durable_core.memory import Memory, MemoryCheckpointer, MemoryDurable

LEASE = timedelta(seconds=10)
BUDGET = timedelta(seconds=60)
SECOND = timedelta(seconds=1)
INBOX_ONE = "inbox:00000000000000000001"


class Colour(StrEnum):
    RED = "red"


REFUSED: list[object] = [
    {1: "a"},
    float("nan"),
    float("inf"),
    {"deep": [-float("inf")]},
    "x\ud83d",
    {"\udc97": 1},
    {1, 2},
    b"",
    Colour.RED,
    OrderedDict(),
    object(),
]
CARRIED: list[object] = [
    None,
    0,
    False,
    "",
    [],
    {},
    "a\x00b",
    {"k\x00": 1},
    "\U0001f600",
    2**53 + 1,
    2**63,
    2**64 - 1,
    -(2**80),
    10**4000,
    -0.0,
    5e-324,
]


def kind(value: object) -> str:
    return type(value).__name__


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryCheckpointer:
    return MemoryCheckpointer(Memory(clock))


def mutable(value: object) -> list[object]:
    assert isinstance(value, list)
    return cast("list[object]", value)  # a list of whatever


async def claimed(store: MemoryCheckpointer, workflow: str = "w") -> Pass:
    holder = await store.claim(workflow, BUDGET, LEASE)
    assert holder is not None
    return holder


# -------------------------------------------------------------------------------------------------- values (K13, K14)


async def test_values_are_kept_as_they_were_when_handed_in(store: MemoryCheckpointer) -> None:
    """Case 128: what is mutated afterwards, on either side, changes nothing; a tuple comes back a list. [CKP-LOAD-CODEC]"""
    holder, value = await claimed(store), [1, [2]]
    recorded = await store.record(holder, "recorded", value)
    supplied = await store.supply("w", "supplied", value)
    entry = await store.append("w", value)
    await store.record(holder, "tuple", (1, (2,)))
    value.append(3)
    for held in (recorded.value, supplied.value, entry.value):
        mutable(held).append(4)
    loaded = await store.load("w")
    assert loaded == {"recorded": [1, [2]], "supplied": [1, [2]], entry.key: [1, [2]], "tuple": [1, [2]]}
    loaded["recorded"] = "changed"
    assert (await store.load("w"))["recorded"] == [1, [2]]


async def test_a_value_changed_while_the_call_is_under_way_is_recorded_as_it_was(store: MemoryCheckpointer) -> None:
    """Case 128: the encoding is taken when the call is made. [CKP-LOAD-CODEC]"""
    holder, value = await claimed(store), [1]
    recording = asyncio.ensure_future(store.record(holder, "k", value))
    await asyncio.sleep(0)
    value.append(2)
    assert await recording == Recorded([1], True)


@pytest.mark.parametrize("value", REFUSED, ids=kind)
async def test_record_refused_names_workflow_and_key_and_leaves_the_claim_usable(
    store: MemoryCheckpointer, value: object
) -> None:
    """Cases 53, 56, 60: refused alike by every method, with nothing written. [CKP-RECORD-REFUSED] [CDC-REFUSE]"""
    holder = await claimed(store)
    for refused in (
        store.record(holder, "k", value),
        store.supply("w", "k", value),
        store.transact(holder, "k", lambda data: value),
    ):
        with pytest.raises(NotEncodable, match=r"'k' of workflow 'w'"):
            await refused
    with pytest.raises(NotEncodable, match=r"of workflow 'w'"):
        await store.append("w", value)
    with pytest.raises(NotEncodable):
        store.roundtrip(value)
    assert (await store.load("w"), store.data) == ({}, {})
    assert await store.record(holder, "k", 1) == Recorded(1, True)


@pytest.mark.parametrize("value", CARRIED, ids=kind)
async def test_odd_and_empty_values_come_back_exactly(store: MemoryCheckpointer, value: object) -> None:
    """Cases 58, 61, 132: NUL, huge integers and empty results are results, through every method. [CDC-ROUND]"""
    holder = await claimed(store)
    assert await store.record(holder, "recorded", value) == Recorded(value, True)
    assert await store.supply("w", "supplied", value) == Recorded(value, True)
    assert await store.transact(holder, "effect", lambda data: value) == value
    assert await store.append("w", value) == Entry(INBOX_ONE, value)
    again = await store.record(holder, "recorded", "other")
    assert (type(again.value), again) == (type(value), Recorded(value, False))
    assert [repr(held) for held in (await store.load("w")).values()] == [repr(value)] * 4


async def test_a_codec_of_another_kind_is_used_both_ways() -> None:
    """Encodings need not be text, and what cannot be decoded is said with workflow and key. [CKP-LOAD-CODEC]"""

    class Bytes:
        def encode(self, value: object, /) -> bytes:
            return JsonCodec().encode(value).encode()

        def decode(self, encoded: bytes, /) -> object:
            if b"broken" in encoded:
                raise ValueError("cannot be read")
            return JsonCodec().decode(encoded.decode())

    store = MemoryCheckpointer(codec=Bytes())
    await store.supply("w", "a", [1])
    assert await store.load("w") == {"a": [1]}
    with pytest.raises(NotParsed, match=r"'b' of workflow 'w'"):
        await store.supply("w", "b", "broken")


# ------------------------------------------------------------------------------------------------------ races (K06, K18)


async def test_record_once_of_two_writers_at_once(store: MemoryCheckpointer) -> None:
    """Case 17: one wins, both get its value, and the loser moves nothing. [CKP-RECORD-ONCE] [CKP-RECORD-STILL]"""
    holder = await claimed(store)
    for number in range(1_000):
        async with asyncio.TaskGroup() as group:
            writers = [group.create_task(store.record(holder, f"k{number}", value)) for value in ("one", "other")]
        answers = [writer.result() for writer in writers]
        assert sorted(answer.first for answer in answers) == [False, True]
        assert {answer.value for answer in answers} == {(await store.load("w", skip=number))[f"k{number}"]}
    assert list(await store.load("w")) == [f"k{number}" for number in range(1_000)]


async def test_history_keeps_the_time_of_the_winning_write(store: MemoryCheckpointer, clock: ManualClock) -> None:
    """Case 139: replays and losers move nothing; times are aware and never go back. [CKP-HISTORY-TIME] [CKP-HISTORY-RISING]"""
    holder, times = await claimed(store), list[datetime]()
    for number in range(5):
        times.append(clock.now())
        await store.record(holder, f"k{number}", number)
        clock.advance(timedelta(milliseconds=200))
    for _ in range(3):
        clock.advance(timedelta(seconds=20))
        replayed = await claimed(store)
        for number in range(5):
            assert await store.record(replayed, f"k{number}", number) == Recorded(number, True)
            assert await store.supply("w", f"k{number}", "late") == Recorded(number, False)
        await store.release(replayed)
    history = await store.history("w")
    assert {key: written.value for key, written in history.items()} == await store.load("w")
    assert [written.at for written in history.values()] == times
    assert all(written.at.utcoffset() == timedelta(0) for written in history.values())


async def test_append_once_of_many_senders_at_once_makes_one_entry(store: MemoryCheckpointer) -> None:
    """Case 80: with `once` one entry for all, without it one for each call. [CKP-APPEND-ONCE] [CKP-APPEND-DISTINCT]"""
    async with asyncio.TaskGroup() as group:
        same = [group.create_task(store.append("w", "paid", once="id")) for _ in range(200)]
        others = [group.create_task(store.append("v", "paid")) for _ in range(200)]
    assert {sender.result().key for sender in same} == {INBOX_ONE}
    assert sorted(sender.result().key for sender in others) == list(await store.load("v"))
    assert (len(await store.load("w")), len(await store.load("v"))) == (1, 200)


async def test_load_isolated_ids_however_strange(store: MemoryCheckpointer) -> None:
    """No id sees another one's records or claim. [CKP-LOAD-ISOLATED] [CKP-LOAD-EMPTY]"""
    ids = ["w", "W", " w", "w ", "w/", "{w}", "w:claim", "é", "e\u0301", "%", "inbox:", "\n", "w" * 1_000]
    for number, workflow in enumerate(ids):
        assert await store.load(workflow) == {}
        await store.supply(workflow, "k", number)
        assert (await claimed(store, workflow)).workflow == workflow
    assert [await store.load(workflow) for workflow in ids] == [{"k": number} for number in range(len(ids))]


async def test_discard_leaves_nothing_behind_and_the_next_token_is_higher(store: MemoryCheckpointer) -> None:
    """A pass outstanding is fenced for good. [CKP-DISCARD-FENCE] [CKP-DISCARD-FREE] [CKP-DISCARD-UNKNOWN] [CKP-CLAIM-RISING]"""
    holder = await claimed(store)
    assert await store.discard("w") == 0
    with pytest.raises(Fenced, match=rf"token {holder.token} .*'w', writing 'k'"):
        await store.record(holder, "k", 1)
    assert repr(store.memory) == "<Memory of 0 workflows>"
    anew = await claimed(store)
    assert anew.token > holder.token
    await store.record(anew, "k", 1)
    with pytest.raises(Fenced):
        await store.transact(holder, "k", lambda data: data.update(effect=1))
    assert (await store.discard("w"), await store.discard("w"), store.data) == (1, 0, {})


# ----------------------------------------------------------------------------------------------------- effects (K08, K29)


async def test_transact_applies_once_and_then_gives_what_is_recorded(store: MemoryCheckpointer) -> None:
    """[CKP-TRANSACT-ONCE] [CKP-TRANSACT-RECORDED]"""
    holder = await claimed(store)

    def reserve(data: dict[str, object]) -> object:
        data["reserved"] = True
        return (1, 2)

    assert await store.transact(holder, "k", reserve) == [1, 2]
    assert await store.transact(holder, "k", lambda data: data.clear()) == [1, 2]
    assert (store.data, await store.load("w")) == ({"reserved": True}, {"k": [1, 2]})


async def test_transact_atomic_an_effect_that_raises_leaves_the_dict_as_it_was(store: MemoryCheckpointer) -> None:
    """Case 129: also what lies deep inside, and after an exception of any kind; the claim stays usable. [CKP-TRANSACT-ATOMIC]"""
    holder = await claimed(store)
    store.data.update(shirts=[3], gone=1)
    before = store.data

    def broken(error: BaseException) -> Callable[[dict[str, object]], object]:
        def effect(data: dict[str, object]) -> object:
            mutable(data["shirts"]).append(2)
            del data["gone"]
            raise error

        return effect

    for error in (ValueError("no"), KeyboardInterrupt(), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            await store.transact(holder, "k", broken(error))
        assert store.data is before
        assert (store.data, await store.load("w")) == ({"shirts": [3], "gone": 1}, {})
    assert await store.transact(holder, "k", lambda data: "fine") == "fine"


async def test_transact_fenced_runs_nothing(store: MemoryCheckpointer, clock: ManualClock) -> None:
    """A superseded pass is asked first, also for a key that is recorded. [CKP-TRANSACT-FENCED]"""
    holder = await claimed(store)
    await store.record(holder, "there", 1)
    clock.advance(LEASE)
    await claimed(store)
    for key in ("k", "there"):
        with pytest.raises(Fenced):
            await store.transact(holder, key, lambda data: data.update(ran=True))
    assert store.data == {}


def driven(call: Coroutine[object, None, object]) -> object:
    """Run a coroutine of the store to its end without an event loop, as a re-entering effect must."""
    while True:
        try:
            call.send(None)
        except StopIteration as end:
            return end.value


async def test_transact_supplied_by_the_effect_itself_undoes_the_effect(store: MemoryCheckpointer) -> None:
    """Case 129: an effect that re-enters the store neither hangs nor corrupts; first writer wins. [CKP-TRANSACT-SUPPLIED]"""
    holder = await claimed(store)

    def effect(data: dict[str, object]) -> object:
        data["ran"] = True
        driven(store.supply("w", "k", "supplied"))
        driven(store.append("w", "told"))
        return "effect"

    assert await store.transact(holder, "k", effect) == "supplied"
    assert store.data == {}
    assert await store.load("w") == {"k": "supplied", INBOX_ONE: "told"}


async def test_transact_superseded_while_the_effect_runs_is_fenced_and_undone(
    store: MemoryCheckpointer, clock: ManualClock
) -> None:
    """Case 129: the fence is asked again when the effect has returned. [CKP-TRANSACT-FENCED]"""
    holder = await claimed(store)

    def effect(data: dict[str, object]) -> object:
        data["ran"] = True
        clock.advance(LEASE)
        assert driven(store.claim("w", BUDGET, LEASE)) is not None
        return "effect"

    with pytest.raises(Fenced):
        await store.transact(holder, "k", effect)
    assert (store.data, await store.load("w")) == ({}, {})


async def test_transact_inside_an_effect_is_refused_at_once_and_everything_undone(
    store: MemoryCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 129: one effect inside another could not be undone without its record. [CKP-TRANSACT-ATOMIC]"""
    monkeypatch.setattr("durable_core._memory._EFFECT_PATIENCE", 3_600.0)
    holder = await claimed(store)

    def outer(data: dict[str, object]) -> object:
        data["outer"] = True
        return driven(store.transact(holder, "inner", lambda data: data.update(inner=True)))

    with pytest.raises(Misconfigured, match=r"'inner' of workflow 'w'"):
        await store.transact(holder, "outer", outer)
    assert (store.data, await store.load("w")) == ({}, {})
    assert await store.transact(holder, "outer", lambda data: None) is None


async def test_transact_refuses_what_is_no_plain_function(store: MemoryCheckpointer) -> None:
    """Nor does it begin where it could not undo. [CKP-TRANSACT-NEVER]"""
    holder = await claimed(store)

    async def asynchronous(data: dict[str, object]) -> object:
        return data

    with pytest.raises(Misconfigured, match="must be a function over a dict"):
        await store.transact(holder, "k", asynchronous)
    with pytest.raises(Misconfigured, match="must be a function over a dict"):
        await store.transact(holder, "k", "insert")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    store.data["lock"] = threading.Lock()
    with pytest.raises(Misconfigured, match="cannot be copied"):
        await store.transact(holder, "k", lambda data: data.clear())
    assert await store.load("w") == {}


async def test_transact_live_is_a_sign_of_life(store: MemoryCheckpointer, clock: ManualClock) -> None:
    """Whether its effect runs or is recorded already. [CKP-TRANSACT-LIVE]"""
    holder = await claimed(store)
    for _ in range(3):
        clock.advance(LEASE - SECOND)
        await store.transact(holder, "k", lambda data: None)
        assert await store.claim("w", BUDGET, LEASE) is None


# ------------------------------------------------------------------------------------------- sharing, validation, words


async def test_load_shared_two_instances_on_one_memory_are_one_store() -> None:
    """Claims, records and the effects' dict are the memory's. [CKP-LOAD-SHARED]"""
    memory = Memory()
    one, other = MemoryCheckpointer(memory), MemoryCheckpointer(memory)
    holder = await claimed(one)
    assert await other.claim("w", BUDGET, LEASE) is None
    await one.transact(holder, "k", lambda data: data.update(there=1))
    assert (await other.load("w"), other.data) == ({"k": None}, {"there": 1})


@pytest.mark.parametrize("workflow", ["", "a\x00b", "\ud83d", "w" * 1_001, "é" * 501])
async def test_valid_ids_are_refused_alike_by_every_method_before_anything_is_done(
    store: MemoryCheckpointer, workflow: str
) -> None:
    """[ANY-VALID]"""
    holder = Pass(workflow, 1, store.memory.clock.now())
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.load(workflow),
        lambda: store.record(holder, "k", 1),
        lambda: store.transact(holder, "k", lambda data: None),
        lambda: store.supply(workflow, "k", 1),
        lambda: store.append(workflow, 1),
        lambda: store.claim(workflow, BUDGET, LEASE),
        lambda: store.extend(holder, BUDGET, LEASE),
        lambda: store.renew(holder, LEASE),
        lambda: store.release(holder),
        lambda: store.history(workflow),
        lambda: store.discard(workflow),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            await call()


async def test_valid_keys_durations_and_numbers(store: MemoryCheckpointer) -> None:
    """Reserved keys pass, up to 1 032 bytes; an inbox key has twenty digits below 2^53. [ANY-VALID] [CKP-KEY-RESERVED]"""
    holder = await claimed(store)
    for key in ("", "k" * 1_001, "inbox:1", f"inbox:{2**53:020d}", "until:" + "k" * 1_027):
        with pytest.raises(ValueError):
            await store.supply("w", key, 1)
    with pytest.raises(ValueError):
        await store.append("w", 1, once="")
    for duration in (timedelta(0), -LEASE, timedelta.max):
        for call in (
            lambda: store.claim("v", duration, LEASE),  # noqa: B023 - awaited before the next turn
            lambda: store.claim("v", BUDGET, duration),  # noqa: B023
            lambda: store.extend(holder, duration, LEASE),  # noqa: B023
            lambda: store.renew(holder, duration),  # noqa: B023
        ):
            with pytest.raises(ValueError):
                await call()
    with pytest.raises(ValueError):
        await store.load("w", skip=-1)
    for key in ("input", "outcome:", "until:" + "k" * 1_026, f"inbox:{2**53 - 1:020d}"):
        await store.supply("w", key, 1)
    with pytest.raises(ValueError, match=r"'w'.*9007199254740992"):
        await store.append("w", 1)
    assert list(await store.load("w")) == ["input", "outcome:", "until:" + "k" * 1_026, f"inbox:{2**53 - 1:020d}"]


async def test_describe_says_what_the_double_is(store: MemoryCheckpointer) -> None:
    """It survives nothing, undoes, does not interleave, and announces its wakeups. [DUR-DESCRIBE]"""
    said = await store.describe()
    assert said == await MemoryDurable().describe()
    assert (said.product, said.undoes, said.interleaves, said.co_commits, said.joins, said.lists) == (
        "memory",
        True,
        False,
        True,
        False,
        True,
    )
    assert {said.survives_kill, said.survives_power_cut, said.survives_failover} == {"no"}
    assert said.poll == timedelta(0)


async def test_cancelled_before_its_turn_a_write_is_not_there_and_the_store_goes_on(store: MemoryCheckpointer) -> None:
    """A cancelled await was done as a whole or not at all. [DUR-CO-COMMIT]"""
    holder = await claimed(store)
    recording = asyncio.ensure_future(store.record(holder, "k", 1))
    await asyncio.sleep(0)
    recording.cancel()
    with pytest.raises(asyncio.CancelledError):
        await recording
    assert await store.load("w") == {}
    assert await store.record(holder, "k", 2) == Recorded(2, True)
