"""What an application does from outside: start, result, fork and open."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import assert_type

import pytest

from durable_core import client, keys
from durable_core._clock import ManualClock
from durable_core.contract import Client, Durable, Failed, Finished, Recorded, Torn, Turn
from durable_core.errors import EffectTorn, Misconfigured, NotEncodable, NotParsed, ReservedKey
from durable_core.memory import MemoryCheckpointer, MemoryDurable

ZERO = timedelta(0)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def durable() -> MemoryDurable:
    return MemoryDurable(clock=ManualClock())


async def turn_of(durable: MemoryDurable) -> Turn:
    (turn,) = await durable.begin(ZERO, MINUTE)
    return turn


async def supplied(durable: MemoryDurable, workflow: str, **records: object) -> None:
    for key, value in records.items():
        await durable.checkpointer.supply(workflow, key, value)


# -------------------------------------------------------------------------------------------------------------- start


async def test_start_records_the_input_and_wakes_the_workflow(durable: MemoryDurable) -> None:
    """RUN-START: `start` is `arrive` under the key `input`."""
    assert await client.start(durable, "greet/1", {"name": "ada"}) == Recorded({"name": "ada"}, True)
    turn = await turn_of(durable)
    assert turn.holder.workflow == "greet/1"
    assert await durable.checkpointer.load("greet/1") == {"input": {"name": "ada"}}


async def test_start_without_a_value_starts_with_none(durable: MemoryDurable) -> None:
    """RUN-START: a workflow that needs no input has one all the same."""
    assert await client.start(durable, "w") == Recorded(None, True)


async def test_a_second_start_learns_what_the_first_one_gave(durable: MemoryDurable) -> None:
    """RUN-START, ANY-REPEAT: the first input stands, and an equal one is no conflict."""
    await client.start(durable, "w", 1)
    assert await client.start(durable, "w", 1) == Recorded(1, True)
    assert await client.start(durable, "w", 2) == Recorded(1, False)


async def test_an_input_that_cannot_be_stored_starts_nothing(durable: MemoryDurable) -> None:
    """CDC-REFUSE: refused by name, and nobody is woken."""
    with pytest.raises(NotEncodable, match="'input' of workflow 'w'"):
        await client.start(durable, "w", {1, 2})
    assert await durable.begin(ZERO, MINUTE) == []


# ------------------------------------------------------------------------------------------------------------- result


async def test_a_result_is_none_while_the_workflow_is_not_finished(durable: MemoryDurable) -> None:
    """DUR-RESULT: unknown, ready, at work: `None`, at once."""
    assert await client.result(durable, "w", str) is None
    await client.start(durable, "w")
    assert await client.result(durable, "w", str) is None
    await turn_of(durable)
    assert await client.result(durable, "w", str) is None


async def test_a_result_is_parsed(durable: MemoryDurable) -> None:
    """DUR-RESULT, RUN-PARSE: the outcome crosses the parser, and its refusal names the workflow."""
    await client.start(durable, "w")
    await durable.finish(await turn_of(durable), "hello")
    assert_type(await client.result(durable, "w", str), Finished[str] | Failed | None)
    assert await client.result(durable, "w", str) == Finished("hello")
    with pytest.raises(NotParsed, match="'outcome:' of workflow 'w' holds 'hello'"):
        await client.result(durable, "w", int)


async def test_an_outcome_of_none_is_an_outcome(durable: MemoryDurable) -> None:
    """DUR-RESULT: `Finished(None)` is not `None`."""
    await client.start(durable, "w")
    await durable.finish(await turn_of(durable), None)
    assert await client.result(durable, "w", type(None)) == Finished(None)


async def test_a_buried_workflow_has_failed(durable: MemoryDurable) -> None:
    """DUR-RESULT: the reason is the result, whatever the parser."""
    await client.start(durable, "w")
    await durable.fail(await turn_of(durable), "no such shop", None)
    assert await client.result(durable, "w", str, wait=MINUTE) == Failed("no such shop")


async def test_a_waiting_result_comes_when_the_workflow_finishes() -> None:
    """DUR-RESULT: with a wait it returns as soon as there is an outcome."""
    durable = MemoryDurable()
    await client.start(durable, "w")
    turn = await turn_of(durable)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(client.result(durable, "w", int, wait=timedelta(hours=1)))
        await asyncio.sleep(0)
        await durable.finish(turn, 3)
    assert waiting.result() == Finished(3)


async def test_a_waiting_result_ends_with_the_wait() -> None:
    """DUR-RESULT: when the wait is over there is none, by the store's own clock where it has one."""
    clock = ManualClock()
    durable = MemoryDurable(clock=clock)
    await client.start(durable, "w")
    waiting = asyncio.create_task(client.result(durable, "w", int, wait=MINUTE))
    while not waiting.done():
        clock.advance(timedelta(seconds=20))
        for _ in range(10):
            await asyncio.sleep(0)
    assert waiting.result() is None
    assert clock.monotonic() >= 60


