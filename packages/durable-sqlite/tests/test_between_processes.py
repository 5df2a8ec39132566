"""The two small things that processes share: a turn, and a look at the log."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from durable_sqlite import _watch
from durable_sqlite._turnstile import Turnstile
from durable_sqlite._watch import FileWatch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of the watch, in a list of one."""
    now = [time.monotonic()]
    monkeypatch.setattr(_watch, "time", SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns))
    return now


def turnstile(path: Path, patience: float = 30.0) -> Turnstile:
    made = Turnstile(str(path), patience)
    made.open()
    return made


def test_turnstile_lets_others_in(path: Path) -> None:
    """One who takes its turn again and again gives way to one who waits, each time."""
    greedy, patient = turnstile(path), turnstile(path)
    done = threading.Event()
    turns = [0]

    def loop() -> None:
        while not done.is_set():
            greedy.enter()
            turns[0] += 1
            greedy.leave()

    thread = threading.Thread(target=loop)
    thread.start()
    for _ in range(20):
        patient.enter()
        assert "held" in repr(patient)
        before = turns[0]
        time.sleep(0)
        assert turns[0] == before
        patient.leave()
    done.set()
    thread.join()
    greedy.close()
    patient.close()


def test_turnstile_goes_ahead_without_one_who_is_frozen(path: Path) -> None:
    """Who waits for long goes without, and for a while does not ask again; nothing waits for ever."""
    frozen, waiting = turnstile(path), turnstile(path, patience=0.01)
    frozen.enter()
    for _ in range(3):
        waiting.enter()
        assert "held" not in repr(waiting)
        waiting.leave()
    frozen.leave()
    waiting.enter()
    assert "held" in repr(waiting)
    waiting.leave()
    frozen.close()
    waiting.close()


def test_turnstile_that_cannot_be_opened_lets_everybody_through(tmp_path: Path) -> None:
    """Without a file there is no fairness, and everything else works."""
    made = turnstile(tmp_path / "not there" / "turn")
    made.enter()
    made.leave()
    made.close()


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def long_ago(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def test_watch_says_when_the_log_changed(path: Path, clock: list[float]) -> None:
    """A change is a reason to look, at the next poll; in between the file is not asked."""
    log_of(path).write_bytes(b"one")
    long_ago(log_of(path))
    watch = FileWatch(str(path))
    watch.begin()
    for _ in range(10):
        clock[0] += _watch.POLL
        assert not watch.poll()
    log_of(path).write_bytes(b"two")
    assert not watch.poll()
    clock[0] += _watch.POLL
    assert watch.poll()
    assert not watch.poll()


def test_watch_looks_again_after_a_change(path: Path, clock: list[float]) -> None:
    """The commit may be visible later than the log's change: some looks follow at growing pauses, then one every few seconds."""
    log_of(path).write_bytes(b"one")
    watch = FileWatch(str(path))
    watch.begin()
    looks: list[float] = []
    began = clock[0]
    while clock[0] < began + 12:
        clock[0] += _watch.POLL
        if watch.poll():
            looks.append(clock[0] - began)
    assert 8 <= len(looks) <= 10
    assert looks[0] < 0.05
    assert sum(look < 1.5 for look in looks) == 6


def test_watch_of_a_log_that_comes_and_goes(path: Path, clock: list[float]) -> None:
    """Where there is no log the file itself is looked at; that either appears is a change."""
    watch = FileWatch(str(path))
    watch.begin()
    for change in (
        lambda: path.write_bytes(b"file"),
        lambda: log_of(path).write_bytes(b"log"),
        lambda: log_of(path).unlink(),
    ):
        long_gone = clock[0]
        clock[0] = long_gone + 30
        watch.begin()
        change()
        clock[0] += _watch.POLL
        assert watch.poll()
