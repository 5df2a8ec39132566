"""The memory double, whole and split, held to the contract."""

from pathlib import Path

from conformance.memory import MemoryHarness, SplitMemoryHarness
from durable_conformance import Conformance

GAPS = Path(__file__).with_name("gaps.toml")
REPORT = Path(__file__).with_name("report.json")


class TestMemory(Conformance):
    harness = MemoryHarness
    gaps = GAPS
    report = REPORT


class TestSplitMemory(Conformance):
    harness = SplitMemoryHarness
    gaps = GAPS
    report = REPORT
