"""SIGKILL of the server, fsync on, at each point of a commit: what was under way is there as a whole, or not at all.

Cases 88 and 92, of arrivals and deletions, as they are where both halves are one store.
No point is hit by chance: something holds it open, and the server's or the kernel's word says that it is there. [DUR-CO-COMMIT]
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias, cast

import psycopg
import pytest
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from durable_conformance import servers
from durable_conformance.proxy import Proxy
from durable_conformance.servers.fixtures import or_say_so
from durable_core.contract import Turn
from durable_postgres import PostgresDurable, SqlEffect

Cursor = AsyncCursor[TupleRow]
Rows: TypeAlias = list[tuple[object, ...]]
Kill: TypeAlias = Callable[[servers.PostgresServer], None]
NOW = timedelta(0)
LONG = timedelta(hours=1)
LOST = (psycopg.OperationalError, psycopg.InterfaceError)

# Nobody is such a standby: a commit with synchronous_commit=on is flushed, and then waits for it for ever.
SETTINGS = {
    "synchronous_standby_names": "nobody",
    "synchronous_commit": "local",
    "recovery_init_sync_method": "syncfs",
}
GATE = 77
GATED = f"""
CREATE TABLE tally (workflow text);
CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER gate AFTER INSERT OR DELETE ON workflow_checkpoint DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION gate();
"""
STATE = (
    b"SELECT key, value FROM workflow_checkpoint WHERE workflow = %s ORDER BY key",
    b"SELECT held FROM workflow_claim WHERE workflow = %s",
    b"SELECT receipt IS NOT NULL, attempt, lapses, newer FROM workflow_queue WHERE workflow = %s",
    b"SELECT workflow FROM tally WHERE workflow = %s",
)


def tallying(workflow: str) -> SqlEffect:
    async def effect(cursor: Cursor) -> object:
        await cursor.execute("INSERT INTO tally VALUES (%s)", (workflow,))
        return "done"

    return effect


async def grouped(durable: PostgresDurable, turn: Turn) -> None:
    """Five branches that are woken together: one commit."""
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(durable.checkpointer.record(turn.holder, f"g{number}", number))


@dataclass(frozen=True)
class Call:
    """A transition of the workflow of its own name: how it is made, its last statement, and the state that it leaves."""

    make: Callable[[PostgresDurable, Turn], Awaitable[object]]
    named: bytes
    leaves: list[Rows]


INPUT: tuple[object, ...] = ("input", "1")
HELD: Rows = [(True,)]
TAKEN: Rows = [(True, 1, 0, False)]
BEFORE: list[Rows] = [[INPUT], HELD, TAKEN, []]
GONE: list[Rows] = [[], [], [], []]
CALLS = {
    "transact": Call(
        lambda durable, turn: durable.checkpointer.transact(turn.holder, "k", tallying("transact")),
        b"workflow_transacted_v1",
        [[INPUT, ("k", '"done"')], HELD, TAKEN, [("transact",)]],
    ),
    "record": Call(
        lambda durable, turn: durable.checkpointer.record(turn.holder, "k", 1),
        b"workflow_record_v1",
        [[INPUT, ("k", "1")], HELD, TAKEN, []],
    ),
    "group": Call(
        grouped,
        b"workflow_record_group_v1",
        [[*((f"g{number}", str(number)) for number in range(5)), INPUT], HELD, TAKEN, []],
    ),
    "finish": Call(
        lambda durable, turn: durable.finish(turn, 1),
        b"workflow_finish_v1",
        [[INPUT, ("outcome:", "1")], [(False,)], [], []],
    ),
    "arrive": Call(
        lambda durable, _: durable.arrive("arrive", "answer", 1),
        b"workflow_arrive_v1",
        [[("answer", "1"), INPUT], HELD, [(True, 1, 0, True)], []],
    ),
    "delete": Call(lambda durable, _: durable.delete("delete"), b"workflow_discard_v1", GONE),
}


@pytest.fixture(scope="module")
def own() -> Iterator[servers.PostgresServer]:
    """A server that every test here kills and starts again."""
    with or_say_so(servers.postgres(settings=SETTINGS)) as given:
        yield given


@contextmanager
def database(own: servers.PostgresServer) -> Generator[str]:
    """A database of the test's own; the server runs when the test is over, however it ends."""
    with servers.fresh_database(own) as url:
        try:
            yield url
        finally:
            if not own.running:
                own.start()


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncGenerator[PostgresDurable]:
    kwargs = {"autocommit": True, "prepare_threshold": None, **options}
    pool: AsyncConnectionPool[AsyncConnection[TupleRow]] = AsyncConnectionPool(
        url, min_size=1, max_size=1, open=False, timeout=10, kwargs=kwargs
    )
    async with pool, PostgresDurable.on(pool, lease=LONG) as durable:
        yield durable


