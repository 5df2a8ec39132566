# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
# redis-py leaves its **kwargs untyped.
"""Effects: what they may return, what they cannot reach, and what is left of one that failed."""

from datetime import timedelta

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from durable_conformance.servers import RedisServer
from durable_core.contract import Pass, Torn
from durable_core.errors import EffectTorn, Fenced, Misconfigured, NotEncodable
from durable_redis import LuaEffect, RedisDurable
from durable_redis._coding import micros_at

HOUR = timedelta(hours=1)
COUNT = "redis.call('HINCRBY', KEYS[1], 'n', ARGV[1]) return redis.call('HGET', KEYS[1], 'n')"


@pytest.mark.parametrize("start", [99_999_999_999_999, 100_000_000_000_000, 2**53 + 1, 2**62])
async def test_case_71_a_number_that_is_read_back_keeps_every_digit(durable: RedisDurable, holder: Pass, start: int) -> None:
    """case 71: with the documented form integers come back exact, however large."""
    effect = LuaEffect(COUNT, [durable.hash_key("ledger")], [start])
    assert await durable.checkpointer.transact(holder, "k", effect) == start


@pytest.mark.parametrize(
    "source",
    [
        "return redis.call('HINCRBY', KEYS[1], 'n', 1)",
        "return {1, 2}",
        "return redis.call('HGET', KEYS[1], 'missing')",
        "return redis.status_reply('OK')",
        "return true",
        "return 'OK'",
        "return ''",
        "return '[NaN]'",
        "return '0x10'",
        "return '01'",
        "return 'Infinity'",
        "return '\"open'",
        "return '\"\\255\"'",
        "return '\"a' .. string.char(10) .. 'b\"'",
        "return '[1] 2'",
    ],
)
async def test_case_71_what_is_no_encoding_is_refused(durable: RedisDurable, holder: Pass, source: str) -> None:
    """case 71: numbers, tables and what is not JSON are refused; torn where the effect had written, else nothing is left."""
    effect = LuaEffect(source, [durable.hash_key("n")])
    wrote = "HINCRBY" in source
    with pytest.raises(EffectTorn if wrote else NotEncodable):
        await durable.checkpointer.transact(holder, "k", effect)
    assert ("k" in await durable.checkpointer.load("w")) is wrote


@pytest.mark.parametrize(
    "text", ["1", "-0.5e+3", "null", "true", '"\\u00e9\\"x"', "[]", "{}", '{"a":[1,{"b":"c: d, [e]"}]}', " [ 1 , 2 ] ", '"é😀"']
)
async def test_every_json_text_is_taken_as_it_is(durable: RedisDurable, holder: Pass, text: str) -> None:
    """What the effect returned is what load decodes, byte by byte. [CKP-LOAD-CODEC]"""
    import json

    given = await durable.checkpointer.transact(holder, "k", LuaEffect("return ARGV[1]", [], [text]))
    assert given == json.loads(text)
    assert await durable.checkpointer.load("w") == {"k": given}


async def test_nothing_stands_for_none(durable: RedisDurable, holder: Pass) -> None:
    """An effect that returns nothing records None."""
    assert (
        await durable.checkpointer.transact(holder, "k", LuaEffect("redis.call('SET', KEYS[1], 1)", [durable.hash_key("x")]))
        is None
    )
    assert await durable.checkpointer.load("w") == {"k": None}


@pytest.mark.parametrize(
    "source",
    [
        "redis.call('SELECT', 5) return '1'",
        "redis.call('select', 5) return '1'",
        "redis.set_repl(0) return '1'",
        "server.set_repl(0) return '1'",
        "server.call('SELECT', 5) return '1'",
        "_G.redis.call('SELECT', 5) return '1'",
        "return loadstring('return redis')().call('SELECT', 5) and '1'",
        "return load(function() return nil end) and '1'",
        "redis.call('FLUSHALL') return '1'",
        "redis.call('SCRIPT', 'FLUSH') return '1'",
        "return getfenv(0) and '1'",
        "return debug.getinfo(1) and '1'",
        "return 1 end do local x = 1",
        "undeclared = 1 return '1'",
    ],
)
async def test_an_effect_reaches_no_further_than_its_keys(
    durable: RedisDurable, holder: Pass, client: Redis, source: str
) -> None:
    """Ways out that were found: other databases, the log, the real `redis`, the text around it. [CKP-TRANSACT-OWN]"""
    with pytest.raises(ResponseError):
        await durable.checkpointer.transact(holder, "k", LuaEffect(source))
    assert await durable.checkpointer.load("w") == {}
    assert (await durable.checkpointer.record(holder, "after", 1)).first
    assert await durable.checkpointer.load("w") == {"after": 1}


async def test_case_24_an_effect_that_fails_half_way_is_torn(durable: RedisDurable, holder: Pass, client: Redis) -> None:
    """case 24: the mark takes key, place and time; nothing repeats the effect, and what it wrote stays. [CKP-TRANSACT-TORN]"""
    await durable.checkpointer.record(holder, "a", 1)
    source = "redis.call('INCR', KEYS[1]) redis.call('LPUSH', KEYS[1], 'x') return '1'"
    effect = LuaEffect(source, [durable.hash_key("n")])
    with pytest.raises(EffectTorn, match="WRONGTYPE"):
        await durable.checkpointer.transact(holder, "k", effect)
    await durable.checkpointer.record(holder, "b", 2)
    with pytest.raises(EffectTorn):
        await durable.checkpointer.transact(holder, "k", effect)
    with pytest.raises(EffectTorn):
        await durable.arrive("w", "k", 1)
    loaded = await durable.checkpointer.load("w")
    assert list(loaded) == ["a", "k", "b"]
    assert isinstance(loaded["k"], Torn)
    assert await client.get(durable.hash_key("n")) == b"1"
    assert await durable.checkpointer.mend("w", "k", "found") is True
    assert await durable.checkpointer.load("w") == {"a": 1, "k": "found", "b": 2}


