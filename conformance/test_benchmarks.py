"""The benchmarks run: what they say is not a test's matter."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_benchmark_of_sqlite_prints_its_ratios() -> None:
    """One round of the small sizes gives every figure, for both levels of safety."""
    command = [sys.executable, "-m", "conformance.benchmarks.sqlite", "--quick", "--rounds", "1"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert found.count("ratio") == 8
