"""The Redis store held to the contract: on one node by default, and with `-m slow` on everything that it is for."""

from pathlib import Path

import pytest

from conformance import redis
from durable_conformance import Conformance

GAPS = Path(__file__).with_name("gaps.toml")
REPORT = Path(__file__).with_name("report.json")


class TestRedis(Conformance):
    harness = redis.RedisHarness
    gaps = GAPS
    report = REPORT


class TestRedisStream(Conformance):
    harness = redis.RedisStreamHarness
    gaps = GAPS
    report = REPORT


@pytest.mark.slow
class TestValkey(Conformance):
    harness = redis.ValkeyHarness
    gaps = GAPS


@pytest.mark.slow
class TestDecodingRedis(Conformance):
    harness = redis.DecodingRedisHarness
    gaps = GAPS


@pytest.mark.slow
class TestRawRedis(Conformance):
    harness = redis.RawRedisHarness
    gaps = GAPS


@pytest.mark.slow
class TestDeclaredRedis(Conformance):
    harness = redis.DeclaredRedisHarness
    gaps = GAPS


@pytest.mark.slow
class TestDeclaredStream(Conformance):
    harness = redis.DeclaredStreamHarness
    gaps = GAPS


@pytest.mark.slow
class TestSplitRedis(Conformance):
    harness = redis.SplitRedisHarness
    gaps = GAPS


@pytest.mark.slow
class TestRedisCluster(Conformance):
    harness = redis.RedisClusterHarness
    gaps = GAPS


@pytest.mark.slow
class TestValkeyCluster(Conformance):
    harness = redis.ValkeyClusterHarness
    gaps = GAPS


@pytest.mark.slow
class TestPartitionedRedis(Conformance):
    harness = redis.PartitionedRedisHarness
    gaps = GAPS


@pytest.mark.slow
class TestSentinelRedis(Conformance):
    harness = redis.SentinelRedisHarness
    gaps = GAPS
