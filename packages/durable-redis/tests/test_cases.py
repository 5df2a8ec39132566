# pyright: reportUnknownMemberType=false
# redis-py leaves its **kwargs untyped.
"""Cases of people who do this job, where they meet Redis; those that every store meets are in `conformance/cases`."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from durable_conformance.servers import Address, RedisServer
from durable_core import Run, resume
from durable_core.codec import JsonCodec
from durable_core.errors import Misconfigured, NotParsed
from durable_redis import LuaEffect, RedisDurable, RedisScheduler, RedisStreamScheduler, open

HOUR = timedelta(hours=1)
NOW = timedelta(0)
MOMENT = timedelta(milliseconds=1)
KINDS = pytest.mark.parametrize("kind", [RedisScheduler, RedisStreamScheduler])


@KINDS
async def test_case_14_answered_too_late(client: Redis, namespace: str, kind: type[RedisScheduler]) -> None:
    """Case 14: a lapsed delivery that somebody else has is not answered by its old receipt; what was answered is over."""
    hasty = RedisDurable(client, namespace=namespace, scheduler=kind, lease=MOMENT)
    async with hasty, RedisDurable(client, namespace=namespace, scheduler=kind) as durable:
        await hasty.arrive("w", "input", 1)
        (late,) = await hasty.begin(NOW, HOUR)
        (turn,) = await durable.begin(HOUR, HOUR)
        await hasty.scheduler.done(late.delivery)
        assert await durable.renew(turn) is not None
        await durable.finish(turn, 1)
        assert await hasty.scheduler.next_ready(NOW) is None
        await durable.scheduler.make_ready("w")
        assert await durable.begin(NOW, HOUR) == []
        assert [listed.state for listed in await durable.workflows()] == ["finished"]


class Broken(JsonCodec):
    """A codec that has forgotten how to read."""

    def decode(self, encoded: str, /) -> object:
        raise LookupError("an unknown class")


@pytest.mark.parametrize("call", ["load", "record", "supply", "arrive", "transact", "result"])
async def test_case_50_a_decode_error_surfaces(durable: RedisDurable, client: Redis, namespace: str, call: str) -> None:
    """Case 50: through every door it names workflow and key and chains the original, and never becomes a value."""
    await durable.arrive("w", "input", 1)
    (turn,) = await durable.begin(NOW, HOUR)
    key = "outcome:" if call == "result" else "k"
    await (durable.finish(turn, 1) if call == "result" else durable.checkpointer.record(turn.holder, "k", 1))
    async with RedisDurable(client, namespace=namespace, codec=Broken()) as broken:
        made: dict[str, Callable[[], Awaitable[object]]] = {
            "load": lambda: broken.checkpointer.load("w"),
            "record": lambda: broken.checkpointer.record(turn.holder, "k", 2),
            "supply": lambda: broken.checkpointer.supply("w", "k", 2),
            "arrive": lambda: broken.arrive("w", "k", 2),
            "transact": lambda: broken.checkpointer.transact(turn.holder, "k", LuaEffect("return '2'")),
            "result": lambda: broken.result("w"),
        }
        with pytest.raises(NotParsed, match=f"'{'input' if call == 'load' else key}' of workflow 'w'") as refused:
            await made[call]()
    assert isinstance(refused.value.__cause__, LookupError)


@KINDS
async def test_case_90_a_backlog_of_one_workflow_is_one_delivery(
    client: Redis, namespace: str, kind: type[RedisScheduler]
) -> None:
    """Case 90: a wakeup of three days ago, five more, and a delivery that lapsed, before anybody works: one delivery."""
    hasty = RedisDurable(client, namespace=namespace, scheduler=kind, lease=MOMENT)
    async with hasty, RedisDurable(client, namespace=namespace, scheduler=kind) as durable:
        await hasty.scheduler.make_ready("w")
        delivery = await hasty.scheduler.next_ready(HOUR)
        assert delivery is not None
        await hasty.scheduler.wake_at(delivery, delivery.due - timedelta(days=3))
        assert await hasty.scheduler.next_ready(HOUR) is not None  # and its taker dies
        for _ in range(5):
            await hasty.scheduler.make_ready("w")
        given = await durable.scheduler.next_ready(HOUR)
        assert given is not None
        await durable.scheduler.wake_at(given, given.due)
        again = await durable.scheduler.next_ready(HOUR)
        assert again is not None
        await durable.scheduler.done(again)
        assert await durable.scheduler.next_ready(NOW) is None


@KINDS
async def test_case_92_a_new_life_sees_nothing_of_the_old_one(client: Redis, namespace: str, kind: type[RedisScheduler]) -> None:
    """Case 92: deleted is gone, wholly and in one script: records, ids of senders, wakeups; tokens rise."""
    async with RedisDurable(client, namespace=namespace, scheduler=kind) as durable:
        await durable.arrive("w", "input", "old")
        await durable.deliver("w", "old", once="message")
        (turn,) = await durable.begin(NOW, HOUR)
        await durable.checkpointer.record(turn.holder, "step", "old")
        assert await durable.delete("w") == 3
        assert await durable.workflows() == []
        assert (await durable.arrive("w", "input", "new")).first
        assert (await durable.deliver("w", "new", once="message")).value == "new"
        (again,) = await durable.begin(NOW, HOUR)
        assert list((await durable.checkpointer.load("w")).values()) == ["new", "new"]
        assert again.holder.token > turn.holder.token


def test_case_108_a_second_event_loop_is_told_what_to_do(shared_redis: Address, namespace: str) -> None:
    """Case 108: a store that has been used in one loop is refused at once in another, and closed in its own."""
    durable = open(shared_redis.url, namespace=namespace)
    with asyncio.Runner() as home:
        home.run(durable.arrive("w", "input", 1))
        with asyncio.Runner() as other:
            for call in (lambda: durable.arrive("w", "input", 1), lambda: durable.begin(NOW, HOUR)):
                with pytest.raises(Misconfigured, match="event loop"):
                    other.run(call())
        home.run(durable.aclose())


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize("protocol", [2, 3])
async def test_case_123_however_the_client_answers(shared_redis: Address, namespace: str, decode: bool, protocol: int) -> None:
    """Case 123: bytes or text, RESP2 or RESP3, another database: the same results, on the shared connection and call by call."""
    options = {"decode_responses": decode, "protocol": protocol, "db": 5}
    async with Redis.from_url(shared_redis.url.removesuffix("/0"), **options) as client:  # type: ignore[arg-type] # pyright: ignore
        async with RedisDurable(client, namespace=namespace) as durable:
            await durable.arrive("w", "é", "ü" * 100_000)  # too large to share a connection
            (turn,) = await durable.begin(NOW, HOUR)
            assert turn.records == {"é": "ü" * 100_000}
            await durable.checkpointer.record(turn.holder, "k", b"".decode())
            assert list(await durable.checkpointer.load("w")) == ["é", "k"]
            assert (await durable.describe()).version.startswith("8.")
            assert (await durable.finish(turn, None)).first


async def test_case_126_a_step_costs_the_same_however_long_the_history(own_redis: RedisServer) -> None:
    """Case 126: the last of ten thousand steps run as many commands as the first; a pass that replays them loads once."""
    counts = list[int]()

    async def effect() -> str:
        return "x" * 200

    async def body(run: Run[LuaEffect]) -> int:
        for number in range(10_000):
            if number % 1000 == 0:
                counts.append(_commands(own_redis))
            await run.step(f"s{number}", effect, str)
        counts.append(_commands(own_redis))
        return len(counts)

    async with open(own_redis.url) as durable:
        for _ in range(2):
            holder = await durable.checkpointer.claim("w", HOUR, HOUR)
            assert holder is not None
            await resume(durable.checkpointer, holder, body, budget=HOUR, alive=HOUR)
            await durable.checkpointer.release(holder)
    assert counts[10] - counts[9] <= counts[1] - counts[0] + 10  # and a sign of life now and then
    assert counts[21] == counts[11]
    assert own_redis.info("commandstats")["cmdstat_hgetall"].startswith("calls=2,")


def _commands(server: RedisServer) -> int:
    stats = server.info("commandstats")
    names = [f"cmdstat_{name}" for name in ("evalsha", "time", "hget", "hmget", "hset", "hincrby", "hgetall")]
    return sum(int(stats[name].split(",")[0].removeprefix("calls=")) for name in names if name in stats)


@pytest.mark.parametrize("way", ["record", "supply", "transact"])
async def test_an_outcome_is_swept_however_it_was_written(durable: RedisDurable, way: str) -> None:
    """The checkpointer's own methods take the reserved key, and what has one is finished. [CAT-SWEEP] [CKP-KEY-RESERVED]"""
    store = durable.checkpointer
    holder = await store.claim("w", HOUR, HOUR)
    assert holder is not None
    if way == "record":
        await store.record(holder, "outcome:", 1)
    elif way == "supply":
        await store.supply("w", "outcome:", 1)
    else:
        await store.transact(holder, "outcome:", LuaEffect("return '1'"))
    await store.release(holder)
    assert await durable.sweep(await durable.scheduler.now() + HOUR) == 1
    assert await durable.workflows() == []
