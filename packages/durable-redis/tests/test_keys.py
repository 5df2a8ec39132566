# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
# redis-py leaves its **kwargs untyped.
"""The names of keys: no id leaves its slot, and an effect's keys are asked for theirs on a single node too."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from redis.crc import key_slot

from durable_core.contract import Pass
from durable_core.errors import Misconfigured
from durable_redis import LuaEffect, RedisCheckpointer, RedisDurable
from durable_redis.keys import Partitioned, Tagged

HOUR = timedelta(hours=1)
ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)


@given(ids)
def test_no_id_leaves_its_slot(workflow: str) -> None:
    """All keys of a workflow are in one slot, whatever braces its id has. [CKP-LOAD-ISOLATED]"""
    for layout in (Tagged("n"), Partitioned("n", 1), Partitioned("n", 7)):
        owned = layout.of(workflow)
        slots = {key_slot(key) for key in (owned.records, owned.claim, owned.nonces, layout.prefix(workflow).encode() + b"x")}
        assert len(slots) == 1


@given(ids, ids)
def test_two_ids_have_two_names(one: str, other: str) -> None:
    """Different ids never share a key. [CKP-LOAD-ISOLATED]"""
    for layout in (Tagged("n"), Partitioned("n", 1), Partitioned("n", 7)):
        mine, theirs = layout.of(one), layout.of(other)
        assert (mine.records == theirs.records) is (one == other)
        assert mine.records != theirs.claim


@pytest.mark.parametrize("workflow", ["}", "}a", "{}", "{", "a{b}c", "%7B", "}{"])
def test_an_id_of_braces_is_a_tag_of_its_own(workflow: str) -> None:
    """A bare checkpointer escapes braces: the tag is not empty and ends where it should."""
    key = Tagged("n").of(workflow).records
    tag = key[1 : key.index(b"}")]
    assert tag.startswith(b"n:")
    assert key_slot(key) == key_slot(tag)


async def test_a_key_of_another_slot_is_refused_on_one_node(durable: RedisDurable, holder: Pass) -> None:
    """The error names the key and both slots; nothing ran."""
    effect = LuaEffect("return redis.call('INCR', KEYS[1]) and '1'", ["stock"])
    with pytest.raises(ValueError, match=rf"'stock' is in slot {key_slot(b'stock')}, .*hash_key"):
        await durable.checkpointer.transact(holder, "k", effect)
    assert await durable.checkpointer.load("w") == {}


async def test_a_key_of_the_store_is_refused(durable: RedisDurable, holder: Pass) -> None:
    """An effect does not get at records and claims by their names."""
    records = Partitioned(durable.hash_key("").strip("{}/"), 1).of("w").records
    with pytest.raises(ValueError, match="belongs to the store"):
        await durable.checkpointer.transact(holder, "k", LuaEffect("return '1'", [records]))


async def test_hash_key_is_shared_by_all_workflows_of_a_partition(durable: RedisDurable, client: Redis) -> None:
    """With one partition two workflows count in one key; with several, hash_key takes a workflow."""
    for workflow in ("a", "b"):
        granted = await durable.checkpointer.claim(workflow, HOUR, HOUR)
        assert granted is not None
        effect = LuaEffect("redis.call('INCR', KEYS[1]) return '1'", [durable.hash_key("stock")])
        await durable.checkpointer.transact(granted, "k", effect)
    assert await client.get(durable.hash_key("stock")) == b"2"
    several = RedisDurable(client, namespace="several", partitions=4)
    with pytest.raises(Misconfigured, match="takes a workflow"):
        several.hash_key("stock")
    assert several.hash_key("stock", "w").endswith("/stock")


async def test_a_bare_checkpointer_has_a_slot_for_each_workflow(client: Redis, namespace: str) -> None:
    """Its own hash_key gives keys that an effect of this workflow may use, and of no other."""
    checkpointer = RedisCheckpointer(client, namespace=namespace)
    granted = await checkpointer.claim("w", HOUR, HOUR)
    assert granted is not None
    mine = LuaEffect("redis.call('INCR', KEYS[1]) return '1'", [checkpointer.hash_key("w", "n")])
    assert await checkpointer.transact(granted, "k", mine) == 1
    with pytest.raises(ValueError, match="slot"):
        await checkpointer.transact(granted, "l", LuaEffect("return '1'", [checkpointer.hash_key("v", "n")]))
    await checkpointer.aclose()


async def test_another_number_of_partitions_is_refused(durable: RedisDurable, client: Redis, namespace: str) -> None:
    """The layout is written down when the store is prepared."""
    with pytest.raises(Misconfigured, match="laid out with partitions 1"):
        await RedisDurable(client, namespace=namespace, partitions=2).prepare()
    await RedisDurable(client, namespace=namespace, partitions=1, queue="other").prepare()


@pytest.mark.parametrize("name", ["", "a{b", "a}b", "\0"])
def test_a_namespace_that_is_no_tag_is_refused(name: str) -> None:
    """Braces, NUL and nothing are refused before anything is done. [ANY-VALID]"""
    with pytest.raises(ValueError, match="namespace"):
        RedisDurable(Redis(), namespace=name)
