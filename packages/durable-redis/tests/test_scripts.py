# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
# redis-py leaves its **kwargs untyped.
"""The scripts: what their headers say, and that a server that has forgotten them is no different."""

import re
from datetime import timedelta
from importlib.resources import files

import pytest
from redis.asyncio import Redis

from durable_redis import LuaEffect, RedisDurable
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


@pytest.mark.parametrize("name", [name for name in NAMES if name != "begin" and name != "sweep"])
def test_keys_come_through_keys(name: str) -> None:
    """But for begin and sweep, which pick workflows, no operation makes the name of a key it was not given."""
    text = LUA.joinpath(f"{name}.lua").read_text()
    made = re.findall(r"redis\.call\('[A-Z]+', (?:ARGV|'|\"|tag)", text)
    assert made == [] or name == "workflows"


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
