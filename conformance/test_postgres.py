"""The Postgres store held to the contract: as it is by default, and with `-m slow` in every setting that it is for."""

import os
from pathlib import Path

import pytest

from conformance import postgres
from durable_conformance import Conformance

GAPS = Path(__file__).with_name("gaps.toml")
REPORT = Path(__file__).with_name("report.json")


class TestPostgres(Conformance):
    harness = postgres.PostgresHarness
    gaps = GAPS
    report = REPORT


@pytest.mark.slow
class TestSplitPostgres(Conformance):
    harness = postgres.SplitPostgresHarness
    gaps = GAPS


@pytest.mark.slow
class TestPartitioned(Conformance):
    harness = postgres.PartitionedHarness
    gaps = GAPS


@pytest.mark.slow
class TestRepeatableRead(Conformance):
    harness = postgres.RepeatableReadHarness
    gaps = GAPS


@pytest.mark.slow
class TestSerializable(Conformance):
    harness = postgres.SerializableHarness
    gaps = GAPS


@pytest.mark.slow
class TestPoolOfOne(Conformance):
    harness = postgres.PoolOfOneHarness
    gaps = GAPS


@pytest.mark.slow
class TestPgBouncer(Conformance):
    harness = postgres.PgBouncerHarness
    gaps = GAPS


@pytest.mark.slow
@pytest.mark.skipif(
    "citus" not in os.environ.get("DURABLE_TEST_POSTGRES_IMAGE", ""), reason="needs an image of Citus, and Docker"
)
class TestCitus(Conformance):
    harness = postgres.CitusHarness
    gaps = GAPS
