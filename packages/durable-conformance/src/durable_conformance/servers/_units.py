"""A running server as a thing that can be started, ended, killed and paused; and our end of the keeper that outlives us."""

from __future__ import annotations

import atexit
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_SCRIPT = Path(__file__).with_name("_keeper.py")
_PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}


class DidNotStart(Exception):
    """A server that was found does not start.

    Args:
        what: the server.
        why: what was seen.
        log: the end of what it wrote, for the reader.
    """

    def __init__(self, what: str, why: str, log: str) -> None:
        super().__init__(what, why, log)
        self.what, self.why, self.log = what, why, log

    def __str__(self) -> str:
        return f"{self.what} did not start: {self.why}\n{self.log}".rstrip()

    @property
    def port_taken(self) -> bool:
        """Whether another process had taken its port."""
        return "already in use" in self.log.lower()


class Unit(Protocol):
    """One server: a process of our own, or a container."""

    def start(self) -> None:
        """Starts it, on what it left behind if it ran before; it need not be ready when this returns."""

    def exited(self) -> str | None:
        """How it ended, or None while it runs."""

    def end(self, grace: float) -> None:
        """Tells it to leave in order, kills it when the grace (seconds) is over, and returns when it is gone."""

    def kill(self) -> None:
        """Kills it and its children with SIGKILL, and returns when they are gone."""

    def pause(self) -> None:
        """Stops it and its children with SIGSTOP."""

    def resume(self) -> None:
        """Lets them run again."""

    def remove(self) -> None:
        """Ends it for good, with its data."""

    def pids(self) -> tuple[int, ...]:
        """Its processes, the server first; none when it is not running, or not on this machine."""
        ...

    def log(self) -> str:
        """The end of what it wrote."""
        ...


class Keeper:
    """Our end of the keeper's process (see `_keeper.py`).

    Args:
        users: a file; the keeper serves as long as any process holds a read lock on it. Without, it serves this process.
    """

    def __init__(self, users: Path | None = None) -> None:
        task = ["parent", str(os.getpid())] if users is None else ["users", str(users)]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(_SCRIPT), *task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,  # Ctrl-C in the terminal is for the tests
        )
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self.copies: dict[Path, Path] = {}
        """Programs that had to be copied to where the servers' user can read them, and the copies."""

    @property
    def pid(self) -> int:
        """The keeper's own process."""
        return self._process.pid

    def ask(self, *order: str) -> str:
        """Gives an order and returns the answer.

        Raises:
            RuntimeError: the keeper could not do it, or is gone.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(order).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise RuntimeError("the keeper of the servers is gone") from None
            verdict, _, answer = self._process.stdout.readline().decode().rstrip("\n").partition(" ")
        if verdict != "ok":
            raise RuntimeError(answer or "the keeper of the servers is gone")
        return answer

    def make_folder(self, name: str, within: Path | None = None) -> Path:
        """Makes a folder that every user of the machine may pass through, and that goes when the keeper goes."""
        folder = Path(tempfile.mkdtemp(prefix=f"durable-{name}-", dir=within or _open_temporary_folder()))
        self.ask("folder", str(folder))
        folder.chmod(0o755)
        return folder

    def leave(self) -> None:
        """Lets go of it: a keeper for users goes on without us."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.returncode = 0  # no longer ours to wait for, nor to be warned of

    def close(self) -> None:
        """Ends its servers, removes its folders, and returns when it is gone. Does nothing in a forked child."""
        if os.getpid() != self._owner:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


_keepers: dict[int, Keeper] = {}
_keepers_lock = threading.Lock()


def own_keeper() -> Keeper:
    """The keeper that serves this process. A forked child gets its own."""
    with _keepers_lock:
        keeper = _keepers.get(os.getpid())
        if keeper is None:
            keeper = _keepers[os.getpid()] = Keeper()
            atexit.register(keeper.close)
        return keeper


def open_to_others(path: Path) -> bool:
    """Whether any user may read this file, or pass through this folder, and through every folder above it."""
    needed = 0o005 if path.is_file() else 0o001
    return path.stat().st_mode & needed == needed and all(above.stat().st_mode & 0o001 for above in path.resolve().parents)


def _open_temporary_folder() -> Path:
    usual = Path(tempfile.gettempdir())
    if os.geteuid() != 0:
        return usual  # the servers run as ourselves
    candidates = [usual, Path("/tmp"), Path("/var/tmp")]
    return next((folder for folder in candidates if folder.is_dir() and open_to_others(folder)), usual)


@dataclass(frozen=True, slots=True)
class Account:
    """The user and the group that a server runs as."""

    uid: int
    gid: int


def servers_account() -> Account | None:
    """Whom a server runs as that refuses to be root, where we are: nobody, who owns nothing that a test could damage."""
    if os.geteuid() != 0:
        return None
    for name in ("nobody", "postgres"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise LookupError("the server refuses to run as root, and there is no user `nobody`")


@dataclass(slots=True)
class Process:
    """A server process that the keeper started."""

    keeper: Keeper
    command: Sequence[str]
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    account: Account | None = None
    orderly: signal.Signals = signal.SIGTERM
    """What tells it to leave in order."""
    at_once: signal.Signals = signal.SIGKILL
    """What tells it to leave at once, when nobody needs its data any more."""
    _pid: int | None = None

    @property
    def _log_file(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        user, group = (str(self.account.uid), str(self.account.gid)) if self.account else ("", "")
        environment = "\n".join(f"{name}={value}" for name, value in {**_PLAIN, **self.env}.items())
        order = ("spawn", str(self._log_file), str(int(self.at_once)), user, group, environment, *self.command)
        self._pid = int(self.keeper.ask(*order))

    def exited(self) -> str | None:
        if self._pid is None:
            return "it was never started"
        code = self.keeper.ask("code", str(self._pid))
        return f"its process ended with {code}" if code else None

    def end(self, grace: float) -> None:
        if self._pid is not None:
            self.keeper.ask("end", str(self._pid), str(int(self.orderly)), str(grace))

    def kill(self) -> None:
        if self._pid is not None:
            self.keeper.ask("end", str(self._pid), str(int(signal.SIGKILL)), "0")

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        if self._pid is not None:
            self.keeper.ask("end", str(self._pid), str(int(self.at_once)), "3")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._pid is not None:
            self.keeper.ask("signal", str(self._pid), str(int(number)))

    def pids(self) -> tuple[int, ...]:
        if self._pid is None:
            return ()
        return tuple(map(int, self.keeper.ask("family", str(self._pid)).split()))

    def log(self) -> str:
        if not self._log_file.exists():
            return ""
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-20:])
