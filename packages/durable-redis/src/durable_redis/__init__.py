"""Durable workflows on Redis and Valkey."""

from __future__ import annotations

from durable_redis._open import open
from durable_redis.checkpointer import RedisCheckpointer
from durable_redis.durable import RedisDurable
from durable_redis.effect import LuaEffect
from durable_redis.sorted_set import LEASE, RedisScheduler
from durable_redis.stream import RedisStreamScheduler

__all__ = ["LEASE", "LuaEffect", "RedisCheckpointer", "RedisDurable", "RedisScheduler", "RedisStreamScheduler", "open"]
