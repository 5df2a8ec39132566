"""One server for all processes of a test run, kept as long as one of them uses it."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from durable_conformance.servers._cluster import Cluster, start_cluster
from durable_conformance.servers._find import Image, Kind, find
from durable_conformance.servers._pgwire import QueryError, query
from durable_conformance.servers._postgres import start_postgres
from durable_conformance.servers._redis import persistence, start_redis, version_of
from durable_conformance.servers._resp import ReplyError
from durable_conformance.servers._server import Address, Server
from durable_conformance.servers._units import DidNotStart, Keeper, own_keeper

Shareable = Literal["postgres", "redis", "valkey", "redis-cluster", "valkey-cluster"]
SHAREABLE: tuple[Shareable, ...] = ("postgres", "redis", "valkey", "redis-cluster", "valkey-cluster")

_PROGRAMS: Mapping[Shareable, Kind] = {
    "postgres": "postgres",
    "redis": "redis",
    "valkey": "valkey",
    "redis-cluster": "redis",
    "valkey-cluster": "valkey",
}


@dataclass(slots=True)
class _Use:
    """This process' use of a shared server."""

    address: Address
    let_go: Callable[[], None]
    holders: int = 0


_uses: dict[tuple[int, Shareable], _Use] = {}
_uses_lock = threading.Lock()


@contextmanager
def shared(kind: Shareable) -> Generator[Address]:
    """Gives a server that every process of this test run uses, be it with pytest-xdist or without.

    The server at `DURABLE_TEST_<KIND>_URL` where that is set, and otherwise one that is started for the run, with the safe
    settings, and ends soon after the last process that uses it has let go of it or was killed. It cannot be killed or paused:
    others depend on it. Use `fresh_database` or `fresh_namespace` to keep out of their way.

    Raises:
        NoServer: there is nothing to start it from.
        DidNotStart: it was found and does not start, or the URL leads nowhere.
    """
    mine = (os.getpid(), kind)
    with _uses_lock:
        use = _uses.get(mine)
        if use is None:
            use = _uses[mine] = _begin(kind)
        use.holders += 1
    try:
        yield use.address
    finally:
        with _uses_lock:
            use.holders -= 1
            if not use.holders:
                del _uses[mine]
                use.let_go()


def given(kind: Shareable, environ: Mapping[str, str] = os.environ) -> Address | None:
    """The server that the environment names, which must answer.

    Raises:
        DidNotStart: it does not.
    """
    variable = f"DURABLE_TEST_{kind.upper().replace('-', '_')}_URL"
    url = environ.get(variable)
    if not url or environ.get("DURABLE_TEST_SERVERS") == "docker":
        return None
    try:
        return Address(kind, url, _version_at(kind, url), variable)
    except (OSError, QueryError, ReplyError) as error:
        raise DidNotStart(f"{kind} at {variable}", f"{type(error).__name__}: {error}", "") from error


def _version_at(kind: Shareable, url: str) -> str:
    if kind == "postgres":
        return str(query(url, "SHOW server_version")[0][0]).split()[0]
    return version_of(url)


def _begin(kind: Shareable) -> _Use:
    address = given(kind)
    if address is not None:
        return _Use(address, lambda: None)
    if isinstance(find(_PROGRAMS[kind]), Image):
        server = _start(kind, own_keeper())  # a container lives as long as the process that started it: it is not to be shared
        return _Use(server.address, server.remove)
    folder = _meeting_place()
    with _locked(folder / f"{kind}.starting"):
        return _join(kind, folder / f"{_run()}-{kind}")


def _join(kind: Shareable, users: Path) -> _Use:
    """Uses the server that another process of the run started, or starts it. One process at a time is in here."""
    lock = _become_user(users)  # closing any descriptor of the file would lose it, so there is no other
    state = users.with_name(f"{users.name}.state")
    try:
        address = _read(kind, state)
        if address is None:
            keeper = Keeper(users)
            try:
                address = _start(kind, keeper).address
            finally:
                keeper.leave()
            state.write_text(json.dumps(asdict(address)))
    except BaseException:
        os.close(lock)
        raise
    return _Use(address, lambda: os.close(lock))


def _become_user(users: Path) -> int:
    """Takes a read lock on the file, and makes sure that it still is the file of that name: the last keeper removes it."""
    while True:
        lock = os.open(users, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.lockf(lock, fcntl.LOCK_SH)
        try:
            if os.stat(users).st_ino == os.fstat(lock).st_ino:
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)


def _read(kind: Shareable, state: Path) -> Address | None:
    """The server that is there, if it still answers: its keeper may have been killed."""
    try:
        written: dict[str, str] = json.loads(state.read_text())  # by `_join`, from an Address
        address = Address(**written)
        _version_at(kind, address.url)
    except (OSError, ValueError, QueryError, ReplyError):
        return None
    return address


def _start(kind: Shareable, keeper: Keeper) -> Server | Cluster:
    if kind == "postgres":
        return start_postgres(keeper, settings={})
    program = find(_PROGRAMS[kind])
    if kind in ("redis", "valkey"):
        return start_redis(keeper, program, config=persistence(appendonly=True, appendfsync="always"))
    patient = {"cluster-node-timeout": "15000"}  # no failover because the machine was busy for a moment
    return start_cluster(keeper, program, masters=3, replicas=3, config=patient)


def _run() -> str:
    """What the processes of one test run have in common, and no other process has."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())


def _meeting_place() -> Path:
    """A folder of ours where processes of a run find one another.

    Raises:
        PermissionError: somebody else made it.
    """
    folder = Path(tempfile.gettempdir()) / f"durable-servers-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{folder} belongs to somebody else")
    return folder


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
