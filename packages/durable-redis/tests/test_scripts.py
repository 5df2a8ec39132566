# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
# redis-py leaves its **kwargs untyped.
"""The scripts: what their headers say, and that a server that has forgotten them is no different."""

import codecs
import re
import socket
from collections.abc import Iterator
from datetime import timedelta
from importlib.resources import files
from typing import Self

import pytest
from redis.asyncio import Redis

from durable_conformance.servers import RedisServer, ReplyError
from durable_core.contract import Finished
from durable_core.errors import EffectTorn
from durable_redis import LuaEffect, RedisDurable, RedisScheduler, RedisStreamScheduler
from durable_redis._scripts import script

HOUR = timedelta(hours=1)
LUA = files("durable_redis").joinpath("lua")
NAMES = sorted(entry.name.removesuffix(".lua") for entry in LUA.iterdir() if entry.name.endswith(".lua"))


@pytest.mark.parametrize("name", NAMES)
def test_every_script_says_what_it_takes_and_gives(name: str) -> None:
    """A script begins with its flags, and says its operation, its KEYS, its ARGV and what it returns."""
    lines = LUA.joinpath(f"{name}.lua").read_text().splitlines()
    assert re.fullmatch(r"#!lua( flags=(allow-oom|no-writes))?", lines[0])
    header = "\n".join(line for line in lines[1:] if line.startswith("-- "))
    assert header.startswith(f"-- {name}: ")
    for word in ("-- KEYS: ", "-- returns: "):
        assert word in header


@pytest.mark.parametrize("name", NAMES)
def test_no_script_is_put_together_out_of_values(name: str) -> None:
    """What differs between calls goes through KEYS and ARGV: a script has one text; the plain form lacks its first line only."""
    made = script(name)
    assert made is script(name)
    assert made.text.split(b"\n", 1)[1] == made.plain
    assert b"--@include" not in made.text


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("scheduler", [RedisScheduler, RedisStreamScheduler])
async def test_keys_come_through_keys(own_redis: RedisServer, scheduler: type[RedisScheduler], declared: bool) -> None:
    """The server says what each script touches: what its call declared, but for what begin picks, and tries. [DUR-BEGIN]"""
    with _Monitor(own_redis) as monitor:
        async with Redis.from_url(own_redis.url) as client:
            async with RedisDurable(client, namespace="ns", scheduler=scheduler, declared=declared) as durable:
                await _through_every_operation(durable)
        touched = monitor.touched()
    assert {name for name, given, keys in touched if not keys <= given} == (set() if declared else {"prepare", "begin"})
    assert {name for name, _, keys in touched if keys} >= set(NAMES) - {"now", "ring", "wake_due"}