async def test_a_result_refuses_what_could_not_be_asked(durable: MemoryDurable) -> None:
    """ANY-VALID, RUN-PARSE: a bad id and a bad parser are refused before the store is asked."""
    with pytest.raises(ValueError):
        await client.result(durable, "", str)
    with pytest.raises(Misconfigured):
        await client.result(durable, "w", tuple)
    assert await client.result(durable, "w", str, wait=-SECOND) is None


# --------------------------------------------------------------------------------------------------------------- fork


async def test_a_fork_holds_what_was_recorded_before_the_step(durable: MemoryDurable) -> None:
    """RUN-FORK: the records before the cut, in order, and a wakeup."""
    await supplied(durable, "a", input=1, charged="r", shipped=True, thanked=None)
    await client.fork(durable, "a", "b", before="shipped")
    assert list((await durable.checkpointer.load("b")).items()) == [("input", 1), ("charged", "r")]
    assert (await turn_of(durable)).holder.workflow == "b"
    assert list(await durable.checkpointer.load("a")) == ["input", "charged", "shipped", "thanked"]


async def test_a_fork_before_the_first_record_is_a_workflow_without_any(durable: MemoryDurable) -> None:
    """RUN-FORK: nothing to copy is no error."""
    await supplied(durable, "a", input=1)
    await client.fork(durable, "a", "b", before="input")
    assert await durable.checkpointer.load("b") == {}
    assert (await turn_of(durable)).holder.workflow == "b"


async def test_entries_keep_their_keys(durable: MemoryDurable) -> None:
    """RUN-FORK, CKP-APPEND-ABOVE: entries before the cut are copied, and the next one sorts after them."""
    first = await durable.deliver("a", "hello")
    await supplied(durable, "a", read=first.key)
    second = await durable.deliver("a", "again")
    await supplied(durable, "a", answered=1)
    await durable.deliver("a", "too late")
    await client.fork(durable, "a", "b", before="answered")
    assert list(await durable.checkpointer.load("b")) == [first.key, "read", second.key]
    assert (await durable.deliver("b", "new")).key > second.key


RESERVED: list[tuple[list[str], str, list[str]]] = [
    # source, cut, copied
    (["input", "start:k", "k", "after"], "after", ["input", "start:k", "k"]),
    (["input", "start:k", "k", "after"], "k", ["input"]),
    (["start:k", "failed:k", "after"], "after", ["start:k", "failed:k"]),
    (["start:k", "failed:k", "after"], "k", []),
    (["start:k", "failed:k", "after"], "failed:k", []),
    (["start:k", "a", "failed:k", "k", "after"], "k", ["a"]),
    (["start:k", "a", "b"], "b", ["a"]),
    (["start:k", "a", "b"], "k", []),
    (["until:k", "a", "k", "b"], "b", ["until:k", "a", "k"]),
    (["until:k", "a", "k", "b"], "k", ["a"]),
    (["until:k", "a", "b"], "b", ["a"]),
    (["until:k", "failed:k", "b"], "b", ["failed:k"]),
    (["a", "until:k"], "k", ["a"]),
    (["a", "outcome:"], "outcome:", ["a"]),
    (["a", "outcome:", "late"], "late", ["a"]),
]


