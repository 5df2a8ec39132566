"""The SQLite store, whole and split, held to the contract."""

from pathlib import Path

from conformance.sqlite import SplitSqliteHarness, SqliteHarness
from durable_conformance import Conformance

GAPS = Path(__file__).with_name("gaps.toml")
REPORT = Path(__file__).with_name("report.json")


class TestSqlite(Conformance):
    harness = SqliteHarness
    gaps = GAPS
    report = REPORT


class TestSplitSqlite(Conformance):
    harness = SplitSqliteHarness
    gaps = GAPS
    report = REPORT
