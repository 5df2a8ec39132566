"""A worker process killed at every await of its passes, enumerated, and a fresh one that goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs fork and SIGKILL")

ENDED = "Finished(value=['piano', 'quoted done', 'left done', 'right done', 'yes', 'hello'])"
EFFECTS = {"quoted", "left", "right", "sent"}


@pytest.mark.timeout(600)
def test_a_worker_killed_at_every_await_loses_no_record_and_applies_no_effect_twice(tmp_path: Path) -> None:
    """[RUN-STEP] [CKP-TRANSACT-ONCE] Every record that was there is kept, in place; no step that was recorded runs again."""
    child = [sys.executable, str(Path(__file__).with_name("worker_child.py")), str(tmp_path)]
    lines = subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    statuses = {int(number): int(status) for number, status in (line.split() for line in lines)}
    assert set(statuses.values()) == {0}
    assert len(statuses) > 60
    kept: set[int] = set()
    for number in statuses:
        folder = tmp_path / str(number)
        said = json.loads((folder / "said").read_text())
        before, after = list(said["before"].items()), list(said["after"].items())
        assert said["ended"] == ENDED
        assert after[: len(before)] == before
        assert said["rows"] == 2
        log = [line.split() for line in (folder / "log").read_text().splitlines()]
        assert not {key for who, key in log if who == "heir"} & dict(before).keys()
        assert {key for _, key in log} == EFFECTS
        kept.add(len(before))
    assert len(kept) > 8  # the kills fell between all records
