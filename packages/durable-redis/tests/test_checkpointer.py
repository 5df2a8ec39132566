# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
# redis-py leaves its **kwargs untyped.
"""Records and claims: order, digits, tokens, and what is kept how long."""

import asyncio
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from durable_core.contract import Pass
from durable_core.errors import Fenced
from durable_core.keys import inbox_key
from durable_redis import RedisCheckpointer, RedisDurable

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


async def _claimed(durable: RedisDurable, workflow: str = "w") -> Pass:
    holder = await durable.checkpointer.claim(workflow, HOUR, HOUR)
    assert holder is not None
    return holder


def _keys(durable: RedisDurable, workflow: str = "w") -> tuple[bytes, bytes, bytes]:
    owned = durable.checkpointer.layout.of(workflow)
    return owned.records, owned.claim, owned.nonces


async def _all(client: Redis, pattern: str) -> list[bytes]:
    keys: list[bytes] = [key async for key in client.scan_iter(pattern)]  # pyright: ignore[reportUnknownVariableType]
    return keys


async def test_case_74_the_order_outlives_the_conversion_of_the_hash(durable: RedisDurable, client: Redis) -> None:
    """case 74: 600 records, and 3 of which one is longer than a listpack takes, come in the order in which they were written."""
    names = [f"k{(number * 7919) % 600:03}" for number in range(600)]
    async with asyncio.TaskGroup() as group:
        for name in names[:1]:
            group.create_task(durable.checkpointer.supply("many", name, name))
    for name in names[1:]:
        await durable.checkpointer.supply("many", name, name)
    for name, value in (("c", "short"), ("a", "x" * 65), ("b", "short")):
        await durable.checkpointer.supply("few", name, value)
    for workflow, promised in (("many", names), ("few", ["c", "a", "b"])):
        assert await client.object("encoding", _keys(durable, workflow)[0]) == b"hashtable"
        assert list(await durable.checkpointer.load(workflow)) == promised


async def test_positions_keep_every_digit(durable: RedisDurable, client: Redis) -> None:
    """Above 2^53 no two records share a position. [CKP-LOAD-ORDER]"""
    await durable.checkpointer.supply("w", "first", 1)
    await client.hset(_keys(durable)[0], "\0n", str(2**53 - 1))
    for number in range(6):
        await durable.checkpointer.supply("w", f"k{5 - number}", number)
    assert list(await durable.checkpointer.load("w")) == ["first", "k5", "k4", "k3", "k2", "k1", "k0"]


async def test_an_inbox_that_is_full_says_so(durable: RedisDurable) -> None:
    """Entries stay below 2^53, also above one that a fork copied. [CKP-APPEND-KEY]"""
    await durable.checkpointer.supply("w", inbox_key(57), "copied")
    assert (await durable.checkpointer.append("w", "next")).key == inbox_key(58)
    await durable.checkpointer.supply("w", inbox_key(2**53 - 1), "last")
    with pytest.raises(ValueError, match="full"):
        await durable.checkpointer.append("w", "one too many")


@pytest.mark.parametrize("loss", ["del", "expire", "flush"])
async def test_tokens_rise_when_the_claim_is_lost(durable: RedisDurable, client: Redis, loss: str) -> None:
    """Eviction and expiry do not bring a token back, and the pass that lost its claim is fenced. [CKP-CLAIM-RISING]"""
    holder = await _claimed(durable)
    if loss == "del":
        await client.delete(_keys(durable)[1])
    elif loss == "expire":
        await client.pexpire(_keys(durable)[1], 1)
        await asyncio.sleep(0.02)
    else:
        await client.delete(*_keys(durable))
    with pytest.raises(Fenced):
        await durable.checkpointer.record(holder, "k", 1)
    assert (await _claimed(durable)).token > holder.token


async def test_tokens_are_not_behind_the_clock_and_keep_every_digit(durable: RedisDurable, client: Redis) -> None:
    """max(last + 1, the clock): a last token above the clock counts up, one by one, past 2^53."""
    holder = await _claimed(durable)
    assert abs(holder.token / 1e6 - holder.at.timestamp()) < 1
    last = 2**53 - 2
    await client.hset(_keys(durable)[1], mapping={"t": str(last), "l": "0"})
    for number in range(1, 5):
        again = await _claimed(durable)
        assert again.token == last + number
        assert (await durable.checkpointer.record(again, f"k{number}", number)).first
        await durable.checkpointer.release(again)


async def test_case_8_of_two_holders_one_writes(durable: RedisDurable, client: Redis) -> None:
    """A store that a failover took back lets the last token write and no other, older or newer. [CKP-RECORD-FENCED]"""
    holder = await _claimed(durable)
    newer = Pass("w", holder.token + 2, holder.at)
    with pytest.raises(Fenced):
        await durable.checkpointer.record(newer, "k", "newer")
    assert (await durable.checkpointer.record(holder, "k", "holder")).first


