"""The memory double, whole and split, held to the contract."""

from pathlib import Path

from conformance.memory import MemoryHarness, SplitMemoryHarness
from durable_conformance import Conformance

GAPS = Path(__file__).with_name("gaps.toml")


class TestMemory(Conformance):
    harness = MemoryHarness
    gaps = GAPS


class TestSplitMemory(Conformance):
    harness = SplitMemoryHarness
    gaps = GAPS
