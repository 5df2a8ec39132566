"""What the examples' tests share."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run where `python -m examples.…` finds the examples."""
    monkeypatch.chdir(ROOT)


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The URL of a SQLite file that is not there yet."""
    return f"sqlite:///{tmp_path / 'store.db'}"