@pytest.mark.parametrize(("held", "before", "copied"), RESERVED)
async def test_reserved_keys_are_copied_as_the_table_says(
    durable: MemoryDurable, held: list[str], before: str, copied: list[str]
) -> None:
    """RUN-FORK, CKP-KEY-RESERVED: until: and start: only with what they belong to, failed: before the cut, outcome: never."""
    await supplied(durable, "a", **{key: f"value of {key}" for key in held})
    await client.fork(durable, "a", "b", before=before)
    assert list((await durable.checkpointer.load("b")).items()) == [(key, f"value of {key}") for key in copied]


async def test_an_unknown_step_is_refused_by_name(durable: MemoryDurable) -> None:
    """RUN-FORK: neither a misspelt step nor an unknown workflow begins one."""
    await supplied(durable, "a", input=1)
    for source, before in (("a", "chraged"), ("nobody", "input"), ("a", "k" * 5000)):
        with pytest.raises(ValueError, match=f"{source!r} has no record '{before[:80]}'"):
            await client.fork(durable, source, "b", before=before)
    assert await durable.checkpointer.load("b") == {}
    assert await durable.begin(ZERO, MINUTE) == []


async def test_a_fork_that_broke_off_can_be_repeated(durable: MemoryDurable) -> None:
    """RUN-FORK: `new` may hold any prefix of what is copied, and ends up the same."""
    await supplied(durable, "a", input=1, x=2, y=3, z=4)
    for held in ({}, {"input": 1}, {"input": 1, "x": 2}, {"input": 1, "x": 2, "y": 3}):
        new = f"b{len(held)}"
        await supplied(durable, new, **held)
        for _ in range(2):
            await client.fork(durable, "a", new, before="z")
        assert list((await durable.checkpointer.load(new)).items()) == [("input", 1), ("x", 2), ("y", 3)]


@pytest.mark.parametrize(
    "held",
    [{"other": 1}, {"x": 2}, {"x": 2, "input": 1}, {"input": 1, "x": 2, "z": 4}, {"input": 1, "x": 2, "y": 3, "z": 4}],
    ids=", ".join,
)
async def test_an_id_that_holds_something_else_is_refused(durable: MemoryDurable, held: dict[str, object]) -> None:
    """RUN-FORK: other keys, another order, or more than the fork has: nothing is written and nobody woken."""
    await supplied(durable, "a", input=1, x=2, y=3, z=4)
    await supplied(durable, "b", **held)
    with pytest.raises(ValueError, match="'b' holds records that this fork does not begin with"):
        await client.fork(durable, "a", "b", before="z")
    assert await durable.checkpointer.load("b") == held
    assert await durable.begin(ZERO, MINUTE) == []


async def test_another_value_under_a_copied_key_is_refused(durable: MemoryDurable) -> None:
    """RUN-FORK: the keys agree and a value does not: it is named, and nothing is added after it."""
    await supplied(durable, "a", input=1, x=2, y=3)
    await supplied(durable, "b", input=1.0)
    with pytest.raises(ValueError, match="another value under 'input'"):
        await client.fork(durable, "a", "b", before="y")
    assert await durable.checkpointer.load("b") == {"input": 1.0}
    assert await durable.begin(ZERO, MINUTE) == []


class Crowded(MemoryDurable):
    """A durable in which somebody else writes to the new workflow while a fork is at work."""

    @property
    def checkpointer(self) -> MemoryCheckpointer:
        return Intruded(self.memory)


class Intruded(MemoryCheckpointer):
    async def supply(self, workflow: str, key: str, value: object, /) -> Recorded:
        if key == "x":
            await super().supply(workflow, "theirs", 1)
        return await super().supply(workflow, key, value)


async def test_a_fork_that_somebody_else_wrote_into_is_refused() -> None:
    """RUN-FORK: a workflow that is not the fork that was asked for is not let run."""
    durable = Crowded()
    await supplied(durable, "a", input=1)
    await MemoryCheckpointer(durable.memory).supply("a", "x", 2)
    await MemoryCheckpointer(durable.memory).supply("a", "y", 3)
    with pytest.raises(ValueError, match="'b' was written by somebody else"):
        await client.fork(durable, "a", "b", before="y")
    assert await durable.begin(ZERO, MINUTE) == []