async def test_a_claim_ends_every_time_to_live(client: Redis, namespace: str) -> None:
    """What a finish or a discard had set does not take a later pass's records. [CKP-CLAIM-KEPT]"""
    async with RedisDurable(client, namespace=namespace, retention=HOUR) as durable:
        await durable.arrive("w", "input", 1)
        (turn,) = await durable.begin(timedelta(0), HOUR)
        await durable.finish(turn, "done")
        records, claim, _ = _keys(durable)
        assert await client.pttl(records) > 0 < await client.pttl(claim)
        await _claimed(durable)
        assert await client.pttl(records) == -1 == await client.pttl(claim)
        await durable.checkpointer.discard("w")
        assert await client.pttl(claim) > 0
        await _claimed(durable)
        assert await client.pttl(claim) == -1


async def test_what_is_not_finished_never_expires(client: Redis, namespace: str) -> None:
    """With a retention too, nothing that waits, runs or is buried has a time to live. [CAT-SWEEP]"""
    async with RedisDurable(client, namespace=namespace, retention=SECOND / 20) as durable:
        for workflow in ("waits", "runs", "buried", "finished"):
            await durable.arrive(workflow, "input", 1)
        turns = {turn.holder.workflow: turn for turn in await durable.begin(timedelta(0), HOUR, limit=4)}
        await durable.pause(turns["waits"], None)
        await durable.fail(turns["buried"], "broken", None)
        await durable.finish(turns["finished"], "done")
        ttl = {workflow: await client.pttl(_keys(durable, workflow)[0]) for workflow in turns}
        assert ttl.pop("finished") != -1
        assert set(ttl.values()) == {-1}
        while await durable.result("finished") is not None:  # noqa: ASYNC110 - the server's clock
            await asyncio.sleep(0.01)
        assert await durable.checkpointer.load("finished") == {}


async def test_what_expired_leaves_the_index(client: Redis, namespace: str) -> None:
    """A key that expires takes nothing with it; the store forgets the rest. [CAT-LIST]"""
    async with RedisDurable(client, namespace=namespace, retention=SECOND / 50) as durable:
        await durable.arrive("w", "input", 1)
        (turn,) = await durable.begin(timedelta(0), HOUR)
        await durable.finish(turn, "done")
        while await client.exists(_keys(durable)[0]):  # noqa: ASYNC110 - the server's clock
            await asyncio.sleep(0.01)
        await durable._forget(SECOND / 100)  # pyright: ignore[reportPrivateUsage]
        assert await durable.workflows() == []
        left = await _all(client, f"{{{namespace}}}*")
        assert all(b":layout" in key or b":queues" in key or key.endswith(b":n") for key in left), left


async def test_what_a_deleted_id_leaves_is_bounded(durable: RedisDurable, client: Redis, namespace: str) -> None:
    """A fence that expires, and nothing else. [CKP-DISCARD-UNKNOWN]"""
    await durable.deliver("w", 1, once="id")
    await durable.deliver("w", 2)
    assert await durable.delete("w") == 2
    left = await _all(client, f"{{{namespace}}}*w*")
    assert left == [_keys(durable)[1]]
    assert await client.pttl(left[0]) > 0
    assert await durable.delete("unknown") == 0
    assert await client.exists(*_keys(durable, "unknown")) == 0


async def test_nonces_are_bounded_by_time(durable: RedisDurable, client: Redis) -> None:
    """They are kept for minutes, go in generations, and expire by themselves. [CKP-APPEND-REPEAT]"""
    records, _, nonces = _keys(durable)
    for number in range(20):
        await durable.checkpointer.append("w", number)
    assert await client.zcard(nonces) == 20
    assert 0 < await client.pttl(nonces) <= 1_800_000
    horizon = await client.hget(records, "\0h")
    assert isinstance(horizon, bytes)
    since, last = horizon.split(b":")
    await client.hset(records, "\0h", f"{int(since) - 10**9}:10")
    await durable.checkpointer.append("w", "later")
    assert await client.zcard(nonces) == 11
    assert int(last) == 1


async def test_a_bytes_codec_is_carried_as_it_is(client: Redis, namespace: str) -> None:
    """Every byte survives, for a client that decodes too. [CKP-LOAD-CODEC]"""

    class Raw:
        def encode(self, value: object, /) -> bytes:
            assert isinstance(value, bytes)
            return value

        def decode(self, encoded: bytes, /) -> object:
            return encoded

    every = bytes(range(256))
    async with Redis.from_pool(client.connection_pool) as same:
        checkpointer = RedisCheckpointer(same, namespace=namespace, codec=Raw())
        assert (await checkpointer.supply("w", "k", every)).value == every
        assert await checkpointer.load("w") == {"k": every}
        await checkpointer.aclose()