async def begun(url: str) -> dict[str, Turn]:
    """A turn for each call, of the workflow of its name."""
    async with opened(url) as durable:
        with psycopg.connect(url, autocommit=True) as operator:
            operator.execute(GATED.encode())
        for name in CALLS:
            await durable.arrive(name, "input", 1)
        return {turn.holder.workflow: turn for turn in await durable.begin(NOW, LONG, limit=len(CALLS))}


def states(url: str, names: Iterable[str]) -> dict[str, list[Rows]]:
    """Everything that the store has of each workflow, and what its effect did."""
    with psycopg.connect(url) as operator:
        return {name: [operator.execute(query, (name,)).fetchall() for query in STATE] for name in names}


async def judged(url: str, turns: Mapping[str, Turn], names: Iterable[str], *, there: bool) -> None:
    """What was under way is there or not, as a whole; and once it is made again it is there, once."""
    assert states(url, names) == {name: CALLS[name].leaves if there else BEFORE for name in names}
    async with opened(url) as durable:
        for name in names:
            await CALLS[name].make(durable, turns[name])
    assert states(url, names) == {name: CALLS[name].leaves for name in names}
    with psycopg.connect(url) as operator:
        assert operator.execute("SELECT count(*) FROM workflow_guard").fetchone() == (0,)


def first(error: BaseException) -> BaseException:
    """Give the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


class Under:
    """Calls that are under way, each on a store of its own."""

    def __init__(self, exits: AsyncExitStack, turns: Mapping[str, Turn]) -> None:
        self._exits, self._turns = exits, turns
        self._tasks: list[asyncio.Future[object]] = []

    async def store(self, url: str, **options: object) -> PostgresDurable:
        """Open a store for a call."""
        return await self._exits.enter_async_context(opened(url, **options))

    def make(self, name: str, durable: PostgresDurable) -> None:
        """Begin a call."""
        self._tasks.append(asyncio.ensure_future(CALLS[name].make(durable, self._turns[name])))

    async def killed(self, own: servers.PostgresServer, kill: Kill = servers.PostgresServer.kill) -> None:
        """Kill the server: each call says that its connection was lost. Then start it again."""
        assert not any(task.done() for task in self._tasks)
        kill(own)
        for task in self._tasks:
            with pytest.raises(BaseException) as failure:
                await task
            assert isinstance(first(failure.value), LOST)
        own.start()


@asynccontextmanager
async def under(turns: Mapping[str, Turn]) -> AsyncGenerator[Under]:
    async with AsyncExitStack() as exits:
        yield Under(exits, turns)


async def wait_for(url: str, event: str, count: int) -> None:
    """Return when so many sessions wait for what is named, by the server's word."""
    query = b"SELECT count(*) FROM pg_stat_activity WHERE wait_event = %s AND datname = current_database()"
    with psycopg.connect(url, autocommit=True) as operator:
        async with asyncio.timeout(30):
            while operator.execute(query, (event,)).fetchone() != (count,):  # noqa: ASYNC110 - the server's word
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("lost", ["request", "reply"])
async def test_killed_with_the_call_on_its_way(own: servers.PostgresServer, lost: str) -> None:
    """[DUR-CO-COMMIT] [ANY-REPEAT] Killed when the last statement was sent and not received, or its answer."""
    with database(own) as url, ExitStack() as proxies:
        turns = await begun(url)
        async with under(turns) as calls:
            for name, call in CALLS.items():
                proxy = proxies.enter_context(Proxy(own.url))
                durable = await calls.store(url.replace(f":{own.port}/", f":{proxy.port}/"))
                fault = (proxy.lose_request if lost == "request" else proxy.lose_reply)(call.named, cut=False)
                calls.make(name, durable)
                await asyncio.to_thread(fault.wait)
            await calls.killed(own)
        await judged(url, turns, CALLS, there=lost == "reply")


async def test_killed_in_the_effect(own: servers.PostgresServer) -> None:
    """[CKP-TRANSACT-ATOMIC] Killed when the effect has done its work and not come back."""
    with database(own) as url:
        turns, done = await begun(url), asyncio.Event()

        async def slow(cursor: Cursor) -> object:
            await tallying("transact")(cursor)
            done.set()
            await cursor.execute("SELECT pg_sleep(600)")
            return "done"

        async with opened(url) as durable:
            task = asyncio.ensure_future(durable.checkpointer.transact(turns["transact"].holder, "k", slow))
            await done.wait()
            own.kill()
            with pytest.raises(LOST):
                await task
            own.start()
        await judged(url, turns, ["transact"], there=False)


async def test_killed_while_they_wait_for_the_position(own: servers.PostgresServer) -> None:
    """[DUR-CO-COMMIT] Killed within the statement, which waits for transactions of the application's; those are gone as well."""
    names = ["transact", "finish", "arrive"]
    with database(own) as url:
        turns = await begun(url)
        application = await AsyncConnection.connect(url)
        async with opened(url) as durable, under(turns) as calls:
            joined = durable.joined(application)
            for name in names:
                await joined.deliver(name, "mine")
                calls.make(name, await calls.store(url))
            await wait_for(url, "advisory", 1)  # the effect has run
            await wait_for(url, "transactionid", 2)  # the wakeup comes first
            await calls.killed(own)
        await application.close()
        await judged(url, turns, names, there=False)