async def test_a_workflow_does_not_fork_into_itself(durable: MemoryDurable) -> None:
    """RUN-FORK: it holds more than the fork does."""
    await supplied(durable, "a", input=1, x=2)
    with pytest.raises(ValueError, match="'a' holds records"):
        await client.fork(durable, "a", "a", before="x")


async def test_a_fork_refuses_bad_ids(durable: MemoryDurable) -> None:
    """ANY-VALID: before anything is read."""
    with pytest.raises(ValueError):
        await client.fork(durable, "", "b", before="x")
    with pytest.raises(ValueError):
        await client.fork(durable, "a", "b" * 1001, before="x")


def test_a_torn_key_is_not_copied() -> None:
    """RUN-FORK, CKP-TRANSACT-TORN: `EffectTorn` for a key before the cut; the torn key itself may be the cut."""
    records: dict[str, object] = {"input": 1, "paid": Torn("it raised after a write"), "shipped": 3}
    with pytest.raises(EffectTorn, match="'paid' of workflow 'a' is torn: it raised after a write"):
        client.copied_before("a", records, "shipped")
    assert client.copied_before("a", records, "paid") == {"input": 1}


# --------------------------------------------------------------------------------------------------------------- open


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder in which Python looks for modules and distributions."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def install(folder: Path, name: str, scheme: str, opener: str) -> None:
    """Install a distribution with a store, as an installer would."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{client.ENTRY_POINTS}]\n{scheme} = {opener}\n")


STORE = """
from contextlib import asynccontextmanager
from durable_core.memory import MemoryDurable

@asynccontextmanager
async def open(url, /, *, queue="default"):
    yield MemoryDurable(queue=f"{url} {queue}")
"""


async def test_open_finds_the_installed_store_by_its_scheme(folder: Path) -> None:
    """Opening: the entry point of the URL's scheme gets the URL as it is, and the options."""
    (folder / "drawer_store.py").write_text(STORE)
    install(folder, "durable-drawer", "drawer", "drawer_store:open")
    async with client.open("drawer://Desk/2?x=1", queue="slow") as durable:
        assert_type(durable, Durable)
        assert "queue='drawer://Desk/2?x=1 slow'" in repr(durable)
        await client.start(durable, "w", 1)
    async with client.open("DRAWER://Desk/2") as durable:
        assert "DRAWER://Desk/2 default" in repr(durable)
    with pytest.raises(TypeError, match="lease"):
        client.open("drawer://Desk/2", lease=SECOND)


async def test_two_stores_for_one_scheme_are_refused(folder: Path) -> None:
    """Opening: nobody guesses which of two is meant."""
    install(folder, "durable-box", "box", "box_store:open")
    install(folder, "durable-chest", "box", "chest_store:open")
    with pytest.raises(Misconfigured, match="box_store:open, chest_store:open"):
        client.open("box://here")


@pytest.mark.parametrize(
    ("scheme", "distribution"),
    [
        ("sqlite", "durable-sqlite"),
        ("postgresql", "durable-postgres"),
        ("postgres", "durable-postgres"),
        ("redis", "durable-redis"),
        ("rediss", "durable-redis"),
    ],
)
def test_open_names_the_distribution_to_install(scheme: str, distribution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening: without the store the error says what to type, and does not show the URL's password."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" not in entry])
    with pytest.raises(Misconfigured, match=f"pip install {distribution}") as refused:
        client.open(f"{scheme}://user:hunter2@host/db")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["", "shop.db", "://x", "carrier-pigeon://roof"])
def test_open_refuses_what_is_no_store(url: str) -> None:
    """Opening: a path or an unknown scheme is told what a URL looks like."""
    with pytest.raises(Misconfigured, match="sqlite"):
        client.open(url)


def test_a_durable_is_a_client(durable: MemoryDurable) -> None:
    """DUR-JOINED: `start` takes a whole durable and a joined client alike, and both refuse reserved keys."""
    as_client: Client = durable
    with pytest.raises(ReservedKey):
        asyncio.run(as_client.arrive("w", keys.OUTCOME, 1))
