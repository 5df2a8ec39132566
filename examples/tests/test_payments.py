"""The payments example from end to end, with real processes."""

import subprocess
import sys

import pytest


@pytest.mark.timing
def test_the_example_runs_and_its_books_balance(store: str) -> None:
    """The one command submits, kills, approves, and ends with balanced books and exit code zero."""
    command = [sys.executable, "-m", "examples.payments", "--orders", "12", "--seed", "7", "--store", store]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("The books balance.\n")
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 1
    assert "take another seed" in again.stderr
