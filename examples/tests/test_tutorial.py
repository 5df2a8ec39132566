"""The tutorial's program does what the tutorial shows, kill included."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs/tutorial/first-workflow.md").read_text()
PROGRAM = "\n\n".join(re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))
SHOWN = re.findall(r"^```console\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def tea(tmp_path: Path) -> Iterator[list[str]]:
    """Give the command that the tutorial types, in a folder of its own."""
    Path(tmp_path, "tea.py").write_text(PROGRAM)
    here = os.getcwd()
    os.chdir(tmp_path)
    yield [sys.executable, "tea.py"]
    os.chdir(here)


def said(shown: str) -> str:
    """Give what the tutorial shows but for the commands."""
    return "".join(line for line in shown.splitlines(keepends=True) if not line.startswith("$"))


def run(command: list[str]) -> str:
    """Run to the end."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout


def test_the_tutorial_runs_once_and_then_knows_the_outcome(tea: list[str]) -> None:
    """The first two outputs."""
    assert [run(tea), run(tea)] == [said(SHOWN[0]), said(SHOWN[1])]


def test_the_tutorial_goes_on_after_kill_9(tea: list[str]) -> None:
    """The next two, killed while it steeps and taken up again; and the records in the end."""
    killed = subprocess.Popen(tea, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    before = killed.stdout.readline() + killed.stdout.readline()
    killed.send_signal(signal.SIGKILL)
    assert (killed.wait(), killed.stdout.read()) == (-signal.SIGKILL, "")
    killed.stdout.close()
    assert [before, run(tea)] == [said(SHOWN[2]), said(SHOWN[3])]
    with closing(sqlite3.connect("tea.db")) as file:
        (query,) = re.findall(r'"(.*)"', SHOWN[4].splitlines()[0])
        assert "".join(f"{key}|{value}\n" for key, value in file.execute(query)) == said(SHOWN[4])
