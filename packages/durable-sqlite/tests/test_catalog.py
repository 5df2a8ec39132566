"""What operators see, and the sweep."""

from datetime import timedelta

import pytest

from durable_core.contract import Listed
from durable_sqlite import SqliteDurable, SqliteScheduler, _catalog

NOW = timedelta(0)
LONG = timedelta(hours=1)
MOMENT = timedelta(milliseconds=20)


async def begun_as(durable: SqliteDurable, workflow: str) -> None:
    """Bring a workflow into the state that its name says."""
    await durable.arrive(workflow, "input", 1)
    if workflow == "ready":
        return
    (turn,) = await durable.begin(NOW, LONG)
    match workflow:
        case "finished":
            await durable.finish(turn, 1)
        case "buried":
            await durable.fail(turn, "why", None)
        case "sleeping":
            await durable.pause(turn, turn.holder.at + LONG)
        case "blocked":
            await durable.pause(turn, None)
        case _:
            pass  # it is running


async def test_list_shows_each_state(durable: SqliteDurable, statements: list[str]) -> None:
    """[CAT-LIST] Each workflow with its state, records, times, holder, attempt and reason, in the order of the ids; reads
    only.
    """
    for name in ("running", "sleeping", "blocked", "buried", "finished", "ready"):
        await begun_as(durable, name)
    del statements[:]
    listed = {one.workflow: one for one in await durable.workflows()}
    assert {statement.split()[0] for statement in statements} == {"BEGIN", "SELECT", "ROLLBACK"}
    assert "BEGIN DEFERRED" in statements[0]
    assert list(listed) == sorted(listed)
    assert {name: one.state for name, one in listed.items()} == {name: name for name in listed}
    assert {name: one.records for name, one in listed.items()} == {name: 1 + (name == "finished") for name in listed}
    assert all(one.first is not None and one.last is not None and one.first <= one.last for one in listed.values())
    assert [name for name, one in listed.items() if one.held_until is not None] == ["running"]
    assert [name for name, one in listed.items() if one.reason is not None] == ["buried"]
    assert [name for name, one in listed.items() if one.due is None] == ["blocked", "buried", "finished"]
    assert {name: one.attempt for name, one in listed.items()} == {
        "blocked": None,
        "buried": 1,
        "finished": None,
        "ready": 1,
        "running": 1,
        "sleeping": 1,
    }
    for name in listed:
        found = await durable.workflows(state=name)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        assert [one.workflow for one in found] == [name]


async def test_list_shows_the_first_state_that_applies(durable: SqliteDurable) -> None:
    """[CAT-LIST] Finished goes before all others; a claim without records is running, a released one is nothing."""
    await begun_as(durable, "finished")
    await durable.deliver("finished", "m")
    holder = await durable.checkpointer.claim("claimed", LONG, LONG)
    assert holder is not None
    listed = {one.workflow: one for one in await durable.workflows()}
    assert listed["finished"].state == "finished"
    assert listed["finished"].due is not None
    assert listed["claimed"] == Listed("claimed", "running", 0, None, None, None, holder.at + LONG, None, None)
    await durable.checkpointer.release(holder)
    assert [one.workflow for one in await durable.workflows()] == ["finished"]


async def test_list_pages_through_many(durable: SqliteDurable, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CAT-LIST] Pages follow one another by id, without gaps or repeats, also where few match and a part of a page is small."""
    monkeypatch.setattr(_catalog, "_PART", 7)
    names = sorted([f"w/{number:03}" for number in range(60)] + ["v", "w", "w0", "é", "W/1", "w/", "x"])
    for name in names:
        await durable.checkpointer.supply(name, "k", 1)
    seen: list[str] = []
    after = None
    while page := await durable.workflows(after=after, limit=9):
        seen += [one.workflow for one in page]
        after = seen[-1]
    assert seen == names
    inside = [name for name in names if name.startswith("w/")]
    assert [one.workflow for one in await durable.workflows(prefix="w/", limit=1_000)] == inside
    assert [one.workflow for one in await durable.workflows(prefix="w/", after="w/057", limit=1_000)] == ["w/058", "w/059"]
    assert [one.workflow for one in await durable.workflows(prefix="w/", after="a", limit=2)] == inside[:2]
    assert await durable.workflows(prefix="w/", after="x") == []
    await durable.scheduler.make_ready("w/059")
    assert [one.workflow for one in await durable.workflows(state="ready", limit=1)] == ["w/059"]
    with pytest.raises(ValueError):
        await durable.workflows(limit=0)


async def test_sweep_takes_what_finished_before_and_nothing_else(durable: SqliteDurable, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CAT-SWEEP] Never one that is claimed, ready, sleeping, blocked or buried, in whatever queue; not one that finished
    later.
    """
    monkeypatch.setattr(_catalog, "_PART", 2)
    for name in ("running", "sleeping", "blocked", "buried"):
        await begun_as(durable, name)
    for number in range(7):
        await durable.arrive(f"finished/{number}", "input", 1)
        (turn,) = await durable.begin(NOW, LONG)
        await durable.finish(turn, 1)
    claimed = await durable.checkpointer.claim("finished/0", LONG, LONG)
    await durable.scheduler.make_ready("finished/1")
    await SqliteScheduler(durable.scheduler.connection, queue="other").make_ready("finished/2")
    before = await durable.scheduler.now()
    await durable.checkpointer.supply("late", "outcome:", 1)
    assert await durable.sweep(before) == 4
    assert [one.workflow for one in await durable.workflows()] == sorted(
        ["running", "sleeping", "blocked", "buried", "finished/0", "finished/1", "finished/2", "late"]
    )
    assert await durable.sweep(before) == 0
    assert claimed is not None
    await durable.checkpointer.release(claimed)
    assert await durable.sweep(await durable.scheduler.now() + LONG) == 2
    rows = await durable.checkpointer.connection.read(
        lambda tx: tx.execute("SELECT count(*) FROM workflow_claim WHERE workflow LIKE 'finished/_'").fetchall()
    )
    assert rows == [(2,)]


async def test_sweep_works_in_batches(durable: SqliteDurable, statements: list[str]) -> None:
    """[CAT-SWEEP] A thousand finished workflows are several commits, so that others go in between."""
    for number in range(4):
        await durable.checkpointer.supply(f"w/{number}", "outcome:", 1)
    await durable.checkpointer.connection.write(
        lambda tx: (
            tx.execute(
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) "
                "INSERT INTO workflow_checkpoint (workflow, key, value, at) SELECT 'v/' || i, 'outcome:', '1', 5 FROM n"
            ).rowcount
        )
    )
    del statements[:]
    assert await durable.sweep(await durable.scheduler.now() + LONG) == 504
    assert sum(statement.startswith("COMMIT") for statement in statements) == 3
    assert await durable.workflows() == []