async def test_case_24_an_error_before_the_first_write_leaves_nothing(durable: RedisDurable, holder: Pass) -> None:
    """case 24: a refused command and a check that failed leave the key free, and the next call runs the effect."""
    key = durable.hash_key("n")
    for source in ("redis.call('LPUSH', KEYS[1]) return '1'", "if redis.call('EXISTS', KEYS[1]) == 0 then error('no stock') end"):
        with pytest.raises(ResponseError):
            await durable.checkpointer.transact(holder, "k", LuaEffect(source, [key]))
    assert await durable.checkpointer.transact(holder, "k", LuaEffect("return '1'")) == 1


async def test_case_24_a_stale_token_runs_nothing(durable: RedisDurable, holder: Pass, client: Redis) -> None:
    """case 24: the fence is asked before the effect. [CKP-TRANSACT-FENCED]"""
    await durable.checkpointer.release(holder)
    assert await durable.checkpointer.claim("w", HOUR, HOUR) is not None
    with pytest.raises(Fenced):
        await durable.checkpointer.transact(holder, "k", LuaEffect(COUNT, [durable.hash_key("n")], [1]))
    assert await client.exists(durable.hash_key("n")) == 0


async def test_an_error_that_was_handled_is_no_failure(durable: RedisDurable, holder: Pass) -> None:
    """A failed command leaves no trace in Redis, so an effect may go on after `pcall`; one that it returns is a failure."""
    key = durable.hash_key("n")
    handled = "redis.call('SET', KEYS[1], 'x') redis.pcall('INCR', KEYS[1]) return '\"handled\"'"
    assert await durable.checkpointer.transact(holder, "a", LuaEffect(handled, [key])) == "handled"
    with pytest.raises(ResponseError):
        await durable.checkpointer.transact(holder, "b", LuaEffect("return redis.pcall('INCR', KEYS[1])", [key]))
    assert list(await durable.checkpointer.load("w")) == ["a"]


async def test_what_is_no_effect_is_refused(durable: RedisDurable, holder: Pass) -> None:
    """A callback of another store, a first line of its own, and an argument that has no bytes."""
    with pytest.raises(Misconfigured, match="LuaEffect"):
        await durable.checkpointer.transact(holder, "k", lambda _: None)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(Misconfigured, match="#!lua"):
        await durable.checkpointer.transact(holder, "k", LuaEffect("#!lua\nreturn '1'"))
    with pytest.raises(TypeError, match="NoneType"):
        await durable.checkpointer.transact(holder, "k", LuaEffect("return '1'", [], [None]))  # type: ignore[list-item] # pyright: ignore


@pytest.mark.usefixtures("own_redis")
async def test_an_effect_that_needs_a_third_of_a_second_is_a_sign_of_life_when_it_ends(
    durable: RedisDurable, client: Redis
) -> None:
    """The clock is read again after the effect. [CKP-TRANSACT-LIVE]"""
    await client.config_set("busy-reply-threshold", "50")  # TIME stands still in a script until the server counts it as slow
    window = timedelta(milliseconds=400)
    granted = await durable.checkpointer.claim("w", HOUR, window)
    assert granted is not None
    clock = "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end "
    busy = clock + "local began = now() while now() - began < 300000 do end return '1'"
    await durable.checkpointer.transact(granted, "k", LuaEffect(busy))
    lapses = await durable.checkpointer.connection.client.hget(_claim(durable), "l")
    assert int(lapses or 0) == micros_at((await durable.checkpointer.history("w"))["k"].at + window)


def _claim(durable: RedisDurable) -> str:
    return durable.checkpointer.layout.of("w").claim.decode()


async def test_case_118_at_the_memory_limit_nothing_is_half_written(own_redis: RedisServer, namespace: str) -> None:
    """case 118: a script is refused before it starts; finish still works; when memory is there again so does the rest."""
    async with Redis.from_url(own_redis.url) as client, RedisDurable(client, namespace=namespace) as durable:
        await durable.arrive("w", "input", 1)
        (turn,) = await durable.begin(timedelta(0), HOUR)
        await client.config_set("maxmemory", "1")
        with pytest.raises(ResponseError, match="OOM"):
            await durable.checkpointer.record(turn.holder, "k", 1)
        with pytest.raises(ResponseError, match="OOM"):
            await durable.checkpointer.transact(turn.holder, "e", LuaEffect(COUNT, [durable.hash_key("n")], [1]))
        assert list(await durable.checkpointer.load("w")) == ["input"]
        await durable.finish(turn, "done")
        assert await durable.delete("w") == 2
        await client.config_set("maxmemory", "0")
        assert (await durable.arrive("w", "input", 2)).first


async def test_case_118_a_server_that_evicts_is_refused(own_redis: RedisServer, namespace: str) -> None:
    """case 118: any policy but noeviction is refused in words, unless told otherwise; volatile ones only with a retention."""
    async with Redis.from_url(own_redis.url) as client:
        for policy, retention, refused in (
            ("allkeys-lru", None, True),
            ("volatile-ttl", None, False),
            ("volatile-ttl", HOUR, True),
        ):
            await client.config_set("maxmemory-policy", policy)
            if refused:
                with pytest.raises(Misconfigured, match=policy):
                    await RedisDurable(client, namespace=namespace, retention=retention).prepare()
            await RedisDurable(client, namespace=namespace, retention=retention, evictions=refused).prepare()
