"""What the server does for each statement, at scale: no statement reads a table, none reads more for being one of many.

[SCH-NEXT-DEEP]
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias, cast

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from durable_core.contract import Turn
from durable_postgres import PostgresDurable, sql

NOW = timedelta(0)
LONG = timedelta(hours=1)
PAGES = 100  # pages that one statement may look at in its tables and indexes

EXPLAINED = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
    "client_min_messages": "notice",
}

QUEUE = """
INSERT INTO workflow_queue (workflow, queue, due, look, attempt, lapses, receipt, lease, newer, reason)
SELECT 'w/' || n, 'default', at, at, 1, 0, {receipt}, {lease}, false, {reason}
FROM (SELECT n, {at} + n * interval '1 microsecond' AS at FROM generate_series(1, {count}) AS n) AS rows
"""
CLAIM = """
INSERT INTO workflow_claim (workflow, token, held, until, alive, seen, wanted)
SELECT 'w/' || n, n, false, now(), '30 s', now(), false FROM generate_series(1, {count}) AS n
"""
RECORDS = """
INSERT INTO workflow_checkpoint (workflow, key, value, at)
SELECT 'w/' || n, {key}, '1', now() - interval '1 day' + n * interval '1 microsecond' FROM generate_series(1, {count}) AS n
"""


Json: TypeAlias = dict[str, "Json | list[Json] | str | int | float | bool"]


@dataclass
class Plans:
    """The plans of everything that ran since the last `check`, nested statements and all."""

    seen: list[Json] = field(default_factory=list[Json])
    texts: set[str] = field(default_factory=set[str])
    pages: int | None = PAGES

    def notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        message = diagnostic.message_primary or ""
        if "plan:" in message:
            self.seen.append(json.loads(message.split("plan:", 1)[1]))

    def nodes(self) -> Iterator[Json]:
        for plan in self.seen:
            yield from _nodes(plan["Plan"])

    def check(self, what: str) -> None:
        """No statement reads a whole table, and none looks at many pages."""
        assert self.seen, f"{what}: nothing was explained"
        for plan in self.seen:
            self.texts.add(str(plan["Query Text"]).strip())
            top = plan["Plan"]
            assert isinstance(top, dict)
            pages = int(str(top["Shared Hit Blocks"])) + int(str(top["Shared Read Blocks"]))
            assert self.pages is None or pages <= self.pages, f"{what}: {pages} pages for {plan['Query Text']}"
        for node in self.nodes():
            whole = node["Node Type"] == "Seq Scan" and str(node.get("Relation Name", "")).startswith("workflow_")
            loops = max(1.0, float(str(node["Actual Loops"])))
            small = int(str(node["Shared Hit Blocks"])) <= 5 * loops  # a table that is nearly empty
            assert not whole or small, f"{what}: reads all of {node['Relation Name']}: {node}"
        self.seen.clear()


def _nodes(node: object) -> Iterator[Json]:
    assert isinstance(node, dict)
    here = cast("Json", node)  # auto_explain gives such
    yield here
    children = here.get("Plans", [])
    assert isinstance(children, list)
    for child in children:
        yield from _nodes(child)


def filled(operator: psycopg.Connection[TupleRow], state: str, count: int) -> None:
    """So many workflows in one state, as they are after a vacuum."""
    key = "'outcome:'" if state == "finished" else "'input'"
    operator.execute(RECORDS.format(key=key, count=count).encode())
    operator.execute(CLAIM.format(count=count).encode())
    if state != "finished":
        at = {"sleeping": "now() + interval '1 day'", "taken": "now() + interval '1 hour'"}.get(
            state, "now() - interval '1 hour'"
        )
        receipt, lease = ("n", "at") if state == "taken" else ("NULL", "NULL::timestamptz")
        reason = "'why'" if state == "buried" else "NULL"
        operator.execute(QUEUE.format(at=at, receipt=receipt, lease=lease, reason=reason, count=count).encode())
    for table in ("queue", "claim", "checkpoint"):
        operator.execute(f"VACUUM ANALYZE workflow_{table}".encode())


@asynccontextmanager
async def explained(url: str) -> AsyncGenerator[tuple[PostgresDurable, Plans]]:
    """A store on one session that says what it did for each statement."""
    plans = Plans()
    options = " ".join(f"-c {name}={value}" for name, value in EXPLAINED.items())

    async def configure(connection: AsyncConnection[TupleRow]) -> None:
        connection.add_notice_handler(plans.notice)

    pool: AsyncConnectionPool[AsyncConnection[TupleRow]] = AsyncConnectionPool(
        url, min_size=1, max_size=1, open=False, configure=configure, kwargs={"autocommit": True, "options": options}
    )
    async with pool, PostgresDurable.on(pool, lease=timedelta(seconds=30)) as durable:
        yield durable, plans


async def effect(_: object) -> object:
    return 1


async def walked(durable: PostgresDurable, plans: Plans, me: str, there: bool) -> None:
    """Every statement of the store, and its plans; `there` is whether the workflows that are there are given out before mine."""
    cp = durable.checkpointer
    await durable.arrive(me, "input", 1)
    plans.check("arrive")
    (turn,) = await durable.begin(NOW, LONG)
    plans.check("begin")
    holder = turn.holder
    await cp.record(holder, "k", 1)
    plans.check("record")
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(cp.record(holder, f"g{number}", 1))
    plans.check("record, a group")
    await cp.supply(f"{me}/7", "k", 1)
    plans.check("supply")
    await cp.append(f"{me}/7", "m", once="x")
    await cp.append(f"{me}/7", "m", once="x")
    plans.check("append")
    await walked_turn(durable, plans, turn)
    await walked_queue(durable, plans, me, there)


async def walked_turn(durable: PostgresDurable, plans: Plans, turn: Turn) -> None:
    """The rest of a turn."""
    cp, sch, holder = durable.checkpointer, durable.scheduler, turn.holder
    await cp.transact(holder, "t", effect)
    await cp.connections.call(sql.RECORDED, (holder.workflow, "t"))  # as when somebody else was first
    plans.check("transact")
    await cp.load(holder.workflow)
    await cp.history(holder.workflow)
    plans.check("load, history")
    assert await durable.renew(turn)
    assert await cp.extend(holder, LONG, LONG)
    await sch.renew(turn.delivery)
    plans.check("renew")
    await durable.result("w/7")
    await sch.buried("w/7")
    plans.check("result")
    await durable.pause(turn, None)
    plans.check("pause")


async def walked_queue(durable: PostgresDurable, plans: Plans, me: str, there: bool) -> None:
    """Wakeups, claims and batches."""
    cp, sch = durable.checkpointer, durable.scheduler
    await sch.make_ready(f"{me}/next")
    delivery = await sch.next_ready(NOW)
    assert delivery is not None
    plans.check("make_ready, next_ready")
    await sch.wake_at(delivery, delivery.due + LONG)
    await sch.cancel(delivery.workflow)
    plans.check("wake_at, cancel")
    other = await cp.claim(f"{me}/8", LONG, LONG)
    assert other is not None
    await cp.release(other)
    plans.check("claim, release")
    await durable.deliver(f"{me}/last", "m")
    plans.check("deliver")
    turns = await durable.begin(NOW, LONG, limit=2)
    plans.check("begin, a batch")
    for one in turns:
        await durable.finish(one, 1)
    plans.check("finish")
    await sch.make_ready(f"{me}/buried")
    buried = await sch.next_ready(NOW)
    assert buried is not None
    await sch.bury(buried, "why")
    plans.check("bury")
    await durable.delete(f"{me}/last")
    plans.check("delete")
    assert await durable.begin(NOW, LONG) == [] or there
    plans.check("begin, nothing there")
    await walked_catalog(durable, plans)


async def walked_catalog(durable: PostgresDurable, plans: Plans) -> None:
    """What operators ask for, of two hundred workflows at once."""
    pages, plans.pages = plans.pages, None if plans.pages is None else 50 * PAGES
    assert await durable.workflows(prefix="w/", limit=3)
    plans.check("workflows")
    assert await durable.sweep(await durable.scheduler.now() - timedelta(days=2)) == 0
    plans.check("sweep")
    plans.pages = pages


def unseen(plans: Plans) -> list[str]:
    """The statements of the store that were not explained, but for those that read no table of its."""
    beside = {"READ_COMMITTED", "COMMIT", "SETTINGS", "NOTIFY", "WHERE", "LACKING", "NOW"}
    texts = {name: text for name, text in vars(sql).items() if name.isupper() and isinstance(text, str) and name not in beside}
    begins = {name: re.split(r"%s|%\(", text.replace("{schema}", ""))[0].strip() for name, text in texts.items()}
    return [name for name, begin in begins.items() if not any(text.startswith(begin) for text in plans.texts)]


async def walked_twice(url: str, operator: psycopg.Connection[TupleRow], state: str, count: int) -> None:
    """Once for the session to read the catalogs, and once more."""
    filled(operator, state, count)
    async with explained(url) as (durable, plans):
        plans.pages = None
        await walked(durable, plans, "mine", state == "ready")
        plans.pages = PAGES
        plans.texts.clear()
        await walked(durable, plans, "mine too", state == "ready")
        assert unseen(plans) == []


@pytest.mark.parametrize("state", ["sleeping", "ready", "buried", "finished", "taken"])
async def test_next_deep_every_statement_at_50_000(
    url: str, durable: PostgresDurable, operator: psycopg.Connection[TupleRow], state: str
) -> None:
    """[SCH-NEXT-DEEP] With 50 000 workflows in one state no statement reads a table, or more than a few pages."""
    await walked_twice(url, operator, state, 50_000)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("state", ["sleeping", "ready", "buried", "finished"])
async def test_next_deep_every_statement_at_a_million(
    url: str, durable: PostgresDurable, operator: psycopg.Connection[TupleRow], state: str
) -> None:
    """[SCH-NEXT-DEEP] The same with a million."""
    await walked_twice(url, operator, state, 1_000_000)


async def test_next_deep_the_due_instant_is_an_index_condition(
    url: str, durable: PostgresDurable, operator: psycopg.Connection[TupleRow]
) -> None:
    """[SCH-NEXT-DEEP] A take finds what is due by the index alone: the instant is computed once, and no row is filtered away."""
    filled(operator, "ready", 20_000)
    async with explained(url) as (store, plans):
        assert await store.begin(NOW, LONG)
        assert await store.scheduler.next_ready(NOW)
    scans = [
        node
        for node in plans.nodes()
        if node.get("Index Name") == "workflow_queue_look" and "look" in str(node.get("Index Cond"))
    ]
    assert len(scans) >= 2
    for scan in scans:
        assert "queue" in str(scan["Index Cond"])
        assert scan.get("Filter", "") in ("", "(x.reason IS NULL)", "(reason IS NULL)")  # as the index says; kept for locked rows
        assert scan.get("Rows Removed by Filter", 0) == 0


async def test_heartbeats_touch_no_index(url: str, operator: psycopg.Connection[TupleRow]) -> None:
    """Renewals of claims and deliveries are HOT updates: no index is written for a sign of life."""
    counts = b"""
        SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
        WHERE relname IN ('workflow_claim', 'workflow_queue') ORDER BY 1
    """
    async with explained(url) as (durable, _):

        async def read() -> list[tuple[str, int, int]]:
            async with durable.checkpointer.connections.connection() as connection:
                await connection.execute("SELECT pg_stat_force_next_flush()")
                await connection.execute("SELECT 1")
            return [(str(name), int(updates), int(hot)) for name, updates, hot in operator.execute(counts).fetchall()]

        for number in range(4):
            await durable.arrive(f"w{number}", "input", 1)
        turns = await durable.begin(NOW, LONG, limit=4)
        before = await read()
        for _ in range(100):
            for turn in turns:
                assert await durable.renew(turn)
        after = await read()
    for (name, was, hot), (_, updates, hot_now) in zip(before, after, strict=True):
        assert (updates - was, hot_now - hot) == (400, 400), name