async def test_killed_in_the_commit_before_its_record(own: servers.PostgresServer) -> None:
    """[DUR-CO-COMMIT] Killed within the commit, at the deferred constraints: all is done but the commit's own record."""
    with database(own) as url:
        turns = await begun(url)
        with psycopg.connect(url, autocommit=True) as operator:
            operator.execute("SELECT pg_advisory_lock(%s)", (GATE,))
            async with under(turns) as calls:
                for name in CALLS:
                    calls.make(name, await calls.store(url))
                await wait_for(url, "advisory", len(CALLS))
                await calls.killed(own)
        await judged(url, turns, CALLS, there=False)


async def test_killed_in_the_commit_after_its_flush(own: servers.PostgresServer) -> None:
    """[DUR-CO-COMMIT] Killed within the commit once it is on the disk, and before anybody saw or was told."""
    with database(own) as url:
        turns = await begun(url)
        async with under(turns) as calls:
            for name in CALLS:
                calls.make(name, await calls.store(url, options="-c synchronous_commit=on"))
            await wait_for(url, "SyncRep", len(CALLS))
            assert states(url, CALLS) == dict.fromkeys(CALLS, BEFORE)
            await calls.killed(own)
        await judged(url, turns, CALLS, there=True)


# -------------------------------------------------------------------------------------------- in the server's system calls

NUMBERS = {"x86_64": {"pwrite64": 18, "fdatasync": 75}, "aarch64": {"pwrite64": 68, "fdatasync": 83}}.get(os.uname().machine, {})
SYSTEM_CALLS = {
    "before the write": ("pwrite64", "enter"),
    "before the flush": ("fdatasync", "enter"),  # a kill takes nothing from the kernel: the commit is there
    "after the flush": ("fdatasync", "exit"),
}


class Held:
    """A session of the server that stops at its next system call of a name on the log."""

    def __init__(self, pid: int, wal: Path, name: str, edge: str) -> None:
        self._pid, self._name = pid, name
        inject = f"inject={name}:delay_{edge}=600s:when=1"
        command = ["strace", "-p", str(pid), "-P", str(wal), "-e", f"trace={name}", "-e", inject]
        self._tracer = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    def watched(self) -> bool:
        """Return when the session is watched; false where that is not allowed."""
        assert self._tracer.stderr is not None
        while said := self._tracer.stderr.readline():
            if "attached" in said:
                return True
        return False

    async def there(self) -> None:
        """Return when the session is there, by the kernel's word."""
        process = Path("/proc", str(self._pid))
        async with asyncio.timeout(30):
            while True:
                number = (process / "syscall").read_text().split()[0]
                if number == str(NUMBERS[self._name]) and "\nState:\tt" in (process / "status").read_text():
                    return
                await asyncio.sleep(0.01)

    def kill(self, own: servers.PostgresServer) -> None:
        """Kill the server, and what is held first: it is gone only when its tracer is."""
        own.pause()
        os.kill(self._pid, signal.SIGKILL)
        self.end()
        own.kill()

    def end(self) -> None:
        """Watch no more."""
        if self._tracer.poll() is None:
            self._tracer.kill()
            self._tracer.communicate()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None or not NUMBERS, reason="strace holds the server in its system calls")
@pytest.mark.parametrize("point", SYSTEM_CALLS)
@pytest.mark.parametrize("name", CALLS)
async def test_killed_around_the_flush(own: servers.PostgresServer, name: str, point: str) -> None:
    """[DUR-CO-COMMIT] Killed before the commit is written, before it is flushed, and right after."""
    system_call, edge = SYSTEM_CALLS[point]
    with database(own) as url:
        turns = await begun(url)
        with psycopg.connect(url, autocommit=True) as operator:
            operator.execute("SELECT pg_advisory_lock(%s)", (GATE,))
            async with under(turns) as calls:
                calls.make(name, await calls.store(url))
                await wait_for(url, "advisory", 1)
                held = Held(*gated(operator), system_call, edge)
                try:
                    if not held.watched():
                        pytest.skip("strace may not watch another's process here")
                    operator.execute("SELECT pg_advisory_unlock(%s)", (GATE,))
                    await held.there()
                    await calls.killed(own, held.kill)
                finally:
                    held.end()
        await judged(url, turns, [name], there=point != "before the write")


def gated(operator: psycopg.Connection[TupleRow]) -> tuple[int, Path]:
    """The process that waits at the gate, and the file of the log that it will write to."""
    row = operator.execute(
        "SELECT pid, current_setting('data_directory'), pg_walfile_name(pg_current_wal_insert_lsn()) FROM pg_stat_activity "
        "WHERE wait_event = 'advisory' AND datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0]), Path(str(row[1]), "pg_wal", str(row[2]))
