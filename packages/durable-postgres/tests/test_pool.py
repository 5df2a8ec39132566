"""The application's pool: of any size, in any state, given back as it was."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta

import psycopg
import pytest
from psycopg import AsyncConnection, AsyncCursor, AsyncRawCursor
from psycopg.rows import TupleRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from durable_core.contract import Recorded
from durable_core.errors import Misconfigured
from durable_core.resume import resume
from durable_core.run import Run
from durable_postgres import PostgresCheckpointer, PostgresDurable, PostgresScheduler, SqlEffect, _pool

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
MakePool = Callable[..., AbstractAsyncContextManager[Pool]]
NOW = timedelta(0)
LONG = timedelta(hours=1)


@pytest.mark.parametrize("size", [1, 2])
async def test_pool_case_111_fifty_workflows_at_once(make_pool: MakePool, size: int) -> None:
    """Case 111: no call needs two connections; fifty workflows get through a pool of one or two."""

    async def body(run: Run[SqlEffect]) -> int:
        async def effect() -> int:
            return 1

        async def moved(cursor: AsyncCursor[TupleRow]) -> int:
            await cursor.execute("SELECT 1")
            return 2

        return await run.step("a", effect, int) + await run.transact("b", moved, int)

    async with make_pool(size) as pool, PostgresDurable.on(pool) as durable:

        async def one(workflow: str) -> object:
            await durable.arrive(workflow, "input", 1)
            (turn,) = await durable.begin(NOW, LONG)
            outcome = await resume(durable.checkpointer, turn.holder, body, budget=LONG, alive=LONG)
            return (await durable.finish(turn, getattr(outcome, "value"))).value  # noqa: B009

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(f"w{number}")) for number in range(50)]
        assert [task.result() for task in tasks] == [3] * 50


async def test_pool_case_111_a_call_inside_an_effect_times_out(url: str, operator: psycopg.Connection[TupleRow]) -> None:
    """Case 111: with one connection, a call to the store inside an effect fails by the pool's own timeout; all is undone."""
    operator.execute("CREATE TABLE done (n int)")
    pool: Pool = AsyncConnectionPool(url, min_size=1, max_size=1, open=False, timeout=0.3)
    async with pool, PostgresDurable.on(pool) as durable:
        holder = await durable.checkpointer.claim("w", LONG, LONG)
        assert holder is not None

        async def effect(cursor: AsyncCursor[TupleRow]) -> object:
            await cursor.execute("INSERT INTO done VALUES (1)")
            return (await durable.checkpointer.supply("w", "s", 1)).value

        with pytest.raises(PoolTimeout):
            await durable.checkpointer.transact(holder, "k", effect)
        assert await durable.checkpointer.load("w") == {}
    assert operator.execute("SELECT count(*) FROM done").fetchone() == (0,)


async def test_pool_connections_go_back_as_they_were(url: str) -> None:
    """A pool that is not in autocommit, with dict rows, raw cursors and SERIALIZABLE, gets its connections back like that."""

    async def configure(connection: AsyncConnection[TupleRow]) -> None:
        await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)

    pool: Pool = AsyncConnectionPool(
        url,
        min_size=1,
        max_size=2,
        open=False,
        configure=configure,
        kwargs={"row_factory": dict_row, "cursor_factory": AsyncRawCursor},
    )
    async with pool:
        async with PostgresDurable.on(pool) as durable:
            holder = await durable.checkpointer.claim("w", LONG, LONG)
            assert holder is not None

            async def effect(cursor: AsyncCursor[TupleRow]) -> object:
                await cursor.execute("SELECT 1")
                return "done"

            assert await durable.checkpointer.record(holder, "k", 1) == Recorded(1, True)
            assert await durable.checkpointer.transact(holder, "t", effect) == "done"
            assert await durable.checkpointer.load("w") == {"k": 1, "t": "done"}
        async with pool.connection() as one, pool.connection() as two:
            for connection in (one, two):
                assert not connection.autocommit
                assert connection.isolation_level is psycopg.IsolationLevel.SERIALIZABLE


async def test_pool_a_kept_connection_goes_back_by_itself(make_pool: MakePool) -> None:
    """Who waits for a connection gets the one that the store keeps between two calls, well before the pool gives up."""
    async with make_pool(2) as pool, PostgresDurable.on(pool) as durable:
        await durable.checkpointer.load("w")
        async with asyncio.timeout(10), pool.connection(), pool.connection():
            pass