class _Monitor:
    """What the server says it does: MONITOR, on a connection of its own."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._line = socket.create_connection(("127.0.0.1", server.port))
        self._line.sendall(b"MONITOR\r\n")
        self._lines = self._line.makefile("rb")

    def __enter__(self) -> Self:
        assert self._lines.readline() == b"+OK\r\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._line.close()

    def touched(self) -> list[tuple[str, set[bytes], set[bytes]]]:
        """Give for each script that ran its name, the keys that were declared, and those that it touched."""
        scripts = {made.sha: name for name in NAMES for made in (script(name), script(name, "stream"))}
        scripts |= {made.text: name for name in NAMES for made in (script(name), script(name, "stream"))}
        found = list[tuple[str, set[bytes], set[bytes]]]()
        for by_script, command in self._commands():
            if by_script:
                found[-1][2].update(self._keys(command))
            elif command[0].upper() in (b"EVAL", b"EVALSHA"):
                found.append((scripts[command[1]], set(command[3 : 3 + int(command[2])]), set()))
        return found

    def _commands(self) -> Iterator[tuple[bool, list[bytes]]]:
        self._server.call("ECHO", "the end")
        for line in self._lines:
            words = [codecs.escape_decode(word)[0] for word in re.findall(rb'"((?:[^"\\]|\\.)*)"', line)]
            if words == [b"ECHO", b"the end"]:
                return
            yield b" lua] " in line, words

    def _keys(self, command: list[bytes]) -> list[bytes]:
        try:
            keys = self._server.call("COMMAND", "GETKEYS", *command)
        except ReplyError:
            return []  # it has none
        assert isinstance(keys, list)
        return [key for key in keys if isinstance(key, bytes)]


async def _through_every_operation(durable: RedisDurable) -> None:
    """Call every method, mostly where it finds something to do."""
    checkpointer, scheduler, now = durable.checkpointer, durable.scheduler, timedelta(0)
    await durable.arrive("w", "input", 1)
    assert await checkpointer.claim("held", HOUR, HOUR) is not None
    await durable.arrive("held", "input", 1)
    (turn,) = await durable.begin(now, HOUR)
    assert await durable.begin(now, HOUR) == []
    await durable.renew(turn)
    await checkpointer.record(turn.holder, "a", 1)
    effect = LuaEffect("redis.call('INCR', KEYS[1]) redis.call('LPUSH', KEYS[1], 1)", [durable.hash_key("n")])
    with pytest.raises(EffectTorn):
        await checkpointer.transact(turn.holder, "b", effect)
    await checkpointer.mend("w", "b", 2)
    await checkpointer.extend(turn.holder, HOUR, HOUR)
    await checkpointer.renew(turn.holder, HOUR)
    await durable.hand_back(turn, now)
    (turn,) = await durable.begin(now, HOUR)
    await durable.pause(turn, await scheduler.now())
    (turn,) = await durable.begin(now, HOUR)
    await durable.fail(turn, "reason", timedelta(microseconds=1))
    (turn,) = await durable.begin(now, HOUR)
    await durable.finish(turn, "done")
    assert await durable.result("w") == Finished("done")
    assert len(await durable.workflows()) == 2
    await checkpointer.supply("x", "a", 1)
    await checkpointer.append("x", 1)
    await durable.deliver("x", 1, once="o")
    await _through_the_others(durable)


async def _through_the_others(durable: RedisDurable) -> None:
    checkpointer, scheduler, now = durable.checkpointer, durable.scheduler, timedelta(0)
    taken = await scheduler.next_ready(now)
    assert taken is not None
    await scheduler.renew(taken)
    await scheduler.wake_at(taken, await scheduler.now())
    taken = await scheduler.next_ready(now)
    assert taken is not None
    await scheduler.done(taken)
    await scheduler.make_ready("x")
    taken = await scheduler.next_ready(now)
    assert taken is not None
    await scheduler.bury(taken, "reason")
    assert await scheduler.buried("x") == "reason"
    await scheduler.cancel("x")
    assert await durable.sweep(await scheduler.now()) == 1
    holder = await checkpointer.claim("x", HOUR, HOUR)
    assert holder is not None
    await checkpointer.release(holder)
    await checkpointer.discard("x")
    await durable.delete("x")


@pytest.mark.usefixtures("own_redis")
async def test_case_122_scripts_that_the_server_has_forgotten_change_nothing(durable: RedisDurable, client: Redis) -> None:
    """case 122: SCRIPT FLUSH between every call; every operation works, and an effect is applied once."""

    async def flush() -> None:
        await client.script_flush()

    await flush()
    await durable.arrive("w", "input", 1)
    await flush()
    (turn,) = await durable.begin(timedelta(0), HOUR)
    for number in range(3):
        await flush()
        await durable.checkpointer.record(turn.holder, f"k{number}", number)
    await flush()
    effect = LuaEffect("redis.call('INCR', KEYS[1]) return '1'", [durable.hash_key("n")])
    assert await durable.checkpointer.transact(turn.holder, "effect", effect) == 1
    await flush()
    assert (await durable.finish(turn, "done")).first
    assert await client.get(durable.hash_key("n")) == b"1"


@pytest.mark.usefixtures("own_redis")
async def test_case_122_many_sources_are_one_script(durable: RedisDurable, client: Redis) -> None:
    """case 122: 2 000 different effects leave the server with no script more than one."""
    await client.script_flush()
    holder = await durable.checkpointer.claim("w", HOUR, HOUR)
    assert holder is not None
    for number in range(2_000):
        given = await durable.checkpointer.transact(holder, f"k{number}", LuaEffect(f"return '{number}'"))
        assert given == number
    assert (await client.info("memory"))["number_of_cached_scripts"] <= 4
