"""Keeps servers for a process that may be killed at any moment; run as a script, beside that process.

It starts servers when it is told to, and ends them, and removes their folders, once the process it works for is gone, however
that went. Orders come as lines on its standard input, each a JSON list of strings; each is answered by one line that begins with
`ok` or `error`.

    _keeper.py parent PID       until standard input ends, or the parent is no longer PID
    _keeper.py users FILE       until no process holds a lock on FILE; then it removes FILE and FILE.state

It imports as little as it can: every test run waits for it to start.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

_LINUX = sys.platform == "linux"
_LOOK_SECONDS = 0.2  # how often it looks whether it is still needed
_GRACE_SECONDS = 3.0  # how long a server may take to leave when nobody needs it any more
_VANISH_SECONDS = 10.0  # how long a killed process may take to vanish
_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # prctl(2)


def _parents() -> dict[int, int]:
    """Every process and its parent."""
    if not os.path.isdir("/proc/self"):
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, check=True).stdout
        return {int(pid): int(parent) for pid, parent in map(bytes.split, listing.splitlines())}
    found: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                # The command, in parentheses, may contain anything; the parent is the second field after it.
                found[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue
    return found


def _family(root: int) -> list[int]:
    """A process and all that descend from it, elders first."""
    parents = _parents()
    found = [root]
    for elder in found:
        found += [pid for pid, parent in parents.items() if parent == elder]
    return found


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Keeper:
    """The servers and the folders in its care."""

    def __init__(self, needed: Callable[[], bool], *, outlives_input: bool) -> None:
        self._needed, self._outlives_input = needed, outlives_input
        self._libc = ctypes.CDLL(None, use_errno=True) if _LINUX else None
        if self._libc is not None:
            self._libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)  # what outlives its server comes to us to be ended
        self._children: dict[int, tuple[subprocess.Popen[bytes], int]] = {}  # and the signal that tells each to leave at once
        self._codes: dict[int, int] = {}
        self._folders: list[str] = []
        self._wake, woken = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> None:
        """Takes orders until it is no longer needed, then ends everything."""
        sources = [0, self._wake]
        pending = b""
        while self._needed():
            ready = select.select(sources, [], [], _LOOK_SECONDS)[0]
            self._reap()
            if self._wake in ready:
                os.read(self._wake, 4096)
            if 0 in ready:
                got = os.read(0, 65536)
                if not got and not self._outlives_input:
                    break
                if not got:
                    sources.remove(0)
                *lines, pending = (pending + got).split(b"\n")
                for line in lines:
                    self._answer(line)
        self._end_all()

    def _answer(self, line: bytes) -> None:
        order: list[str] = json.loads(line)  # our own other end wrote it
        try:
            reply = f"ok {self._obey(*order)}"
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reply = f"error {error!r}"
        try:
            os.write(1, reply.replace("\n", " ").encode() + b"\n")
        except BrokenPipeError:
            return  # nobody to tell; `serve` sees that too

    def _obey(self, what: str, *arguments: str) -> str:
        if what == "spawn":
            return str(self._spawn(*arguments))
        if what == "folder":
            self._folders += arguments
            return ""
        pid = int(arguments[0])
        if what == "code":
            return str(self._codes.get(pid, ""))
        if pid not in self._children:
            raise ValueError(f"{pid} is no server of mine")
        if pid in self._codes:
            return ""
        if what == "family":
            return " ".join(map(str, _family(pid)))
        if what == "signal":
            _signal(_family(pid), int(arguments[1]))
        elif what == "end":
            self._end(pid, int(arguments[1]), float(arguments[2]))
        else:
            raise ValueError(f"unknown order {what}")
        return ""

    def _spawn(self, log: str, leave: str, user: str, group: str, environment: str, *command: str) -> int:
        with open(log, "ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",  # the server's user may have no access to the current folder
                env=dict(pair.split("=", 1) for pair in environment.split("\n") if pair),
                start_new_session=True,
                preexec_fn=self._die_with_me,
                user=int(user) if user else None,
                group=int(group) if user else None,
                extra_groups=[] if user else None,
            )
        self._children[child.pid] = (child, int(leave))
        self._codes.pop(child.pid, None)  # of a server that had this number before
        return child.pid

    def _die_with_me(self) -> None:
        """In the child, after it has changed its user: the kernel kills it when this process ends. Linux only."""
        if self._libc is not None:
            self._libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._children:
                self._codes[pid] = os.waitstatus_to_exitcode(status)

    def _vanished(self, pids: Iterable[int], seconds: float) -> bool:
        """Waits until none of them exists; answers whether that came about."""
        deadline = time.monotonic() + seconds
        left = list(pids)
        while True:
            self._reap()
            left = [pid for pid in left if _exists(pid)]
            if not left or time.monotonic() > deadline:
                return not left
            time.sleep(0.002)

    def _end(self, pid: int, number: int, grace: float) -> None:
        """Tells a server to leave and, where the grace is over, kills it with all its children; waits until they are gone."""
        family = _family(pid)
        if number != signal.SIGKILL:
            _signal([pid], number)
            _signal(family, signal.SIGCONT)
            if self._vanished([pid], grace):
                return
        _signal([pid], signal.SIGSTOP)  # so that it starts no more children while they are counted
        family = _family(pid)
        _signal(reversed(family), signal.SIGKILL)
        if not self._vanished(family, _VANISH_SECONDS):
            raise ValueError(f"{family} did not vanish")

    def _end_all(self) -> None:
        alive = [pid for pid in self._children if pid not in self._codes]
        for pid in alive:
            _signal([pid], self._children[pid][1])
            _signal(_family(pid), signal.SIGCONT)
        self._vanished(alive, _GRACE_SECONDS)
        while len(rest := _family(os.getpid())) > 1:
            _signal(rest[1:], signal.SIGKILL)
            self._vanished(rest[1:], _VANISH_SECONDS)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


def _serve_parent(pid: int) -> None:
    Keeper(lambda: os.getppid() == pid, outlives_input=False).serve()


def _serve_users(path: str) -> None:
    """The users hold read locks on the file; the write lock is to be had when none is left."""
    users = os.open(path, os.O_RDWR)

    def needed() -> bool:
        try:
            fcntl.lockf(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        for file in (f"{path}.state", path):  # under the lock: whoever comes now starts a server of their own
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)
        return False

    Keeper(needed, outlives_input=True).serve()


def main(who: str, which: str) -> None:
    """Serves until the process, or the processes, it works for are gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if who == "parent":
        _serve_parent(int(which))
    else:
        _serve_users(which)


if __name__ == "__main__":
    main(*sys.argv[1:])