async def test_pool_half_of_it_is_kept_between_two_calls(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six connections three are kept for the next calls, which ask the pool for the other three; closing gives them back."""
    monkeypatch.setattr(_pool, "_KEPT", 1_000.0)
    pool: Pool = AsyncConnectionPool(url, min_size=6, max_size=6, open=False, timeout=20)
    async with pool:
        await pool.wait()
        async with PostgresDurable.on(pool) as durable:

            async def burst() -> int:
                before = pool.get_stats()["requests_num"]
                async with asyncio.TaskGroup() as group:
                    for number in range(6):
                        group.create_task(durable.checkpointer.load(f"w{number}"))
                return pool.get_stats()["requests_num"] - before

            await burst()
            assert await burst() == 3
        async with asyncio.timeout(20), AsyncExitStack() as exits:
            for _ in range(6):
                await exits.enter_async_context(pool.connection())


async def test_pool_connections_that_died_are_replaced(
    make_pool: MakePool, operator: psycopg.Connection[TupleRow], url: str
) -> None:
    """A connection that the server closed while it lay in the pool, or was kept, fails nobody."""
    async with make_pool(3) as pool, PostgresDurable.on(pool) as durable:
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(durable.arrive(f"w{number}", "k", 1))
        killed = operator.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
        assert killed is not None
        assert killed[0] >= 2
        for number in range(8):
            assert await durable.checkpointer.load(f"w{number % 6}") == {"k": 1}


async def test_pool_case_34_cancelled_calls_leave_it_clean(make_pool: MakePool) -> None:
    """Case 34: 300 cancelled calls on a pool of one: each later answer belongs to its question, and the pool keeps its size."""
    chance = random.Random(34)
    async with make_pool(1) as pool, PostgresDurable.on(pool) as durable:
        cp = durable.checkpointer
        holder = await cp.claim("one", LONG, LONG)
        assert holder is not None
        await cp.supply("two", "two", "two")
        for number in range(300):
            call = cp.load("one") if number % 2 else cp.record(holder, f"k{number}", number)
            task = asyncio.ensure_future(call)
            await asyncio.sleep(chance.random() * 0.003)
            task.cancel()
            await asyncio.wait((task,))
            assert await cp.load("two") == {"two": "two"}
        for key, value in (await cp.load("one")).items():
            assert key == f"k{value}"
        assert pool.get_stats()["pool_size"] == 1


# psycopg drops the generator that leaves a pipeline, which then finds its connection closed, and nobody to tell.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <generator object BasePipeline._exit_gen")
@pytest.mark.parametrize("size", [1, 2])
async def test_pool_effects_that_are_cancelled_twice(
    make_pool: MakePool, operator: psycopg.Connection[TupleRow], size: int
) -> None:
    """[CKP-RECORD-DURABLE] A transact is cancelled, and again while it rolls back: what is acknowledged next is committed."""
    chance = random.Random(2)
    async with make_pool(size) as pool, PostgresDurable.on(pool) as durable:
        holder = await durable.checkpointer.claim("w", LONG, LONG)
        assert holder is not None

        async def effect(cursor: AsyncCursor[TupleRow]) -> object:
            await cursor.execute("SELECT 1")
            return "done"

        for number in range(100):
            task = asyncio.ensure_future(durable.checkpointer.transact(holder, f"t{number}", effect))
            await asyncio.sleep(chance.random() * 0.004)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(chance.random() * 0.0005)
            await durable.checkpointer.record(holder, f"r{number}", number)
            found = operator.execute("SELECT count(*) FROM workflow_checkpoint WHERE key = %s", (f"r{number}",)).fetchone()
            assert found == (1,)
            await asyncio.wait((task,))
        assert pool.get_stats()["pool_size"] <= size


async def test_pool_a_cancelled_begin_leaves_no_turn_behind(make_pool: MakePool) -> None:
    """[DUR-BEGIN] What a cancelled caller did not hear is ready again at once, its counts unchanged."""
    chance = random.Random(7)
    async with make_pool(2) as pool, PostgresDurable.on(pool) as durable:
        await durable.arrive("w", "input", 1)
        for _ in range(100):
            task = asyncio.ensure_future(durable.begin(NOW, LONG))
            await asyncio.sleep(chance.random() * 0.002)
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled() and task.result():
                await durable.hand_back(task.result()[0], NOW)
        (turn,) = await durable.begin(LONG, LONG)
        assert (turn.delivery.attempt, turn.delivery.lapses) == (1, 0)


def test_pool_case_108_one_store_in_three_loops(url: str) -> None:
    """Case 108: a store is used in one loop after the other, as often as its pool can be: each run has a pool of its own."""

    async def use() -> object:
        pool: Pool = AsyncConnectionPool(url, min_size=1, max_size=2, open=False)
        async with pool, PostgresDurable.on(pool) as durable:
            return (await durable.checkpointer.supply("w", "k", 1)).value

    assert [asyncio.run(use()) for _ in range(3)] == [1, 1, 1]


def test_pool_case_113_a_loop_that_the_driver_cannot_use(url: str) -> None:
    """Case 113: a Proactor loop, the default on Windows, is refused at once and with the way out."""

    class ProactorEventLoop(asyncio.SelectorEventLoop):
        """Named as the one on Windows is."""

    async def main() -> None:
        pool: Pool = AsyncConnectionPool(url, min_size=1, max_size=1, open=False)
        async with pool:
            with pytest.raises(Misconfigured, match="SelectorEventLoop"):
                await PostgresDurable.on(pool).prepare()

    with asyncio.Runner(loop_factory=ProactorEventLoop) as runner:
        runner.run(main())


async def test_pool_a_closed_one_says_so(make_pool: MakePool) -> None:
    """A pool that is closed, or was never opened, is an error at once and by its name."""
    async with make_pool() as pool, PostgresDurable.on(pool) as durable:
        await durable.checkpointer.load("w")
    with pytest.raises(PoolClosed):
        await durable.checkpointer.load("w")


async def test_pool_case_29_two_pools_are_refused(make_pool: MakePool) -> None:
    """Case 29 [DUR-CO-COMMIT] Halves on two pools of one address, or in two schemas, are no store of one commit."""
    async with make_pool() as one, make_pool() as other:
        with pytest.raises(Misconfigured, match="share one pool"):
            PostgresDurable(PostgresCheckpointer(one), PostgresScheduler(other))
        with pytest.raises(Misconfigured, match="share one pool"):
            PostgresDurable(PostgresCheckpointer(one, schema="a"), PostgresScheduler(one, schema="b"))
    with pytest.raises(Misconfigured, match="AsyncConnectionPool"):
        PostgresCheckpointer("postgresql://")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
